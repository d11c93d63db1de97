"""The custom operator `ethos-u` of TFLite files that vela has compiled: a command stream for Arm's Ethos-U.

Shapes  any inputs and outputs, as the file states them; an open dimension is 1.   Types  integers.
Operands  the driver's payload (format COP1) and the constants as vela packs them, then the real inputs. Each tensor lies at an
offset of the scratch memory when the NPU reads or writes it. Where a file has several such operators, the content of that
memory is the last output of each. It is the first real input of the next: streams leave tensors there for each other.
Source  the host model of the NPU executes the commands: it is the numpy reference of this operator, and its only one.
Errors  tensors that reach over the end of the scratch memory.

A region of the graph that an accelerator runs as one: its own small graph stays inside as the reference.

Shapes  those of the region's outputs.
Types   any; the region's operators have checked theirs.
Source  none: the region means what its operators mean, executed by their references.
"""

from collections.abc import Collection, Sequence
from functools import lru_cache

import numpy as np

from emitc.ir import Array, BoundNode, DType, Graph, Op, Shape, Tensor
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_dtypes
from emitc.kernels.shared.subgraph_reference import nested_work, run_nested
from emitc.layer import Expression, Layer, LibraryCall, Memory, Pin, Place, Scratch, Table
from emitc.records import dataclass
from emitc.source import SourceNode

PAYLOAD, CONSTANTS, FIRST_INPUT = 0, 1, 2
"""Positions of the operands."""
ALIGNMENT = 16
"""Bytes to which the driver needs payload and regions aligned."""
SCRATCH_REGION, FAST_REGION = 1, 2
"""The scratch memories among the driver's base addresses."""
_INTEGERS = (DType.INT8, DType.UINT8, DType.INT16, DType.INT32)
_MAGIC = b"COP1"


@dataclass(frozen=True, slots=True)
class NpuCommand(Op):
    """fast_bytes: of the fast scratch memory, 0 where the scratch memory serves. touched_bytes: of the scratch memory, up to the
    last byte that the stream uses. Offsets are those of inputs and outputs in the scratch memory. shared: whether the last
    output is its content; follows: whether the first real input is its content before. carried, writes: first byte and the one
    after the last, in turn, of what is needed of that content, and of what the stream writes. places: index in the file
    and offset, in turn, of every tensor that vela has placed in the scratch memory.
    """

    scratch_bytes: int
    fast_bytes: int
    touched_bytes: int
    input_offsets: tuple[int, ...]
    output_offsets: tuple[int, ...]
    shared: bool = False
    follows: bool = False
    carried: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    places: tuple[int, ...] = ()


def _numbers(node: SourceNode, name: str) -> tuple[int, ...]:
    value = node.attribute(name)
    assert isinstance(value, tuple)
    return tuple(int(v) for v in value)


def _from_tflite(node: SourceNode) -> Parsed:
    op = NpuCommand(
        node.integer("scratch_bytes"),
        node.integer("fast_bytes"),
        node.integer("touched_bytes"),
        _numbers(node, "input_offsets"),
        _numbers(node, "output_offsets"),
        bool(node.attribute("shared")),
        bool(node.attribute("follows")),
        _numbers(node, "carried"),
        _numbers(node, "writes"),
        _numbers(node, "places"),
    )
    return Parsed(op, tuple(range(len(node.inputs))))


def pairs(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Numbers in turn as pairs."""
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def real_inputs(bound: BoundNode) -> tuple[Tensor, ...]:
    """The inputs that the NPU computes with, without the content of the scratch memory."""
    first = FIRST_INPUT + bound.op(NpuCommand).follows
    return tuple(bound.input(i) for i in range(first, len(bound.inputs)))


def real_outputs(bound: BoundNode) -> tuple[Tensor, ...]:
    """The outputs without the content of the scratch memory."""
    return bound.outputs[: len(bound.outputs) - bound.op(NpuCommand).shared]


def memory_of(bound: BoundNode) -> str:
    """The tensor that is the content of the scratch memory after the operator, "" for none."""
    return bound.outputs[-1].name if bound.op(NpuCommand).shared else ""


def _check(bound: BoundNode) -> None:
    op = bound.op(NpuCommand)
    payload, constants = bound.input(PAYLOAD), bound.optional(CONSTANTS)
    assert payload.data is not None
    if payload.data[:4] != _MAGIC or len(payload.data) % 4:
        why = f"{len(payload.data)} bytes, first {payload.data[:4]!r}; COP1 and whole words are expected"
        hint = "compile the model again with vela, for the Ethos-U55 or U65"
        raise illegal(bound, "has no driver payload", why, hint, payload)
    assert constants is None or constants.data is not None
    for tensor in (*real_inputs(bound), *bound.outputs):
        if tensor.dtype not in _INTEGERS:
            require_dtypes(bound, ())
    placed = (*zip(op.input_offsets, real_inputs(bound), strict=True), *_placed_outputs(bound))
    for offset, tensor in placed:
        size = int(np.prod([abs(d) for d in tensor.shape])) * tensor.dtype.bytes
        if offset + size > op.scratch_bytes:
            what = "has a tensor outside the scratch memory"
            why = f"bytes {offset} to {offset + size} of {op.scratch_bytes}"
            raise illegal(bound, what, why, "compile the model again with vela", tensor)


def _placed_outputs(bound: BoundNode) -> tuple[tuple[int, Tensor], ...]:
    return tuple(zip(bound.op(NpuCommand).output_offsets, real_outputs(bound), strict=True))


def _reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    # Imported here: the host model is loaded only where it runs.
    from emitc.ethosu.simulator import HostModel

    op = bound.op(NpuCommand)
    payload, constants = inputs[PAYLOAD], inputs[CONSTANTS]
    assert payload is not None
    scratch = np.zeros(op.scratch_bytes, np.uint8)
    if op.follows:
        before = inputs[FIRST_INPUT]
        assert before is not None
        scratch[:] = before
    fast = np.zeros(op.fast_bytes, np.uint8) if op.fast_bytes else scratch
    written = list(pairs(op.carried))
    for offset, value in zip(op.input_offsets, inputs[FIRST_INPUT + op.follows :], strict=True):
        assert value is not None
        data = np.frombuffer(value.tobytes(), np.uint8)
        scratch[offset : offset + data.size] = data
        written.append((offset, offset + data.size))
    regions = (b"" if constants is None else constants.tobytes(), scratch, fast)
    HostModel().invoke(payload.tobytes(), regions, initialised={SCRATCH_REGION: written})
    outputs = tuple(
        scratch[offset : offset + tensor.size_bytes].copy().view(tensor.dtype.value).reshape(tensor.shape)
        for offset, tensor in _placed_outputs(bound)
    )
    return (*outputs, scratch) if op.shared else outputs


def layer(bound: BoundNode, scratch_bytes: int, inside: Collection[str], places: tuple[Place, ...] = ()) -> Layer:
    """The driver's call. scratch_bytes: what the stream needs of them. inside: tensors that lie in the scratch memory; the others
    are copied there before the call, or from there after it. places: the tensors that lie inside the content of a scratch
    memory that several operators share.
    """
    op = bound.op(NpuCommand)
    payload, constants = bound.input(PAYLOAD), bound.optional(CONSTANTS)
    tables = [_table("payload", payload, "commands, as vela has compiled them")]
    regions = [(Expression("NULL"), 0)]
    if constants is not None:
        tables.append(_table("constants", constants, "weights, scales and tables, as vela packs them"))
        regions = [(Expression(table="constants"), constants.size_bytes)]
    memory = f"y{len(bound.outputs) - 1}" if op.shared else "npu_scratch"
    scratch = [] if op.shared else [Scratch(memory, -(-scratch_bytes // ALIGNMENT) * ALIGNMENT)]
    regions.append((Expression(memory), scratch_bytes))
    if op.fast_bytes:
        scratch.append(Scratch("npu_fast", -(-op.fast_bytes // ALIGNMENT) * ALIGNMENT))
        regions.append((Expression("npu_fast"), op.fast_bytes))
    else:
        regions.append(regions[-1])
    arguments = tuple(part for place, size in regions for part in (place, Expression(f"{size}u")))
    unused: list[str] = []
    pins: list[Pin] = []
    before: list[tuple[str, int, str, int]] = []
    after: list[tuple[str, int, str, int]] = []
    copied = list(pairs(op.writes))
    sides = (
        (False, op.input_offsets, real_inputs(bound), before),
        (True, op.output_offsets, real_outputs(bound), after),
    )
    for output, offsets, tensors, copies in sides:
        for i, (offset, tensor) in enumerate(zip(offsets, tensors, strict=True)):
            name = f"{'y' if output else 'x'}{i}"
            if tensor.name in inside:
                unused.append(name)
                pins += [] if op.shared else [Pin(output, i, memory, offset)]
            elif output:
                copies.append((name, offset, memory, tensor.size_bytes))
            else:
                copies.append((memory, offset, name, tensor.size_bytes))
                copied.append((offset, offset + tensor.size_bytes))
    call = LibraryCall("emitc_npu_invoke", arguments, copies=tuple(before), results=tuple(after), unused=tuple(unused))
    first = FIRST_INPUT + op.follows
    return Layer(
        "ethos_u/invoke", "ethos-u", tuple(range(first, len(bound.inputs))), tuple(tables), scratch=tuple(scratch),
        fallible=True, call=call, pins=tuple(pins), places=places,
        memory=Memory(len(bound.outputs) - 1, pairs(op.carried), tuple(copied)) if op.shared else None,
    )  # fmt: skip


@lru_cache(maxsize=16)
def _values(data: bytes) -> tuple[int, ...]:
    """Once for constants that all operators of a file read."""
    return tuple(data)


def _table(role: str, tensor: Tensor, comment: str) -> Table:
    assert tensor.data is not None
    return Table(role, "uint8_t", _values(tensor.data), comment, ALIGNMENT)


def _lower(bound: BoundNode) -> Layer:
    """With copies: where tensors may be pinned, the backend decides."""
    return layer(bound, bound.op(NpuCommand).scratch_bytes, ())


@dataclass(frozen=True, slots=True)
class Offloaded(Op):
    """region: inputs and outputs in the order of the node's. layer: what the backend prints for it. foreign: the model's own
    arithmetic is another one than the region's, which the user has allowed.
    """

    region: Graph
    layer: Layer
    foreign: bool = False


def _check_region(bound: BoundNode) -> None:
    """The region fits its node: a violation is a bug of the backend that cut it."""
    region = bound.op(Offloaded).region
    inside = [region.tensor(name) for name in (*region.inputs, *region.outputs)]
    outside = [*(tensor for tensor in bound.inputs if tensor is not None), *bound.outputs]
    assert [(t.shape, t.dtype) for t in inside] == [(t.shape, t.dtype) for t in outside], bound.node.describe()


def _output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    region = bound.op(Offloaded).region
    return tuple(region.tensor(name).shape for name in region.outputs)


KERNELS = (
    KernelDef(
        NpuCommand,
        "a command stream for Arm's Ethos-U, in a file that vela has compiled",
        _INTEGERS,
        tflite={"CUSTOM:ethos-u": _from_tflite},
        check=_check,
        reference=_reference,
        lower=_lower,
        output_shapes=lambda bound: tuple(tuple(max(1, d) for d in tensor.shape) for tensor in bound.outputs),
        work=lambda bound: 1 << 62,
        shares_constants=True,
    ),
    KernelDef(
        Offloaded,
        "a region that an accelerator runs",
        (),
        check=_check_region,
        reference=lambda bound, inputs: run_nested(bound.op(Offloaded).region, inputs),
        lower=lambda bound: bound.op(Offloaded).layer,
        output_shapes=_output_shapes,
        work=lambda bound: nested_work(bound.op(Offloaded).region),
    ),
)
