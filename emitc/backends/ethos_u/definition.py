"""The Ethos-U as the registry of backends knows it: its code is loaded where a compilation asks for it."""

from emitc.backends.contract import Backend, BackendDef, Settings, covers_of
from emitc.errors import EmitcError, Where
from emitc.kernels.npu.npu_command import NpuCommand

NAME = "ethos-u"


def _open(settings: Settings) -> Backend | None:
    chosen = settings.value("npu")
    if NpuCommand in settings.operators:
        if chosen:
            what, why = "the model is compiled for an NPU already", "vela has written the file"
            hint = "leave the option out, or give the file that vela has read"
            raise EmitcError(what, Where(option=f"--npu {chosen}"), why, hint)
        from emitc.backends.ethos_u.precompiled import Commands

        return Commands(settings.value("ethosu-driver"))
    if not chosen:
        return None
    from emitc.backends.ethos_u.backend import EthosU
    from emitc.backends.ethos_u.options import ACCELERATORS

    # What the core would need for a node decides whether a region pays.
    from emitc.backends.portable.backend import Portable

    return EthosU(settings, ACCELERATORS[chosen], Portable(Settings(settings.target)).cost)


_SUMMARY = "regions on Arm's Ethos-U55 and Ethos-U65, compiled by vela"
BACKEND = BackendDef(NAME, _SUMMARY, _open, kernels=False, covers=covers_of("emitc.backends.ethos_u.export_tflite"))
