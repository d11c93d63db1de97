"""An If of ONNX whose condition is known while reading becomes the operators of the branch that it takes.

Names inside of a branch are those of the model around it, since the format has one scope. So the branch's operators stand in
the place of the If as they are: its constants as Constant, its outputs under the If's names as Identity.
"""

from collections.abc import Callable, Iterable, Iterator

import onnx
import onnx.helper
import onnx.numpy_helper

from emitc.errors import Where
from emitc.frontends.limits import MAX_OPERATORS
from emitc.frontends.onnx.faulty import faulty
from emitc.frontends.onnx.file import refused_as

MAX_DEPTH = 8
"""Branches in branches."""


def without_known_branches(
    nodes: Iterable[onnx.NodeProto],
    constant: Callable[[str], onnx.TensorProto | None],
    unrolled: Callable[[onnx.NodeProto], Iterator[onnx.NodeProto] | None],
    depth: int = 0,
) -> Iterator[onnx.NodeProto]:
    """The operators in order, each produced after those before it were read. constant: of a name, where it has a value.
    unrolled: the operators of a loop, where its rounds are written out one after another.

    Raises EmitcError for branches that lie too deep in one another, or that do not fit the If.
    """
    for node in nodes:
        rounds = unrolled(node)
        if rounds is not None:
            _require_depth(depth)
            yield from without_known_branches(rounds, constant, unrolled, depth + 1)
            continue
        known = node.op_type == "If" and node.domain in ("", "ai.onnx") and len(node.input) == 1
        condition = constant(node.input[0]) if known else None
        if condition is None:
            yield node
            continue
        where = Where(op=f'If "{node.name or next(iter(node.output), "")}"')
        with refused_as("a condition cannot be read", where):
            value = onnx.numpy_helper.to_array(condition).reshape(-1)
        name = "then_branch" if len(value) == 1 and bool(value[0]) else "else_branch"
        branch = next((a.g for a in node.attribute if a.name == name and a.type == onnx.AttributeProto.GRAPH), None)
        if branch is None or len(value) != 1 or len(branch.output) != len(node.output):
            raise faulty("an If does not fit its branches", where, f"its {name} has other outputs")
        _require_depth(depth if len(branch.node) <= MAX_OPERATORS else MAX_DEPTH)
        for initializer in branch.initializer:
            yield onnx.helper.make_node("Constant", [], [initializer.name], value=initializer)
        yield from without_known_branches(branch.node, constant, unrolled, depth + 1)
        for inner, outer in zip(branch.output, node.output, strict=True):
            if outer:
                yield onnx.helper.make_node("Identity", [inner.name], [outer])


def _require_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise faulty("an If has branches within branches", Where(), f"the limit is {MAX_DEPTH}")
