"""ESP-NN as the registry of backends knows it: its code is loaded where a compilation asks for it."""

from pathlib import Path

from emitc.backends.contract import Backend, BackendDef, Coverage, Settings
from emitc.errors import EmitcError, Where

NAME = "esp-nn"
OPTION = "--esp-nn"


def _open(settings: Settings) -> Backend | None:
    path = settings.value(NAME)
    if settings.kernels not in (NAME, "auto") or (settings.kernels == "auto" and not path):
        return None
    if not path:
        why = "the sizes of its buffers differ between its versions, and its manifest names the version"
        hint = f"{OPTION} PATH, the folder that has its include and src"
        raise EmitcError("the path of ESP-NN is not given", Where(option=f"--kernels {NAME}"), why, hint)
    from emitc.backends.esp_nn.backend import EspNn

    return EspNn(Path(path), settings.target)


def _covers() -> tuple[Coverage, ...]:
    from emitc.backends.esp_nn.lowering import covers

    return covers()


BACKEND = BackendDef(NAME, "Espressif's kernel library for its chips", _open, kernels=True, covers=_covers)
