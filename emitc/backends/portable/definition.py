"""emitc's own kernels as the registry of backends knows them."""

from __future__ import annotations

from emitc.backends.contract import PORTABLE, Backend, BackendDef, Settings
from emitc.backends.portable.backend import Portable


def _open(settings: Settings) -> Backend:
    return Portable(settings.target, settings.variants, small=settings.small)


BACKEND = BackendDef(PORTABLE, "emitc's own kernels, for every core", _open, kernels=True)
