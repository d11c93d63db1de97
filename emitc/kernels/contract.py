"""What one operator must state, once, in its own file: attributes, refusals, shapes, reference, lowering.

Parsing gives a typed op and the positions of the inputs that stay operands (a constant list of axes, say, becomes an
attribute). `check` raises every refusal. `reference` is the oracle: numpy, integers only, written without looking at the C.
`lower` makes the Layer: constants, parameters, scratch, MACs, and where the output may overlap an input.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from emitc.errors import DAMAGED, EXPORT_AGAIN, CannotCompile, Code, EmitcError, Note, Reason, Where
from emitc.ir import Array, BoundNode, DType, Numerics, Op, Shape, Tensor
from emitc.kernels.costs import UNKNOWN, Costs
from emitc.layer import Layer
from emitc.records import dataclass, replace
from emitc.source import SourceNode
from emitc.target import DUAL, FEATURES

_VARIANT_NAME = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A typed op, and the positions of the source inputs that remain its operands, in order.

    states: positions of the source inputs that the operator updates: variable tensors. They follow the node's outputs, in
    this order: `output_shapes` and `reference` give their shapes and new values after those of the outputs. The layer function
    takes a pointer to each of them after the outputs' pointers. What reads their old value has them in `operands` too.
    """

    op: Op
    operands: tuple[int, ...] = (0,)
    states: tuple[int, ...] = ()


Parser = Callable[[SourceNode], Parsed]


def parser(op: Op, inputs: int = 1, outputs: int = 1) -> Parser:
    """The parser of an operator without attributes: all of its inputs are operands."""

    def parse(node: SourceNode) -> Parsed:
        node.counts((inputs, inputs), (outputs, outputs))
        return Parsed(op, tuple(range(inputs)))

    return parse


Condition = Callable[[BoundNode], str]
"""Why a kernel is not for a node, as a `Reason` with what would help; "" where it is for the node."""


def requires(holds: Callable[[BoundNode], bool], reason: str, hint: str = "") -> Condition:
    """The condition that `holds` is true of a node. reason: why the kernel is not for a node of which it is not; hint: what
    would make it so.
    """
    refusal = Reason(reason, hint)
    return lambda bound: "" if holds(bound) else refusal


_FOR_TWO_ISSUES = {"emitc_dsp_tile.h": "emitc_dsp_dual.h"}
"""Headers of the runtime, and those that give their loops the order for a core that begins two instructions in a cycle."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Another kernel of an operator, with the same bits, for cores that have a feature: everything that is known of it.

    name: what users see and ask for; several rows may have one name, each for other nodes. feature: of a target. make: the node's
    layer, or a text that says why there is none. cost: its coefficients and their source. applies: what must hold of a node, in
    this order; the first that does not is why the node does not get it. template: the layer's, where it is not the one that
    `make` gives, or "_" and what is added to that one; headers: of the runtime, in addition to those that `make` gives. dtypes:
    element types that it has code for, for the operator table. fitted: its kernel is printed for one layer's numbers, so that
    layers of other numbers do not share it. yields_to: a variant that is faster where both are offered, whatever the costs say.
    spare: it takes more working memory than others, which must be free while the layer runs.

    Raises ValueError for a name or a feature that does not exist.
    """

    name: str
    feature: str
    make: Callable[[BoundNode], Layer | str]
    cost: Costs
    dtypes: tuple[DType, ...] = (DType.INT8,)
    applies: tuple[Condition, ...] = ()
    template: str = ""
    headers: tuple[str, ...] = ()
    fitted: bool = False
    yields_to: str = ""
    spare: bool = False

    def __post_init__(self) -> None:
        if not _VARIANT_NAME.fullmatch(self.name):
            raise ValueError(f"a variant called {self.name!r}: a name is of lower case letters, digits and dashes")
        if self.feature not in FEATURES:
            raise ValueError(f"the variant {self.name} needs {self.feature!r}; targets have {', '.join(FEATURES)}")
        if not isinstance(self.cost, Costs):
            raise ValueError(f"the variant {self.name} has no cost: give Costs with their source")

    def conditions_met(self, bound: BoundNode) -> tuple[int, str]:
        """How many conditions hold, in their order, and why the next one does not; "" where all do."""
        for count, condition in enumerate(self.applies):
            if reason := condition(bound):
                return count, reason
        return len(self.applies), ""

    def lower(self, bound: BoundNode) -> Layer | str:
        """The node's layer under the variant's name; or why there is none."""
        _, reason = self.conditions_met(bound)
        layer = reason or self.make(bound)
        return layer if isinstance(layer, str) else self.named(layer)

    def on(self, layer: Layer, features: Sequence[str]) -> Layer:
        """A layer of the row with the headers that make it faster on a core with these features."""
        more = (_FOR_TWO_ISSUES[header] for header in layer.headers if header in _FOR_TWO_ISSUES)
        return replace(layer, headers=tuple(dict.fromkeys((*more, *layer.headers)))) if DUAL in features else layer

    def named(self, layer: Layer) -> Layer:
        """The layer with the row's own fields in it."""
        template, headers = self.template or layer.template, (*layer.headers, *self.headers)
        template = f"{layer.template}{template}" if template.startswith("_") else template
        return replace(layer, variant=self.name, template=template, headers=tuple(dict.fromkeys(headers)))


def _nothing_refused(bound: BoundNode) -> None:
    pass


def _missing(*arguments: object) -> NoReturn:
    raise TypeError("a KernelDef states its reference and how it is lowered")


def _first_input(bound: BoundNode) -> tuple[Shape, ...]:
    return (bound.input(0).shape,)


@dataclass(frozen=True, slots=True)
class KernelDef:
    """One operator.

    op: its class. summary: one line for the operator table. tflite: its builtin names, each with its parser; onnx: the
    same for ONNX's operator names, after the frontend has put quantization on tensors and images into NHWC. Either may
    be a tuple of names which `from_tflite` or `from_onnx` parses. reference and lower must be given. dtypes: types that
    the kernel computes in, for the operator table; tflite_dtypes: those in TFLite models, where they are fewer. view:
    the output is the input's bytes under another shape, so the layer vanishes. work: steps that the reference takes,
    about; it bounds what is computed while compiling. transposed: the op for inputs in another order of dimensions, so
    that a Transpose can move past the operator. It takes the node and a permutation. Every data input x is `transpose(u,
    permutation)`: its dimension i is dimension permutation[i] of u. It returns the op that makes v of the u, such that y =
    transpose(v, permutation) for every output y; None where there is no such op. all_data: that is true of constant inputs too,
    at any position; otherwise constants after the first input (indices, statistics) are what `transposed` leaves as they are.
    elementwise: every output element depends on the element of each input at the same (broadcast) place alone. moves: every
    output element is an element of the first input, whatever its type. packed_input: position of the constant that may have
    packed elements, -1 where none may. subgraphs: attributes that say which subgraphs the operator runs; its parser finds them
    in `SourceNode.graphs`. variants: for cores that have more than every core. cost: of the portable kernel; cost_with_vectors:
    on cores with a vector unit, which the compiler uses for some loops, where that is another. cases: names of what a node is
    for its costs, the most exact one first. note: what the report should say of a node that does not do as it reads.
    shares_constants: constants that several such nodes read are printed once.
    """

    op: type[Op]
    summary: str
    dtypes: tuple[DType, ...] = tuple(DType)
    tflite: tuple[str, ...] | Mapping[str, Parser] = ()
    from_tflite: Parser | None = None
    check: Callable[[BoundNode], None] = _nothing_refused
    reference: Callable[[BoundNode, Sequence[Array | None]], tuple[Array, ...]] = _missing
    lower: Callable[[BoundNode], Layer] = _missing
    output_shapes: Callable[[BoundNode], tuple[Shape, ...]] = _first_input
    view: bool = False
    work: Callable[[BoundNode], int] = lambda bound: sum(tensor.elements for tensor in bound.outputs)
    onnx: tuple[str, ...] | Mapping[str, Parser] = ()
    from_onnx: Parser | None = None
    transposed: Callable[[BoundNode, tuple[int, ...]], Op | None] | None = None
    all_data: bool = False
    elementwise: bool = False
    moves: bool = False
    tflite_dtypes: tuple[DType, ...] = ()
    packed_input: int = -1
    subgraphs: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()
    cost: Costs = UNKNOWN
    cost_with_vectors: Costs | None = None
    cases: Callable[[BoundNode], tuple[str, ...]] = lambda bound: ()
    note: Callable[[BoundNode], Note | None] = lambda bound: None
    shares_constants: bool = False

    def __post_init__(self) -> None:
        for field, function in (("reference", self.reference), ("lower", self.lower)):
            if function is _missing:
                raise TypeError(f"the definition of {self.op.__name__} lacks {field}")

    def parser(self, source_format: str, name: str) -> Parser | None:
        """What parses the operator of that name in a source format: tflite or onnx."""
        names, parser = (self.onnx, self.from_onnx) if source_format == "onnx" else (self.tflite, self.from_tflite)
        return names.get(name) if isinstance(names, Mapping) else parser

    def parse(self, node: SourceNode) -> Parsed:
        """The typed op of a node, by the parser of the node's name. Operators of ONNX obey ONNX Runtime's arithmetic, except for
        those of plugins.
        """
        parser = self.parser(node.format, node.kind or node.op_type)
        assert parser is not None, f"{node.op_type} is registered without a parser"
        parsed = parser(node)
        if node.format == "onnx" and parsed.op.definition is None and parsed.op.numerics is Numerics.TFLITE:
            return replace(parsed, op=replace(parsed.op, numerics=Numerics.QOPERATOR))
        return parsed

    @property
    def variant_names(self) -> tuple[str, ...]:
        """The names of the variants, each once, in their order."""
        return tuple(dict.fromkeys(variant.name for variant in self.variants))

    def offered(self, bound: BoundNode) -> tuple[Variant, ...]:
        """One row of each name: that whose conditions hold of the node; or, where there is none, the one of which most do."""
        rows: dict[str, list[Variant]] = {}
        for variant in self.variants:
            rows.setdefault(variant.name, []).append(variant)
        return tuple(row[0] if len(row) == 1 else _nearest(row, bound) for row in rows.values())

    def cycles(self, bound: BoundNode, costs: Costs) -> float:
        """An estimate for one run of the node by a kernel of these costs."""
        return costs.cycles(bound, self.work(bound), self.cases(bound))


def _nearest(rows: Sequence[Variant], bound: BoundNode) -> Variant:
    met = [(*row.conditions_met(bound), row) for row in rows]
    return next((row for _, reason, row in met if not reason), max(met, key=lambda refusal: refusal[0])[2])


def unsupported(
    bound: BoundNode, does: str, why: str, hint: str, tensor: Tensor | None = None, code: Code | None = None
) -> CannotCompile:
    """A legal use of the operator for which emitc has no code (exit code 1).

    does: what is wrong, as a sentence of which the operator is the subject. code: where it is another than the module's.
    """
    return CannotCompile(f"{bound.node.op_type} {does}", _where(bound, tensor), why, hint, code)


def illegal(
    bound: BoundNode,
    does: str,
    why: str,
    hint: str = EXPORT_AGAIN,
    tensor: Tensor | None = None,
    code: Code | None = None,
) -> EmitcError:
    """A use of the operator that its specification excludes: the file is wrong (exit code 2). Arguments: of `unsupported`."""
    return EmitcError(f"{bound.node.op_type} {does}", _where(bound, tensor), why, hint, code)


def damaged(bound: BoundNode, does: str, why: str, tensor: Tensor | None = None) -> EmitcError:
    """A file that contradicts itself (exit code 2). does: as of `unsupported`."""
    return illegal(bound, does, why, DAMAGED, tensor)


def out_of_proportion(bound: BoundNode, why: str) -> EmitcError:
    """Scales of which the arithmetic cannot hold the ratio (exit code 2)."""
    what = "has scales that are out of proportion"
    return illegal(bound, what, why, "quantize the model again", bound.output, Code.NUMERICAL)


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
    dtypes = tuple(t.dtype for t in tensors)
    if dtypes in supported:
        return
    listing = ", ".join(d.value for d in dtypes)
    expected = " or ".join("(" + ", ".join(d.value for d in combination) + ")" for combination in supported)
    biased = len(bound.inputs) == 3 and len(dtypes) == 4 and dtypes[2] is DType.INT32
    one_type = len(set(dtypes[:2] + dtypes[3:] if biased else dtypes)) == 1
    report = unsupported if dtypes in known or one_type else illegal
    what = f"with element types ({listing}) is not supported"
    hint = "quantize the model to int8 (full integer quantization)"
    raise report(bound, what, f"there is code for {expected}", hint, bound.output, Code.TYPE)


def require_constants(bound: BoundNode, tensors: Iterable[Tensor | None], does: str, why: str, hint: str) -> None:
    """Refuses computed tensors. does, why, hint: of the error; a tensor that the model leaves out is None."""
    for tensor in tensors:
        if tensor is not None and not tensor.is_constant:
            raise unsupported(bound, does, why, hint, tensor)


def require_quantization(bound: BoundNode, *tensors: Tensor) -> None:
    """Refuses tensors without a per-tensor quantization."""
    for tensor in tensors:
        if tensor.quantization is None:
            why = "this tensor has no scale"
            raise illegal(bound, "needs quantized tensors", why, "quantize the model fully", tensor, Code.QUANTIZATION)
        if not tensor.quantization.per_tensor:
            what = f"has an activation with {len(tensor.quantization.scales)} scales"
            raise illegal(bound, what, "activations are quantized per tensor", tensor=tensor, code=Code.QUANTIZATION)


def require_one_scale(bound: BoundNode, *weights: Tensor) -> None:
    """Refuses weights without a scale, or with several, for operators whose specification gives each matrix one."""
    for tensor in weights:
        count = len(tensor.quantization.scales) if tensor.quantization else 0
        if count != 1:
            what, why = f"has weights with {count} scales", "one for the whole tensor is expected"
            raise illegal(bound, what, why, "quantize the model again", tensor, Code.QUANTIZATION)


def require_same_quantization(bound: BoundNode, first: Tensor, second: Tensor) -> None:
    """Refuses two tensors whose scale or zero point differ, for operators that copy values."""
    require_quantization(bound, first, second)
    assert first.quantization is not None and second.quantization is not None
    a, b = first.quantization, second.quantization
    if (a.scale, a.zero_point) != (b.scale, b.zero_point):
        why = f"({a.scale!r}, {a.zero_point}) in and ({b.scale!r}, {b.zero_point}) out, but the operator copies values"
        raise illegal(bound, "changes scale or zero point", why, tensor=second, code=Code.QUANTIZATION)


def require_same_dtype(bound: BoundNode) -> None:
    x, y = bound.input(0).dtype.value, bound.output.dtype.value
    if x != y:
        raise illegal(bound, "changes the element type", f"{x} to {y}", tensor=bound.output, code=Code.TYPE)


def require_rank(bound: BoundNode, tensor: Tensor, *ranks: int) -> None:
    """Refuses a tensor whose number of dimensions is not among `ranks`."""
    if len(tensor.shape) not in ranks:
        why = f"rank {' or '.join(map(str, ranks))} is expected"
        raise illegal(bound, f"has a tensor of rank {len(tensor.shape)}", why, tensor=tensor)
