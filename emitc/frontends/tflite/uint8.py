"""Legacy uint8 models of TFLite: their quantized tensors become int8, 128 lower, where the arithmetic is the same.

A uint8 value q with zero point z is the same number as the int8 value q - 128 with zero point z - 128. Kernels that subtract
zero points before they multiply or add do not depend on the representation. Operators that do get the attribute `unsigned`:
average pools and bilinear resizing, which round in the range of uint8; convolutions and fully connected layers, whose weights
have a zero point; and those that LiteRT computes in float32 there: sigmoids, the ratios of rectifiers, joins of several scales.
From the operators that compute on uint8 the new type spreads through those that move values; at the model's interface, and at
every other operator, a ShiftSign goes between. A model in which nothing computes on uint8 stays as it is.
"""

from collections.abc import Iterable

from emitc.frontends.tflite.additions import Additions, with_tensors
from emitc.records import dataclass, field, replace
from emitc.source import SourceModel, SourceNode, SourceTensor

_OWN_RULE = frozenset({
    "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "AVERAGE_POOL_2D", "LOGISTIC", "TANH", "RELU", "RELU6", "RELU_N1_TO_1",
    "LEAKY_RELU", "RESIZE_BILINEAR",
})  # fmt: skip
"""Operators that compute on uint8 otherwise than on int8, see Numerics.UNSIGNED."""
_COMPUTES = _OWN_RULE | {
    "MAX_POOL_2D", "SOFTMAX", "ADD", "SUB", "MUL", "QUANTIZE", "ARG_MAX", "ARG_MIN", "MEAN", "SUM", "MAXIMUM", "MINIMUM",
    "HARD_SWISH", "PRELU",
}  # fmt: skip
"""The others' uint8 kernels do what their int8 kernels do with the zero points of int8."""
_ONE_SIDED = {"QUANTIZE": 2, "ARG_MAX": 1, "ARG_MIN": 1}
"""Operators that compute on uint8 alone where so many of their tensors are of it."""
_MOVES = frozenset({
    "RESHAPE", "SQUEEZE", "EXPAND_DIMS", "CONCATENATION", "PACK", "UNPACK", "SPLIT", "SPLIT_V", "TRANSPOSE", "SLICE",
    "STRIDED_SLICE", "PAD", "MIRROR_PAD", "RESIZE_NEAREST_NEIGHBOR", "SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "GATHER", "REVERSE_V2",
})  # fmt: skip
_CONVERTS = frozenset({"QUANTIZE", "DEQUANTIZE"})


def _legacy(tensor: SourceTensor | None) -> bool:
    return tensor is not None and tensor.dtype == "uint8" and tensor.quantization is not None and not tensor.is_variable


def _bytes(node: SourceNode) -> list[SourceTensor]:
    return [t for t in (*node.inputs, *node.outputs) if t is not None and t.dtype == "uint8"]


def _joins_scales(node: SourceNode) -> bool:
    """Whether the operator brings tensors of several scales to one."""
    return node.op_type == "CONCATENATION" and len({tensor.quantization for tensor in _bytes(node)}) > 1


def _computes(node: SourceNode) -> bool:
    """Whether the operator computes on legacy tensors alone."""
    byte_tensors = _bytes(node)
    if not all(map(_legacy, byte_tensors)):
        return False
    if node.op_type not in _COMPUTES:
        return _joins_scales(node)
    if node.op_type in _ONE_SIDED:
        return len(byte_tensors) == _ONE_SIDED[node.op_type]
    own = node.inputs[: 2 if node.op_type == "FULLY_CONNECTED" else 1] + node.outputs[:1]
    return len(own) > 1 and all(map(_legacy, own))


def _passes_on(node: SourceNode) -> bool:
    """Whether the operator is the same for int8: it moves values, or converts from or to float."""
    tensors = _bytes(node)
    if not tensors or not all(map(_legacy, tensors)):
        return False
    if node.op_type in _CONVERTS:
        return "float32" in {t.dtype for t in (*node.inputs, *node.outputs) if t is not None}
    # One that changes the scale is rescaled by its own rule.
    return node.op_type in _MOVES and len({tensor.quantization for tensor in tensors}) == 1


def _spread(nodes: Iterable[SourceNode]) -> tuple[set[int], set[int]]:
    """Tensors and nodes (by their identity) that become int8."""
    tensors: set[int] = set()
    chosen: set[int] = set()
    around: dict[int, list[SourceNode]] = {}
    waiting: list[SourceNode] = []
    for node in nodes:
        if _computes(node):
            waiting.append(node)
        elif _passes_on(node):
            for tensor in _bytes(node):
                around.setdefault(tensor.index, []).append(node)
    while waiting:
        node = waiting.pop()
        if id(node) in chosen:
            continue
        chosen.add(id(node))
        for tensor in _bytes(node):
            tensors.add(tensor.index)
            waiting += around.pop(tensor.index, ())
    return tensors, chosen


@dataclass(slots=True)
class _Rewriting(Additions):
    """signed: int8 tensors, unsigned: uint8 ones of the same values, by the file's index. interface: the model's ends."""

    signed: dict[int, SourceTensor] = field(default_factory=dict)
    interface: frozenset[int] = frozenset()
    unsigned: dict[int, SourceTensor] = field(default_factory=dict)

    def unsigned_copy(self, index: int) -> SourceTensor:
        """A new uint8 tensor of a file's tensor; the interface keeps the name."""
        original = self.model.tensors[index]
        name = original.name if index in self.interface else f"{original.name}_u8"
        self.unsigned[index] = self.tensor(original, name=name)
        return self.unsigned[index]

    def rebias(self, source: SourceTensor, target: SourceTensor) -> None:
        """Adds the operator between the two of one tensor."""
        self.node("REBIAS", (source,), target, "ShiftSign")

    def as_unsigned(self, index: int) -> SourceTensor:
        """The uint8 tensor of a file's tensor, for what needs it."""
        if index not in self.signed:
            return self.tensors[index]
        if index not in self.unsigned and self.unsigned_copy(index).data is None:
            self.rebias(self.signed[index], self.unsigned[index])
        return self.unsigned[index]

    def kept(self, node: SourceNode) -> None:
        """Adds a node that stays with uint8, and turns what it writes where others read int8."""
        inputs = tuple(None if t is None else self.as_unsigned(t.index) for t in node.inputs)
        turned = [t.index for t in node.outputs if t.index in self.signed and t.index not in self.unsigned]
        outputs = tuple(self.unsigned_copy(t.index) if t.index in turned else t for t in node.outputs)
        self.nodes.append(replace(node, inputs=inputs, outputs=outputs))
        for index in turned:
            self.rebias(self.unsigned[index], self.signed[index])

    def turned(self, node: SourceNode) -> None:
        """Adds a node that is one of int8 now; it is `unsigned` where its int8 kernel would not do the same."""
        unsigned = {"unsigned": 1} if node.op_type in _OWN_RULE or _joins_scales(node) else {}
        made = with_tensors(node, self.signed, outputs=True)
        self.nodes.append(replace(made, attributes={**node.attributes, **unsigned}))


def with_signed_bytes(model: SourceModel) -> SourceModel:
    """The model with its legacy tensors as int8. Only the first subgraph is rewritten."""
    legacy, chosen = _spread(model.nodes)
    if not legacy:
        return model
    work = _Rewriting(model, interface=frozenset((*model.inputs, *model.outputs)))
    for index in legacy:
        name = model.tensors[index].name + ("_s8" if index in work.interface else "")
        work.signed[index] = work.tensors[index] = replace(model.tensors[index].as_int8(), name=name)
    for index in dict.fromkeys(model.inputs):
        if index in legacy and model.tensors[index].data is None:
            work.rebias(work.unsigned_copy(index), work.signed[index])
    for node in model.nodes:
        (work.turned if id(node) in chosen else work.kept)(node)
    inputs = tuple(work.unsigned[i].index if i in work.unsigned else i for i in model.inputs)
    outputs = tuple(work.as_unsigned(i).index for i in model.outputs)
    return replace(model, tensors=tuple(work.tensors), nodes=tuple(work.nodes), inputs=inputs, outputs=outputs)
