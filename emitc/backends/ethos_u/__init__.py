"""Arm Ethos-U55 and Ethos-U65: regions of the graph as command streams of vela, and the calls of the driver."""

from __future__ import annotations

from emitc.backends.ethos_u.backend import BACKEND

__all__ = ["BACKEND"]
