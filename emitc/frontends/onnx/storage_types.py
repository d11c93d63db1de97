"""QuantizeLinear and DequantizeLinear beyond int8 with constant scales, and the element types that only they have.

A type of less than a byte is held one value per byte. A float8 or float4 is held as its bits in a byte, a float16 as its bits
in a uint16. Such tensors go from and to the two operators, and through operators that move whole elements; every other operator
that has one is refused. float16 on the real side is float32 inside: widening is exact, and narrowing is a quantization of its
own. An integer constant of less than a byte that is dequantized with constant scales is an int8 constant like any other.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np

from emitc.errors import Note, NoteCode
from emitc.frontends.source_rewriter import ABSENT, RewriterNode, SourceRewriter
from emitc.ir import Array
from emitc.records import dataclass, field
from emitc.source import SourceTensor

STORAGE: Mapping[str, str] = MappingProxyType({
    "int2": "int8", "uint2": "uint8", "int4": "int8", "uint4": "uint8",
    "float8e4m3fn": "uint8", "float8e5m2": "uint8", "float4e2m1": "uint8",
})  # fmt: skip
"""Element types that no other operator has, and what holds one element of each."""
_HALF = "float16"
_SMALL_INTEGERS = ("int2", "uint2", "int4", "uint4")
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32")
_MOVES = frozenset((
    "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Slice", "Split", "Gather", "DepthToSpace",
    "SpaceToDepth", "Expand", "Tile", "Concat",
))  # fmt: skip
"""Operators of the file that move elements whole, whatever they are."""
_KINDS = {"QuantizeLinear": "QuantizeCodes", "DequantizeLinear": "DequantizeCodes"}
CODE_KINDS = frozenset(_KINDS.values())
_FLOAT = 1
"""ONNX's number of float32."""


def stored_bits(dtype: str) -> int:
    """Bits of an element in the file, where elements share bytes; 0 for any other type."""
    return {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4e2m1": 4}.get(dtype, 0)


def stored_bytes(array: Array, dtype: str) -> Array:
    """A constant of one of the types in STORAGE as an array of what holds it; of any other type as it is."""
    if dtype not in STORAGE:
        return array
    return array.astype(STORAGE[dtype]) if dtype in _SMALL_INTEGERS else array.view(STORAGE[dtype])


@dataclass(slots=True)
class _Codes:
    """The rewriting of one model. widened: float32 tensors by the float16 one that they come from. ones: a scale of 1."""

    rewriter: SourceRewriter
    nodes: list[RewriterNode] = field(default_factory=list)
    widened: dict[int, int] = field(default_factory=dict)
    ones: list[int] = field(default_factory=list)

    def half(self, kind: str, node: RewriterNode, source: int, target: int) -> None:
        """Adds a node between float32 and float16, on behalf of one of the file's."""
        if not self.ones:
            self.ones.append(self.rewriter.tensor("one", "float32", (), data=np.ones((), np.float32)))
        added = self.rewriter.node(kind, node.name, [source, self.ones[0]], [target], element=_HALF)
        added.op_type = node.op_type
        self.nodes.append(added)

    def real(self, index: int, node: RewriterNode) -> int:
        """A float16 tensor as float32, a constant at once; any other as it is."""
        tensor = self.rewriter.tensors[index]
        if tensor.dtype != _HALF:
            return index
        if index not in self.widened:
            data = None if tensor.data is None else tensor.array().astype(np.float32)
            self.widened[index] = self.rewriter.tensor(f"{tensor.name}_f32", "float32", tensor.shape, data=data)
            if data is None:
                self.half("DequantizeCodes", node, index, self.widened[index])
        return self.widened[index]

    def replaced(self, node: RewriterNode) -> Iterable[RewriterNode]:
        """The operator, where it is one of the two, as the kernels of codes have it; others as they are."""
        rewriter, quantizes = self.rewriter, node.kind == "QuantizeLinear"
        x, scale, zero, y = (*(node.input(i) for i in range(3)), node.outputs[0] if node.outputs else ABSENT)
        if node.kind not in _KINDS or ABSENT in (x, scale, y):
            return (node,)
        code, real = (rewriter.tensors[i] for i in ((y, x) if quantizes else (x, y)))
        if (not quantizes and self.as_int8(node, code, real)) or not self.beyond(node, code, real):
            return (node,)
        self.refuse(node, code, real)
        node.inputs = [self.real(x, node), self.real(scale, node), *([] if zero == ABSENT else [zero])]
        node.attributes["element"] = code.dtype
        node.kind = _KINDS[node.kind]
        self.nodes.append(node)
        if not quantizes and real.dtype == _HALF:
            node.outputs = [rewriter.tensor(f"{real.name}_f32", "float32", real.shape)]
            self.half("QuantizeCodes", node, node.outputs[0], y)
        return ()

    def as_int8(self, node: RewriterNode, code: SourceTensor, real: SourceTensor) -> bool:
        """Makes an int8 constant of a smaller one, with its zero point, where that is all there is to it."""
        rewriter = self.rewriter
        if code.dtype not in _SMALL_INTEGERS or code.data is None or self.computed(node, real):
            return False
        for position in (0, 2):
            if node.input(position) != ABSENT:
                tensor = rewriter.tensors[node.inputs[position]]
                if tensor.dtype != code.dtype or tensor.data is None:
                    return False
                data = np.frombuffer(tensor.data, STORAGE[tensor.dtype]).reshape(tensor.shape).astype(np.int8)
                node.inputs[position] = rewriter.tensor(f"{tensor.name}_s8", "int8", tensor.shape, data=data)
        return True

    def computed(self, node: RewriterNode, real: SourceTensor) -> bool:
        """Whether scales are computed at run time, per block, or of another type than float32, as is the real side."""
        scale, zero = (self.rewriter.tensors[i] if i != ABSENT else None for i in (node.input(1), node.input(2)))
        assert scale is not None
        return bool(
            node.attributes.get("block_size", 0)
            or scale.data is None
            or (zero is not None and zero.data is None)
            or scale.dtype != "float32"
            or real.dtype != "float32"
        )

    def beyond(self, node: RewriterNode, code: SourceTensor, real: SourceTensor) -> bool:
        """Whether the operator needs the kernels of codes."""
        return code.dtype in STORAGE or (code.dtype in _INTEGERS and self.computed(node, real))

    def refuse(self, node: RewriterNode, code: SourceTensor, real: SourceTensor) -> None:
        """Raises CannotCompile for real types and settings without code."""
        source = self.rewriter.source_node(node)
        scale = self.rewriter.tensors[node.inputs[1]]
        for tensor, what in ((scale, "a scale"), (real, "real values")):
            if tensor.dtype not in ("float32", _HALF):
                what, why = f"with {what} of type {tensor.dtype} is not supported", "float32 and float16"
                hint = "export the model in float32 before quantizing it"
                raise source.unsupported(what, f"there is code for {why}", hint, tensor)
        if node.attributes.get("precision", 0) not in (0, _FLOAT):
            what = "with a precision other than float32 is not supported"
            why = "the division is done in float32, as ONNX Runtime does it"
            raise source.unsupported(what, why, "export the model without it")
        if code.dtype.startswith("float8") and not node.attributes.get("saturate", 1):
            what = "without saturation is not supported"
            why = "values beyond the type's range become its largest"
            raise source.unsupported(what, why, "export the model with saturate = 1")


def _use_storage_types(rewriter: SourceRewriter) -> None:
    """Every tensor of a type that is held as another gets that one; operators that know nothing of it are blocked."""
    halves = any(node.kind in CODE_KINDS and node.attributes["element"] == _HALF for node in rewriter.nodes)
    others: dict[int, list[RewriterNode]] = {}
    for node in rewriter.nodes:
        if node.kind not in _MOVES and node.kind not in CODE_KINDS:
            for index in {*node.inputs, *node.outputs} - {ABSENT}:
                others.setdefault(index, []).append(node)
    for tensor in list(rewriter.tensors):
        readers = others.get(tensor.index, [])
        if tensor.dtype in STORAGE:
            for node in readers:
                what = f"with values of type {tensor.dtype} is not supported"
                why = "only QuantizeLinear, DequantizeLinear and operators that move values have code for this type"
                hint = "put a DequantizeLinear in front of the operator, or quantize the model to int8"
                node.blocker = node.blocker or rewriter.source_node(node).unsupported(what, why, hint, tensor)
            storage, width = STORAGE[tensor.dtype], "byte"
        elif tensor.dtype == _HALF and halves and tensor.data is None and not readers:
            storage, width = "uint16", "uint16"
        else:
            continue
        rewriter.set(tensor.index, dtype=storage)
        if tensor.index in (*rewriter.inputs, *rewriter.outputs):
            what = "value" if tensor.dtype in _SMALL_INTEGERS else "value's bits"
            stored = f'"{tensor.name}" is {tensor.dtype}: one {what} in each {width}'
            rewriter.notes.append(Note(NoteCode.STORAGE, stored))


def codes(rewriter: SourceRewriter) -> None:
    """The step: both operators where they go beyond int8 with constant scales, then the types of all tensors."""
    rewriting = _Codes(rewriter)
    rewriter.replace_each(rewriting.replaced, rewriting.nodes)
    _use_storage_types(rewriter)
