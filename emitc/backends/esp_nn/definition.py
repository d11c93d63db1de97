"""ESP-NN as the registry of backends knows it: its code is loaded where a compilation asks for it."""

from emitc.backends.contract import Backend, BackendDef, Settings, covers_of

NAME = "esp-nn"


def _open(settings: Settings) -> Backend | None:
    why = "the sizes of its buffers differ between its versions, and its manifest names the version"
    path = settings.library(NAME, "ESP-NN", why, "include and src")
    if path is None:
        return None
    from emitc.backends.esp_nn.backend import EspNn

    return EspNn(path, settings.target)


_SUMMARY = "Espressif's kernel library for its chips"
BACKEND = BackendDef(NAME, _SUMMARY, _open, kernels=True, covers=covers_of("emitc.backends.esp_nn.lowering"))
