"""Operators of TFLite that give numbers to a tensor of another scale or zero point: they stay, what they stand for changes.

TFLite Micro's kernels of such operators never look at scales, so that a file may state others for the result. Here a
Reinterpret, of which no code is left, goes before the operator, or after one of several outputs: the operator itself
keeps its scale. So it goes after those of int8 that compute for a scale of their own, whatever the output says. Pools
are among them where TFLite Micro takes two scales for equal. Only the first subgraph is rewritten.
Source  TFLite Micro's kernels, measured; CONCATENATION, ADD_N, PADV2 and REDUCE_MAX are not among them: they stop.
"""

from dataclasses import replace

from emitc.errors import Note, NoteCode
from emitc.frontends.tflite.additions import Additions
from emitc.ir import Quantization
from emitc.source import SourceModel, SourceNode, SourceTensor

_MOVES = frozenset({
    "BATCH_TO_SPACE_ND", "BROADCAST_TO", "DEPTH_TO_SPACE", "DYNAMIC_UPDATE_SLICE", "EMBEDDING_LOOKUP", "EXPAND_DIMS", "FILL",
    "GATHER", "GATHER_ND", "MAXIMUM", "MINIMUM", "MIRROR_PAD", "PACK", "PAD", "RESHAPE", "RESIZE_BILINEAR",
    "RESIZE_NEAREST_NEIGHBOR", "REVERSE_V2", "SELECT_V2", "SLICE", "SPACE_TO_BATCH_ND", "SPACE_TO_DEPTH", "SQUEEZE",
    "STRIDED_SLICE", "TRANSPOSE",
})  # fmt: skip
"""With one output, whose scale they take."""
_PARTS = frozenset({"SPLIT", "SPLIT_V", "UNPACK"})
"""With several, which take the scale of the input."""
_POOLS = frozenset({"AVERAGE_POOL_2D", "MAX_POOL_2D"})
_FIXED = {
    "L2_NORMALIZATION": Quantization((1 / 128,), (0,)),
    "LOGISTIC": Quantization((1 / 256,), (-128,)),
    "TANH": Quantization((1 / 128,), (0,)),
}
"""What operators of int8 compute for."""
_CHECKED_ZERO = frozenset({"LOGISTIC"})
"""Those of which TFLite Micro takes no other zero point."""
_ALMOST = 1.0e-6
"""Difference of scales up to which TFLite Micro runs a pool."""
_TYPES = ("int8", "int16")


def _quantization(tensor: SourceTensor | None) -> Quantization | None:
    """The quantization of a tensor whose scale a move may ignore."""
    fits = tensor is not None and tensor.dtype in _TYPES and not tensor.is_variable
    return tensor.quantization if tensor and fits and tensor.quantization and tensor.quantization.per_tensor else None


def _differ(a: Quantization | None, b: Quantization | None) -> bool:
    return a is not None and b is not None and (a.scale, a.zero_point) != (b.scale, b.zero_point)


class _Rewriting(Additions):
    def with_scale(self, tensor: SourceTensor, quantization: Quantization) -> SourceTensor:
        """A new tensor of the same numbers."""
        return self.tensor(tensor, name=f"{tensor.name}_numbers", quantization=quantization)

    def reinterpret(self, source: SourceTensor, target: SourceTensor) -> None:
        self.node("REINTERPRET", (source,), target, "Reinterpret")

    def rewrite(self, node: SourceNode) -> None:
        """Adds a node with the Reinterprets that it needs."""
        if node.op_type in _PARTS:
            self.parts(node)
        elif node.op_type in _MOVES or (node.op_type in _POOLS and _almost_equal(node)):
            self.move(node)
        elif node.op_type in _FIXED:
            self.computed(node)
        else:
            self.nodes.append(node)

    def move(self, node: SourceNode) -> None:
        """The operands of the output's type take its scale."""
        target = node.outputs[0] if len(node.outputs) == 1 else None
        wanted = _quantization(target)
        inputs: list[SourceTensor | None] = []
        for tensor in node.inputs:
            moved = tensor is not None and target is not None and tensor.dtype == target.dtype
            if tensor is None or wanted is None or not moved or not _differ(_quantization(tensor), wanted):
                inputs.append(tensor)
                continue
            inputs.append(self.with_scale(tensor, wanted))
            if tensor.data is None:
                self.reinterpret(tensor, self.tensors[-1])
        self.noted(node, tuple(inputs) != node.inputs)
        self.nodes.append(replace(node, inputs=tuple(inputs)))

    def parts(self, node: SourceNode) -> None:
        """The outputs take the scale of the input of their type."""
        stated = next((q for q in map(_quantization, node.inputs) if q is not None), None)
        pairs = [
            (self.with_scale(tensor, stated) if stated and _differ(stated, _quantization(tensor)) else tensor, tensor)
            for tensor in node.outputs
        ]
        self.noted(node, any(made is not tensor for made, tensor in pairs))
        self.nodes.append(replace(node, outputs=tuple(made for made, _ in pairs)))
        for made, tensor in pairs:
            if made is not tensor:
                self.reinterpret(made, tensor)

    def computed(self, node: SourceNode) -> None:
        """The output of int8 takes the scale that the operator computes for."""
        fixed, target = _FIXED[node.op_type], node.outputs[0] if len(node.outputs) == 1 else None
        stated = _quantization(target)
        refused = node.op_type in _CHECKED_ZERO and stated is not None and stated.zero_point != fixed.zero_point
        if target is None or target.dtype != "int8" or refused or not _differ(stated, fixed):
            self.nodes.append(node)
            return
        made = self.with_scale(target, fixed)
        self.nodes.append(replace(node, outputs=(made,)))
        self.reinterpret(made, target)
        what = (
            f"its numbers are those of scale {fixed.scale!r} and zero point {fixed.zero_point}, whatever its output says, as in "
            "TFLite Micro"
        )
        self.notes.append(Note(NoteCode.OTHER_SCALE, what).of(node.where().op))

    def noted(self, node: SourceNode, changed: bool) -> None:
        """Says so where a scale is left out, unless the two are almost equal."""
        if changed and node.op_type not in _POOLS:
            note = Note(NoteCode.OTHER_SCALE, "the numbers stay under another scale, as in TFLite Micro")
            self.notes.append(note.of(node.where().op))


def _almost_equal(node: SourceNode) -> bool:
    """Whether TFLite Micro takes the scales of a pool for equal."""
    ends = [_quantization(tensor) for tensor in (*node.inputs[:1], *node.outputs[:1])]
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        return False
    x, y = ends[0], ends[1]
    return x.zero_point == y.zero_point and abs(x.scale - y.scale) <= _ALMOST


def with_moved_numbers(model: SourceModel) -> SourceModel:
    """The model with a Reinterpret wherever a move changes the scale."""
    work = _Rewriting(model)
    for node in model.nodes:
        work.rewrite(node)
    return work.finished()
