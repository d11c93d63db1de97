"""CMSIS-NN as the registry of backends knows it: its code is loaded where a compilation asks for it."""

from emitc.backends.contract import Backend, BackendDef, Settings, covers_of

NAME = "cmsis-nn"
OPTION = "--cmsis-nn"


def _open(settings: Settings) -> Backend | None:
    why = "buffer sizes and interfaces differ between its versions, and are read from its headers"
    path = settings.library(NAME, "CMSIS-NN", why, "Include and Source")
    if path is None:
        return None
    from emitc.backends.cmsis_nn.backend import CmsisNn

    backend = CmsisNn(path, settings.target)
    _ = backend.library
    return backend


_SUMMARY = "calls of Arm's kernel library for Cortex-M"
BACKEND = BackendDef(NAME, _SUMMARY, _open, kernels=True, covers=covers_of("emitc.backends.cmsis_nn.lowering"))
