"""One model per family of operators: the cases of tests/kernels, reduced to one per operator, template and element type.

A new operator comes with its cases in tests/kernels/test_<family>.py, and is then compiled by every compiler too.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock, patch

import pytest
from onnx.shape_inference import InferenceError

from emitc.backends.contract import PORTABLE, Settings
from emitc.backends.partition import Partition, Policy, partition
from emitc.backends.portable import backend
from emitc.backends.portable.backend import Portable, cost_of
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.ir import BoundNode, Graph
from emitc.kernels import registry
from emitc.kernels.contract import Variant
from emitc.layer import KernelSpec, Layer
from emitc.lower.layers import lower_nodes
from emitc.passes import run_passes
from emitc.target import Target, load_target
from emitc.writers.tflite import write_tflite
from tests.support.models.control_flow import MODELS as CONTROL_FLOW
from tests.support.models.control_flow import STATEFUL
from tests.support.models.onnx_control import MODELS as ONNX_CONTROL_FLOW
from tests.support.models.streaming import MODELS as STREAMING
from tests.support.onnx_op import OPSET, OnnxCase
from tests.support.onnx_op import graph_of as onnx_graph_of
from tests.support.onnx_op import model_of as onnx_model_of
from tests.support.single_op import Case, graph_of, model_of

KERNEL_TESTS = Path(__file__).resolve().parents[2] / "kernels"


def portable(graph: Graph, target: str = "generic32") -> Partition:
    """Everything on emitc's own kernels."""
    return partition(graph, {PORTABLE: Portable(Settings(load_target(target)))}, Policy())


def _tests(name: str) -> Path:
    """A file of tests by its name."""
    (path,) = KERNEL_TESTS.rglob(name)
    return path


def _module(path: Path) -> ModuleType | None:
    """A test file of the kernels as a module; None where it skips itself, since the engine is not installed."""
    name = f"cases_of_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except pytest.skip.Exception:
        del sys.modules[name]
        return None
    return module


def cases_of(path: Path) -> list[Case]:
    """The cases of all tables of a test file, each id once."""
    module = _module(path)
    cases: dict[str, Case] = {}
    for value in vars(module).values() if module else ():
        if isinstance(value, list | tuple) and value and all(isinstance(v, Case) for v in value):
            cases.update((case.id, case) for case in value)
    return list(cases.values())


def representatives(cases: Sequence[Case]) -> list[Case]:
    """The first case of each (operator, template, spec, output type, roles of tables, operands)."""
    graph, _ = run_passes(graph_of(*cases))
    nodes = {node.bound.node.index: node for node in lower_nodes(portable(graph))}
    chosen: dict[object, Case] = {}
    for index, case in enumerate(cases):
        key: tuple[object, ...] = (case.opcode,)
        if index in nodes:
            layer = nodes[index].layer
            roles = tuple(sorted(table.role for table in layer.tables))
            key = (
                case.opcode,
                layer.kernel_name,
                layer.spec,
                nodes[index].bound.output.dtype,
                roles,
                len(layer.operands) > 0,
            )
        chosen.setdefault(key, case)
    return list(chosen.values())


_AT_ONCE = 60
"""Cases in one model while choosing: all of a large table together would keep too many tensors alive."""


def _parameters(function: Callable[..., None]) -> Iterator[dict[str, object]]:
    """The arguments with which pytest would call a test, from its parametrize marks."""
    marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "parametrize"]
    choices = []
    for mark in marks:
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else list(mark.args[0])
        rows = [getattr(row, "values", row) for row in mark.args[1]]
        choices.append(
            [
                dict(
                    zip(
                        (n.strip() for n in names),
                        row if len(names) > 1 or hasattr(identifier, "values") else (row,),
                        strict=True,
                    )
                )
                for row, identifier in zip(rows, mark.args[1], strict=True)
            ]
        )
    for combination in itertools.product(*choices):
        yield {name: value for part in combination for name, value in part.items()}


def onnx_cases_of(path: Path) -> dict[bool, list[OnnxCase]]:
    """The ONNX cases that a test file proves, under ids of their own, by whether onnxruntime takes them.

    Its tests are called with a stand-in for the proof, which only takes the cases down.
    """
    module = _module(path)
    by_engine: dict[bool, list[OnnxCase]] = {True: [], False: []}
    if module is None or not hasattr(module, "prove_onnx"):
        return by_engine

    def record(cases: Sequence[OnnxCase], *arguments: object, **keywords: object) -> MagicMock:
        known = by_engine[bool(keywords.get("engine", True))]
        known += [replace(case, id=f"{len(known) + n}-{case.id}") for n, case in enumerate(cases)]
        return MagicMock()

    module.prove_onnx = record  # type: ignore[attr-defined]
    for name, function in list(vars(module).items()):
        function = getattr(function, "__wrapped__", getattr(function, "__pytest_wrapped__", function))
        function = getattr(function, "obj", function)
        if inspect.isfunction(function) and "prove_onnx(" in inspect.getsource(function) and name != "prove_onnx":
            for arguments in _parameters(function):
                # What is asserted of the proof does not hold of its stand-in.
                with contextlib.suppress(Exception, pytest.fail.Exception, pytest.skip.Exception):
                    function(**arguments)
    return by_engine


def onnx_representatives(
    cases: Sequence[OnnxCase], seen: set[object], *, engine: bool, target: str = "generic32", variant: str = ""
) -> list[OnnxCase]:
    """Cases that bring an (operator, template, spec, output type, roles of tables, operands) that is not in `seen` yet.

    Cases that are there to be refused, by emitc or by the engine, are left out. variant: of the kernels, where only those count.
    """
    try:
        graph, _ = run_passes(onnx_graph_of(*cases, engine=engine))
    except (EmitcError, InferenceError):
        half = len(cases) // 2
        parts = (cases[:half], cases[half:]) if half else ()
        return [
            case
            for part in parts
            for case in onnx_representatives(part, seen, engine=engine, target=target, variant=variant)
        ]
    chosen: dict[str, OnnxCase] = {}
    by_id = {case.id: case for case in cases}
    for node in lower_nodes(portable(graph, target)):
        layer = node.layer
        if variant not in ("", layer.variant):
            continue
        roles = tuple(sorted(table.role for table in layer.tables))
        key = (
            node.bound.node.op_type,
            layer.kernel_name,
            layer.spec,
            node.bound.output.dtype,
            roles,
            len(layer.operands),
        )
        case = by_id.get(node.bound.output.label.split("/")[0])
        if case is not None and key not in seen:
            seen.add(key)
            chosen[case.id] = case
    return list(chosen.values())


def onnx_families(folder: Path) -> Iterator[Compiled]:
    """One compiled ONNX model per test file of the kernels and opset."""
    for path in sorted(KERNEL_TESTS.rglob("test_onnx_*.py"), key=lambda path: path.name):
        for engine, cases in onnx_cases_of(path).items():
            for opset in sorted({case.opset for case in cases}):
                group = [case for case in cases if case.opset == opset]
                seen: set[object] = set()
                chosen = [
                    case
                    for first in range(0, len(group), _AT_ONCE)
                    for case in onnx_representatives(group[first : first + _AT_ONCE], seen, engine=engine)
                ]
                if chosen:
                    name = f"family_{path.stem.removeprefix('test_')}_{opset}{'' if engine else '_specified'}"
                    file = folder / f"{name}.onnx"
                    file.write_bytes(onnx_model_of(chosen, engine=engine).SerializeToString())
                    yield compile_model(file)


_CORES = {
    "dsp": "cortex-m4",
    "mve": "cortex-m55",
    "gpr31": "rv32imac",
    "swar": "cortex-m3",
    "mul32": "cortex-m0",
    "xpulp": "cv32e40p",
    "rvv": "rv32imac_zve32x",
    "fpu": "cortex-m4f",
}
VARIANT_TARGETS = {row.name: _CORES[row.feature] for kernel in registry().values() for row in kernel.variants}
"""A core for each variant of the kernels."""


def _representatives_of_variants(grouped: Sequence[tuple[list[Case], Graph]], target: str) -> dict[str, list[Case]]:
    """The first case of each kernel of each variant for the target, by the variant's name, whatever the kernels cost.

    grouped: cases and the graph of them. Kernels that only a budget of flash or scratch gives are left out.
    """
    chosen: dict[str, dict[object, Case]] = {}
    for group, graph in grouped:
        for index, choice in portable(graph, target).choices.items():
            bound = graph.bind(graph.nodes[index])
            for candidate in choice.offers[PORTABLE].within(None).candidates:
                if VARIANT_TARGETS.get(candidate.variant) == target:
                    layer, case = candidate.make(), group[index]
                    of_variant = chosen.setdefault(candidate.variant, {})
                    key = (case.opcode, layer.kernel_name, _form(layer), bound.output.dtype)
                    of_variant.setdefault(key, replace(case, id=f"{len(of_variant)}_{case.id}"))
    return {name: list(cases.values()) for name, cases in chosen.items()}


def variant_families(folder: Path) -> Iterator[Compiled]:
    """The layers of the operators that have variants, once for each variant: the first case of each of its kernels."""
    modules = (
        "conv_2d",
        "depthwise_conv_2d",
        "fully_connected",
        "pooling",
        "arithmetic",
        "variants",
        "dsp_weight_zeros",
        "svdf",
        "unidirectional_sequence_lstm",
        "quantize_ops",
        "signal",
        "detection_postprocess",
        "float_windows",
        "float_quads",
        "hybrid_conv_2d",
        "softmax_vectors",
        "part_vectors",
    )
    cases = [case for name in modules for case in cases_of(_tests(f"test_{name}.py"))]
    for name, functions in (
        ("short_variants", ("short_cases", "spread_cases")),
        ("vector_elements", ("some_bytes", "sums", "reductions")),
    ):
        module = _module(_tests(f"test_{name}.py"))
        made = [case for function in functions if module for case in getattr(module, function)()]
        cases += [replace(case, id=f"{name}_{i}_{case.id}") for i, case in enumerate(made)]
    tables = vars(_module(_tests("test_mve_variants.py")) or ModuleType("none")).get("CASES", {})
    cases += [case for table in tables.values() for case in table()]
    groups = [cases[first : first + _AT_ONCE] for first in range(0, len(cases), _AT_ONCE)]
    grouped = [(group, run_passes(graph_of(*group))[0]) for group in groups]
    chosen = {
        name: choice
        for target in sorted(set(VARIANT_TARGETS.values()))
        for name, choice in _representatives_of_variants(grouped, target).items()
    }
    for name, target in VARIANT_TARGETS.items():
        file = folder / f"family_{name.replace('-', '_')}.tflite"

        def preferring(bound: BoundNode, core: Target, row: Variant | None = None, wanted: str = name) -> float:
            return 0.0 if row and row.name == wanted else cost_of(bound, core, row)

        if name in chosen:
            file.write_bytes(write_tflite(model_of(chosen[name])))
            with patch.object(backend, "cost_of", preferring):
                yield compile_model(file, target=target)
    module = _module(_tests("test_winograd.py"))
    for name in module.VARIANTS if module else ():  # no limit of scratch gives them without being asked for
        layers = [case for case in module.cases(name) if not case.id.startswith(("width", "valid", "rows"))]
        file = folder / f"family_{name.replace('-', '_')}.tflite"
        file.write_bytes(write_tflite(model_of(layers)))
        asked = tuple((index, name) for index in range(len(layers)))
        yield compile_model(file, target=VARIANT_TARGETS[name], variants=asked)
    file = folder / "family_mve_state.tflite"
    file.write_bytes(write_tflite(STREAMING["blocks"]()))
    yield compile_model(file, target=VARIANT_TARGETS["mve"])
    module = _module(_tests("test_onnx_quantize.py"))
    if module:
        file = folder / "family_onnx_fpu.onnx"
        file.write_bytes(onnx_model_of(module.quantize_cases()).SerializeToString())
        yield compile_model(file, target=VARIANT_TARGETS["fpu"])
    yield from onnx_variant_families(folder)


def onnx_variant_families(folder: Path) -> Iterator[Compiled]:
    """The same of ONNX's operators: the largest case of each kernel."""
    module = _module(_tests("test_variants_of_onnx.py"))
    for name, table in module.TEMPLATES.items() if module else ():
        group = [replace(case, id=f"{f}_{case.id}") for f in table for case in module.few(f) if case.opset == OPSET]
        with module.preferring(name):
            target = VARIANT_TARGETS[name]
            chosen = onnx_representatives(group, set(), engine=True, target=target, variant=name)
            file = folder / f"family_onnx_variants_{name}.onnx"
            file.write_bytes(onnx_model_of(chosen).SerializeToString())
            yield compile_model(file, target=target)
    module = _module(_tests("test_float_activations.py"))
    if module:
        yield from (module.compiled_for(variant, folder) for variant in module.CORES)


def _form(layer: Layer) -> KernelSpec:
    """The kernel's spec; of kernels that are printed for a window, of all windows of one form the same."""
    if layer.by_rows is None or not layer.by_rows.fitted:
        return layer.spec
    step = int(layer.spec.window.split("x")[2])
    return replace(layer.spec, suffix="", window="next" if step == 2 else "odd" if step % 2 else "even")


def families(folder: Path) -> Iterator[Compiled]:
    """One compiled model per test file of the kernels, and one for each way of keeping state."""
    for path in sorted(KERNEL_TESTS.rglob("test_*.py"), key=lambda path: path.name):
        cases = cases_of(path)
        if cases:
            file = folder / f"family_{path.stem.removeprefix('test_')}.tflite"
            file.write_bytes(write_tflite(model_of(representatives(cases))))
            yield compile_model(file)
    models = [(f"streaming_{name}", spec) for name, spec in STREAMING.items()]
    models += [(f"control_{name}", spec) for name, spec in (CONTROL_FLOW | STATEFUL).items()]
    for name, spec in models:
        file = folder / f"family_{name}.tflite"
        file.write_bytes(write_tflite(spec()))
        yield compile_model(file)
    for name, made in ONNX_CONTROL_FLOW.items():
        file = folder / f"family_onnx_control_{name}.onnx"
        file.write_bytes(made().SerializeToString())
        yield compile_model(file)
    yield from variant_families(folder)
    yield from onnx_families(folder)
