"""How well a model does on a data set: through the generated C, and through the engine of a model that it is compared with."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError, Warned, WarningCode, Where
from emitc.evaluate.dataset import DataSet, Preparation, read_dataset
from emitc.evaluate.session import Session, TensorInfo, info_of
from emitc.ir import Array
from emitc.program.members import members
from emitc.records import dataclass
from emitc.verify.engines.run import run_isolated

Metric = Callable[[Array, Array], float]
"""Of outputs [samples, ...] and labels [samples] or [samples, ...]."""


def classes_of(outputs: Array) -> Array:
    """The class of each sample: the largest of several values; of one value whether it is above one half.

    >>> classes_of(np.array([[0.1, 0.9], [0.7, 0.3]])), classes_of(np.array([[0.6], [0.2]]))
    (array([1, 0]), array([1, 0]))
    """
    rows = outputs.reshape(len(outputs), -1)
    return np.asarray(np.greater(rows[:, 0], 0.5).astype(np.int64) if rows.shape[1] == 1 else rows.argmax(axis=1))


def classes_of_labels(labels: Array) -> Array:
    """Numbers of classes, also of labels that have a 1 instead of the class."""
    rows = labels.reshape(len(labels), -1)
    return rows.argmax(axis=1) if rows.shape[1] > 1 else rows[:, 0].astype(np.int64)


def top(count: int) -> Metric:
    """The share of samples whose label is among the `count` largest outputs. The first of equal values is the larger one."""

    def metric(outputs: Array, labels: Array) -> float:
        wanted = classes_of_labels(labels)
        if count == 1:
            return float((classes_of(outputs) == wanted).mean())
        order = np.argsort(-outputs.reshape(len(outputs), -1).astype(np.float64), axis=1, kind="stable")[:, :count]
        return float((order == wanted[:, None]).any(axis=1).mean())

    return metric


def mean_squared_error(outputs: Array, labels: Array) -> float:
    """The mean of squared differences. Labels have as many values as the outputs."""
    gap = outputs.reshape(len(outputs), -1).astype(np.float64) - labels.reshape(len(labels), -1).astype(np.float64)
    return float((gap * gap).mean())


def area_under_curve(outputs: Array, labels: Array) -> float:
    """The area under the receiver operating characteristic: the chance that a sample of class 1 has the larger score.

    The score is the only output, or the last of two; equal scores count half (Mann and Whitney's statistic).

    >>> area_under_curve(np.array([[0.1], [0.4], [0.4], [0.9]]), np.array([0, 0, 1, 1]))
    0.875
    """
    scores = outputs.reshape(len(outputs), -1)[:, -1].astype(np.float64)
    positive = classes_of_labels(labels) == 1
    high, low = scores[positive], np.sort(scores[~positive])
    if not len(high) or not len(low):
        why = "all samples are of one class"
        raise EmitcError("there is no curve", Where(option="--metric auc"), why, "give samples of both")
    below, up_to = np.searchsorted(low, high, "left"), np.searchsorted(low, high, "right")
    return float((below + up_to).sum() / 2 / len(high) / len(low))


METRICS: Mapping[str, Metric] = {"top1": top(1), "top5": top(5), "mse": mean_squared_error, "auc": area_under_curve}
LOWER_IS_BETTER = frozenset(("mse",))


def metric_named(name: str) -> Metric:
    """A metric by name, or the function `metric(outputs, labels)` of a Python file. Raises EmitcError for others."""
    if name in METRICS:
        return METRICS[name]
    path = Path(name)
    why = f"it is none of {', '.join(METRICS)}, nor a Python file"
    if path.suffix == ".py" and path.is_file():
        spec = importlib.util.spec_from_file_location("emitc_metric", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            why = f"{path.name} ends in {type(error).__name__}: {error}"
        else:
            metric = getattr(module, "metric", None)
            if callable(metric):
                return lambda outputs, labels: float(metric(outputs, labels))
            why = f"{path.name} has no function metric(outputs, labels)"
    hint = "top1, top5, mse, auc or a file of yours"
    raise EmitcError(f"there is no metric {name}", Where(option="--metric"), why, hint)


def confusion(predicted: Array, wanted: Array, count: int) -> Array:
    """[count, count]: how many samples of each class, by row, are taken for each class, by column.

    >>> confusion(np.array([0, 1, 1]), np.array([0, 0, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    counts = np.zeros((count, count), np.int64)
    np.add.at(counts, (wanted.astype(np.int64), predicted.astype(np.int64)), 1)
    return counts


_WORST = 5
_CASES = 256
"""Samples that an engine gets at once."""
OUTSIDE = 0.01
"""Share of input values outside of the range that is worth a warning."""


@dataclass(frozen=True, slots=True)
class Class:
    """A class of the labels: how many samples have it and are taken for it. Shares are 0 where there is nothing to divide by."""

    name: str
    samples: int
    predicted: int
    right: int

    @property
    def precision(self) -> float:
        """The share of samples taken for this class that have it."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of samples of this class that are taken for it."""
        return self.right / self.samples if self.samples else 0.0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """value: of the metric, through the generated C. compared: of another model in its engine; None where none is given.

    engine_differing: samples for which the model's own engine has another answer; None where it was not asked.
    agreement: the share of samples that both models put into one class. classes, matrix: of labels that are classes.
    worst: names of wrong samples, their class, the one that was predicted, and by how much its value is larger. outside: as
    `DataSet` has it.
    """

    metric: str
    samples: int
    value: float
    compared: float | None = None
    engine: str = ""
    engine_differing: int | None = None
    agreement: float | None = None
    classes: tuple[Class, ...] = ()
    matrix: tuple[tuple[int, ...], ...] = ()
    worst: tuple[tuple[str, str, str, float], ...] = ()
    outside: float = 0.0

    @property
    def drop(self) -> float | None:
        """How much worse than the other model: positive is worse."""
        if self.compared is None:
            return None
        gap = self.compared - self.value
        return -gap if self.metric in LOWER_IS_BETTER else gap

    @property
    def warnings(self) -> tuple[Warned, ...]:
        if self.outside <= OUTSIDE:
            return ()
        what = f"{self.outside:.0%} of the input values are outside of what the model's input stands for"
        return (Warned(WarningCode.OUTSIDE_RANGE, f"{what}: see --scale and --mean"),)

    def to_json(self) -> dict[str, Any]:
        return members(self, "metric samples value compared drop engine engine_differing outside") | {
            "warnings": [warning.as_json() for warning in self.warnings],
            "agreement": self.agreement,
            "classes": [members(one, "class=name samples precision recall") for one in self.classes],
            "confusion": [list(row) for row in self.matrix],
            "worst": [
                {"sample": name, "class": wanted, "predicted": predicted, "margin": margin}
                for name, wanted, predicted, margin in self.worst
            ],
        }


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """float_model: a model to compare with, which its engine runs. engine: compare every output with the model's own engine.

    output: the number of the output that the metric is of. progress: called with samples done and in all.
    """

    metric: str = "top1"
    preparation: Preparation | None = None
    float_model: Path | None = None
    engine: bool = False
    output: int = 0
    progress: Callable[[int, int], None] | None = None


def evaluate(compiled: Compiled, data: Path | DataSet, options: EvaluationOptions | None = None) -> Evaluation:
    """The metric of a compiled model on a data set.

    Raises EmitcError for data that do not fit, without labels, or for an output that the model does not have; CannotCompile
    without a compiler.
    """
    chosen = options or EvaluationOptions()
    metric = metric_named(chosen.metric)
    infos = tuple(map(info_of, compiled.program.inputs))
    data_set = read_dataset(data, infos, chosen.preparation) if isinstance(data, Path) else data
    if not 0 <= chosen.output < len(compiled.program.outputs):
        why = f"the model has {len(compiled.program.outputs)} outputs, the first one is 0"
        raise EmitcError(f"there is no output {chosen.output}", Where(option="--output-index"), why, "name another one")
    codes = _through_the_c(compiled, data_set, chosen)
    info = info_of(compiled.program.outputs[chosen.output])
    labels = _labels(data_set, chosen.metric, codes)
    outputs = info.real(codes)
    value = metric(outputs, labels)
    compared, agreement = None, None
    if chosen.float_model is not None:
        other = _of_another(chosen.float_model, data, chosen, data_set, infos)
        compared = metric(other, labels)
        agreement = float((classes_of(other) == classes_of(outputs)).mean()) if _classifies(chosen.metric) else None
    engine, differing = _through_the_engine(compiled, data_set, codes, chosen) if chosen.engine else ("", None)
    by_class = _by_class(outputs, labels, data_set) if _classifies(chosen.metric) else ((), (), ())
    count, outside = len(data_set.samples), data_set.outside
    return Evaluation(chosen.metric, count, value, compared, engine, differing, agreement, *by_class, outside)


def _classifies(metric: str) -> bool:
    return metric in ("top1", "top5")


def _through_the_c(compiled: Compiled, data: DataSet, options: EvaluationOptions) -> Array:
    """The chosen output of every sample; each begins with the initial state."""
    results = []
    with closing(Session(compiled)) as session:
        for done, sample in enumerate(data.samples):
            if compiled.program.states and done:
                session.reset()
            results.append(session.run_one(sample)[options.output])
            if options.progress:
                options.progress(done + 1, len(data.samples))
    return np.stack(results)


def _engine_outputs(
    data: bytes, source_format: str, samples: Sequence[tuple[Array, ...]], output: int
) -> tuple[str, Array]:
    results: list[Array] = []
    engine = ""
    for first in range(0, len(samples), _CASES):
        cases = samples[first : first + _CASES]
        run = run_isolated(data, cases, source_format=source_format, resets=range(1, len(cases)))
        engine = run.engine
        results += [np.asarray(outputs[output]) for outputs in run.outputs]
    return engine, np.stack(results)


def _through_the_engine(compiled: Compiled, data: DataSet, codes: Array, options: EvaluationOptions) -> tuple[str, int]:
    """The engine of the model itself, and the samples for which it has another answer.

    That is another class in an ONNX model that classifies: docs/numerics.md names ONNX operators whose results may be a step
    from those of ONNX Runtime, which `emitc verify` judges one by one. In all other cases it is another bit.
    """
    source_format = compiled.source.format
    engine, outputs = _engine_outputs(compiled.model_bytes, source_format, data.samples, options.output)
    if source_format == "onnx" and _classifies(options.metric):
        real = info_of(compiled.program.outputs[options.output]).real
        same = classes_of(real(outputs)) == classes_of(real(codes))
    else:
        same = (outputs.reshape(len(codes), -1) == codes.reshape(len(codes), -1)).all(axis=1)
    return engine, int((~same).sum())


def _of_another(
    path: Path, data: Path | DataSet, options: EvaluationOptions, data_set: DataSet, infos: Sequence[TensorInfo]
) -> Array:
    """Real outputs of another model, usually the float one, on the same samples."""
    other = compile_model(path)
    others = tuple(map(info_of, other.program.inputs))
    if isinstance(data, Path):
        samples = read_dataset(data, others, options.preparation).samples
    else:
        samples = tuple(
            tuple(
                to.quantized(of.real(value)).reshape(to.shape)
                for of, to, value in zip(infos, others, sample, strict=True)
            )
            for sample in data_set.samples
        )
    _, codes = _engine_outputs(other.model_bytes, other.source.format, samples, options.output)
    return info_of(other.program.outputs[options.output]).real(codes)


def _labels(data: DataSet, metric: str, codes: Array) -> Array:
    """The labels, fit for the metric. Raises EmitcError where they are missing or of another kind."""
    place, hint = Where(option="--data"), "give `y` with the samples, or a folder for each class"
    if data.labels is None:
        raise EmitcError("the data have no labels", place, f"{metric} compares outputs with labels", hint)
    labels = np.asarray(data.labels)
    if metric == "mse" and labels.size != codes.size:
        why = f"mse compares {codes[0].size} values of each output, and a label has {labels.size // len(labels)}"
        raise EmitcError("the labels do not fit", place, why, hint)
    if _classifies(metric):
        count = max(2, codes[0].size)
        wanted = classes_of_labels(labels)
        if wanted.min() < 0 or wanted.max() >= count:
            why = f"they are from {wanted.min()} to {wanted.max()}, and the output has {codes[0].size} values"
            raise EmitcError("the labels do not fit", place, why, "classes count from 0")
    return labels


def _by_class(
    outputs: Array, labels: Array, data: DataSet
) -> tuple[tuple[Class, ...], tuple[tuple[int, ...], ...], tuple[tuple[str, str, str, float], ...]]:
    """Figures of each class, the confusion of classes, and the wrong samples of which the model is surest."""
    predicted, wanted = classes_of(outputs), classes_of_labels(labels)
    count = max(len(data.classes), int(max(predicted.max(), wanted.max())) + 1)
    names = [data.classes[i] if i < len(data.classes) else str(i) for i in range(count)]
    matrix = confusion(predicted, wanted, count)
    classes = tuple(
        Class(name, int(matrix[i].sum()), int(matrix[:, i].sum()), int(matrix[i, i])) for i, name in enumerate(names)
    )
    rows = outputs.reshape(len(outputs), -1).astype(np.float64)
    rows = np.concatenate([1 - rows, rows], axis=1) if rows.shape[1] == 1 else rows
    wrong = np.flatnonzero(predicted != wanted)
    margins: Mapping[int, float] = {int(i): float(rows[i, predicted[i]] - rows[i, wanted[i]]) for i in wrong}
    first = sorted(margins, key=lambda i: (-margins[i], i))[:_WORST]
    worst = tuple((data.names[i], names[wanted[i]], names[predicted[i]], margins[i]) for i in first)
    return classes, tuple(tuple(int(n) for n in row) for row in matrix), worst
