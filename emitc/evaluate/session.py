"""The generated C of a model, built for this machine and loaded: arrays in, arrays out."""

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from emitc.compiled import Compiled
from emitc.compiler import for_host
from emitc.errors import EmitcError, Where
from emitc.ir import Array
from emitc.program import Port
from emitc.records import dataclass
from emitc.verify.build import HostModel, build_shared
from emitc.verify.golden_run import interface_of


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output. dtype: numpy's name. scale, zero_point: real = scale * (code - zero_point); None for reals."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    scale: float | None = None
    zero_point: int | None = None

    def quantized(self, real: Array) -> Array:
        """Codes of real numbers: the nearest step, halves away from zero, limited to the type. Others get the type alone.

        >>> TensorInfo("x", "int8", (3,), 0.5, 10).quantized(np.array([0.25, -0.25, 100.0]))
        array([ 11,   9, 127], dtype=int8)
        """
        if self.scale is None or self.zero_point is None:
            return np.asarray(real).astype(self.dtype)
        steps = np.asarray(real, np.float64) / self.scale
        rounded = np.trunc(steps + np.copysign(0.5, steps)) + self.zero_point
        limits = np.iinfo(self.dtype)
        return np.asarray(np.clip(rounded, limits.min, limits.max).astype(self.dtype))

    def real(self, codes: Array) -> Array:
        """Real numbers of codes, in float32; what is not quantized as it is."""
        if self.scale is None or self.zero_point is None:
            return codes
        return ((codes.astype(np.float64) - self.zero_point) * self.scale).astype(np.float32)


def info_of(port: Port) -> TensorInfo:
    return TensorInfo(port.tensor, port.dtype, port.shape, port.scale, port.zero_point)


class Session:
    """One instance of a model on this machine. The state of a model with state lasts from run to run, until `reset`.

    Raises CannotCompile without a C compiler, RuntimeError when the generated code returns an error.
    """

    def __init__(self, compiled: Compiled) -> None:
        made = for_host(compiled.program.origin.model_file, compiled)
        self.inputs = tuple(info_of(port) for port in made.program.inputs)
        self.outputs = tuple(info_of(port) for port in made.program.outputs)
        folder = Path(tempfile.mkdtemp(prefix="emitc-"))
        self._removal = weakref.finalize(self, shutil.rmtree, folder, True)
        made.write(folder / "package")
        library = build_shared(folder / "package", folder, trace=False, support=made.support("host"))
        self._model = HostModel(library, interface_of(made), made.host_hooks())

    def reset(self) -> None:
        self._model.reset()

    def run_one(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """One inference on arrays of the model's own types and shapes."""
        return tuple(self._model.run(inputs))

    def run(self, inputs: Sequence[Array] | Mapping[str, Array], *, quantize: bool = False) -> tuple[Array, ...]:
        """Inferences on one or several samples; see `emitc.api.Model.run`."""
        arrays = [np.asarray(value) for value in self._ordered(inputs)]
        counts = {self._samples(info, array) for info, array in zip(self.inputs, arrays, strict=True)}
        if len(counts) != 1:
            raise _refused("the inputs have different numbers of samples", f"they have {sorted(map(str, counts))}")
        (count,) = counts
        typed = [self._typed(info, array, quantize) for info, array in zip(self.inputs, arrays, strict=True)]
        rows = [value.reshape(-1, *info.shape) for info, value in zip(self.inputs, typed, strict=True)]
        results = [self.run_one([row[i] for row in rows]) for i in range(1 if count is None else count)]
        return tuple(
            self._joined(i, [result[i] for result in results], count, quantize) for i in range(len(self.outputs))
        )

    def _ordered(self, inputs: Sequence[Array] | Mapping[str, Array]) -> Sequence[Array]:
        names = [info.name for info in self.inputs]
        if isinstance(inputs, Mapping):
            if set(inputs) != set(names):
                raise _refused("the inputs have other names", f"the model has {names}, and {sorted(inputs)} are given")
            return [inputs[name] for name in names]
        if len(inputs) != len(names):
            why = f"the model has {len(names)}: {names}, not {len(inputs)}"
            raise _refused("another number of inputs is given", why)
        return inputs

    @staticmethod
    def _samples(info: TensorInfo, array: Array) -> int | None:
        """How many samples an array has; None for one sample in the model's own shape."""
        shape, own = array.shape, info.shape
        if shape == own:
            return None
        if shape[1:] == own or (own[:1] == (1,) and shape[1:] == own[1:]):
            return int(shape[0])
        if own[:1] == (1,) and shape == own[1:]:
            return None
        why = f"{info.name!r} takes {list(own)} or any number of such samples, and {list(shape)} is given"
        raise _refused("an input has another shape", why)

    @staticmethod
    def _typed(info: TensorInfo, array: Array, quantize: bool) -> Array:
        if quantize:
            return info.quantized(array)
        if array.dtype.name == info.dtype:
            return array
        same = array.astype(info.dtype)
        if array.dtype.kind in "biu" and np.dtype(info.dtype).kind in "biu" and bool((same == array).all()):
            return same
        if array.dtype.kind == "f" and np.dtype(info.dtype).kind == "f":
            return same
        why = f"{info.name!r} is {info.dtype}, and {array.dtype.name} is given"
        raise _refused("an input has another type", why, "quantize=True takes real numbers")

    def _joined(self, position: int, values: Sequence[Array], count: int | None, quantize: bool) -> Array:
        info = self.outputs[position]
        real = [info.real(value) for value in values] if quantize else values
        if count is None:
            return real[0]
        if not real:
            return np.zeros(
                (0, *info.shape[info.shape[:1] == (1,) :]), np.float32 if quantize and info.scale else info.dtype
            )
        return np.concatenate(real) if info.shape[:1] == (1,) else np.stack(real)

    def close(self) -> None:
        self._removal()


def _refused(what: str, why: str, hint: str = "see inputs of the model") -> EmitcError:
    return EmitcError(what, Where(option="run"), why, hint)
