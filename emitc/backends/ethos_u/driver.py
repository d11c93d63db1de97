"""What every use of the Ethos-U needs: Arm's driver, called by one function, its stand-ins, and the host model.

For a board without an NPU `emitc_npu_invoke` plays back what the host model has computed, for the inputs that it knows. Each call
is recognised by its command stream and by all bytes of its inputs; unknown ones fail. So a board proves that the core's part
computed exactly what the NPU got on the host. It goes on with what the host model answered.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from emitc.backends.contract import Backend, HostHook
from emitc.backends.ethos_u.definition import NAME
from emitc.errors import EmitcError, Where
from emitc.program import Program, Requirement
from emitc.records import dataclass
from emitc.target import BuildSupport, Target

_PER_LINE = 24
_SEED, _PRIME, _MASK = 2166136261, 16777619, 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes of one tensor, at an offset in one of the driver's regions."""

    base: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the driver, as the host model answered it."""

    payload: bytes
    inputs: tuple[Bytes, ...]
    outputs: tuple[Bytes, ...]


def checksum(data: bytes) -> int:
    """FNV-1a, 32 bits."""
    value = _SEED
    for byte in data:
        value = (value ^ byte) * _PRIME & _MASK
    return value


def _array(name: str, data: bytes) -> str:
    rows = [", ".join(map(str, data[i : i + _PER_LINE])) for i in range(0, len(data), _PER_LINE)]
    return f"static const uint8_t {name}[{len(data)}] = {{\n    " + ",\n    ".join(rows) + ",\n};\n"


def source(calls: Sequence[Call]) -> str:
    arrays: list[str] = []
    parts: list[str] = []
    rows: list[str] = []
    for number, call in enumerate(calls):
        first = len(parts)
        for kind, group in (("in", call.inputs), ("out", call.outputs)):
            for i, recorded in enumerate(group):
                name = f"call_{number}_{kind}_{i}"
                arrays.append(_array(name, recorded.data))
                parts.append(f"{{{name}, {len(recorded.data)}u, {recorded.base}, {recorded.offset}u}}")
        rows.append(
            f"{{{checksum(call.payload)}u, {len(call.payload)}u, {first}, {len(call.inputs)}, {len(call.outputs)}}}"
        )
    return _TEXT.format(
        arrays="".join(arrays), parts=",\n    ".join(parts), calls=",\n    ".join(rows), count=len(calls)
    )


_TEXT = """\
/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc_npu.c: plays back what the host model of the NPU has computed; for boards without an NPU. Written by emitc. */
#include "emitc_npu.h"

#include <string.h>

struct part {{
    const uint8_t *data;
    size_t bytes;
    int base;
    size_t offset;
}};

struct call {{
    uint32_t checksum;
    size_t payload_bytes;
    int first;
    int inputs;
    int outputs;
}};

{arrays}
static const struct part parts[] = {{
    {parts},
}};

static const struct call calls[] = {{
    {calls},
}};

static uint32_t checksum(const uint8_t *data, size_t bytes)
{{
    uint32_t value = 2166136261u;
    for (size_t i = 0; i < bytes; i++) {{
        value = (value ^ data[i]) * 16777619u;
    }}
    return value;
}}

static uint8_t *place(const struct part *part, const uint64_t *base)
{{
    return (uint8_t *)(uintptr_t)base[part->base] + part->offset;
}}

int emitc_npu_invoke(const void *payload, size_t payload_bytes, uint64_t *base, const size_t *base_bytes, int bases)
{{
    const uint32_t sum = checksum((const uint8_t *)payload, payload_bytes);
    (void)base_bytes;
    (void)bases;
    for (int i = 0; i < {count}; i++) {{
        const struct call *const call = &calls[i];
        const struct part *part = &parts[call->first];
        int known = call->checksum == sum && call->payload_bytes == payload_bytes;
        for (int k = 0; known && k < call->inputs; k++, part++) {{
            known = memcmp(part->data, place(part, base), part->bytes) == 0;
        }}
        if (known) {{
            for (int k = 0; k < call->outputs; k++, part++) {{
                memcpy(place(part, base), part->data, part->bytes);
            }}
            return 0;
        }}
    }}
    return -1;
}}
"""


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
