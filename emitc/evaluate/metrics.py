"""What predictions are worth: metrics over real outputs and labels, and the confusion of classes."""

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from emitc.errors import EmitcError, Where
from emitc.ir import Array

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
    for row, column in zip(wanted.tolist(), predicted.tolist(), strict=True):
        counts[row, column] += 1
    return counts
