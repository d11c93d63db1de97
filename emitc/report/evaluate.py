"""What `emitc evaluate` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emitc.errors import shown
from emitc.evaluate.evaluation import Evaluation
from emitc.report.tables import number, table

if TYPE_CHECKING:
    from emitc.boards.measurement import Measurement

_MOST_CLASSES = 12
"""Classes whose confusion is printed as a table."""


def evaluate_text(name: str, evaluation: Evaluation, refused: list[str], there: Measurement | None = None) -> str:
    """The metric, what it is compared with, the classes, and the wrong samples of which the model is surest.

    there: of samples that a board has run.
    """
    lines = [
        f"{shown(name)}: {evaluation.metric} {_value(evaluation, evaluation.value)} of {number(evaluation.samples)} samples"
    ]
    if evaluation.compared is not None:
        agree = (
            "" if evaluation.agreement is None else f", the same class for {evaluation.agreement:.2%} of the samples"
        )
        lines.append(f"  compared  {_value(evaluation, evaluation.compared)}, {_drop(evaluation)}{agree}")
    if evaluation.engine_differing is not None:
        lines.append(f"  engine    {number(evaluation.engine_differing)} samples differ from {evaluation.engine}")
    if there is not None:
        verdict = f"{number(there.differing)} values differ from {there.reference}"
        lines.append(f"  {there.board:9} {number(there.cases)} samples, {number(there.count)} {there.unit}: {verdict}")
    lines += [f"  warning   {warning}" for warning in evaluation.warnings]
    if evaluation.classes:
        rows = [(c.name, c.samples, f"{c.precision:.1%}", f"{c.recall:.1%}") for c in evaluation.classes]
        lines += ["", table(("class", "samples>", "precision>", "recall>"), rows)]
    if 1 < len(evaluation.matrix) <= _MOST_CLASSES:
        names = [c.name for c in evaluation.classes]
        columns = ("class \\ predicted", *(f"{label[:8]}>" for label in names))
        lines += ["", table(columns, [(label, *row) for label, row in zip(names, evaluation.matrix, strict=True)])]
    if evaluation.worst:
        worst = [(sample, wanted, taken, f"{margin:.4g}") for sample, wanted, taken, margin in evaluation.worst]
        lines += ["", table(("wrong sample", "class", "predicted", "margin>"), worst)]
    return "\n".join([*lines, *(f"  FAILED    {label}" for label in refused)])


def _value(evaluation: Evaluation, value: float) -> str:
    return f"{value:.2%}" if evaluation.metric in ("top1", "top5") else f"{value:.6g}"


def _drop(evaluation: Evaluation) -> str:
    drop = evaluation.drop or 0.0
    word = "worse" if drop > 0 else "better"
    gap = f"{abs(100 * drop):.2f} points" if evaluation.metric in ("top1", "top5") else f"{abs(drop):.6g}"
    return f"this model is {gap} {word}" if drop else "this model is as good"
