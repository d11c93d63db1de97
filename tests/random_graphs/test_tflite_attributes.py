"""Every value of every attribute of TFLite's operators is drawn, or does nothing, or is refused, or has a test by itself.

Values count by class: each truth value, each name of an enumeration, and the sign of a number. An attribute that a drawn graph
leaves out has the schema's default. What is not drawn is put into drawn graphs, which shows what emitc makes of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

import flatbuffers
import numpy as np
import pytest
import tflite

from bench.random_graphs.case import Attribute, Description
from bench.random_graphs.tflite import write
from bench.random_graphs.tflite.graph_builder import OFFERS, GraphBuilder, Unfit
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.frontends.tflite.reader import _ENUMERATIONS, _OPTIONS, _fields
from emitc.frontends.tflite.schema_rules import expected_options
from emitc.report.inspection import operator_list

TESTS = Path(__file__).resolve().parents[1]
TRIES = 40
"""Graphs for each operator and type of its operand."""
BASES = 2
"""Drawn graphs of an operator into which a value is put."""

WITHOUT_EFFECT: Mapping[tuple[str, str], str] = {
    ("asymmetric_quantize_inputs", "True"): "only hybrid layers read it",
    ("depth_multiplier", "-"): "the channels say it, since files are known to lie here",
    ("depth_multiplier", "0"): "the channels say it, since files are known to lie here",
    ("diagonal_recurrent_tensors", "True"): "the shapes of the weights say it",
    ("ellipsis_mask", "+"): "a dimension beyond the last one",
    ("end_mask", "-"): "the bits of further dimensions",
    ("fused_activation_function", "SIGN_BIT"): "no engine computes it; the C is that of NONE",
    ("fused_activation_function", "TANH"): "no engine computes it; the C is that of NONE",
    ("in_data_type", ""): "the tensor says it",
    ("new_shape", "none"): "the second operand has the shape",
    ("pot_scale_int16", "True"): "only files of an old converter have it, for scales that are powers of two",
    ("proj_clip", "+"): "there is no projection",
    ("proj_clip", "-"): "there is no projection",
    ("quantized_bias_type", ""): "the bias says it",
}
"""Values that are not drawn, since they change nothing in graphs that are: attribute and class, "" for all that are not drawn."""

TESTED: Mapping[tuple[str, str, str], tuple[str, str]] = {
    ("VAR_HANDLE", "container", "text"): ("tflite/test_state.py", '"container": container'),
    ("VAR_HANDLE", "shared_name", '""'): ("tflite/test_state.py", '"shared_name": name'),
    ("GATHER", "batch_dims", "+"): ("test_places.py", '"batch_dims": batch'),
    ("STRIDED_SLICE", "ellipsis_mask", "+"): ("test_float_moves.py", "ellipsis_mask"),
    ("STRIDED_SLICE", "new_axis_mask", "+"): ("test_float_moves.py", "new_axis_mask"),
    ("STRIDED_SLICE", "offset", "True"): ("test_slice.py", "offset=True"),
    ("STRIDED_SLICE", "begin_mask", "-"): ("test_slice.py", "begin_mask=13"),
    ("FULLY_CONNECTED", "asymmetric_quantize_inputs", "True"): (
        "test_hybrid_offset_conv_2d.py", '"asymmetric_quantize_inputs": True',
    ),
    ("FULLY_CONNECTED", "quantized_bias_type", "INT32"): ("test_int16_layers.py", '"quantized_bias_type": "INT32"'),
    ("CONV_2D", "quantized_bias_type", "INT64"): ("test_int16_layers.py", '"quantized_bias_type": "INT64"'),
    **{(op, "output_type", "INT64"): ("test_arg_extremum.py", "int64") for op in ("ARG_MAX", "ARG_MIN")},
    **{
        ("CAST", "out_data_type", name): ("test_float_elementwise.py", name.lower())
        for name in ("FLOAT64", "UINT16", "UINT64")
    },
    **{
        ("SVDF", "fused_activation_function", name): ("test_svdf.py", "activation=")
        for name in ("RELU6", "RELU_N1_TO_1")
    },
}  # fmt: skip
"""Values with an effect that are not drawn: the test that has them, and what it says there. Seeds keep their graphs meanwhile."""

Asked = tuple[str, str, str]
"""Operator, attribute, class of its value."""


@cache
def defaults() -> Mapping[tuple[str, str], Attribute]:
    """The schema's default of every attribute, by operator; custom operators have no schema."""
    found: dict[tuple[str, str], Attribute] = {}
    for op in sorted({each["op"] for each in operator_list()["operators"] if each["format"] == "tflite"}):
        table = expected_options(op, _OPTIONS.values())
        if table in ("", "NONE") or ":" in op:
            continue
        builder = flatbuffers.Builder(0)
        builder.StartObject(0)
        builder.Finish(builder.EndObject())
        empty = getattr(tflite, table).GetRootAs(builder.Output(), 0)
        for key, accessor, is_vector in _fields(table):
            value = () if is_vector else getattr(empty, accessor)()
            if key in _ENUMERATIONS:
                value = _ENUMERATIONS[key][value]
            elif key in NAMES:
                value = names_of(key)[value]
            if not key.endswith("subgraph_index"):
                found[op, _written(key)] = "" if value is None else value
    return found


NAMES: Mapping[str, type] = {"mode": tflite.MirrorPadMode, "out_type": tflite.TensorType}
"""Enumerations that the frontend leaves as numbers."""


def names_of(key: str) -> Mapping[object, str]:
    """Names of an enumeration by number."""
    return {v: n for n, v in vars(NAMES[key]).items() if not n.startswith("_")}


def _written(key: str) -> str:
    """The frontend's name of an attribute as the generator writes it."""
    return re.sub(r"_(h|w)factor$", r"_\1_factor", key)


def classes(key: str, default: Attribute) -> list[str]:
    """All classes of an attribute's values."""
    if key in NAMES:
        return list(names_of(key).values())
    if key in _ENUMERATIONS:
        return list(_ENUMERATIONS[key].values())
    if isinstance(default, bool):
        return ["False", "True"]
    if isinstance(default, int | float):
        return ["-", "0", "+"]
    return ['""', "text"] if isinstance(default, str) else ["none", "given"]


def class_of(key: str, value: Attribute) -> str:
    """The class of a value."""
    if key in _ENUMERATIONS or key in NAMES or isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        return "-" if value < 0 else "+" if value > 0 else "0"
    if isinstance(value, str):
        return "text" if value else '""'
    return "given" if value else "none"  # type: ignore[comparison-overlap]


def value_of(asked: Asked) -> Attribute:
    """A value of the class."""
    _, key, name = asked
    default = defaults()[asked[:2]]
    numbers: Mapping[str, Attribute] = {
        "-": -1, "0": 0, "+": 2, "True": True, "False": False, "none": (), "given": (1,), '""': "", "text": "other",
    }  # fmt: skip
    value = name if key in _ENUMERATIONS or key in NAMES else numbers[name]
    return float(value) if isinstance(default, float) and isinstance(value, int) else value


@cache
def drawn() -> Mapping[str, list[Description]]:
    """Small graphs by the operators that they have."""
    found: dict[str, list[Description]] = {}
    for op, offer in OFFERS.items():
        for dtype in offer.dtypes:
            for number in range(TRIES):
                d = GraphBuilder(np.random.default_rng([number, len(op)]), dtype, engine=("tflm", "litert")[number % 2])
                x = d.model_input(dtype, d.draw_shape(d.pick((1, 2, 3, 4, 4)), 200))
                try:
                    offer.make(d, x)
                except Unfit:
                    continue
                made = (name for node in d.nodes for name in node.outputs)
                graph = d.description([name for name in made if d.values[name].dtype != "resource"])
                for each in dict.fromkeys(node.op for _, node in graph.every_node()):
                    found.setdefault(each, []).append(graph)
    return found


@cache
def never_drawn() -> frozenset[Asked]:
    """What none of those graphs has."""
    left = set()
    for (op, key), default in defaults().items():
        nodes = [node for graph in drawn()[op] for _, node in graph.every_node() if node.op == op]
        found = {class_of(key, node.attributes.get(key, default)) for node in nodes}
        left |= {(op, key, each) for each in classes(key, default) if each not in found}
    return frozenset(left)


def with_value(graph: Description, op: str, key: str, value: Attribute) -> Description:
    """The graph with another value of an attribute, and the type of the output that goes with it."""
    changed = [node for node in graph.nodes if node.op == op]
    typed = {node.outputs[0] for node in changed if key in ("output_type", "out_data_type", "out_type")}
    nodes = tuple(
        replace(node, attributes={**node.attributes, key: value}) if node in changed else node for node in graph.nodes
    )
    values = tuple(
        replace(each, dtype=str(value).lower(), scales=(), zero_points=()) if each.name in typed else each
        for each in graph.values
    )
    return replace(graph, nodes=nodes, values=values)


def code(graph: Description, folder: Path) -> str:
    """The C of a graph without comments and numbers of the model's own; "" where emitc refuses it."""
    path = folder / "m.tflite"
    try:
        path.write_bytes(write(graph))
        made = compile_model(path)
    except (EmitcError, ValueError):
        return ""
    return re.sub(r"/\*.*?\*/|0x[0-9A-Fa-f]+|[0-9a-f]{16,}", "", str(made.files["m.c"]), flags=re.DOTALL)


def bases(op: str, folder: Path) -> list[tuple[Description, str]]:
    """Graphs that have the operator outside of other graphs, of several types, with their C."""
    graphs = [graph for graph in drawn()[op] if any(node.op == op for node in graph.nodes)]
    compiled = ((graph, text) for graph in graphs[:: max(1, len(graphs) // 8)] if (text := code(graph, folder)))
    return list(islice(compiled, BASES))


def test_what_is_not_drawn_is_refused_or_does_nothing_or_has_its_own_test(tmp_path: Path) -> None:
    idle: set[tuple[str, str]] = set()
    unknown: set[Asked] = set()
    for op in sorted({op for op, _, _ in never_drawn()}):
        compiled = bases(op, tmp_path)
        assert compiled, op
        for asked in sorted(each for each in never_drawn() if each[0] == op):
            _, key, name = asked
            for graph, before in compiled:
                if key == "fused_activation_function":
                    before = code(with_value(graph, op, key, "NONE"), tmp_path)
                after = code(with_value(graph, op, key, value_of(asked)), tmp_path)
                entry = (key, name) if (key, name) in WITHOUT_EFFECT else (key, "")
                if after and after == before and entry in WITHOUT_EFFECT:
                    idle.add(entry)
                elif after and asked not in TESTED:
                    unknown.add(asked)
    assert unknown == set()
    assert idle == set(WITHOUT_EFFECT)


@pytest.mark.parametrize("asked", TESTED, ids="-".join)
def test_what_has_its_own_test_is_not_drawn(asked: Asked) -> None:
    name, words = TESTED[asked]
    (path,) = TESTS.rglob(name)
    assert asked in never_drawn()
    assert words in path.read_text(encoding="utf-8")
