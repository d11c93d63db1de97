"""What `emitc evaluate` prints."""

from __future__ import annotations

from emitc.errors import shown
from emitc.evaluate.evaluation import Evaluation
from emitc.report.tables import number, table

_MOST_CLASSES = 12
"""Classes whose confusion is printed as a table."""

_OUTSIDE = 0.01
"""Share of input values outside of the range that is worth a warning."""


def evaluate_text(name: str, found: Evaluation, refused: list[str]) -> str:
    """The metric, what it is compared with, the classes, and the wrong samples of which the model is surest."""
    lines = [f"{shown(name)}: {found.metric} {_value(found, found.value)} of {number(found.samples)} samples"]
    if found.compared is not None:
        agree = "" if found.agreement is None else f", the same class for {found.agreement:.2%} of the samples"
        lines.append(f"  compared  {_value(found, found.compared)}, {_drop(found)}{agree}")
    if found.engine_differing is not None:
        lines.append(f"  engine    {number(found.engine_differing)} samples differ from {found.engine}")
    if found.outside > _OUTSIDE:
        share = f"{found.outside:.0%} of the input values are outside of what the model's input stands for"
        lines.append(f"  warning   {share}: see --scale and --mean")
    if found.classes:
        rows = [(c.name, c.samples, f"{c.precision:.1%}", f"{c.recall:.1%}") for c in found.classes]
        lines += ["", table(("class", "samples>", "precision>", "recall>"), rows)]
    if 1 < len(found.matrix) <= _MOST_CLASSES:
        names = [c.name for c in found.classes]
        columns = ("class \\ predicted", *(f"{each[:8]}>" for each in names))
        lines += ["", table(columns, [(each, *row) for each, row in zip(names, found.matrix, strict=True)])]
    if found.worst:
        worst = [(sample, wanted, taken, f"{margin:.4g}") for sample, wanted, taken, margin in found.worst]
        lines += ["", table(("wrong sample", "class", "predicted", "margin>"), worst)]
    return "\n".join([*lines, *(f"  FAILED    {each}" for each in refused)])


def _value(found: Evaluation, value: float) -> str:
    return f"{value:.2%}" if found.metric in ("top1", "top5") else f"{value:.6g}"


def _drop(found: Evaluation) -> str:
    drop = found.drop or 0.0
    word = "worse" if drop > 0 else "better"
    gap = f"{abs(100 * drop):.2f} points" if found.metric in ("top1", "top5") else f"{abs(drop):.6g}"
    return f"this model is {gap} {word}" if drop else "this model is as good"
