"""A subgraph that an operator runs, as a model of its own: with the operator's operands for its inputs."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from emitc.errors import EXPORT_AGAIN, CannotCompile, EmitcError
from emitc.ir import Tensor
from emitc.source import SourceModel, SourceNode, SourceSubgraph, SourceTensor

MAX_DEPTH = 8
"""Subgraphs in subgraphs."""
OTHER_SIZES = "other sizes for the open dimensions, by --shape; where none fit, export the model again"


def subgraph_model(
    source: SourceModel,
    node: SourceNode,
    index: int,
    operands: Sequence[Tensor],
    first_index: int,
    calls: Sequence[int],
) -> SourceModel:
    """Subgraph `index` with the shapes of the node's operands (without the condition of an IF).

    first_index: of its first operator. calls: the subgraphs in which the node stands. Raises EmitcError for one that is not
    there, that takes something else, or that runs itself.
    """
    if not 0 < index <= len(source.subgraphs):
        why = (
            "it would run the model itself, without end" if index == 0 else f"the file has {len(source.subgraphs) + 1}"
        )
        raise node.damaged(f"runs subgraph {index}", why)
    if index in calls or len(calls) >= MAX_DEPTH:
        why = "it runs itself" if index in calls else f"more than {MAX_DEPTH} of them lie in one another"
        raise node.damaged(f"runs subgraph {index}", why)
    sub = source.subgraphs[index - 1]
    tensors = list(sub.tensors)
    if source.format == "tflite":  # those of ONNX have the types of the operands, with which they were read
        tensors = _fitted(node, index, sub, operands[1:] if "IF" in (node.op_type, node.kind) else operands)
    moved = {tensor.index: tensor for tensor in tensors}
    nodes = tuple(
        replace(
            inner,
            index=first_index + place,
            inputs=tuple(None if t is None else moved[t.index] for t in inner.inputs),
            outputs=tuple(moved[t.index] for t in inner.outputs),
        )
        for place, inner in enumerate(sub.nodes)
    )
    return replace(
        source, tensors=tuple(tensors), nodes=nodes, inputs=sub.inputs, outputs=sub.outputs, notes=(), blockers=(),
        folded=(), unread=(),
    )  # fmt: skip


_GRAPHS = {"then": "then branch", "else": "else branch", "cond": "condition", "body": "body"}


def at_node(error: EmitcError, node: SourceNode, sizes_chosen: bool) -> EmitcError:
    """The error with the node named, where it was raised without one. Where sizes were chosen, others may be what helps."""
    where = replace(error.where, op=error.where.op or node.where().op)
    chosen = sizes_chosen and not isinstance(error, CannotCompile) and error.hint == EXPORT_AGAIN
    return error.at(where, hint=OTHER_SIZES if chosen else "")


def unfit_branch(error: EmitcError, place: str) -> CannotCompile:
    """The reasons against a branch of an If that may never run, because the data decide."""
    why = f"{error.why} ({place}; both branches are compiled, whichever runs)"
    hint = "export the model with a constant condition, or without this branch"
    return CannotCompile(error.what, error.where, why, hint)


def inside(error: EmitcError, place: str, branch: bool) -> EmitcError:
    """An error in a subgraph with its place. branch: of an If; what it says of sizes there is no fault of the file."""
    if branch and not isinstance(error, CannotCompile) and "damaged" not in error.hint:
        return unfit_branch(error, place)
    return error.at(why=f"{error.why} ({place})")


def place_in(source: SourceModel, node: SourceNode, attribute: str, index: int) -> str:
    """For messages, which graph of a node it is that an attribute names: `in the then branch of op 3 IF "y", subgraph 1`."""
    name = _GRAPHS[attribute.removesuffix("_subgraph_index")]
    number = source.subgraphs[index - 1].number or index
    return f"in the {name} of {node.where().op}" + (f", subgraph {number}" if source.format == "tflite" else "")


def _fitted(node: SourceNode, index: int, sub: SourceSubgraph, operands: Sequence[Tensor]) -> list[SourceTensor]:
    """The subgraph's tensors, its inputs with the shapes of the operands."""
    if len(sub.inputs) != len(operands) or len(set(sub.inputs)) != len(sub.inputs):
        raise node.damaged(f"runs subgraph {index} with {len(operands)} operands", f"it takes {len(set(sub.inputs))}")
    tensors = list(sub.tensors)
    for position, operand in zip(sub.inputs, operands, strict=True):
        inner = tensors[position]
        fits = len(inner.shape) == len(operand.shape)
        fits = fits and all(a in (-1, b) for a, b in zip(inner.shape, operand.shape, strict=True))
        if inner.dtype != operand.dtype.value or not (fits or inner.shape == ()):
            what = f"runs subgraph {index} on another type or shape"
            raise node.damaged(what, f"{inner.describe()} inside, {operand.describe()} outside")
        if inner.is_variable != (operand.initial is not None):
            what = f"runs subgraph {index}, whose variables are not the operator's"
            raise node.damaged(what, "inputs and outputs are made in every run, a variable holds its value")
        tensors[position] = replace(inner, shape=operand.shape, initial=operand.initial)
    return tensors


def rewritten(model: SourceModel, rewrite: Callable[[SourceModel], SourceModel]) -> SourceModel:
    """The model with itself and each of its subgraphs rewritten."""
    subgraphs = []
    for sub in model.subgraphs:
        own = replace(
            model, tensors=sub.tensors, nodes=sub.nodes, inputs=sub.inputs, outputs=sub.outputs, notes=(), blockers=(),
            subgraphs=(),
        )  # fmt: skip
        made = rewrite(own)
        subgraphs.append(SourceSubgraph(made.tensors, made.nodes, made.inputs, made.outputs))
    return replace(rewrite(model), subgraphs=tuple(subgraphs))


def called_subgraphs(source: SourceModel) -> frozenset[int]:
    """The subgraphs that IF, WHILE and CALL_ONCE lead to, from the model's own operators on."""
    called: set[int] = set()
    waiting = list(source.nodes)
    while waiting:
        node = waiting.pop()
        if node.op_type in ("IF", "WHILE", "CALL_ONCE"):
            named = {value for name, value in node.attributes.items() if name.endswith("_subgraph_index")}
            new = {index for index in range(1, len(source.subgraphs) + 1) if index in named} - called
            called |= new
            waiting += [inner for index in sorted(new) for inner in source.subgraphs[index - 1].nodes]
    return frozenset(called)
