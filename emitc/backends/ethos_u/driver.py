"""What every use of the Ethos-U needs: Arm's driver, called by one function, its stand-ins, and the host model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emitc.backends.contract import Backend, HostHook
from emitc.backends.ethos_u.definition import NAME
from emitc.backends.ethos_u.playback import Bytes, Call, source
from emitc.errors import EmitcError, Where
from emitc.program import Program, Requirement
from emitc.target import BuildSupport, Target

_C = Path(__file__).resolve().parent / "c"


@dataclass(frozen=True, slots=True)
class Edge:
    """Bytes that a call reads or writes, at an offset of a region of the driver.

    They are those of a tensor from `first` on; size: how many, None for all.
    """

    tensor: str
    region: int
    offset: int
    first: int = 0
    size: int | None = None

    def of(self, run: Mapping[str, bytes]) -> Bytes:
        """The edge's bytes in one run. run: the bytes of every tensor, by name."""
        data = run[self.tensor]
        end = len(data) if self.size is None else self.first + self.size
        return Bytes(self.region, self.offset, data[self.first : end])


Placed = tuple[Edge, ...]
"""One side of a call."""


class Driven(Backend):
    """A backend whose layers call the driver. edges: inputs and outputs of each call, by index of its node."""

    name = NAME
    alignment = 32

    def __init__(self, driver: str) -> None:
        """driver: the folder of Arm's driver, "" where it is not known."""
        self._driver = driver
        self.edges: dict[int, tuple[Placed, Placed]] = {}

    def requirement(self, program: Program) -> Requirement:
        """The driver, called by one function that an application may replace."""
        what, cmake = ("Arm Ethos-U core driver", "1.0 or later", "Apache-2.0"), "ethosu_core_driver"
        return Requirement(NAME, *what, ("emitc_npu.h",), cmake=cmake, zephyr=("ARM_ETHOS_U",))

    def files(self, program: Program) -> Mapping[str, str]:
        return {name: (_C / name).read_text(encoding="ascii") for name in ("emitc_npu.h", "emitc_npu.c")}

    def recorded(self, program: Program, runs: Sequence[Mapping[str, bytes]]) -> Mapping[str, str]:
        """The driver's function, playing back the host model."""
        calls = []
        tables = {c.name: c.table.values for step in program.steps for c in step.constants}
        for step in program.steps:
            if step.backend != NAME or step.call is None:
                continue
            payload = tables[step.tables["payload"]]
            edges = self.edges[step.index]
            for run in runs:
                inputs, outputs = (tuple(edge.of(run) for edge in side) for side in edges)
                calls.append(Call(bytes(int(v) for v in payload), inputs, outputs))
        return {"emitc_npu.c": source(tuple(dict.fromkeys(calls)))}

    def support(self, program: Program, target: Target) -> BuildSupport:
        """On this machine the stand-in for the driver; for others its header where --ethosu-driver names it."""
        if target.compiler_prefix:
            return BuildSupport((), (_header_folder(Path(self._driver)) if self._driver else _C / "stub",))
        return BuildSupport((_C / "host" / "ethosu_host.c",), (_C / "stub",))

    def host_hooks(self) -> tuple[HostHook, ...]:
        """`ethosu_invoke_v3` of the stand-in, routed into the host model."""
        # Imported here: the host model is loaded only where it runs.
        from emitc.ethosu.driver import host_callback

        declaration = (
            "void emitc_host_set_npu(int (*function)(const void *payload, int payload_bytes, const uint64_t *bases,"
            " const size_t *sizes, int count));"
        )
        signature = "int(const void *, int, const uint64_t *, const size_t *, int)"
        return (HostHook(declaration, "emitc_host_set_npu", signature, host_callback()),)


def _header_folder(path: Path) -> Path:
    for folder in (path, path / "include"):
        if (folder / "ethosu_driver.h").is_file():
            return folder
    what = "there is no driver for the Ethos-U at this path"
    why = "neither it nor its folder include has ethosu_driver.h"
    raise EmitcError(what, Where(option=f"--ethosu-driver {path}"), why, "give the folder of Arm's Ethos-U core driver")
