"""What one operator must state, once, in its own file: attributes, refusals, shapes, reference, lowering.

Parsing gives a typed op and the positions of the inputs that stay operands (a constant list of axes, say, becomes an
attribute). `check` raises every refusal. `reference` is the oracle: numpy, integers only, written without looking at the C.
`lower` makes the Layer: constants, parameters, scratch, MACs, and where the output may overlap an input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from emitc.errors import CannotCompile, EmitcError, Where
from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode, DType, Op, Shape, Tensor
from emitc.kernels.walk import ElementWalk, Walk


@dataclass(frozen=True, slots=True)
class Parsed:
    """A typed op, and the positions of the source inputs that remain its operands, in order.

    states: positions of the source inputs that the operator updates: variable tensors. They follow the node's outputs, in
    this order: `output_shapes` and `reference` give their shapes and new values behind those of the outputs, and the layer
    function takes a pointer to them behind the outputs' pointers. What reads their old value has them in `operands` too.
    """

    op: Op
    operands: tuple[int, ...] = (0,)
    states: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A constant array to print: role is its name in the template, values are its elements in order.

    c_type: int8_t, int32_t, float, ... comment: one line that says what the numbers are. alignment: bytes, 0 for the type's.
    """

    role: str
    c_type: str
    values: tuple[int, ...] | tuple[float, ...]
    comment: str
    alignment: int = 0

    @property
    def size_bytes(self) -> int:
        """Bytes in flash."""
        widths = {"int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int64_t": 8, "uint64_t": 8, "double": 8}
        return widths.get(self.c_type, 4) * len(self.values)


@dataclass(frozen=True, slots=True)
class Param:
    """A member of the layer's parameter struct: printed as a designated initialiser with its comment."""

    name: str
    c_type: str
    value: int | float
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Scratch:
    """Working memory of one step: role is its name in the template."""

    role: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Pin:
    """An operand, or an output, that lies inside the step's scratch of that role, at an offset in bytes.

    The scratch lives as long as everything that is pinned in it. A tensor is pinned once.
    """

    output: bool
    position: int
    scratch: str
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor that lies inside another one, at an offset in bytes, whichever layers read and write it.

    The other one lives as long as everything that lies in it. A tensor has one place.
    """

    tensor: str
    inside: str
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class Memory:
    """An output that is the content of a memory which several layers share.

    output: its position. reads: bytes [first, end) that an earlier one of these layers must have written. writes: bytes that the
    layer writes.
    """

    output: int
    reads: tuple[tuple[int, int], ...]
    writes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Overlap:
    """Output `output` may share memory with input `input`, as close as the kernel's walk over them allows."""

    input: int
    output: int
    walk: Walk

    @property
    def distance_bytes(self) -> int:
        """The least (input offset - output offset); derived from the walk."""
        return self.walk.distance_bytes()


def in_step(bound: BoundNode, position: int = 0) -> Overlap:
    """Of input `position` and the only output, where element i is read for the last time before output element i is stored."""
    x, y = bound.input(position), bound.output
    return Overlap(position, 0, ElementWalk(y.elements, x.dtype.bytes, y.dtype.bytes))


@dataclass(frozen=True, slots=True)
class Inside:
    """That a layer has nothing to do where an operand lies in the only output, or an output in the only operand, at an offset.

    position: of the operand among the node's inputs, or of the output. A layer says so of all of them or of none.
    """

    output: bool
    position: int
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class ByRows:
    """That a layer can make its output [1, H, W, C] row by row, each operand being an image too.

    window: rows of a window; the kernel's parameters start with the window's, and `in_h`, `out_h` and `pad_top` are set for
    the rows in sight. Otherwise row r reads row r of each operand, and `counted` is the parameter that counts what a row has a
    share of.
    """

    window: bool = False
    counted: str = ""


@dataclass(frozen=True, slots=True)
class Flavour:
    """What a kernel is printed for, where one template serves several: part of the kernel's C name.

    suffix: of that name. fixed_point: accumulators are requantized by a Q31 multiplier and a shift, otherwise by a float32
    factor. x, w, y: C types of inputs, weights and outputs. weight_zero: weights have zero points, which the kernel takes
    off by the sum of the inputs. packed: weights have four bits, two of them in a byte.
    acc: C type of sums and biases. reduced: the multiplier has 16 bits, and the one rounding is half up. unsigned: the model has
    the values as uint8, 128 higher, and rounds there.
    short: the requantization of the runtime for one instruction set, by the rounding that is enough: `up` or `away` from zero.
    clamped: outputs have limits besides those of their type. shared: one multiplier for all channels, where the template does not
    take that as a number. small: sums are so small that three products of 32 bits requantize them. window: what is fixed of the
    window, by the template's own names. uneven: channels are left over from the kernel's groups.
    exact: float32 factors as mantissas and shifts to the left, for cores without floats; quotients rounded as if there were
    no end to their digits. spread: filters lie value by value, not one after the other. late_bias: the C type of
    a computed one, which is added to the sum at its end, where that wraps. bias_last: so is any bias of a sum of floats.
    rectified: outputs are limited to 0 and more. flat: no operand is repeated.
    """

    suffix: str = ""
    fixed_point: bool = True
    x: str = "int8_t"
    w: str = "int8_t"
    y: str = "int8_t"
    weight_zero: bool = False
    packed: bool = False
    acc: str = "int32_t"
    reduced: bool = False
    unsigned: bool = False
    short: str = ""
    clamped: bool = False
    shared: bool = False
    small: bool = False
    window: str = ""
    uneven: bool = False
    exact: bool = False
    spread: bool = False
    late_bias: str = ""
    bias_last: bool = False
    rectified: bool = False
    flat: bool = False


PLAIN = Flavour()
"""int8 throughout, fixed point."""


@dataclass(frozen=True, slots=True)
class Expression:
    """C text: `text`, behind it the name of the layer's table or structure of that role, where one is given."""

    text: str = ""
    table: str = ""
    structure: str = ""


@dataclass(frozen=True, slots=True)
class Structure:
    """A structure that a library function takes. members: name and initialiser. constant: it has no pointer in it, so that it
    is a constant of the file and not of the function.
    """

    role: str
    c_type: str
    members: tuple[tuple[str, Expression], ...]
    constant: bool = True


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A call of a function of a library, decided to the last argument.

    check: name and arguments of the function that tells the bytes of scratch it needs, and how many it gets. copies,
    results: done before and after the call, as destination, offset in the buffer that the library sees, source, and bytes.
    unused: parameters of the layer function that it does not read.
    """

    function: str
    arguments: tuple[Expression, ...]
    structures: tuple[Structure, ...] = ()
    check: tuple[str, tuple[Expression, ...], int] | None = None
    copies: tuple[tuple[str, int, str, int], ...] = ()
    results: tuple[tuple[str, int, str, int], ...] = ()
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layer:
    """An operator with every decision taken: what its template prints.

    template: file under templates/kernels without its suffix. variant: name a user sees (`portable`). operands:
    positions of the inputs that are passed to the layer function, in order (constants are among tables instead). macs:
    multiply- accumulates of one run. flavour: what the template's kernel is printed for. fallible: the layer function
    returns a status. call: of a library, where the template prints one. pins: operands and outputs inside the scratch.
    places: tensors inside of others. memory: an output that is a memory which several layers share.
    by_rows: how it makes a single row, where it can. inside: where memory can be laid out so that it vanishes. headers: of the
    runtime, that its kernel needs besides the common one. larger: than the portable kernel's, by its code, so that it is not for
    code that is to be small. pulls: it has no operands, and asks the application for its
    rows.
    """

    template: str
    variant: str
    operands: tuple[int, ...]
    tables: tuple[Table, ...] = ()
    params: tuple[Param, ...] = ()
    scratch: tuple[Scratch, ...] = ()
    overlaps: tuple[Overlap, ...] = ()
    macs: int = 0
    flavour: Flavour = PLAIN
    fallible: bool = False
    call: LibraryCall | None = None
    pins: tuple[Pin, ...] = ()
    places: tuple[Place, ...] = ()
    memory: Memory | None = None
    by_rows: ByRows | None = None
    inside: tuple[Inside, ...] = ()
    headers: tuple[str, ...] = ()
    larger: bool = False
    pulls: bool = False

    def __post_init__(self) -> None:
        names = [t.role for t in self.tables] + [p.name for p in self.params]
        assert len(set(names)) == len(names), f"{self.template} names one thing twice: {names}"


@dataclass(frozen=True, slots=True)
class Variant:
    """Another kernel of an operator, with the same bits, for cores that have a feature.

    name: what users see and ask for. feature: of a target. lower: the node's layer, or a text that says why there is none.
    dtypes: element types that it has code for, for the operator table. fitted: its kernel is printed for one layer's
    numbers, so that layers of other numbers do not share it.
    """

    name: str
    feature: str
    lower: Callable[[BoundNode], Layer | str]
    dtypes: tuple[DType, ...] = (DType.INT8,)
    fitted: bool = False


@dataclass(frozen=True, slots=True)
class KernelDef:
    """One operator.

    op: its class. tflite: the builtin names that `from_tflite` parses; onnx: the kinds that `from_onnx` parses,
    operator names of ONNX after the frontend has put quantization on tensors and images into NHWC. summary: one line
    for the operator table. dtypes: types that the kernel computes in, for the operator table; tflite_dtypes: those in
    TFLite models, where they are fewer. view: the output is the input's bytes under another shape, so the layer
    vanishes. work: steps that the reference takes, about; it bounds what is computed while compiling. transposed: the
    op for inputs in another order of dimensions, so that a Transpose can move past the operator. It takes the node and
    a permutation such that every data input x is `transpose(u, permutation)`, whose dimension i is dimension
    permutation[i] of u, and returns the op that makes v of the u with y = transpose(v, permutation) for every output y;
    None where there is no such op. all_data: that is true of constant inputs too, at any position; otherwise constants
    behind the first input (indices, statistics) are what `transposed` leaves as they are. elementwise: every output element
    depends on the element of each input at the same (broadcast) place alone. moves: every output element is an element of
    the first input, whatever its type. packed_input: position of the constant that may have packed elements, -1 where none
    may. subgraphs: attributes that say which subgraphs the operator runs; its parser finds them in `SourceNode.graphs`.
    variants: for cores that have more than every core. note: what the report should say of a node that does not do as it
    reads, or "". shares_constants: constants that several such nodes read are printed once.
    """

    op: type[Op]
    summary: str
    dtypes: tuple[DType, ...]
    tflite: tuple[str, ...]
    from_tflite: Callable[[SourceNode], Parsed] | None
    check: Callable[[BoundNode], None]
    output_shapes: Callable[[BoundNode], tuple[Shape, ...]]
    reference: Callable[[BoundNode, Sequence[Array | None]], tuple[Array, ...]]
    lower: Callable[[BoundNode], Layer]
    view: bool = False
    work: Callable[[BoundNode], int] = lambda bound: sum(tensor.elements for tensor in bound.outputs)
    onnx: tuple[str, ...] = ()
    from_onnx: Callable[[SourceNode], Parsed] | None = None
    transposed: Callable[[BoundNode, tuple[int, ...]], Op | None] | None = None
    all_data: bool = False
    elementwise: bool = False
    moves: bool = False
    tflite_dtypes: tuple[DType, ...] = ()
    packed_input: int = -1
    subgraphs: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()
    note: Callable[[BoundNode], str] = lambda bound: ""
    shares_constants: bool = False

    def parse(self, node: SourceNode) -> Parsed:
        """The typed op of a node, by the parser of the node's format."""
        parser = self.from_onnx if node.format == "onnx" else self.from_tflite
        assert parser is not None, f"{node.op_type} is registered without a parser"
        return parser(node)


def unsupported(bound: BoundNode, what: str, why: str, hint: str, tensor: Tensor | None = None) -> CannotCompile:
    """A legal use of the operator for which emitc has no code (exit code 1)."""
    return CannotCompile(what, _where(bound, tensor), why, hint)


def illegal(bound: BoundNode, what: str, why: str, hint: str, tensor: Tensor | None = None) -> EmitcError:
    """A use of the operator that its specification excludes: the file is wrong (exit code 2)."""
    return EmitcError(what, _where(bound, tensor), why, hint)


def _where(bound: BoundNode, tensor: Tensor | None) -> Where:
    return Where(op=bound.node.describe(), tensor=tensor.describe() if tensor else "")


def require_dtypes(
    bound: BoundNode, supported: Sequence[tuple[DType, ...]], known: Sequence[tuple[DType, ...]] = ()
) -> None:
    """Refuses element types (inputs then outputs, absent inputs left out) that are not in `supported`.

    known: further combinations that the source format allows; they are unsupported rather than illegal. So is one type
    throughout, with an int32 bias as third input.
    """
    tensors = [t for t in bound.inputs if t is not None] + list(bound.outputs)
    found = tuple(t.dtype for t in tensors)
    if found in supported:
        return
    listing = ", ".join(d.value for d in found)
    expected = " or ".join("(" + ", ".join(d.value for d in combination) + ")" for combination in supported)
    biased = len(bound.inputs) == 3 and len(found) == 4 and found[2] is DType.INT32
    one_type = len(set(found[:2] + found[3:] if biased else found)) == 1
    report = unsupported if found in known or one_type else illegal
    raise report(
        bound,
        f"{bound.node.op_type} with element types ({listing}) is not supported",
        f"there is code for {expected}",
        "quantize the model to int8 (full integer quantization)",
        bound.output,
    )


def require_quantization(bound: BoundNode, *tensors: Tensor) -> None:
    """Refuses tensors without a per-tensor quantization."""
    for tensor in tensors:
        if tensor.quantization is None:
            raise illegal(
                bound,
                f"{bound.node.op_type} needs quantized tensors",
                "this tensor has no scale",
                "quantize the model fully",
                tensor,
            )
        if not tensor.quantization.per_tensor:
            raise illegal(
                bound,
                f"{bound.node.op_type} has an activation with {len(tensor.quantization.scales)} scales",
                "activations are quantized per tensor",
                "export the model again",
                tensor,
            )


def require_one_scale(bound: BoundNode, *weights: Tensor) -> None:
    """Refuses weights without a scale, or with several, for operators whose specification gives each matrix one."""
    for tensor in weights:
        count = len(tensor.quantization.scales) if tensor.quantization else 0
        if count != 1:
            raise illegal(
                bound,
                f"{bound.node.op_type} has weights with {count} scales",
                "one for the whole tensor is expected",
                "quantize the model again",
                tensor,
            )


def require_same_quantization(bound: BoundNode, first: Tensor, second: Tensor) -> None:
    """Refuses two tensors whose scale or zero point differ, for operators that copy values."""
    require_quantization(bound, first, second)
    assert first.quantization is not None and second.quantization is not None
    a, b = first.quantization, second.quantization
    if (a.scale, a.zero_point) != (b.scale, b.zero_point):
        raise illegal(
            bound,
            f"{bound.node.op_type} changes scale or zero point",
            f"({a.scale!r}, {a.zero_point}) in and ({b.scale!r}, {b.zero_point}) out, but the operator copies values",
            "export the model again",
            second,
        )


def require_rank(bound: BoundNode, tensor: Tensor, *ranks: int) -> None:
    """Refuses a tensor whose number of dimensions is not among `ranks`."""
    if len(tensor.shape) not in ranks:
        raise illegal(
            bound,
            f"{bound.node.op_type} has a tensor of rank {len(tensor.shape)}",
            f"rank {' or '.join(map(str, ranks))} is expected",
            "export the model again",
            tensor,
        )
