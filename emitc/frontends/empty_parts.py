"""Parts without elements that a Split of ONNX makes and a Concat puts back: neither has anything to do with them.

The definition of RotaryEmbedding splits off the values that are not rotated, also where all of them are.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from emitc.frontends.source_rewriter import RewriterNode, SourceRewriter
from emitc.source import SourceModel

_SIZES = 1


def _sizes(rewriter: SourceRewriter, node: RewriterNode) -> list[int]:
    """The sizes of the parts as the model states them; none where it does not, or computes them."""
    stated = node.attributes.get("split")
    if isinstance(stated, tuple):
        return [int(size) for size in stated]
    index = node.input(_SIZES)
    constant = index >= 0 and rewriter.tensors[index].data is not None
    return [int(size) for size in rewriter.tensors[index].array().reshape(-1)] if constant else []


def without_empty_parts(model: SourceModel) -> SourceModel:
    """The model without the parts of size 0 that only a Concat of others reads."""
    rewriter = SourceRewriter(model)
    readers = rewriter.readers()
    for node in rewriter.nodes:
        sizes = _sizes(rewriter, node) if node.kind == "Split" and node.blocker is None else []
        present = node.attributes.get("outputs_present", tuple(range(len(node.outputs))))
        if 0 not in sizes or not isinstance(present, tuple) or len(present) != len(node.outputs):
            continue
        written = dict(zip(present, node.outputs, strict=True))
        parts = [(size, written.get(position)) for position, size in enumerate(sizes)]
        left = [(size, output) for size, output in parts if size or not _dropped(rewriter, readers, output)]
        if 0 < len(left) < len(parts) and any(output is not None for _, output in left):
            _state(rewriter, node, left)
    return rewriter.freeze()


def _dropped(rewriter: SourceRewriter, readers: Mapping[int, Sequence[RewriterNode]], output: int | None) -> bool:
    """Takes an empty part out of the Concats that read it; False where something else needs it."""
    joins = [] if output is None else readers.get(output, [])
    if output in rewriter.outputs or not all(join.kind == "Concat" and set(join.inputs) != {output} for join in joins):
        return False
    for join in joins:
        join.inputs = [index for index in join.inputs if index != output]
        _plain_where_one_is_left(join, join.inputs)
    return True


def _plain_where_one_is_left(node: RewriterNode, values: list[int]) -> None:
    """Turns a Concat or Split of a single part into an Identity."""
    if len(values) == 1:
        node.kind, node.attributes = "Identity", {}


def _state(rewriter: SourceRewriter, node: RewriterNode, parts: Sequence[tuple[int, int | None]]) -> None:
    """The parts that are left: the size of each, and the tensor where it is written."""
    sizes = [size for size, _ in parts]
    node.outputs = [output for _, output in parts if output is not None]
    if len(node.outputs) == len(parts):
        node.attributes.pop("outputs_present", None)
    else:
        node.attributes["outputs_present"] = tuple(i for i, (_, output) in enumerate(parts) if output is not None)
    if isinstance(node.attributes.get("split"), tuple):
        node.attributes["split"] = tuple(sizes)
    else:
        name = rewriter.tensors[node.inputs[_SIZES]].name
        node.inputs[_SIZES] = rewriter.tensor(name, "int64", (len(sizes),), data=np.array(sizes, np.int64))
    if len(parts) == 1:
        node.inputs = node.inputs[:1]
        _plain_where_one_is_left(node, node.outputs)
