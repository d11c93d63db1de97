"""What quantizing has cost: a float ONNX model and the int8 one that was made of it, in ONNX Runtime on the same samples.

Of the float model alone: ranges whose 8-bit codes have the least mean square error, and figures of channels.
"""

import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emitc.calibrate.float_graph import ChannelStatistics, Statistics
from emitc.compiler import compile_model
from emitc.errors import EmitcError, Warned, WarningCode
from emitc.evaluate.dataset import Preparation, read_dataset
from emitc.evaluate.evaluation import OUTSIDE, Evaluation, EvaluationOptions, evaluate
from emitc.evaluate.session import info_of
from emitc.frontends.onnx.file import parsed
from emitc.ir import Array, Graph
from emitc.records import asdict, dataclass, replace
from emitc.verify.engines.run import run_isolated
from emitc.verify.reference import input_range

FEW_SAMPLES = 16
COMPARED = 256
"""Samples of which outputs are compared, of those that calibrate."""
_LAYERS = 32
"""Samples of which every tensor is compared; all of them are in memory."""
_WORST = 5
_MOST_CLASSES = 10_000
_POOR_DB = 10.0
"""A noise of a third of the signal."""
_AGREEMENT = 0.9
_STEPS, _WIDER = 255, 4
"""From the first code of 8 bits to the last, and by how many more `input_range` is wider on both sides."""
_FEW_STEPS = 32
"""Steps of an input that samples use, where others have set the range."""
_SUFFIX = "_DequantizeLinear_Output"
"""Of the name that the quantizer gives to what stands for a float tensor."""


@dataclass(frozen=True, slots=True)
class OutputQuality:
    """One output: ratio of signal to quantization noise in decibels (inf where none differs), cosine of the angle between both,
    largest difference, and the share of samples whose largest value is at the same place; None for one that is no vector.
    """

    name: str
    sqnr_db: float
    cosine: float
    largest_error: float
    agreement: float | None


@dataclass(frozen=True, slots=True)
class Quality:
    """outputs: on the samples that calibrate. worst: tensors with the lowest ratio in decibels, the lowest first."""

    samples: int
    outputs: tuple[OutputQuality, ...]
    worst: tuple[tuple[str, float], ...]
    warnings: tuple[Warned, ...]

    def to_json(self) -> dict[str, Any]:
        """For --json: null stands for a ratio without noise."""
        outputs = [asdict(output) | {"sqnr_db": _finite(output.sqnr_db)} for output in self.outputs]
        worst = [{"tensor": name, "sqnr_db": _finite(ratio)} for name, ratio in self.worst]
        return {"compared": self.samples, "outputs": outputs, "worst": worst}


def _finite(ratio: float) -> float | None:
    return round(ratio, 2) if math.isfinite(ratio) else None


def sqnr_db(signal: Array, quantized: Array) -> float:
    """10 log10 of the energy of the signal over the energy of the difference.

    >>> sqnr_db(np.array([3.0, 4.0]), np.array([3.0, 4.5]))
    20.0
    """
    x = signal.astype(np.float64)
    noise, energy = float(((quantized.astype(np.float64) - x) ** 2).sum()), float((x * x).sum())
    if noise == 0:
        return math.inf
    return 10 * math.log10(energy / noise) if energy else -math.inf


def cosine(a: Array, b: Array) -> float:
    """Of the angle between two vectors; 1 for two of zeros."""
    x, y = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
    lengths = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / lengths if lengths else float(np.array_equal(x, y))


def quality(model: bytes, quantized: bytes, samples: Sequence[Mapping[str, Array]]) -> Quality:
    """Compares both models on samples, each an array by input name in the models' order.

    Raises EmitcError where the engine refuses one of the models.
    """
    cases = [tuple(sample.values()) for sample in samples[:COMPARED]]
    before, after = (outputs_of(data, cases) for data in (model, quantized))
    names = [f"output {i}" for i in range(len(before))]
    outputs = tuple(_of_output(name, a, b) for name, a, b in zip(names, before, after, strict=True))
    ratios = tensor_ratios(model, quantized, samples)
    worst = tuple(sorted(ratios.items(), key=lambda item: item[1])[:_WORST])
    return Quality(len(cases), outputs, worst, _warnings(samples, outputs))


def outputs_of(data: bytes, cases: Sequence[tuple[Array, ...]]) -> list[Array]:
    """Each output of all cases, stacked. Raises EmitcError where the engine refuses the model."""
    run = run_isolated(data, cases, source_format="onnx", resets=range(1, len(cases)))
    return [np.stack([np.asarray(outputs[i]) for outputs in run.outputs]) for i in range(len(run.outputs[0]))]


def _of_output(name: str, before: Array, after: Array) -> OutputQuality:
    rows = before.reshape(len(before), -1)
    agreement = None
    if 1 < rows.shape[1] <= _MOST_CLASSES:
        agreement = float((rows.argmax(axis=1) == after.reshape(len(after), -1).argmax(axis=1)).mean())
    largest = float(np.abs(after.astype(np.float64) - before.astype(np.float64)).max(initial=0.0))
    return OutputQuality(name, sqnr_db(before, after), cosine(before, after), largest, agreement)


def tensor_ratios(model: bytes, quantized: bytes, samples: Sequence[Mapping[str, Array]]) -> dict[str, float]:
    """Signal to quantization noise in decibels of each tensor that both models compute, by its name in the float one.

    Raises EmitcError where the engine refuses one of the models.
    """
    cases = [tuple(sample.values()) for sample in samples[:_LAYERS]]
    before, after = (
        run_isolated(data, cases, source_format="onnx", preserve=True, resets=range(1, len(cases)))
        for data in (model, quantized)
    )
    ratios = {}
    for name, other in ((name, name + _SUFFIX) for name in map(str, before.tensors[0])):
        if other in after.tensors[0] and before.tensors[0][name].size:
            x = np.stack([values[name] for values in before.tensors])
            ratios[name] = sqnr_db(x, np.stack([values[other] for values in after.tensors]))
    for i, output in enumerate(parsed(model).graph.output):
        x, y = (np.stack([np.asarray(values[i]) for values in run.outputs]) for run in (before, after))
        ratios[output.name] = sqnr_db(x, y)
    return ratios


def _warnings(samples: Sequence[Mapping[str, Array]], outputs: Sequence[OutputQuality]) -> tuple[Warned, ...]:
    count, doubts = len(samples), list[Warned]()
    if count < FEW_SAMPLES:
        what = f"{count} calibration samples are few: ranges are known from {FEW_SAMPLES} real ones or more"
        doubts.append(Warned(WarningCode.FEW_SAMPLES, what))
    constant = sum(all(value.size < 2 or value.min() == value.max() for value in sample.values()) for sample in samples)
    if constant:
        what = f"{constant} of {count} calibration samples have one value throughout, and show no range"
        doubts.append(Warned(WarningCode.CONSTANT_SAMPLES, what))
    different = len({b"".join(value.tobytes() for value in sample.values()) for sample in samples})
    if different < count:
        what = f"only {different} of {count} calibration samples are different"
        doubts.append(Warned(WarningCode.EQUAL_SAMPLES, what))
    for output in outputs:
        if output.sqnr_db < _POOR_DB:
            what = f"{output.name} has a signal of {output.sqnr_db:.1f} dB over the quantization noise, which is poor"
            doubts.append(Warned(WarningCode.POOR_OUTPUT, what))
        if output.agreement is not None and output.agreement < _AGREEMENT:
            share = f"{output.agreement:.0%} of the samples only"
            what = f"{output.name} has its largest value at the same place in {share}"
            doubts.append(Warned(WarningCode.FEW_AGREE, what))
    return tuple(doubts)


def steps_used(values: Array, step: float = 1.0) -> int:
    """Steps between the 0.5th and the 99.5th percentile of what an input gets.

    >>> steps_used(np.array([-128, -127] * 500, np.int8))
    2
    """
    low, high = np.percentile(values.astype(np.float64), (0.5, 99.5))
    return round((float(high) - float(low)) / step) + 1


def range_warnings(graph: Graph, samples: Sequence[tuple[Array, ...]], outside: float = 0.0) -> tuple[Warned, ...]:
    """What samples of a test say of the ranges that the calibration has set. outside: the share that no code stands for."""
    doubts = []
    for i, name in enumerate(graph.inputs):
        values, step = np.stack([sample[i] for sample in samples]), 1.0
        if values.dtype.kind == "f":
            low, high = input_range(graph, graph.tensor(name))
            step = (high - low) / (_STEPS + 2 * _WIDER)
            beyond = np.less(values, low).mean() + np.greater(values, high).mean()
            outside = max(outside, float(beyond))
        steps = steps_used(values, step)
        if steps < _FEW_STEPS:
            why = "the calibration had far larger values than the test has"
            what = f"the test uses {steps} of {_STEPS + 1} steps of input {name!r}: {why}"
            doubts.append(Warned(WarningCode.UNUSED_RANGE, what))
    if outside > OUTSIDE:
        what = f"{outside:.0%} of the test's input values are outside of the calibrated range"
        doubts.append(Warned(WarningCode.OUTSIDE_RANGE, what))
    return tuple(doubts)


def tested(
    model: Path, quantized: bytes, data: Path, preparation: Preparation
) -> tuple[Evaluation, tuple[Warned, ...]]:
    """Accuracy of a quantized model through its C, and of the float one in its engine; and what the samples say of the ranges.

    Raises what `evaluate` raises; what it says of `--data` is said of `--test`.
    """
    try:
        return _tested(model, quantized, data, preparation)
    except EmitcError as error:
        if error.where.option != "--data":
            raise
        raise error.at(replace(error.where, option="--test")) from error


def _tested(
    model: Path, quantized: bytes, data: Path, preparation: Preparation
) -> tuple[Evaluation, tuple[Warned, ...]]:
    with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
        path = Path(folder) / "quantized.onnx"
        path.write_bytes(quantized)
        compiled = compile_model(path)
    data_set = read_dataset(data, tuple(map(info_of, compiled.program.inputs)), preparation)
    options = EvaluationOptions(preparation=preparation, float_model=model, engine=True)
    evaluation = evaluate(compiled, data, options)
    return evaluation, range_warnings(compiled.graph, data_set.samples, data_set.outside)


# ---- the float model ----


_KEPT_SAMPLES = 64
"""Of these, every float tensor is in memory at once."""
_BINS = 1 << 12
"""Of the histogram of a tensor: sixteen for each code."""
_PARTS = np.linspace(0.3, 1.0, 36)
"""Shares of the extremes that are tried."""
_CODES = 255


def least_error_ranges(model: bytes, samples: Sequence[Mapping[str, Array]]) -> dict[str, tuple[float, float]]:
    """Range of every float tensor that the model computes, and of its inputs.

    model: an ONNX model in float32. samples: arrays by input name, in the model's order. Raises EmitcError where the engine
    refuses the model.
    """
    values = _tensors(model, samples)
    return {
        name: least_error_range(np.concatenate([part.reshape(-1) for part in parts])) for name, parts in values.items()
    }


def channel_statistics(model: bytes, samples: Sequence[Mapping[str, Array]]) -> Statistics:
    """Figures of the channels of every float tensor with two dimensions or more; arguments and errors of `least_error_ranges`."""
    return {name: _of_channels(parts) for name, parts in _tensors(model, samples).items() if parts[0].ndim > 1}


def _of_channels(parts: Sequence[Array]) -> ChannelStatistics:
    """Figures of dimension 1. parts: the tensor in each sample."""
    largest = np.max([np.abs(part).max(axis=(0, *range(2, part.ndim)), initial=0) for part in parts], axis=0)
    return ChannelStatistics(largest, np.mean([part.mean(axis=0, dtype=np.float64) for part in parts], axis=0))


def _tensors(model: bytes, samples: Sequence[Mapping[str, Array]]) -> dict[str, list[Array]]:
    """Every float tensor of the model and its inputs, in each of the samples."""
    cases = [tuple(sample.values()) for sample in samples[:_KEPT_SAMPLES]]
    run = run_isolated(model, cases, source_format="onnx", preserve=True, resets=range(1, len(cases)))
    values: dict[str, list[Array]] = {}
    for sample, tensors in zip(samples, run.tensors, strict=False):
        for name, value in {**sample, **{str(key): tensors[key] for key in tensors}}.items():
            if value.dtype == np.float32 and value.size:
                values.setdefault(name, []).append(value)
    return values


def least_error_range(values: Array) -> tuple[float, float]:
    """The range low <= 0 <= high, a share of the extremes, whose 256 codes are nearest to the values in the square mean.

    One value of a million leaves the range:

    >>> many = np.append(np.linspace(0, 1, 1_000_000, dtype=np.float32), np.float32(1.5))
    >>> low, high = least_error_range(many)
    >>> low, 1.0 <= high < 1.5
    (0.0, True)
    """
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    if low == high or not np.isfinite([low, high]).all():
        return low, high
    counts, edges = np.histogram(values, _BINS, (low, high))
    centres = (edges[:-1] + edges[1:]) / 2
    best, least = 1.0, np.inf
    for part in _PARTS:
        step = part * (high - low) / _CODES
        zero = np.rint(-part * low / step)
        codes = np.clip(np.rint(centres / step) + zero, 0, _CODES)
        error = float((((codes - zero) * step - centres) ** 2) @ counts)
        if error <= least:
            best, least = float(part), error
    return best * low, best * high
