"""`emitc quantize`: a float ONNX model to a quantized one, by ONNX Runtime's own static quantizer.

emitc calls the quantizer with settings whose results compile to integer code: QuantizeLinear/DequantizeLinear pairs, int8
activations and weights, one weight scale per output channel. Ranges of the method `mse` are emitc's own.
"""

import contextlib
import io
import logging
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from emitc.calibrate.float_graph import Statistics
from emitc.calibrate.npz import read_arrays
from emitc.calibrate.packages import package
from emitc.calibrate.precision import overrides_of, require_operators
from emitc.calibrate.remedies import Remedied, remedied, with_corrected_bias
from emitc.calibrate.settings import QuantizeSettings
from emitc.compiler import compile_model
from emitc.emit.output_file import OutputFile
from emitc.errors import CannotCompile, EmitcError, Refusals, Where, with_model
from emitc.frontends.read import is_onnx, read_file, read_source
from emitc.ir import Array, Shape
from emitc.records import asdict, dataclass, replace

MAX_SAMPLES = 4096
_NAMED = 8
"""Arrays of a file that a message names."""
MAX_OPERATORS = 1500
"""The quantizer's time grows with their square: half a minute for these, two minutes for three thousand."""
_MARK = "emitc.quantized"
"""Key of the property that a model has which emitc quantized, so that a later one may replace it."""
_DEFAULT = QuantizeSettings()
_Samples = Sequence[Mapping[str, Array]]


@dataclass(frozen=True, slots=True)
class Measures:
    """What is measured of a float model on samples, by functions of both. ranges: of its tensors, for the method `mse`.

    statistics: of their channels, for the remedies.
    """

    ranges: Callable[[bytes, _Samples], dict[str, tuple[float, float]]]
    statistics: Callable[[bytes, _Samples], Statistics]


_FATAL, _WARNING = 4, 2
"""Levels of ONNX Runtime's log; it starts with the second."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """What was made. samples: calibration inputs that were run.

    data: the quantized model. model: the float one as one file, with the remedies that change tensors. calibration: the samples
    by input name. settings: with which it was made.
    """

    output: Path
    samples: int
    bytes_before: int
    bytes_after: int
    data: bytes = b""
    model: bytes = b""
    calibration: Sequence[Mapping[str, Array]] = ()
    settings: QuantizeSettings = _DEFAULT

    def as_json(self) -> dict[str, Any]:
        names = ("samples", "bytes_before", "bytes_after")
        return {"output": str(self.output)} | {name: getattr(self, name) for name in names} | asdict(self.settings)


def _refused(path: Path, why: str) -> EmitcError:
    return EmitcError(
        f"{path.name} cannot be used for calibration",
        Where(option="--calibration"),
        why,
        "an .npz file with in{i}_{k} for input i of sample k, or one array per input name, samples along its first dimension; a"
        " model with one input takes the only array that fits",
    )


def read_calibration(path: Path, inputs: dict[str, tuple[int, ...]]) -> list[dict[str, Array]]:
    """The samples of a calibration file, each an array by input name.

    inputs: shape of each input, -1 for an open dimension. Raises EmitcError for a file that does not fit.
    """
    arrays = read_arrays(path, lambda why: _refused(path, why[:200]))
    samples: list[dict[str, Array]] = []
    only = _only_fitting(arrays, inputs)
    if set(inputs) <= set(arrays):
        counts = {len(arrays[name]) if arrays[name].ndim else 0 for name in inputs}
        if len(counts) != 1:
            raise _refused(path, f"its inputs have {sorted(counts)} samples")
        for k in range(min(counts.pop(), MAX_SAMPLES)):
            samples.append({name: arrays[name][k] for name in inputs})
    elif any(key.startswith("in0_") for key in arrays) or only is None:
        numbers = sorted({int(m.group(1)) for key in arrays if (m := re.fullmatch(r"in0_(\d{1,6})", key))})
        for k in numbers[:MAX_SAMPLES]:
            keys = {name: f"in{i}_{k}" for i, name in enumerate(inputs)}
            missing = [key for key in keys.values() if key not in arrays]
            if missing:
                raise _refused(path, f"it has no {missing[0]}")
            samples.append({name: arrays[key] for name, key in keys.items()})
    else:
        (name,) = inputs
        samples = [{name: array} for array in only[:MAX_SAMPLES]]
    if not samples:
        held = ", ".join(f"{key}{list(array.shape)}" for key, array in list(arrays.items())[:_NAMED])
        more = ", ..." if len(arrays) > _NAMED else ""
        wanted = ", ".join(f"{name}{list(shape)}" for name, shape in inputs.items())
        raise _refused(path, f"it holds {held or 'no array'}{more}; the inputs of the model are {wanted}")
    return [{name: _fitted(path, name, array, inputs[name]) for name, array in sample.items()} for sample in samples]


def _only_fitting(arrays: dict[str, Array], inputs: dict[str, tuple[int, ...]]) -> Array | None:
    """The samples of a model with one input, where only one array can be them: X in a file with labels y."""
    if len(inputs) != 1:
        return None
    (shape,) = inputs.values()
    candidates = [a for a in arrays.values() if a.ndim and len(a) and any(_fits(f, shape) for f in (a[0], a[:1]))]
    return candidates[0] if len(candidates) == 1 else None


def _fits(array: Array, shape: tuple[int, ...]) -> bool:
    """Whether an array has the model's shape, whose open dimensions take any size."""
    return array.ndim == len(shape) and all(s in (-1, d) for s, d in zip(shape, array.shape, strict=True))


def _fitted(path: Path, name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """One sample of one input as float32 in the model's shape; the batch dimension may be left out."""
    for candidate in (array, array[np.newaxis]):
        if _fits(candidate, shape):
            value = candidate.astype(np.float32)
            if not np.isfinite(value).all():
                raise _refused(path, f"{name} holds values that are not finite")
            return value
    raise _refused(path, f"{name} has the shape {list(array.shape)}, the model takes {list(shape)}")


@contextlib.contextmanager
def _silent(path: Path) -> Iterator[None]:
    """Keeps the quantizer's and the engine's remarks off the terminal, and turns whatever they raise into an error."""
    level = logging.getLogger().level
    severity = package("onnxruntime").set_default_logger_severity
    try:
        logging.getLogger().setLevel(logging.CRITICAL + 1)
        severity(_FATAL)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    except EmitcError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        hint = "check that onnxruntime runs the model, with inputs in float32"
        raise CannotCompile(f"{path.name} cannot be quantized", Where(model=path.name), lines[0][:300], hint) from error
    finally:
        logging.getLogger().setLevel(level)
        severity(_WARNING)


def _samples(path: Path, data: bytes, calibration: Path) -> tuple[list[dict[str, Array]], bytes]:
    """The samples for a model that emitc's own reader takes, and that model as one file, with the constants of other files in it.

    Engine and quantizer are given no other model: they are not made for hostile files. What the reader has no code for would not
    compile when it is quantized either.
    """
    from emitc.frontends.onnx.file import stated_inputs

    where = Where(model=path.name)
    if not is_onnx(path, data):
        hint = "quantize a TensorFlow model with its own converter"
        raise EmitcError(f"{path.name} is not an ONNX model", where, "the quantizer reads .onnx files only", hint)
    try:
        inputs = stated_inputs(data)
    except EmitcError as error:
        raise with_model(error, path.name) from error
    samples = read_calibration(calibration, inputs)
    source = read_source(path, data, {n: samples[0][n].shape for n, shape in inputs.items() if -1 in shape})
    if source.blockers:
        raise with_model(Refusals(source.blockers), path.name)
    if any(node.op_type in _QUANTIZED or node.op_type.startswith("QLinear") for node in source.nodes):
        hint = "compile it as it is, or quantize the float model that it was made of"
        raise EmitcError(f"{path.name} is quantized already", where, "it has operators that quantize", hint)
    if len(source.nodes) > MAX_OPERATORS:
        why = f"the limit for quantizing is {MAX_OPERATORS}: the quantizer's time grows with their square"
        hint = "simplify the model, or quantize it with the tools of its training framework"
        raise CannotCompile(f"{path.name} has {len(source.nodes)} operators", where, why, hint)
    kinds = {source.tensors[i].name: source.tensors[i].dtype for i in source.inputs}
    if set(kinds.values()) != {"float32"}:
        hint = "only float models can be quantized; a quantized one compiles as it is"
        raise CannotCompile(f"{path.name} has inputs of other types than float32", where, str(kinds), hint)
    return samples, source.whole or data


_QUANTIZED = frozenset(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"))
_PER_CHANNEL_OPSET = 13
"""From here on QuantizeLinear and DequantizeLinear know scales per channel."""
_INITIALIZERS_ALONE = 4
"""From this version of the format on an initializer need not be an input."""
_PAD_OPSET = 11
"""From here on Pad takes its widths from an input."""
_OPSET, _IR_VERSION = 17, 8
"""Of ONNX 1.12 and 1.10."""


def _without_constant_inputs(model: bytes) -> bytes:
    """The model without the initializers among its inputs, which a caller may replace: the engine folds none of these.

    Up to version 3 of the format every initializer is an input too, and constant all the same.
    """
    onnx = package("onnx")
    message = onnx.load_from_string(model)
    constants = {tensor.name for tensor in message.graph.initializer}
    inputs = [value for value in message.graph.input if value.name not in constants]
    if message.ir_version < _INITIALIZERS_ALONE or len(inputs) == len(message.graph.input):
        return model
    del message.graph.input[:]
    message.graph.input.extend(inputs)
    return bytes(message.SerializeToString())


def _modernise(path: Path) -> bool:
    """An old model in a newer version of the format, in place; whether it has operators with scales per channel then.

    Up to version 3 of the format every initializer is an input too, which those that the quantizer adds are not.
    """
    onnx = package("onnx")
    converter = package("onnx.version_converter")
    model = onnx.load(path)
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if versions and versions[0] >= _PER_CHANNEL_OPSET:
        return True
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, _IR_VERSION)
    try:
        converted = converter.convert_version(model, _OPSET)
        onnx.checker.check_model(converted)
    except (RuntimeError, ValueError, onnx.checker.ValidationError):
        onnx.save(model, path)
        return False
    onnx.save(converted, path)
    return True


def _with_separate_padding(model: bytes) -> bytes:
    """The model with a Pad before each Conv whose padding is as wide as its window, for which emitc has no code.

    The engine merges a Pad with the Conv that reads it, whatever the width.
    """
    onnx = package("onnx")
    message = onnx.load_from_string(model)
    opset = max((entry.version for entry in message.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    weights = {tensor.name: tuple(tensor.dims) for tensor in message.graph.initializer}
    nodes = list(message.graph.node)
    separated = []
    for index, node in enumerate(nodes):
        numbers = {a.name: list(a.ints) for a in node.attribute if a.name in ("pads", "dilations")}
        window = weights.get(node.input[1], ())[2:] if node.op_type == "Conv" else ()
        pads, dilations = numbers.get("pads", []), numbers.get("dilations", [1] * len(window))
        reach = [(size - 1) * dilation + 1 for size, dilation in zip(window, dilations, strict=False)]
        if opset < _PAD_OPSET or not any(pad >= most for pad, most in zip(pads, reach * 2, strict=False)):
            separated.append(node)
            continue
        name = f"{node.input[0]}_padded_{index}"
        rank = len(reach)
        widths = np.array([0, 0, *pads[:rank], 0, 0, *pads[rank:]], np.int64)
        message.graph.initializer.append(onnx.numpy_helper.from_array(widths, f"{name}_widths"))
        separated += [onnx.helper.make_node("Pad", [node.input[0], f"{name}_widths"], [name], name), node]
        node.input[0] = name
        next(a for a in node.attribute if a.name == "pads").ints[:] = [0] * len(pads)
    if len(separated) == len(nodes):
        return model
    del message.graph.node[:]
    message.graph.node.extend(separated)
    return bytes(onnx.shape_inference.infer_shapes(message).SerializeToString())


def _compiles(made: Path, shapes: dict[str, Shape]) -> bool:
    """Whether a quantized model has code. shapes: of its inputs."""
    try:
        compile_model(made, shapes=shapes)
    except EmitcError:
        return False
    return True


def _marked(data: bytes) -> bytes:
    """The model with emitc's mark in its properties: a message of the format goes on where another one is appended."""
    onnx = package("onnx")
    entry = onnx.StringStringEntryProto(key=_MARK, value="int8")
    return data + bytes(onnx.ModelProto(metadata_props=[entry]).SerializeToString())


class FloatModel:
    """A float model with its calibration samples, prepared for the quantizer; any number of int8 models is made of it.

    The quantizer sees operators whose constants are folded, and batch normalizations in the weights. path, model: the float
    model's file, and its content with the constants of other files. samples: the calibration. It is made by `float_model`.
    """

    def __init__(
        self, path: Path, samples: list[dict[str, Array]], model: bytes, folder: Path, measures: Measures | None
    ) -> None:
        self._measures = measures
        self.path = path
        self._folder = folder
        self.samples = samples
        self.model = model
        self._ranges: dict[bytes, dict[str, tuple[float, float]]] = {}
        self._remedied: dict[Any, Remedied] = {}
        preprocess = package("onnxruntime.quantization.shape_inference").quant_pre_process
        unprepared, prepared = folder / "unprepared.onnx", folder / "prepared.onnx"
        unprepared.write_bytes(_without_constant_inputs(model))
        with _silent(path):
            preprocess(str(unprepared), str(prepared), skip_symbolic_shape=True)
            self._per_channel = _modernise(prepared)
        self._prepared = _with_separate_padding(prepared.read_bytes())

    @property
    def message(self) -> Any:
        """The prepared model as an ONNX message."""
        return package("onnx").load_from_string(self._prepared)

    def _statistics(self, model: bytes) -> Statistics:
        assert self._measures is not None, "remedies need statistics"
        return self._measures.statistics(model, self.samples)

    def _with_remedies(self, settings: QuantizeSettings) -> Remedied:
        """The prepared model, equalized and with split heads as the settings say."""
        key = (settings.remedies, settings.excluded, settings.int16)
        if not settings.remedies:
            return Remedied(self._prepared)
        if key not in self._remedied:
            kept = (*settings.excluded, *settings.int16)
            self._remedied[key] = remedied(self.message, settings.remedies, kept, self._statistics)
        return self._remedied[key]

    def reference(self, settings: QuantizeSettings) -> bytes:
        """The float model whose tensors those of the quantized one stand for: with the results of `model`."""
        return self._with_remedies(settings).model if settings.remedies else self.model

    def quantized(self, settings: QuantizeSettings = _DEFAULT) -> bytes:
        """The quantized model, with emitc's mark. Raises CannotCompile when the quantizer fails, EmitcError for unknown names."""
        require_operators(settings, self.message)
        with _silent(self.path):
            made = self._with_remedies(settings)
            settings = replace(settings, excluded=(*settings.excluded, *made.stay))
            data = self._quantized(made.model, settings)
            if "bias" in settings.remedies:
                load = package("onnx").load_from_string
                corrected = with_corrected_bias(load(made.model), load(data), self._statistics)
                data = self._quantized(corrected, settings)
        return _marked(data)

    def _quantized(self, model: bytes, settings: QuantizeSettings) -> bytes:
        """The int8 model that is made of a prepared one."""
        shapes = {name: value.shape for name, value in self.samples[0].items()}
        source, made = self._folder / "float.onnx", self._folder / "quantized.onnx"
        source.write_bytes(model)
        overrides = overrides_of(settings, package("onnx").load_from_string(model), self._least_error(model, settings))
        more: dict[str, Any] = {"TensorQuantOverrides": overrides} if overrides else {}
        try:
            data = self._quantize(made, settings, per_channel=self._per_channel, **more)
        except ValueError:
            # The quantizer's own care for biases that leave 32 bits fails on matrices with one scale per channel.
            more |= {"QDQDisableWeightAdjustForInt32Bias": True}
            data = self._quantize(made, settings, per_channel=self._per_channel, **more)
        if self._per_channel and not _compiles(made, shapes):
            # It gives a bias of the shape [1, N] its scales along the wrong dimension.
            more.pop("QDQDisableWeightAdjustForInt32Bias", None)
            whole = self._quantize(made, settings, per_channel=False, **more)
            data = whole if _compiles(made, shapes) else data
        return data

    def _least_error(self, model: bytes, settings: QuantizeSettings) -> dict[str, tuple[float, float]]:
        """Ranges of the method `mse`, none for the other methods."""
        if settings.method != "mse":
            return {}
        if model not in self._ranges:
            assert self._measures is not None, "the method mse needs ranges"
            self._ranges[model] = self._measures.ranges(model, self.samples)
        return self._ranges[model]

    def _quantize(self, made: Path, settings: QuantizeSettings, *, per_channel: bool, **extra: Any) -> bytes:
        quantization, samples = package("onnxruntime.quantization"), iter(self.samples)
        methods = quantization.CalibrationMethod
        quantization.quantize_static(
            str(self._folder / "float.onnx"),
            str(made),
            SimpleNamespace(get_next=lambda: next(samples, None)),  # how the quantizer reads samples
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=per_channel,
            nodes_to_exclude=list(settings.excluded),
            calibrate_method={"percentile": methods.Percentile, "entropy": methods.Entropy}.get(
                settings.method, methods.MinMax
            ),
            extra_options=extra,
        )
        return made.read_bytes()


@contextlib.contextmanager
def float_model(path: Path, calibration: Path, measures: Measures | None = None) -> Iterator[FloatModel]:
    """The float model at `path` with the samples of the file `calibration`. measures: for the method `mse` and remedies.

    Raises EmitcError for files that do not fit, CannotCompile where the quantizer's preparation fails.
    """
    samples, model = _samples(path, read_file(path), calibration)
    with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
        yield FloatModel(path, samples, model, Path(folder), measures)


def quantize_model(
    path: Path,
    calibration: Path,
    output: Path,
    *,
    force: bool = False,
    settings: QuantizeSettings = _DEFAULT,
    choose: Callable[[FloatModel, QuantizeSettings], QuantizeSettings] = lambda model, settings: settings,
    measures: Measures | None = None,
) -> Quantized:
    """Quantizes the float model at `path` with the ranges that the samples of `calibration` show; writes `output` whole.

    force: an existing output may be a file that emitc did not write. choose: makes the final settings, from the model and those
    that were given. measures: for the method `mse` and remedies.

    Raises EmitcError for files that do not fit, CannotCompile when the quantizer fails.
    """
    file = OutputFile(output, "-o", _MARK.encode("ascii"), (path, calibration), force)
    file.check()
    package("onnxruntime.quantization")
    with float_model(path, calibration, measures) as model:
        settings = choose(model, settings)
        data, reference = model.quantized(settings), model.reference(settings)
    file.write(data)
    return Quantized(
        output, len(model.samples), path.stat().st_size, len(data), data, reference, model.samples, settings
    )
