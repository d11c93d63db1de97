"""emitc's own kernels as the registry of backends knows them."""

from emitc.backends.contract import PORTABLE, BackendDef
from emitc.backends.portable.backend import Portable

BACKEND = BackendDef(PORTABLE, "emitc's own kernels, for every core", Portable, kernels=True)
