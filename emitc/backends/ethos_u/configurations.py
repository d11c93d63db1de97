"""The accelerators that `--npu` names, with what vela calls them. Nothing is imported that takes time."""

from collections.abc import Mapping
from dataclasses import dataclass


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
    **{
        f"ethos-u55-{macs}": Accelerator("EthosU55", macs, "Ethos_U55_High_End_Embedded", U55)
        for macs in (32, 64, 128, 256)
    },
    "ethos-u65-256": Accelerator("EthosU65", 256, "Ethos_U65_High_End", U65),
}
"""By the name that `--npu` takes. The first memory mode is the default."""
