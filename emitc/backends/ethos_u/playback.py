"""`emitc_npu_invoke` for a board without an NPU: plays back what the host model has computed, for the inputs it knows.

Each call is recognised by its command stream and by all bytes of its inputs; unknown ones fail. So a board proves that
the core's part computed exactly what the NPU got on the host. It goes on with what the host model answered.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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
