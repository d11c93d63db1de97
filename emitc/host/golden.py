"""Golden engines: the interpreters whose output the generated C has to equal.

TflmEngine (tflite_micro) is golden for int8, int16 and float TFLite models, LiteRtEngine (LiteRT's reference kernels)
for uint8 ones and for what tflite_micro does not run. Both packages are optional and imported on first use.

Neither interpreter verifies a model before it runs it: a damaged one can end the whole process. `run_isolated` puts the
engine into a child process and turns its end into an error.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from emitc.errors import CannotCompile, EmitcError, Where

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
InputType: TypeAlias = tuple[np.dtype[Any], tuple[int, ...]]
EngineName: TypeAlias = Literal["auto", "tflm", "litert"]

# The interpreter carves all tensors out of one arena, and with `preserve` no two share bytes. The pages that are not
# touched are never committed, so a generous arena costs address space only.
_TFLM_ARENA_MIN_BYTES = 64 << 20
_TFLM_ARENA_PER_MODEL_BYTE = 16
# TensorType of the schema: strings, resource handles and variants have no numpy value (asking for one is fatal).
_TYPES_WITHOUT_VALUE = frozenset({5, 13, 14})
_ANOTHER_REFERENCE = "choose another engine with --reference tflm, litert or numpy"


class EngineRefused(CannotCompile):
    """The engine does not accept the model, fails in it, or ends the process: there is nothing to compare with."""


class Engine(Protocol):
    """One model loaded in one interpreter. `name` is the engine's: "tflm" or "litert"."""

    @property
    def name(self) -> str: ...

    def input_types(self) -> list[InputType]:
        """Dtype and shape of each input, in the model's order."""
        ...

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs, in the model's order, as copies. Inputs have the model's order, dtypes and shapes.

        State (resource variables, LSTM and SVDF state) carries over to the next run.
        Raises EmitcError for an input that does not fit, EngineRefused when the interpreter fails.
        """
        ...

    def tensors(self) -> Mapping[int, Array]:
        """Copies of the values after the last run, by tensor index in subgraph 0; {} unless made with `preserve`.

        Tensors that have no numpy value (resources, strings) are left out; constants are included.
        """
        ...

    def reset(self) -> None:
        """Back to the state of a freshly loaded model."""
        ...


class TflmEngine:
    """TFLite Micro's reference kernels; see Engine.

    preserve: keep every intermediate value for `tensors()`, at the price of an arena without sharing.
    Raises EngineRefused for a model that it cannot load, EmitcError when the package is missing.
    """

    name = "tflm"

    def __init__(self, model_bytes: bytes, *, preserve: bool = False) -> None:
        self._runtime = _imported("tflite_micro", "tflite-micro").runtime
        self._model_bytes = model_bytes
        self._preserve = preserve
        with _refusals(self.name, "load the model"):
            subgraph = self._runtime.convert_bytearray_to_object(bytearray(model_bytes)).subgraphs[0]
            self._input_count = len(subgraph.inputs)
            self._output_count = len(subgraph.outputs)
            # An index that the interpreter does not know is fatal, so the file says which exist.
            self._readable = [i for i, tensor in enumerate(subgraph.tensors) if tensor.type not in _TYPES_WITHOUT_VALUE]
        self.reset()

    def reset(self) -> None:
        """See Engine. A new interpreter, since only that is a fresh state for every kernel."""
        config = self._runtime.InterpreterConfig
        self._has_run = False
        with _refusals(self.name, "load the model"):
            self._interpreter = self._runtime.Interpreter.from_bytes(
                self._model_bytes,
                arena_size=max(_TFLM_ARENA_MIN_BYTES, _TFLM_ARENA_PER_MODEL_BYTE * len(self._model_bytes)),
                intrepreter_config=config.kPreserveAllTensors if self._preserve else config.kAllocationRecording,
            )

    def input_types(self) -> list[InputType]:
        """See Engine."""
        with _refusals(self.name, "describe its inputs"):
            return _input_types(self._interpreter.get_input_details(i) for i in range(self._input_count))

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """See Engine."""
        _check_inputs(inputs, self.input_types())
        with _refusals(self.name, "run the model"):
            for i, array in enumerate(inputs):
                self._interpreter.set_input(np.array(array, order="C"), i)
            self._interpreter.invoke()
            self._has_run = True
            return [np.array(self._interpreter.get_output(j)) for j in range(self._output_count)]

    def tensors(self) -> Mapping[int, Array]:
        """See Engine."""
        if not (self._preserve and self._has_run):
            return {}
        with _refusals(self.name, "show its tensors"):
            return {i: np.array(self._interpreter.GetTensor(i, 0)["tensor_data"]) for i in self._readable}


class LiteRtEngine:
    """LiteRT with its reference kernels (BUILTIN_REF), one thread, no delegate; see Engine.

    `tensors()` may also hold the interpreter's own temporaries, under indices beyond the model's.
    Raises EngineRefused for a model that it cannot load, EmitcError when the package is missing.
    """

    name = "litert"

    def __init__(self, model_bytes: bytes, preserve: bool = False) -> None:
        self._litert = _imported("ai_edge_litert.interpreter", "ai-edge-litert")
        self._model_bytes = model_bytes
        self._preserve = preserve
        self.reset()

    def reset(self) -> None:
        """See Engine. A new interpreter, since only that is a fresh state for every kernel."""
        self._has_run = False
        with _refusals(self.name, "load the model"):
            self._interpreter = self._litert.Interpreter(
                model_content=self._model_bytes,
                # The default resolver runs XNNPACK, whose results differ in the last bit.
                experimental_op_resolver_type=self._litert.OpResolverType.BUILTIN_REF,
                experimental_preserve_all_tensors=self._preserve,
                num_threads=1,
            )
            self._interpreter.allocate_tensors()

    def input_types(self) -> list[InputType]:
        """See Engine."""
        with _refusals(self.name, "describe its inputs"):
            return _input_types(self._interpreter.get_input_details())

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """See Engine."""
        details = self._interpreter.get_input_details()
        _check_inputs(inputs, self.input_types())
        with _refusals(self.name, "run the model"):
            for detail, array in zip(details, inputs, strict=True):
                self._interpreter.set_tensor(detail["index"], np.array(array, order="C"))
            self._interpreter.invoke()
            self._has_run = True
            outputs = self._interpreter.get_output_details()
            return [np.array(self._interpreter.get_tensor(detail["index"])) for detail in outputs]

    def tensors(self) -> Mapping[int, Array]:
        """See Engine."""
        if not (self._preserve and self._has_run):
            return {}
        with _refusals(self.name, "show its tensors"):
            details = self._interpreter.get_tensor_details()
            # Kinds bool, int, unsigned, float, complex: asking for the value of a resource ends the process.
            readable = [detail["index"] for detail in details if np.dtype(detail["dtype"]).kind in "biufc"]
            return {i: np.array(self._interpreter.get_tensor(i)) for i in readable}


def engine_for(model_bytes: bytes, name: EngineName, *, preserve: bool = False) -> Engine:
    """The engine called `name`, loaded; "auto" is the golden one.

    "auto" takes tflite_micro if it loads the model and completes one run on zeros (some kernels refuse a type only when
    they run), else LiteRT's reference kernels. The engine's `name` says which it was.
    Raises EngineRefused when no engine takes the model (with each engine's reason), EmitcError for a missing package.
    """
    if name == "tflm":
        return TflmEngine(model_bytes, preserve=preserve)
    if name == "litert":
        return LiteRtEngine(model_bytes, preserve=preserve)
    reasons: list[str] = []
    for kind in (TflmEngine, LiteRtEngine):
        try:
            engine: Engine = kind(model_bytes, preserve=preserve)
            engine.run([np.zeros(shape, dtype) for dtype, shape in engine.input_types()])
            engine.reset()
        except EngineRefused as error:
            reasons.append(f"{kind.name}: {error.why}")
        else:
            return engine
    raise EngineRefused(
        "no golden engine runs this model", Where(option="--reference auto"), "; ".join(reasons), _ANOTHER_REFERENCE
    )


@dataclass(frozen=True, slots=True, eq=False)
class IsolatedRun:
    """What `run_isolated` saw: the engine's name, and for each case its outputs and (with `preserve`) its tensors."""

    engine: str
    outputs: tuple[tuple[Array, ...], ...]
    tensors: tuple[Mapping[int, Array], ...]


def run_isolated(
    model_bytes: bytes,
    cases: Sequence[Sequence[Array]],
    *,
    engine: EngineName = "auto",
    preserve: bool = False,
    reset_between: bool = False,
    timeout_seconds: float = 300.0,
) -> IsolatedRun:
    """The cases run in order on one engine in a child process, which may crash without harm to this one.

    cases: the inputs of each run. reset_between: every case starts from the state of a freshly loaded model; otherwise
    state carries over. timeout_seconds: for all of it, the start of the child included.
    Raises EngineRefused when the engine refuses the model, crashes or exceeds the time; EmitcError for a missing
    package or inputs that do not fit; RuntimeError with the child's traceback for a bug in this module.
    """
    request = {"engine": engine, "preserve": preserve, "reset_between": reset_between, "cases": len(cases)}
    arrays = {f"in{i}_{k}": array for k, case in enumerate(cases) for i, array in enumerate(case)}
    message = _packed(request, {"model": np.frombuffer(model_bytes, np.uint8), **arrays})
    # The parent's own path, and nothing before it (-P), finds the same emitc and the same engines.
    command = [sys.executable, "-P", "-c", _CHILD]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    try:
        child = subprocess.run(
            command, input=message, capture_output=True, env=environment, timeout=timeout_seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise EngineRefused(
            "the golden engine does not finish",
            Where(option=f"--reference {engine}"),
            f"{len(cases)} runs took longer than {timeout_seconds:g} s and were ended",
            "use fewer samples, or " + _ANOTHER_REFERENCE,
        ) from error
    stderr = child.stderr.decode("utf-8", "replace")
    if child.returncode == _EXIT_BUG:
        raise RuntimeError(f"the golden engine's process failed:\n{stderr}")
    if child.returncode != 0:
        raise EngineRefused(
            "the golden engine crashes on this model",
            Where(option=f"--reference {engine}"),
            f"its process ended with {_ending(child.returncode)}; last words: {_last_words(stderr)}",
            _ANOTHER_REFERENCE,
        )
    reply, results = _unpacked(child.stdout)
    if "error" in reply:
        kind = EngineRefused if reply["refused"] else EmitcError
        what, where, why, hint = reply["error"]
        raise kind(what, Where(**where), why, hint)
    return IsolatedRun(
        reply["engine"],
        tuple(tuple(results[f"out{j}_{k}"] for j in range(reply["outputs"])) for k in range(len(cases))),
        tuple({i: results[f"tensor{i}_{k}"] for i in reply["tensors"]} for k in range(len(cases))),
    )


_CHILD = "from emitc.host.golden import serve; serve()"
# Python's own exit code for an exception that nobody caught.
_EXIT_BUG = 1


def serve() -> None:
    """The child of `run_isolated`: one request on stdin, one reply on stdout."""
    # The engines print to file descriptors 1 and 2; the reply gets a descriptor of its own.
    reply_fd = os.dup(1)
    os.dup2(2, 1)
    message = _answer(sys.stdin.buffer.read())
    with open(reply_fd, "wb") as stream:
        stream.write(message)


def _answer(message: bytes) -> bytes:
    request, arrays = _unpacked(message)
    results: dict[str, Array] = {}
    outputs: list[Array] = []
    tensors: Mapping[int, Array] = {}
    try:
        engine = engine_for(arrays["model"].tobytes(), request["engine"], preserve=request["preserve"])
        for k in range(request["cases"]):
            if request["reset_between"] and k > 0:
                engine.reset()
            case = [name for name in arrays if name.startswith("in") and name.endswith(f"_{k}")]
            outputs = engine.run([arrays[f"in{i}_{k}"] for i in range(len(case))])
            tensors = engine.tensors()
            results |= {f"out{j}_{k}": array for j, array in enumerate(outputs)}
            results |= {f"tensor{i}_{k}": array for i, array in tensors.items()}
    except EmitcError as error:
        where = {
            "model": error.where.model,
            "op": error.where.op,
            "tensor": error.where.tensor,
            "option": error.where.option,
        }
        refused = isinstance(error, EngineRefused)
        return _packed({"error": [error.what, where, error.why, error.hint], "refused": refused}, {})
    return _packed({"engine": engine.name, "outputs": len(outputs), "tensors": list(tensors)}, results)


def _packed(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """A header (JSON) and arrays as the bytes of one .npz."""
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    return stream.getvalue()


def _unpacked(message: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    with np.load(io.BytesIO(message), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    header: dict[str, Any] = json.loads(arrays.pop("header").tobytes())
    return header, arrays


def _ending(returncode: int) -> str:
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"exit code {returncode}"


def _last_words(stderr: str) -> str:
    """The last lines that an engine printed, as one line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return " / ".join(lines[-3:]) or "none"


def _imported(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise EmitcError(
            f"the golden engine {package} is not installed",
            Where(option="--reference"),
            f"importing {module} failed: {error}",
            "pip install emitc[verify]",
        ) from error


def _input_types(details: Iterable[Mapping[str, Any]]) -> list[InputType]:
    return [(np.dtype(detail["dtype"]), tuple(int(extent) for extent in detail["shape"])) for detail in details]


def _check_inputs(inputs: Sequence[Array], expected: Sequence[InputType]) -> None:
    hint = "give one array per model input, in the model's order, with its dtype and shape"
    where = Where(option="--vectors")
    if len(inputs) != len(expected):
        raise EmitcError(
            "the number of inputs is wrong", where, f"expected {len(expected)} arrays, got {len(inputs)}", hint
        )
    for i, (array, (dtype, shape)) in enumerate(zip(inputs, expected, strict=True)):
        if array.dtype != dtype or array.shape != shape:
            raise EmitcError(
                f"input {i} does not fit the model",
                where,
                f"expected {dtype}{list(shape)}, got {array.dtype}{list(array.shape)}",
                hint,
            )


@contextlib.contextmanager
def _refusals(engine: str, action: str) -> Iterator[None]:
    """Turns any exception of an interpreter into EngineRefused, with what it printed to file descriptor 2 as reason.

    The interpreters say why they refuse a node on stderr only. The descriptor is the process's: no other thread may
    write to it meanwhile.
    """
    with tempfile.TemporaryFile() as printed:
        sys.stderr.flush()
        saved = os.dup(2)
        os.dup2(printed.fileno(), 2)
        try:
            yield
        # The interpreters raise whatever their bindings choose (RuntimeError, ValueError, struct.error, ...).
        except Exception as error:
            printed.seek(0)
            words = _last_words(printed.read().decode("utf-8", "replace"))
            raise EngineRefused(
                f"the golden engine cannot {action}",
                Where(option=f"--reference {engine}"),
                f"{type(error).__name__}: {error}; it printed: {words}",
                _ANOTHER_REFERENCE,
            ) from error
        finally:
            os.dup2(saved, 2)
            os.close(saved)
