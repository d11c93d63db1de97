"""Functions of a .onnx file in the places of their calls, and operators without code that the format defines by others.

The package `onnx` does the replacing. Before it does, what would come of it is counted: functions that call others twice each
grow without bound, and one that calls itself has no end.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress

import onnx
import onnx.helper
import onnx.inliner
import onnx.shape_inference

from emitc.errors import Where
from emitc.frontends.limits import MAX_OPERATORS
from emitc.frontends.onnx.faulty import faulty
from emitc.frontends.onnx.file import refused_as
from emitc.frontends.onnx.topological_order import graphs_of
from emitc.source import DEFINED

_Id = tuple[str, str, str]
_STANDARD = ("", "ai.onnx")
_MAX_DEPTH = 64
"""Functions that are called inside of each other: those that put them in place call themselves for each."""


def _id_of(node: onnx.NodeProto) -> _Id:
    return node.domain, node.op_type, node.overload


def _calls(nodes: Iterable[onnx.NodeProto]) -> Counter[_Id]:
    """How often the nodes, and those of the graphs that they run, name each operator."""
    calls: Counter[_Id] = Counter()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        calls[_id_of(node)] += 1
        waiting += [inner for graph in graphs_of(node) for inner in graph.node]
    return calls


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
    if deepest > _MAX_DEPTH:
        why = f"{deepest} calls, the limit is {_MAX_DEPTH}"
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
