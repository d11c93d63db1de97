"""CMSIS-NN as the registry of backends knows it: its code is loaded where a compilation asks for it."""

from pathlib import Path

from emitc.backends.contract import Backend, BackendDef, Coverage, Settings
from emitc.errors import EmitcError, Where

NAME = "cmsis-nn"
OPTION = "--cmsis-nn"


def _open(settings: Settings) -> Backend | None:
    path = settings.value(NAME)
    if settings.kernels not in (NAME, "auto") or (settings.kernels == "auto" and not path):
        return None
    if not path:
        why = "buffer sizes and interfaces differ between its versions, and are read from its headers"
        hint = f"{OPTION} PATH, the folder that has its Include and Source"
        raise EmitcError("the path of CMSIS-NN is not given", Where(option=f"--kernels {NAME}"), why, hint)
    from emitc.backends.cmsis_nn.backend import CmsisNn

    backend = CmsisNn(Path(path), settings.target)
    _ = backend.library
    return backend


def _covers() -> tuple[Coverage, ...]:
    from emitc.backends.cmsis_nn.lowering import covers

    return covers()


BACKEND = BackendDef(NAME, "calls of Arm's kernel library for Cortex-M", _open, kernels=True, covers=_covers)
