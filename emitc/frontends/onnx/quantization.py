"""Scales and zero points of ONNX move from operator inputs onto tensors, and uint8 becomes int8.

QLinearConv and its like become the operator that they quantize, on quantized tensors; QuantizeLinear and DequantizeLinear
say what their quantized side means. Operators that only move values hand a quantization on, both ways.
A QGemm of ONNX Runtime without a scale of its output is an integer product whose sums become float32:
y = float32((A - a_zero) @ (B - b_zero) + C) * (alpha * a_scale * b_scale), the factor in float32 and one for each column
where B has as many scales. It becomes MatMulInteger, Add, Cast and Mul, which have code for computed matrices too.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from emitc.errors import EXPORT_AGAIN, EmitcError, Where
from emitc.frontends.onnx.numbers import require_differences, require_range
from emitc.frontends.onnx.signed import SignRewriter
from emitc.frontends.onnx.storage_types import CODE_KINDS, codes
from emitc.frontends.source_rewriter import ABSENT, RewriterNode, SourceRewriter
from emitc.ir import Array, Quantization
from emitc.records import dataclass, replace
from emitc.source import SourceModel, SourceTensor

_A, _A_SCALE, _A_ZERO, _B, _B_SCALE, _B_ZERO, _C, _Y_SCALE = range(8)
_FLOAT32 = 1
"""float32 among the element types of ONNX."""


def _real_product(rewriter: SourceRewriter, node: RewriterNode) -> list[RewriterNode]:
    """The operators that replace a QGemm without a scale of its output. Raises CannotCompile for a computed scale."""
    why, hint = "the factor of a float32 output is computed while compiling", "export the model with constant scales"
    a_scale, b_scale = (rewriter.known(node, node.input(at), "scale", why, hint) for at in (_A_SCALE, _B_SCALE))
    alpha = rewriter.source_node(node).real("alpha", 1.0)
    with np.errstate(all="ignore"):
        factor = np.asarray(np.float32(alpha) * a_scale.astype(np.float32).reshape(()) * b_scale.astype(np.float32))
    nodes: list[RewriterNode] = []
    matrices = [
        _turned(rewriter, node, node.input(position), nodes) if node.attributes.get(turn) else node.input(position)
        for position, turn in ((_A, "transA"), (_B, "transB"))
    ]
    (output,) = node.outputs
    y = rewriter.tensors[output]

    def step(kind: str, inputs: list[int], dtype: str, **attributes: int) -> int:
        made = output if kind == "Mul" else rewriter.tensor(f"{y.name}_{kind.lower()}", dtype, y.shape)
        nodes.append(rewriter.node(kind, node.name, inputs, [made], **attributes))
        return made

    zeros = [node.input(position) for position in (_A_ZERO, _B_ZERO)]
    operands = [*matrices, *zeros]
    while operands[-1] == ABSENT:
        operands.pop()
    sums = step("MatMulInteger", operands, "int32")
    if node.input(_C) != ABSENT:
        sums = step("Add", [sums, node.input(_C)], "int32")
    reals = step("Cast", [sums], "float32", to=_FLOAT32)
    step("Mul", [reals, rewriter.tensor(f"{y.name}_factor", "float32", factor.shape, data=factor)], "float32")
    return nodes


def _turned(rewriter: SourceRewriter, node: RewriterNode, index: int, nodes: list[RewriterNode]) -> int:
    """A transposed matrix: a constant, or what a Transpose gives."""
    tensor: SourceTensor = rewriter.tensors[index]
    shape = tensor.shape[::-1]
    if tensor.data is not None:
        return rewriter.tensor(tensor.name, tensor.dtype, shape, data=np.ascontiguousarray(tensor.array().T))
    turned = rewriter.tensor(f"{tensor.name}_turned", tensor.dtype, shape)
    nodes.append(rewriter.node("Transpose", node.name, [index], [turned], perm=(1, 0)))
    return turned


MOVES = frozenset((
    "MaxPool", "GlobalMaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Dropout",
    "Slice", "Split", "Gather", "DepthToSpace", "SpaceToDepth", "Expand", "Tile",
))  # fmt: skip
"""Kinds whose outputs are values of their first input."""
_BY_SCALES = {"QLinearAdd": "AddByScales", "QLinearMul": "MulByScales"}
"""Kinds of operators that can take scales and zero points from computed tensors."""
_UNSIGNED_ONLY = frozenset(
    (
        "Cast", "CastLike", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "Abs", "Sign", "Mod", "Pow", "Clip", "Pad",
        "BitwiseAnd", "BitwiseOr", "BitwiseXor", *_BY_SCALES.values(), *CODE_KINDS,
        "If", "Loop", "Scan",
    )
)  # fmt: skip
"""Kinds that see the number itself, not what it stands for."""
_COMPILED = "the arithmetic is settled at compile time"
_QUANTIZED = ("int8", "uint8", "int16", "uint16", "int32")


@dataclass(frozen=True, slots=True)
class _Part:
    """A quantized tensor of an operator: positions of value (or output, from -1 down), scale and zero point.

    axis: of one scale per slice, where the operator has such.
    """

    value: int
    scale: int
    zero_point: int
    axis: int = 0


_OUT = -1
_BINARY = (_Part(0, 1, 2), _Part(3, 4, 5), _Part(_OUT, 6, 7))
_UNARY = (_Part(0, 1, 2), _Part(_OUT, 3, 4))
_OF_ONE_VALUE = ("Sigmoid", "LeakyRelu", "Softmax", "AveragePool", "GlobalAveragePool")

_PARTS: dict[str, tuple[str, tuple[_Part, ...], tuple[int, ...]]] = {
    "QLinearConv": ("Conv", (_Part(0, 1, 2), _Part(3, 4, 5, 0), _Part(_OUT, 6, 7)), (0, 3, 8)),
    "QLinearMatMul": ("MatMul", (_Part(0, 1, 2), _Part(3, 4, 5, -1), _Part(_OUT, 6, 7)), (0, 3)),
    "QGemm": ("Gemm", (_Part(0, 1, 2), _Part(3, 4, 5, -1), _Part(_OUT, 7, 8)), (0, 3, 6)),
    **{f"QLinear{kind}": (kind, _BINARY, (0, 3)) for kind in ("Add", "Mul")},
    **{f"QLinear{kind}": (kind, _UNARY, (0,)) for kind in _OF_ONE_VALUE},
    "QuantizeLinear": ("Quantize", (_Part(_OUT, 1, 2),), (0,)),
    "DequantizeLinear": ("Dequantize", (_Part(0, 1, 2),), (0,)),
}
"""Kind, quantized parts, and the inputs that remain operands."""

QUANTIZED_OPERATORS: Mapping[str, str] = MappingProxyType(
    {name: kind for name, (kind, _, _) in _PARTS.items()} | {"QLinearConcat": "Concat"}
)
"""Kind of each operator that has scales among its inputs."""
INTERNAL_KINDS = frozenset((
    "DepthwiseConv", "FullyConnected", "Reinterpret", "Quantize", "Dequantize", "ShiftSign", "HybridConv2D",
    "ComputedConv2D", "ComputedFullyConnected", "HybridOffsetConv2D",
    *_BY_SCALES.values(), *CODE_KINDS,
))  # fmt: skip
"""Kinds that no file has: what the frontend makes of other operators."""


def _quantization(rewriter: SourceRewriter, node: RewriterNode, part: _Part, target: int) -> Quantization | None:
    """The quantization that an operator states for a tensor; None where it leaves the scale out."""
    scale_at, zero_at = node.input(part.scale), node.input(part.zero_point)
    if scale_at == ABSENT:
        return None
    source = rewriter.source_node(node)
    tensor = rewriter.tensors[target]
    if tensor.dtype not in _QUANTIZED:
        what, why = f"with values of type {tensor.dtype} is not supported", ", ".join(_QUANTIZED)
        raise source.unsupported(what, f"there is code for {why}", "quantize the model to int8", tensor)
    scale = rewriter.known(node, scale_at, "scale", _COMPILED)
    zero = None if zero_at == ABSENT else rewriter.known(node, zero_at, "zero point", _COMPILED)
    real = rewriter.tensors[scale_at]
    if real.dtype not in ("float32", "float16"):
        what = f"with a scale of type {real.dtype} is not supported"
        hint = "export the model in float32 before quantizing it"
        raise source.unsupported(what, "scales are float32 or float16", hint, real)
    if zero is not None and zero.dtype.kind not in "iu":
        stored = rewriter.tensors[zero_at]
        what = f"has a zero point of type {stored.dtype}"
        raise source.refusal(what, f"the values have type {tensor.dtype}", tensor=stored)
    scales = tuple(float(v) for v in scale.reshape(-1).tolist())
    zeros = (0,) * len(scales) if zero is None else tuple(int(v) for v in zero.reshape(-1).tolist())
    if len(zeros) == 1:
        zeros *= len(scales)
    rank = len(tensor.shape)
    axis = part.axis
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        axis = source.integer("axis", 1)
    if node.op_type == "QGemm" and part.axis == -1 and node.attributes.get("transB"):
        axis = -2
    if len(scales) == 1:
        axis = 0
    elif not -rank <= axis < rank or tensor.shape[axis] != len(scales):
        why = f"they do not fit axis {axis} of {list(tensor.shape)}"
        raise source.refusal(f"has {len(scales)} scales", why, tensor=tensor)
    _require_sound(node.op_type, scales, zeros, tensor.dtype, source.where(tensor))
    require_range(node.op_type, scales, tensor.dtype, source.where(tensor))
    quantization = Quantization(scales, zeros, axis % rank if rank else 0)
    if tensor.dtype == "int32":
        values = None if tensor.data is None else tensor.array().astype(np.int64)
        require_differences(node.op_type, values, quantization.spread(rank)[1], source.where(tensor))
    return quantization


def _require_sound(op_type: str, scales: tuple[float, ...], zeros: tuple[int, ...], dtype: str, where: Where) -> None:
    """Raises EmitcError for scales that are not positive, and for zero points that are too few or outside of their type."""
    if len(zeros) != len(scales) or not scales:
        what = f"{op_type} has {len(zeros)} zero points for {len(scales)} scales"
        raise EmitcError(what, where, "there is one for each", EXPORT_AGAIN)
    if not all(np.isfinite(s) and s > 0 for s in scales):
        what = f"{op_type} has a scale that is not positive"
        raise EmitcError(what, where, f"{min(scales)!r}", "quantize the model again")
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    if not all(low <= z <= high for z in zeros):
        raise EmitcError(f"{op_type} has a zero point outside its type", where, dtype, "quantize again")


def _reinterpreted(
    rewriter: SourceRewriter, node: RewriterNode, index: int, quantization: Quantization
) -> tuple[int, RewriterNode]:
    """The same numbers under another quantization, as a tensor of its own."""
    tensor = rewriter.tensors[index]
    view = rewriter.tensor(f"{tensor.name}_as_{node.name}", tensor.dtype, tensor.shape, quantization)
    return view, rewriter.node("Reinterpret", node.name, [index], [view])


def _rule(node: RewriterNode) -> tuple[str, tuple[_Part, ...], tuple[int, ...]] | None:
    """Kind, quantized parts, and operands of an operator with scale inputs; None for any other.

    QLinearConcat has scale and zero point of its output first, then value, scale and zero point of each input.
    """
    if node.kind != "QLinearConcat":
        return _PARTS.get(node.kind)
    parts = tuple(_Part(at, at + 1, at + 2) for at in range(2, len(node.inputs), 3))
    return "Concat", (_Part(_OUT, 0, 1), *parts), tuple(part.value for part in parts)


def _unwrap(rewriter: SourceRewriter) -> None:
    """Each operator with scale inputs becomes the operator on quantized tensors."""

    def replacement(node: RewriterNode) -> list[RewriterNode]:
        rule = _rule(node)
        return [node] if rule is None else _unwrapped(rewriter, node, *rule)

    rewriter.replace_each(replacement)


def _by_scales(rewriter: SourceRewriter, node: RewriterNode) -> bool:
    """Leaves scales and zero points where they are, if any is computed and there is code for that; adds zero points of 0."""
    operands = [node.input(position) for position in range(8)]
    zeros = (2, 5, 7)
    whole = all(index != ABSENT for position, index in enumerate(operands) if position not in zeros)
    all_constant = all(
        rewriter.tensors[index].data is not None for index in (*operands[1:3], *operands[4:]) if index != ABSENT
    )
    if node.kind not in _BY_SCALES or not whole or all_constant:
        return False
    dtype = rewriter.tensors[operands[0]].dtype
    if dtype in _QUANTIZED:  # others are refused by the kernel
        for position in zeros:
            if operands[position] == ABSENT:
                operands[position] = rewriter.tensor(f"{node.name}_zero", dtype, (), data=np.zeros((), dtype))
    node.inputs = _trimmed(operands)
    node.kind = _BY_SCALES[node.kind]
    return True


def _require_plain(rewriter: SourceRewriter, node: RewriterNode) -> None:
    """Refuses a QGemm for which there is no integer code."""
    if node.kind != "QGemm":
        return
    source, hint = rewriter.source_node(node), "export the model with QLinearMatMul, or in QDQ format"
    if node.input(3) != ABSENT and rewriter.tensors[node.input(3)].data is None:
        what = "with a computed matrix B is not supported"
        raise source.unsupported(what, "there is code for constant weights", hint)
    factor = source.real("alpha", 1.0)
    if not 0 < factor < np.inf:
        what = f"with the factor alpha {factor:g} is not supported"
        raise source.unsupported(what, "there is code for factors above 0", "multiply the matrix B by it")


def _with_factor(rewriter: SourceRewriter, node: RewriterNode, quantization: Quantization) -> Quantization:
    """The quantization of a QGemm's matrix A with the factor alpha in its scale, which ONNX Runtime multiplies first.

    Raises CannotCompile where the product is no float32 above 0.
    """
    factor = node.attributes.pop("alpha", 1.0) if node.kind == "QGemm" else 1.0
    assert isinstance(factor, int | float)
    if factor == 1.0:
        return quantization
    with np.errstate(all="ignore"):
        scales = tuple(float(np.float32(factor) * np.float32(scale)) for scale in quantization.scales)
    if not all(0 < scale < np.inf for scale in scales):
        what, why = f"with the factor alpha {factor:g} is not supported", f"{scales[0]:g}"
        source = rewriter.source_node(node)
        raise source.unsupported(what, f"with it the scale of the matrix A is {why}", "quantize the model again")
    return replace(quantization, scales=scales)


def _unwrapped(
    rewriter: SourceRewriter, node: RewriterNode, kind: str, parts: tuple[_Part, ...], operands: tuple[int, ...]
) -> list[RewriterNode]:
    """The operator without its scale inputs, among the Reinterprets that it needs."""
    if _by_scales(rewriter, node):
        return [node]
    if node.kind == "QGemm" and node.input(_Y_SCALE) == ABSENT:
        return _real_product(rewriter, node)
    _require_plain(rewriter, node)
    unwrapped: list[tuple[_Part, int, Quantization]] = []
    for part in parts:
        at = (node.outputs or [ABSENT])[0] if part.value == _OUT else node.input(part.value)
        quantization = None if at == ABSENT else _quantization(rewriter, node, part, at)
        if at == ABSENT or (quantization is None and node.kind == "QLinearConcat"):
            missing = "output" if part.value == _OUT else "input"
            why = "a value or scale that it cannot do without is left out"
            raise rewriter.source_node(node).refusal(f"misses an {missing}", why)
        if quantization is not None:
            unwrapped.append((part, at, quantization))
    early: list[RewriterNode] = []
    late: list[RewriterNode] = []
    for part, at, quantization in unwrapped:
        stated = rewriter.tensors[at].quantization
        if part.value == 0 and (scaled := _with_factor(rewriter, node, quantization)) != quantization:
            node.inputs[0], reinterpret = _reinterpreted(rewriter, node, at, scaled)
            early.append(reinterpret)
        elif stated is None or stated == quantization:
            rewriter.set(at, quantization=quantization)
        elif part.value == _OUT:
            raw = rewriter.tensor(
                f"{node.name}_out", rewriter.tensors[at].dtype, rewriter.tensors[at].shape, quantization
            )
            node.outputs[0] = raw
            late.append(rewriter.node("Reinterpret", node.name, [raw], [at]))
        else:
            node.inputs[part.value], reinterpret = _reinterpreted(rewriter, node, at, quantization)
            early.append(reinterpret)
    node.inputs = _trimmed([node.input(p) for p in operands])
    node.kind = kind
    return [*early, node, *late]


def _trimmed(inputs: list[int]) -> list[int]:
    while inputs and inputs[-1] == ABSENT:
        inputs.pop()
    return inputs


def _join(rewriter: SourceRewriter, node: RewriterNode) -> None:
    """Values that are put side by side mean the same, where nothing says otherwise."""
    tensors = [rewriter.tensors[index] for index in (*node.inputs, *node.outputs) if index != ABSENT]
    known = {tensor.quantization for tensor in tensors} - {None}
    if len(known) == 1 and len({tensor.dtype for tensor in tensors}) == 1 and tensors[0].dtype in _QUANTIZED:
        (quantization,) = known
        if quantization is not None and quantization.per_tensor:
            for tensor in tensors:
                rewriter.set(tensor.index, quantization=quantization)


def _moves(node: RewriterNode) -> bool:
    return node.kind in MOVES and node.input(0) != ABSENT


def _hand_on(rewriter: SourceRewriter) -> None:
    """Values that are only moved keep what they mean, forwards and then backwards."""
    for node in (*rewriter.nodes, *rewriter.nodes[::-1]):
        if node.kind == "Concat":
            _join(rewriter, node)
        for output in node.outputs if _moves(node) else ():
            a, b = rewriter.tensors[node.inputs[0]], rewriter.tensors[output]
            if a.dtype != b.dtype or a.dtype not in _QUANTIZED:
                continue
            if b.quantization is None and a.quantization is not None and a.quantization.per_tensor:
                rewriter.set(output, quantization=a.quantization)
            elif a.quantization is None and b.quantization is not None and b.quantization.per_tensor:
                rewriter.set(node.inputs[0], quantization=b.quantization)
    nodes_after: list[RewriterNode] = []
    for node in rewriter.nodes:
        nodes_after.append(node)
        for position, output in enumerate(node.outputs if _moves(node) else ()):
            source, target = rewriter.tensors[node.inputs[0]], rewriter.tensors[output]
            if None not in (source.quantization, target.quantization) and source.quantization != target.quantization:
                raw = rewriter.tensor(f"{target.name}_moved", target.dtype, target.shape, source.quantization)
                node.outputs[position] = raw
                nodes_after.append(rewriter.node("Reinterpret", node.name, [raw], [output]))
    rewriter.nodes = nodes_after


def _remember_unsigned(rewriter: SourceRewriter) -> None:
    """These operators round after they add the zero point, so that uint8 and int8 round differently."""
    for node in rewriter.nodes:
        rounds_late = node.op_type in ("QLinearAdd", "QLinearMul", "QLinearAveragePool")
        if rounds_late and rewriter.tensors[node.outputs[0]].dtype == "uint8":
            node.attributes["unsigned"] = 1


def _real(tensor: SourceTensor | None) -> Array | None:
    """The real values of a quantized constant."""
    if tensor is None or tensor.quantization is None:
        return None
    scale, zero = tensor.quantization.spread(len(tensor.shape))
    return np.asarray((tensor.array().astype(np.int64) - zero).astype(np.float32) * scale)


def _fold_constants(rewriter: SourceRewriter) -> None:
    """A QuantizeLinear of a constant, also of one that was dequantized, becomes a quantized constant."""
    dequantized: dict[int, SourceTensor] = {}
    nodes: list[RewriterNode] = []
    for node in rewriter.nodes:
        source = rewriter.tensors[node.inputs[0]] if node.inputs and node.inputs[0] != ABSENT else None
        if node.kind == "Dequantize" and source is not None and source.data is not None and source.quantization:
            dequantized[node.outputs[0]] = source
        value = None
        if node.kind == "Quantize" and source is not None and node.blocker is None:
            value = source.array() if source.data is not None else _real(dequantized.get(source.index))
        target = rewriter.tensors[node.outputs[0]] if node.outputs else None
        if value is None or target is None or target.quantization is None or value.dtype != np.float32:
            nodes.append(node)
            continue
        scale, zero = target.quantization.spread(len(target.shape))
        info = np.iinfo(target.dtype)
        with np.errstate(all="ignore"):
            whole = np.nan_to_num(np.rint(value.astype(np.float32) / scale).astype(np.float64), posinf=1e9, neginf=-1e9)
        data = np.clip(whole + zero, info.min, info.max).astype(target.dtype)
        rewriter.budget.spend(data.nbytes, rewriter.source_node(node).where())
        rewriter.set(target.index, data=data.tobytes())
    rewriter.nodes = nodes


def _state_statistics(rewriter: SourceRewriter) -> None:
    """BatchNormalization reads the real values of dequantized constants, since its factors are computed while compiling."""
    dequantized: dict[int, SourceTensor] = {}
    for node in rewriter.nodes:
        if node.kind == "Dequantize" and node.blocker is None and rewriter.tensors[node.inputs[0]].data is not None:
            dequantized[node.outputs[0]] = rewriter.tensors[node.inputs[0]]
        if node.op_type != "BatchNormalization":
            continue
        for position, index in enumerate(node.inputs[1:], 1):
            value = _real(dequantized.get(index))
            if value is not None:
                tensor = rewriter.tensors[index]
                node.inputs[position] = rewriter.tensor(f"{tensor.name}_real", "float32", tensor.shape, data=value)


_STEPS: tuple[Callable[[SourceRewriter], None], ...] = (
    codes, _unwrap, _fold_constants, _state_statistics, _hand_on, _remember_unsigned,
    lambda rewriter: SignRewriter(rewriter, _UNSIGNED_ONLY).rewrite(),
)  # fmt: skip


def quantization_on_tensors(model: SourceModel) -> SourceModel:
    """The model with constant scales on their tensors. An operator whose scales are wrong, or without code, is blocked."""
    rewriter = SourceRewriter(model)
    for step in _STEPS:
        step(rewriter)
    return rewriter.freeze()
