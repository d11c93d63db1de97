"""CMSIS-NN, Arm's kernel library for Cortex-M: what its versions offer and need, as data, and operators as its calls."""

from __future__ import annotations

from emitc.backends.cmsis_nn.backend import BACKEND

__all__ = ["BACKEND"]
