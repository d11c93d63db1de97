"""Many small ONNX cases as one model: run by the numpy references, by onnxruntime (not optimized) and as compiled C.

An `OnnxCase` is one operator (or a few nodes) between inputs and outputs of its own. `prove_onnx` puts the cases of a table
side by side into one model per opset, so that a table of edges costs one load of the engine and one build.

    case = OnnxCase("stride2", "Conv", {"x": computed((1, 3, 8, 8)), "w": weights}, {"strides": [2, 2]})
    prove_onnx([case]).outcomes["stride2"].check(rtol=1e-5, atol=1e-5)
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.frontends.build import build_graph
from emitc.frontends.read import read_source
from emitc.ir import Array, Graph
from emitc.kernels import registry_of
from emitc.verify.build import HostModel, build_shared
from emitc.verify.engines.run import OnnxRuntimeEngine
from emitc.verify.golden_run import interface_of
from emitc.verify.reference import run_reference
from emitc.verify.sanitize import run_sanitized
from emitc.verify.tolerances import difference
from tests.support.sweep_sampling import in_turn

IR_VERSION = 10
OPSET = 21
MICROSOFT = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Computed:
    """A tensor that each sample gives values to: integers of [low, high], by default the type's range; reals of [low, high)."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float | None = None
    high: float | None = None


computed = Computed
Draw = Callable[[np.random.Generator, int], Mapping[str, Array]]
"""Values of computed inputs for one sample, by generator and number of the sample; those left out are drawn as usual."""


@dataclass(frozen=True, slots=True, eq=False)
class OnnxCase:
    """One operator. inputs: by a name within the case, in the operator's order: an array is a constant, None is left out.

    outputs: names of the outputs, "" for one left out. nodes: instead of one op_type with attributes, several nodes (from
    helper.make_node) that read the case's inputs and write its outputs by these names.
    """

    id: str
    op_type: str
    inputs: Mapping[str, Array | Computed | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    opset: int = OPSET
    domain: str = ""
    draw: Draw | None = None
    outputs: tuple[str, ...] = ("y",)
    nodes: tuple[onnx.NodeProto, ...] = ()

    @property
    def written(self) -> tuple[str, ...]:
        """Names of the outputs that are there."""
        return tuple(name for name in self.outputs if name)

    @property
    def given(self) -> dict[str, Computed]:
        """The inputs that each sample gives values to."""
        return {name: spec for name, spec in self.inputs.items() if isinstance(spec, Computed)}


def _prefixed(case: OnnxCase, name: str) -> str:
    return f"{case.id}/{name}" if name else ""


def _nodes(case: OnnxCase) -> list[onnx.NodeProto]:
    if not case.nodes:
        inputs = ["" if value is None else _prefixed(case, name) for name, value in case.inputs.items()]
        outputs = [_prefixed(case, name) for name in case.outputs]
        node = helper.make_node(
            case.op_type, inputs, outputs, name=case.id, domain=case.domain, **dict(case.attributes)
        )
        return [node]
    nodes = []
    for position, node in enumerate(case.nodes):
        renamed = onnx.NodeProto()
        renamed.CopyFrom(node)
        renamed.name = f"{case.id}/{node.name or position}"
        for names in (renamed.input, renamed.output):
            names[:] = [_prefixed(case, name) for name in list(names)]
        nodes.append(renamed)
    return nodes


def _elem_type(dtype: np.dtype[Any] | str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def model_of(cases: Sequence[OnnxCase], engine: bool = True) -> onnx.ModelProto:
    """All cases side by side, of one opset; the model's inputs and outputs are those of the cases, in order.

    The outputs' types are what the engine computes, or what shape inference says.
    """
    (opset,) = {case.opset for case in cases}
    nodes, inputs, constants, outputs = [], [], [], []
    for case in cases:
        nodes += _nodes(case)
        outputs += [_prefixed(case, name) for name in case.written]
        for name, value in case.inputs.items():
            if isinstance(value, Computed):
                info = helper.make_tensor_value_info(_prefixed(case, name), _elem_type(value.dtype), value.shape)
                inputs.append(info)
            elif value is not None:
                constants.append(numpy_helper.from_array(np.asarray(value), _prefixed(case, name)))
    bare = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "cases", inputs, bare, constants)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    if engine:
        results = OnnxRuntimeEngine(model.SerializeToString()).run(drawn(cases, np.random.default_rng(0), 1))
        typed = [
            helper.make_tensor_value_info(name, _elem_type(value.dtype), value.shape)
            for name, value in zip(outputs, results, strict=True)
        ]
    else:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
        typed = list(inferred.output)
    del model.graph.output[:]
    model.graph.output.extend(typed)
    return model


def _values(spec: Computed, rng: np.random.Generator, sample: int) -> Array:
    """Integers: sample 0 covers the range, every fourth is at its ends, the others are uniform; reals are uniform."""
    dtype = np.dtype(spec.dtype)
    count = int(np.prod(spec.shape))
    if dtype.kind == "f":
        low, high = (-4.0 if spec.low is None else spec.low), (4.0 if spec.high is None else spec.high)
        return rng.uniform(low, high, spec.shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, spec.shape).astype(dtype)
    info = np.iinfo(dtype)
    least, most = int(info.min if spec.low is None else spec.low), int(info.max if spec.high is None else spec.high)
    if sample == 0 and most - least < 1 << 20:
        span = most - least + 1
        values = np.arange(count) % span + least if count >= span else np.linspace(least, most, count).round()
        values = rng.permutation(values)
    elif sample % 4 == 3:
        values = rng.choice(np.array([least, most], dtype), count)
    else:
        values = rng.integers(least, most, count, dtype=dtype, endpoint=True)
    return values.astype(dtype).reshape(spec.shape)


def drawn(cases: Sequence[OnnxCase], rng: np.random.Generator, sample: int) -> list[Array]:
    """The model's inputs for one sample."""
    arrays: list[Array] = []
    for case in cases:
        own = case.draw(rng, sample) if case.draw else {}
        arrays += [own[name] if name in own else _values(spec, rng, sample) for name, spec in case.given.items()]
    return arrays


def _graph(data: bytes) -> Graph:
    """The graph of a model before any pass."""
    source = read_source(Path("cases.onnx"), data, {})
    return build_graph(source, registry_of(source.format), "cases")


def graph_of(*cases: OnnxCase, engine: bool = True) -> Graph:
    """The graph of the cases, before any pass. Raises what the frontend and the operators refuse."""
    return _graph(model_of(cases, engine).SerializeToString())


def refusal(case: OnnxCase, engine: bool = False) -> EmitcError:
    """The error with which the case is refused; an AssertionError when it is not. engine: let onnxruntime type the outputs."""
    try:
        graph_of(case, engine=engine)
    except EmitcError as error:
        return error
    raise AssertionError(f"{case.id} is accepted")


def _unequal(actual: Array, expected: Array, rtol: float, atol: float) -> str:
    """What differs, "" when nothing does: every bit without a tolerance."""
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{actual.dtype}{actual.shape} instead of {expected.dtype}{expected.shape}"
    if rtol == atol == 0 or actual.dtype.kind != "f":
        count, largest = difference(actual, expected)
    else:
        close = np.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
        gaps = np.abs(actual[~close].astype(np.float64) - expected[~close].astype(np.float64))
        count, largest = int((~close).sum()), float(np.nan_to_num(gaps, nan=np.inf).max(initial=0.0))
    return f"{count} of {actual.size} elements differ, by {largest:g} at most" if count else ""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """One case: inputs (by name) and outputs by sample as the numpy reference, onnxruntime and the C gave them."""

    case: OnnxCase
    inputs: tuple[Mapping[str, Array], ...]
    reference: tuple[tuple[Array, ...], ...]
    golden: tuple[tuple[Array, ...], ...]
    compiled: tuple[tuple[Array, ...], ...]

    def check(self, rtol: float = 0.0, atol: float = 0.0) -> None:
        """Asserts that the three agree in every sample: on every bit, or for float outputs within rtol and atol (as
        numpy.isclose has them), then of reference and C against the engine and of the C against the reference."""
        for sample in range(len(self.inputs)):
            reference, golden, compiled = self.reference[sample], self.golden[sample], self.compiled[sample]
            for output, name in enumerate(self.case.written):
                where = f"{self.case.id}, sample {sample}, output {name}"
                expected = golden[output].reshape(compiled[output].shape)
                for what, values, against in (
                    ("reference and engine", reference[output], expected),
                    ("C and engine", compiled[output], expected),
                    ("C and reference", compiled[output], reference[output]),
                ):
                    unequal = _unequal(values, against, rtol, atol)
                    assert not unequal, f"{where}: {what}: {unequal}"


@dataclass(frozen=True, slots=True, eq=False)
class Proven:
    """All cases of a table by id. compiled: by opset. memory_errors: what the sanitizers saw in the C."""

    outcomes: Mapping[str, Outcome]
    compiled: Mapping[int, Compiled]
    memory_errors: tuple[str, ...]

    def check(self, rtol: float = 0.0, atol: float = 0.0) -> None:
        """Asserts that every case is right and the sanitizers are silent."""
        for outcome in self.outcomes.values():
            outcome.check(rtol, atol)
        assert self.memory_errors == ()


def prove_onnx(
    cases: Sequence[OnnxCase],
    samples: int = 4,
    *,
    seed: int = 0,
    engine: bool = True,
    sanitize: bool = True,
    disabled: Sequence[str] = (),
    target: str = "generic32",
) -> Proven:
    """Runs the cases three ways. engine: False has the reference stand in for onnxruntime, where it does not take a case.

    disabled: passes of the compiler to switch off, by name. target: whose kernels they are; they run on this machine.
    """
    assert len({case.id for case in cases}) == len(cases), "case ids must differ"
    outcomes: dict[str, Outcome] = {}
    compiled: dict[int, Compiled] = {}
    errors: list[str] = []
    for opset in sorted({case.opset for case in cases}):
        group = [case for case in cases if case.opset == opset]
        proven = _prove_group(group, samples, seed, engine, sanitize, frozenset(disabled), target)
        outcomes |= proven.outcomes
        compiled |= proven.compiled
        errors += proven.memory_errors
    return Proven({case.id: outcomes[case.id] for case in cases}, compiled, tuple(errors))


def _prove_group(
    cases: Sequence[OnnxCase],
    samples: int,
    seed: int,
    engine: bool,
    sanitize: bool,
    disabled: frozenset[str],
    target: str,
) -> Proven:
    data = model_of(cases, engine).SerializeToString()
    rng = np.random.default_rng(seed)
    inputs = [tuple(drawn(cases, rng, sample)) for sample in range(samples)]
    with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
        workdir = Path(folder)
        (workdir / "cases.onnx").write_bytes(data)
        compiled = compile_model(workdir / "cases.onnx", name="cases", disabled=disabled, target=target)
        compiled.write(workdir / "package")
        interface = interface_of(compiled)
        model = HostModel(build_shared(workdir / "package", workdir, trace=False), interface)
        in_c = [model.run(values) for values in inputs]
        sanitize = sanitize and in_turn(case.id for case in cases)
        errors = run_sanitized(workdir / "package", workdir, interface, inputs, in_c) if sanitize else []
    before = _graph(data)
    reference = []
    for values in inputs:
        results = run_reference(before, values)
        reference.append([results[name] for name in before.outputs])
    golden = reference
    if engine:
        runner = OnnxRuntimeEngine(data)
        golden = [runner.run(values) for values in inputs]
    outcomes: dict[str, Outcome] = {}
    first_in = first_out = 0
    for case in cases:
        end_in, end_out = first_in + len(case.given), first_out + len(case.written)
        inputs_of = tuple(dict(zip(case.given, values[first_in:end_in], strict=True)) for values in inputs)
        parts = [tuple(tuple(row[first_out:end_out]) for row in rows) for rows in (reference, golden, in_c)]
        outcomes[case.id] = Outcome(case, inputs_of, parts[0], parts[1], parts[2])
        first_in, first_out = end_in, end_out
    return Proven(outcomes, {cases[0].opset: compiled}, tuple(errors))


def with_opset(case: OnnxCase, opset: int) -> OnnxCase:
    """The same case in another opset."""
    return replace(case, id=f"{case.id}_opset{opset}", opset=opset)
