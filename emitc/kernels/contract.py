"""What one operator must state, once, in its own file: attributes, refusals, shapes, reference, lowering.

Parsing gives a typed op and the positions of the inputs that stay operands (a constant list of axes, say, becomes an
attribute). `check` raises every refusal. `reference` is the oracle: numpy, integers only, written without looking at the C.
`lower` makes the Layer: constants, parameters, scratch, MACs, and where the output may overlap an input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from emitc.errors import EXPORT_AGAIN, CannotCompile, EmitcError, Where
from emitc.ir import Array, BoundNode, DType, Op, Shape, Tensor
from emitc.layer import Layer
from emitc.source import SourceNode


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


def _first_input(bound: BoundNode) -> tuple[Shape, ...]:
    return (bound.input(0).shape,)


@dataclass(frozen=True, slots=True)
class KernelDef:
    """One operator.

    op: its class. output_shapes: those of the outputs, by default the first input's alone. tflite: the builtin names that
    `from_tflite` parses; onnx: the kinds that `from_onnx` parses, operator names of ONNX after the frontend has put
    quantization on tensors and images into NHWC. summary: one line for the operator table. dtypes: types that the kernel
    computes in, for the operator table; tflite_dtypes: those in TFLite models, where they are fewer. view: the output is
    the input's bytes under another shape, so the layer vanishes. work: steps that the reference takes, about; it bounds
    what is computed while compiling. transposed: the op for inputs in another order of dimensions, so that a Transpose can
    move past the operator. It takes the node and a permutation such that every data input x is `transpose(u, permutation)`,
    whose dimension i is dimension permutation[i] of u, and returns the op that makes v of the u with y = transpose(v,
    permutation) for every output y; None where there is no such op. all_data: that is true of constant inputs too, at any
    position; otherwise constants behind the first input (indices, statistics) are what `transposed` leaves as they are.
    elementwise: every output element depends on the element of each input at the same (broadcast) place alone. moves: every
    output element is an element of the first input, whatever its type. packed_input: position of the constant that may have
    packed elements, -1 where none may. subgraphs: attributes that say which subgraphs the operator runs; its parser finds
    them in `SourceNode.graphs`. variants: for cores that have more than every core. note: what the report should say of a
    node that does not do as it reads, or "". shares_constants: constants that several such nodes read are printed once.
    """

    op: type[Op]
    summary: str
    dtypes: tuple[DType, ...]
    tflite: tuple[str, ...]
    from_tflite: Callable[[SourceNode], Parsed] | None
    check: Callable[[BoundNode], None]
    reference: Callable[[BoundNode, Sequence[Array | None]], tuple[Array, ...]]
    lower: Callable[[BoundNode], Layer]
    output_shapes: Callable[[BoundNode], tuple[Shape, ...]] = _first_input
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


def illegal(
    bound: BoundNode, what: str, why: str, hint: str = EXPORT_AGAIN, tensor: Tensor | None = None
) -> EmitcError:
    """A use of the operator that its specification excludes: the file is wrong (exit code 2)."""
    return EmitcError(what, _where(bound, tensor), why, hint)


def out_of_proportion(bound: BoundNode, why: str) -> EmitcError:
    """Scales of which the arithmetic cannot hold the ratio (exit code 2)."""
    what = f"{bound.node.op_type} has scales that are out of proportion"
    return illegal(bound, what, why, "quantize the model again", bound.output)


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
                tensor=tensor,
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
            tensor=second,
        )


def require_rank(bound: BoundNode, tensor: Tensor, *ranks: int) -> None:
    """Refuses a tensor whose number of dimensions is not among `ranks`."""
    if len(tensor.shape) not in ranks:
        raise illegal(
            bound,
            f"{bound.node.op_type} has a tensor of rank {len(tensor.shape)}",
            f"rank {' or '.join(map(str, ranks))} is expected",
            tensor=tensor,
        )
