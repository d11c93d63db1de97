"""The accelerators that `--npu` names, and what the backend adds to the command line. Nothing is imported that takes time."""

from collections.abc import Mapping

from emitc.backends import BackendOption
from emitc.records import dataclass


@dataclass(frozen=True, slots=True)
class Accelerator:
    """vela's architecture name, multiply-accumulates per cycle, default system configuration and memory modes."""

    architecture: str
    macs: int
    system: str
    memories: tuple[str, ...]


U55 = ("Shared_Sram", "Sram_Only")
U65 = ("Dedicated_Sram", "Shared_Sram", "Sram_Only")
ACCELERATORS: Mapping[str, Accelerator] = {
    **{f"ethos-u55-{n}": Accelerator("EthosU55", n, "Ethos_U55_High_End_Embedded", U55) for n in (32, 64, 128, 256)},
    "ethos-u65-256": Accelerator("EthosU65", 256, "Ethos_U65_High_End", U65),
}
"""By the name that `--npu` takes. The first memory mode is the default."""
OPTIONS = (
    BackendOption("npu", "the accelerator that runs what it can.", "NAME", tuple(ACCELERATORS)),
    BackendOption("npu-memory", "where vela keeps constants and scratch.", "MODE", U65),
    BackendOption("npu-optimise", "what vela is to save.", "WHAT", ("speed", "size"), "speed"),
    BackendOption("npu-always", "Take regions also where they do not pay.", ""),
    BackendOption("allow-npu-rounding", "Give ONNX models to the NPU too, which rounds as TensorFlow Lite does.", ""),
    BackendOption("ethosu-driver", "Arm's driver: the folder with ethosu_driver.h, for boards.", "PATH"),
)
