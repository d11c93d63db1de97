"""A model's own test on a board: what it said, and what it costs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emitc.boards.elf import symbol_bytes
from emitc.boards.protocol import Transcript
from emitc.boards.run_model import RunModel
from emitc.program.members import members

_PREFIX = "self_test_"
_INPUTS = "self_test_input_"


@dataclass(frozen=True, slots=True)
class SelfTestResult:
    """status: an emitc_status. part, index: of the first fault. count: of one call, in the unit of the run. flash_bytes: its
    functions, tables and names, without the calls in run() and without its stored inputs, which are input_bytes.
    """

    status: int
    part: int
    index: int
    count: int | None
    stack_bytes: int | None
    flash_bytes: int
    input_bytes: int

    @property
    def passed(self) -> bool:
        """Whether the test found no fault."""
        return self.status == 0

    def as_json(self, unit: str) -> dict[str, Any]:
        """What `emitc run --json` adds. unit: of the count."""
        stated = members(self, f"passed status layer=index {unit}=count stack_bytes flash_bytes input_bytes")
        return stated | ({"layer": None} if self.passed else {})


def self_test_of(model: RunModel, transcript: Transcript, count: int | None, image: Path) -> SelfTestResult | None:
    """The result of the model's own test, None where it has none. count: of one call. image: whose symbols tell its flash."""
    line = transcript.self_test
    if line is None:
        return None
    own = f"{model.name}_self_test"
    sizes = symbol_bytes(image, lambda name: name == own or name.startswith(_PREFIX))
    inputs = sum(size for name, size in sizes.items() if name.startswith(_INPUTS))
    flash = sum(sizes.values()) - inputs + model.self_test
    return SelfTestResult(line.status, line.part, line.index, count, line.stack_bytes, flash, inputs)
