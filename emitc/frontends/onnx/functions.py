"""Functions of a .onnx file in the places of their calls, operators without code as the format defines them by others, and
the branches that an If is known to take.

The package `onnx` replaces functions and operators. Before it does, what would come of it is counted: functions that call others
twice each grow without bound, and one that calls itself has no end.

An If whose condition is known while reading becomes the operators of the branch that it takes. Names inside of a branch are those
of the model around it, since the format has one scope. So the branch's operators replace the If as they are: its
constants as Constant, its outputs under the If's names as Identity.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

import onnx
import onnx.helper
import onnx.inliner
import onnx.numpy_helper
import onnx.shape_inference

from emitc.errors import Where
from emitc.frontends.limits import MAX_OPERATORS
from emitc.frontends.onnx.file import graph_of, nodes_within, refused_as
from emitc.frontends.onnx.numbers import faulty
from emitc.source import DEFINED

_Id = tuple[str, str, str]
_STANDARD = ("", "ai.onnx")
_MAX_CALLS = 64
"""Functions that are called inside of each other: those that put them in place call themselves for each."""


def _calls(nodes: Iterable[onnx.NodeProto]) -> Counter[_Id]:
    """How often the nodes, and those of the graphs that they run, name each operator."""
    return Counter((node.domain, node.op_type, node.overload) for node in nodes_within(nodes))


def _require_an_end(model: onnx.ModelProto, functions: Mapping[_Id, Counter[_Id]]) -> None:
    """Refuses functions that call themselves, chains of calls that are too long, and more operators than a model may have."""
    sizes: dict[_Id, int] = {}
    depths: dict[_Id, int] = {}
    begun: set[_Id] = set()
    waiting = list(functions)
    while waiting:
        name = waiting[-1]
        inner = [called for called in functions[name] if called in functions]
        unknown = [called for called in inner if called not in sizes]
        if name in sizes or not unknown:
            size = sum(n * sizes.get(called, 1) for called, n in functions[name].items())
            sizes[name] = min(size, MAX_OPERATORS + 1)
            depths[name] = 1 + max((depths[called] for called in inner), default=0)
            waiting.pop()
        elif name in begun:
            raise faulty("a function of the model calls itself", Where(op=name[1]), "it has no end")
        else:
            begun.add(name)
            waiting += unknown
    deepest = max(depths.values(), default=0)
    if deepest > _MAX_CALLS:
        why = f"{deepest} calls, the limit is {_MAX_CALLS}"
        raise faulty("functions of the model call each other too deep", Where(), why)
    total = sum(n * sizes.get(called, 1) for called, n in _calls(model.graph.node).items())
    if total > MAX_OPERATORS:
        why = f"the limit is {MAX_OPERATORS}, with those of its functions"
        raise faulty("the model has too many operators", Where(), why)


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the type of every value that can be known: what the definition of an operator is may depend on it.

    QuantizeLinear and DequantizeLinear of ONNX Runtime, of which the package knows nothing, give what the standard ones do.
    """
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    for node in probe.graph.node:
        if node.domain == "com.microsoft" and node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            node.domain = ""
    known = {value.name for value in (*model.graph.input, *model.graph.output, *model.graph.value_info)}
    for value in onnx.shape_inference.infer_shapes(probe).graph.value_info:
        if value.name not in known:
            known.add(value.name)
            model.graph.value_info.append(value)
    for constant in model.graph.initializer:
        if constant.name not in known:
            kind = onnx.helper.make_tensor_type_proto(constant.data_type, constant.dims)
            model.graph.value_info.append(onnx.helper.make_value_info(constant.name, kind))
    # The inliner asks for the types of inputs that are left out, too, and ends without an answer.
    left_out = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    model.graph.value_info.append(onnx.helper.make_value_info("", left_out))
    return model


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without calls of its own functions, and of operators that the format defines by those that have code.

    Where the types that such a definition depends on are not known the operator stays, to be refused by its name.
    """
    functions = {(f.domain, f.name, f.overload): _calls(f.node) for f in model.functions}
    if functions:
        _require_an_end(model, functions)
        with refused_as("a function of the model cannot be put instead of its calls", Where()):
            model = onnx.inliner.inline_local_functions(model)
    called = {(domain, name) for domain, name, _ in _calls(model.graph.node)}
    defined = sorted((domain, name) for domain, name in called if domain in _STANDARD and name in DEFINED)
    if defined:
        # The package raises whatever its C++ does.
        with suppress(Exception):
            model = onnx.inliner.inline_selected_functions(_typed(model), defined, inline_schema_functions=True)
    return model


# ---- branches ----


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
        branch = graph_of(node, name)
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
