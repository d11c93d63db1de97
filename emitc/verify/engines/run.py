"""Golden engines: the interpreters whose output the generated C has to equal.

TflmEngine (tflite_micro) is golden for int8, int16 and float TFLite models. LiteRtEngine (LiteRT's reference kernels)
is so for uint8 ones and for what tflite_micro does not run, OnnxRuntimeEngine for ONNX. Their packages are optional and
imported on first use.

None of the interpreters is made for hostile files: a damaged one can end the whole process. `run_isolated` puts the
engine into a child process and turns its end into an error.
"""

import contextlib
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from emitc.errors import EmitcError, Where, install_hint
from emitc.records import asdict, dataclass
from emitc.verify.engines.contract import ANOTHER_REFERENCE, Array, Engine, EngineRefused, TensorKey, last_words
from emitc.verify.engines.onnx import OnnxRuntimeEngine
from emitc.verify.engines.pieces import PiecesEngine
from emitc.verify.engines.tflite import LiteRtEngine, TflmEngine

NO_ENGINE = "no golden engine runs this model"
CRASHED = "the golden engine crashes on this model"
TRY_NUMPY = "compare with emitc's own numpy references: --reference numpy"

EngineName: TypeAlias = Literal["auto", "tflm", "litert", "mixed", "compared", "onnxruntime"]
"""mixed: every operator by itself, on tflm or litert (`pieces`). compared: the same, and on both where both have it."""

ChildProcess: TypeAlias = Callable[[bytes, float], "subprocess.CompletedProcess[bytes]"]
"""Gives a request to a process that answers it (`answer`) within a number of seconds: how it ended, its reply and its stderr.

Raises subprocess.TimeoutExpired."""

ENGINES: Mapping[str, tuple[str, ...]] = {"tflite": ("tflm", "litert"), "onnx": ("onnxruntime",)}
"""The engines that read each source format; the first that runs a model is its golden one."""
MIXED: Mapping[str, tuple[str, ...]] = {"tflite": ("mixed", "compared"), "onnx": ()}
"""Those that run a model operator by operator."""
MODULES: Mapping[str, str] = {"tflm": "tflite_micro", "litert": "ai_edge_litert", "onnxruntime": "onnxruntime"}
"""What has to be importable for each."""


def missing_engines(source_format: str) -> str:
    """Why no engine can be asked about models of a format, and the way to install one; "" where one is installed."""
    engines = ENGINES[source_format]
    if any(importlib.util.find_spec(MODULES[engine]) is not None for engine in engines):
        return ""
    missing = " and ".join(MODULES[engine] for engine in engines)
    return f"{missing} {'are' if len(engines) > 1 else 'is'} not installed ({install_hint('verify')})"


_LOADERS: Mapping[str, Callable[..., Engine]] = {
    "tflm": TflmEngine,
    "litert": LiteRtEngine,
    "mixed": PiecesEngine,
    "compared": partial(PiecesEngine, compare=True),
    "onnxruntime": OnnxRuntimeEngine,
}


def engine_for(
    model_bytes: bytes, name: EngineName, *, preserve: bool = False, source_format: str = "tflite"
) -> Engine:
    """The engine called `name`, loaded; "auto" is the golden one of the model's format (tflite or onnx).

    For TFLite, "auto" takes tflite_micro if it loads the model and completes one run on zeros. Some kernels refuse a type only
    when they run. Else it takes LiteRT's reference kernels; for ONNX it is onnxruntime. The engine's `name` says which it was.
    Raises EngineRefused when no engine takes the model (with each engine's reason). Raises EmitcError for an engine that does
    not read the format and for a missing package.
    """
    candidates = ENGINES[source_format]
    if name != "auto":
        if name not in (*candidates, *MIXED[source_format]):
            what = f"the engine {name} does not read {source_format} models"
            why = f"engines for {source_format}: {', '.join(candidates)}"
            hint = f"verify with --reference auto, {', '.join(candidates)} or numpy"
            raise EmitcError(what, Where(option=f"--reference {name}"), why, hint)
        return _LOADERS[name](model_bytes, preserve=preserve)
    if len(candidates) == 1:
        return _LOADERS[candidates[0]](model_bytes, preserve=preserve)
    reasons: list[str] = []
    for candidate in candidates:
        try:
            engine = _LOADERS[candidate](model_bytes, preserve=preserve)
            engine.run([np.zeros(shape, dtype) for dtype, shape in engine.input_types()])
            engine.reset()
        except EngineRefused as error:
            reasons.append(f"{candidate}: {error.why}")
        else:
            return engine
    raise EngineRefused(NO_ENGINE, Where(option="--reference auto"), "; ".join(reasons), TRY_NUMPY)


@dataclass(frozen=True, slots=True, eq=False)
class IsolatedRun:
    """What `run_isolated` saw: the engine's name, and for each case its outputs and (with `preserve`) its tensors.

    disputes: operators whose engines differ, where several were asked.
    """

    engine: str
    outputs: tuple[tuple[Array, ...], ...]
    tensors: tuple[Mapping[TensorKey, Array], ...]
    disputes: tuple[str, ...] = ()


def run_isolated(
    model_bytes: bytes,
    cases: Sequence[Sequence[Array]],
    *,
    engine: EngineName = "auto",
    source_format: str = "tflite",
    preserve: bool = False,
    resets: Sequence[int] = (),
    timeout_seconds: float = 300.0,
) -> IsolatedRun:
    """The cases run in order on one engine in a child process, which may crash without harm to this one.

    cases: the inputs of each run. source_format: tflite or onnx. resets: the positions of the cases that start from the state
    of a freshly loaded model; into others state carries over. timeout_seconds: for all of it, the start of the child included.
    Raises EngineRefused when the engine refuses the model, crashes or exceeds the time; EmitcError for a missing
    package or inputs that do not fit; RuntimeError with the child's traceback for a bug in this module.
    """
    request = {
        "engine": engine,
        "source_format": source_format,
        "preserve": preserve,
        "resets": list(resets),
        "cases": len(cases),
    }
    hint = ANOTHER_REFERENCE if source_format == "tflite" else "compare with --reference numpy"
    arrays = {f"in{i}_{k}": array for k, case in enumerate(cases) for i, array in enumerate(case)}
    message = _packed(request, {"model": np.frombuffer(model_bytes, np.uint8), **arrays})
    try:
        child = _child.get()(message, timeout_seconds)
    except subprocess.TimeoutExpired as error:
        what = "the golden engine does not finish"
        why = f"{len(cases)} runs took longer than {timeout_seconds:g} s and were ended"
        hint = "use fewer samples, or " + hint
        raise EngineRefused(what, Where(option=f"--reference {engine}"), why, hint) from error
    stderr = child.stderr.decode("utf-8", "replace")
    if child.returncode == _EXIT_BUG:
        raise RuntimeError(f"the golden engine's process failed:\n{stderr}")
    if child.returncode != 0:
        why = f"its process ended with {_ending(child.returncode)}; last words: {last_words(stderr)}"
        raise EngineRefused(CRASHED, Where(option=f"--reference {engine}"), why, hint)
    reply, results = _unpacked(child.stdout)
    if "error" in reply:
        kind = EngineRefused if reply["refused"] else EmitcError
        what, where, why, hint = reply["error"]
        raise kind(what, Where(**where), why, hint)
    return IsolatedRun(
        reply["engine"],
        tuple(tuple(results[f"out{j}_{k}"] for j in range(reply["outputs"])) for k in range(len(cases))),
        tuple({key: results[f"tensor{i}_{k}"] for i, key in enumerate(reply["tensors"])} for k in range(len(cases))),
        tuple(reply["disputes"]),
    )


def _started(message: bytes, timeout_seconds: float) -> subprocess.CompletedProcess[bytes]:
    # The parent's own path, and nothing before it (-P), finds the same emitc and the same engines.
    command = [sys.executable, "-P", "-c", _CHILD]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    return subprocess.run(
        command, input=message, capture_output=True, env=environment, timeout=timeout_seconds, check=False
    )


_child: ContextVar[ChildProcess] = ContextVar("child", default=_started)


@contextlib.contextmanager
def engines_in(process: ChildProcess) -> Iterator[None]:
    """Has `run_isolated` ask this process instead of one that it starts, for as long as the context lasts."""
    token = _child.set(process)
    try:
        yield
    finally:
        _child.reset(token)


_CHILD = "from emitc.verify.engines.run import serve; serve()"
# Python's own exit code for an exception that nobody caught.
_EXIT_BUG = 1


def serve() -> None:
    """The child of `run_isolated`: one request on stdin, one reply on stdout."""
    # The engines print to file descriptors 1 and 2; the reply gets a descriptor of its own.
    reply_fd = os.dup(1)
    os.dup2(2, 1)
    message = answer(sys.stdin.buffer.read())
    with open(reply_fd, "wb") as stream:
        stream.write(message)


def answer(message: bytes) -> bytes:
    """The reply to a request of `run_isolated`; for the process that runs the engines."""
    request, arrays = _unpacked(message)
    results: dict[str, Array] = {}
    outputs: list[Array] = []
    tensors: Mapping[TensorKey, Array] = {}
    try:
        model, options = arrays["model"].tobytes(), {name: request[name] for name in ("preserve", "source_format")}
        engine = engine_for(model, request["engine"], **options)
        for k in range(request["cases"]):
            if k in request["resets"]:
                engine.reset()
            case = [name for name in arrays if name.startswith("in") and name.endswith(f"_{k}")]
            outputs = engine.run([arrays[f"in{i}_{k}"] for i in range(len(case))])
            tensors = engine.tensors()
            results |= {f"out{j}_{k}": array for j, array in enumerate(outputs)}
            results |= {f"tensor{i}_{k}": array for i, array in enumerate(tensors.values())}
    except EmitcError as error:
        refused = isinstance(error, EngineRefused)
        return _packed({"error": [error.what, asdict(error.where), error.why, error.hint], "refused": refused}, {})
    disputes = engine.disputes if isinstance(engine, PiecesEngine) else ()
    header = {"engine": engine.name, "outputs": len(outputs), "tensors": list(tensors), "disputes": disputes}
    return _packed(header, results)


def _packed(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
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
