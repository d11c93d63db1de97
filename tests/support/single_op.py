"""Many small cases of operators as one model: run by the numpy references, by the golden engine and as compiled C.

A `Case` is one operator between inputs and outputs of its own. `prove` puts all cases of a table side by side into one
model, so that a table of edges costs one load of the engine and one build, and hands back what each of the three said.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np

from emitc.backends.contract import PORTABLE
from emitc.backends.portable import backend
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.frontends.build import build_graph
from emitc.frontends.tflite.reader import read_tflite
from emitc.ir import Array, BoundNode, DType, Graph
from emitc.kernels import tflite_registry
from emitc.kernels.contract import Variant
from emitc.program import Step
from emitc.target import Target
from emitc.verify.build import HostModel, build_shared
from emitc.verify.engines.run import EngineName, engine_for
from emitc.verify.golden_run import interface_of
from emitc.verify.reference import run_reference
from emitc.verify.sanitize import run_sanitized
from emitc.verify.tolerances import difference
from emitc.writers.tflite import ModelSpec, OperatorSpec, OptionValue, TensorSpec, write_tflite
from tests.support.sweep_sampling import in_turn

Draw = Callable[[np.random.Generator, int], Sequence[Array]]
"""Values of a case's computed inputs for one sample, by generator and number of the sample."""


@dataclass(frozen=True, slots=True)
class Case:
    """One operator. inputs: its tensors in order, constants with data, None for one left out.

    draw: values of the inputs without data; by default they cover each type's range, then are random, then at its ends.
    custom_code, custom_options: of the opcode CUSTOM.
    """

    id: str
    opcode: str
    inputs: tuple[TensorSpec | None, ...]
    outputs: tuple[TensorSpec, ...]
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    version: int = 1
    draw: Draw | None = None
    custom_code: str = ""
    custom_options: bytes = b""


def quantized(
    shape: tuple[int, ...], scale: float = 0.05, zero_point: int = 0, dtype: str = "int8", data: Array | None = None
) -> TensorSpec:
    """A tensor quantized per tensor; a constant where `data` is given (cast to the type)."""
    return TensorSpec("", dtype, shape, None if data is None else data.astype(dtype).tobytes(), (scale,), (zero_point,))


def plain(shape: tuple[int, ...], dtype: str = "float32") -> TensorSpec:
    """A computed tensor without quantization."""
    return TensorSpec("", dtype, shape)


def integers(*values: int, dtype: str = "int32") -> TensorSpec:
    """A constant vector of integers: axes, sizes, paddings."""
    return TensorSpec("", dtype, (len(values),), np.array(values, dtype).tobytes())


def _computed(case: Case) -> list[TensorSpec]:
    """The tensors that a sample gives values to, each once."""
    distinct = {
        id(tensor): tensor
        for tensor in case.inputs
        if tensor is not None and tensor.data is None and not tensor.is_variable
    }
    return list(distinct.values())


def model_of(cases: Sequence[Case]) -> ModelSpec:
    """All cases side by side; the model's inputs and outputs are those of the cases, in order.

    Two inputs of a case that are the same object are one tensor.
    """
    tensors: list[TensorSpec] = []
    operators: list[OperatorSpec] = []
    inputs: list[int] = []
    outputs: list[int] = []
    for case in cases:
        index: dict[int, int] = {}
        for tensor in case.inputs:
            if tensor is not None and id(tensor) not in index:
                index[id(tensor)] = len(tensors)
                if tensor.data is None and not tensor.is_variable:
                    inputs.append(len(tensors))
                tensors.append(replace(tensor, name=f"{case.id}/in{len(index) - 1}"))
        read = tuple(-1 if tensor is None else index[id(tensor)] for tensor in case.inputs)
        written = tuple(range(len(tensors), len(tensors) + len(case.outputs)))
        tensors += [replace(tensor, name=f"{case.id}/out{i}") for i, tensor in enumerate(case.outputs)]
        outputs += written
        custom = (case.custom_code, case.custom_options)
        operators.append(OperatorSpec(case.opcode, read, written, case.options, case.version, *custom))
    return ModelSpec(tuple(tensors), tuple(operators), tuple(inputs), tuple(outputs))


def graph_of(*cases: Case) -> Graph:
    """The graph of the cases, before any pass. Raises what the frontend and the operators refuse."""
    return build_graph(read_tflite(write_tflite(model_of(cases))), tflite_registry(), "cases")


def refusal(case: Case) -> EmitcError:
    """The error with which the case is refused; an AssertionError when it is not."""
    try:
        graph_of(case)
    except EmitcError as error:
        return error
    raise AssertionError(f"{case.id} is accepted")


def drawn(tensor: TensorSpec, rng: np.random.Generator, sample: int) -> Array:
    """Values of an integer tensor: sample 0 covers the type's range, every fourth is at its ends, the others are uniform.

    Of 64 bits there are numbers of every size instead.
    """
    low, high = DType(tensor.dtype).range
    count = int(np.prod(tensor.shape))
    if sample == 0 and high < 1 << 62:
        span = high - low + 1
        values = rng.permutation(
            np.arange(count) % span + low if count >= span else np.linspace(low, high, count).round()
        )
    elif sample % 4 == 3:
        values = rng.choice([low, high], count)
    else:
        values = rng.integers(low, high, count, endpoint=True)
        values = values if high < 1 << 62 else values >> rng.integers(0, 64, count)
    return values.astype(tensor.dtype).reshape(tensor.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """One case: outputs by sample as the numpy reference, the golden engine and the C gave them, and its layer's step.

    step: None where a pass has removed the operator.
    """

    case: Case
    reference: tuple[tuple[Array, ...], ...]
    golden: tuple[tuple[Array, ...], ...]
    compiled: tuple[tuple[Array, ...], ...]
    step: Step | None

    def check(self) -> None:
        """Asserts that the three agree on every bit of every sample."""
        for sample, (reference, golden, compiled) in enumerate(
            zip(self.reference, self.golden, self.compiled, strict=True)
        ):
            for output in range(len(reference)):
                where = f"{self.case.id}, sample {sample}, output {output}"
                expected = golden[output].reshape(reference[output].shape)
                assert difference(reference[output], expected) == (0, 0.0), f"{where}: reference and engine differ"
                assert difference(compiled[output], reference[output]) == (0, 0.0), f"{where}: C and reference differ"


@dataclass(frozen=True, slots=True, eq=False)
class Proven:
    """All cases of a table by id. memory_errors: what the sanitizers saw in the C."""

    outcomes: Mapping[str, Outcome]
    compiled: Compiled
    memory_errors: tuple[str, ...]


def inputs_of(cases: Sequence[Case], samples: int, seed: int) -> list[tuple[Array, ...]]:
    """What the model of the cases is given, by sample."""
    rng = np.random.default_rng(seed)
    inputs: list[tuple[Array, ...]] = []
    for sample in range(samples):
        values: list[Array] = []
        for case in cases:
            values += case.draw(rng, sample) if case.draw else [drawn(t, rng, sample) for t in _computed(case)]
        inputs.append(tuple(values))
    return inputs


def prove(
    cases: Sequence[Case],
    *,
    engine: EngineName | None = "tflm",
    samples: int = 4,
    seed: int = 0,
    sanitize: bool = True,
    backends: Mapping[str, str] | None = None,
    kernels: str = PORTABLE,
    target: str = "generic32",
    variant: str = "",
) -> Proven:
    """Runs the cases three ways, the samples as one sequence.

    engine: None has the reference stand in for it, where no engine defines the result.

    backends: options of backends, by name. kernels: who runs what no accelerator does. target: whose kernels they are; they run
    on this machine. variant: asked for, for every case.
    """
    assert len({case.id for case in cases}) == len(cases), "case ids must differ"
    data = write_tflite(model_of(cases))
    inputs = inputs_of(cases, samples, seed)
    with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
        workdir = Path(folder)
        (workdir / "cases.tflite").write_bytes(data)
        options = {"backends": dict(backends or {}), "kernels": kernels, "target": target}
        if variant:
            options["variants"] = tuple((index, variant) for index in range(len(cases)))
        compiled = compile_model(workdir / "cases.tflite", name="cases", **options)
        compiled.write(workdir / "package")
        interface = interface_of(compiled)
        library = build_shared(workdir / "package", workdir, trace=False, support=compiled.support("host"))
        model = HostModel(library, interface, compiled.host_hooks())
        in_c = [model.run(values) for values in inputs]
        support = compiled.support("host")
        memory_errors = (
            run_sanitized(workdir / "package", workdir, interface, inputs, in_c, support)
            if sanitize and in_turn(case.id for case in cases)
            else []
        )
    before = build_graph(read_tflite(data), tflite_registry(), "cases")
    reference = []
    state: dict[str, Array] = {}
    for sample_inputs in inputs:
        results = run_reference(before, sample_inputs, state)
        reference.append([results[name] for name in before.outputs])
    golden = reference
    if engine is not None:
        runner = engine_for(data, engine)
        golden = [runner.run(values) for values in inputs]
    steps = {step.index: step for step in compiled.program.steps}
    outcomes: dict[str, Outcome] = {}
    first = 0
    for index, case in enumerate(cases):
        end = first + len(case.outputs)
        parts = [tuple(tuple(outputs[first:end]) for outputs in results) for results in (reference, golden, in_c)]
        outcomes[case.id] = Outcome(case, parts[0], parts[1], parts[2], steps.get(index))
        first = end
    return Proven(outcomes, compiled, tuple(memory_errors))


def preferring(variant: str) -> AbstractContextManager[object]:
    """The variant wherever a layer has it."""

    def cost(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
        return 0.0 if (row.name if row else "portable") == variant else 1.0

    return patch.object(backend, "cost_of", cost)
