"""What a golden engine is, and what all of them need: optional packages, checked inputs, refusals with a reason."""

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from emitc.errors import CannotCompile, EmitcError, Where, install_hint

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
InputType: TypeAlias = tuple[np.dtype[Any], tuple[int, ...]]
TensorKey: TypeAlias = int | str

ANOTHER_REFERENCE = "choose another engine with --reference tflm, litert or numpy"
"""The hint where an engine of TFLite models refuses."""


class EngineRefused(CannotCompile):
    """The engine does not accept the model, fails in it, or ends the process: there is nothing to compare with."""


class Engine(Protocol):
    """One model loaded in one interpreter. `name` is the engine's: "tflm", "litert" or "onnxruntime"."""

    @property
    def name(self) -> str: ...

    def input_types(self) -> list[InputType]:
        """Dtype and shape of each input, in the model's order; a size is -1 where the model leaves it open."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs, in the model's order, as copies. Inputs have the model's order, dtypes and shapes.

        State (resource variables, LSTM and SVDF state) carries over to the next run.
        Raises EmitcError for an input that does not fit, EngineRefused when the interpreter fails.
        """

    def tensors(self) -> Mapping[TensorKey, Array]:
        """Copies of the values after the last run; {} unless made with `preserve`.

        The key is what the format calls a tensor: its index in subgraph 0 for TFLite, its name for ONNX. Tensors that
        have no numpy value (resources, strings, sequences) are left out; TFLite's constants are included.
        """

    def reset(self) -> None:
        """Back to the state of a freshly loaded model."""


def last_words(stderr: str) -> str:
    """The last lines that an engine printed, as one line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return " / ".join(lines[-3:]) or "none"


def imported(module: str, package: str) -> Any:
    """An engine's module. Raises EmitcError when its package is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        what = f"the golden engine {package} is not installed"
        hint = f"{install_hint('verify')}; or --reference numpy, which needs no engine"
        raise EmitcError(what, Where(option="--reference"), f"importing {module} failed: {error}", hint) from error


def check_inputs(inputs: Sequence[Array], expected: Sequence[InputType]) -> None:
    """Refuses inputs of another number, dtype or shape; an expected size of -1 takes any."""
    hint = "give one array per model input, in the model's order, with its dtype and shape"
    where = Where(option="--vectors")
    if len(inputs) != len(expected):
        why = f"expected {len(expected)} arrays, got {len(inputs)}"
        raise EmitcError("the number of inputs is wrong", where, why, hint)
    for i, (array, (dtype, shape)) in enumerate(zip(inputs, expected, strict=True)):
        fits = len(array.shape) == len(shape) and all(d in (-1, s) for d, s in zip(shape, array.shape, strict=True))
        if array.dtype != dtype or not fits:
            why = f"expected {dtype}{list(shape)}, got {array.dtype}{list(array.shape)}"
            raise EmitcError(f"input {i} does not fit the model", where, why, hint)


@contextlib.contextmanager
def refusals(engine: str, action: str, hint: str = ANOTHER_REFERENCE) -> Iterator[None]:
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
            words = last_words(printed.read().decode("utf-8", "replace"))
            what = f"the golden engine cannot {action}"
            why = f"{type(error).__name__}: {error}; it printed: {words}"
            raise EngineRefused(what, Where(option=f"--reference {engine}"), why, hint) from error
        finally:
            os.dup2(saved, 2)
            os.close(saved)
