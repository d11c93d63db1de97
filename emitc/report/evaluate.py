"""What `emitc evaluate` and `emitc quantize` print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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


def quantize_text(made: dict[str, Any]) -> str:
    """The file that was written, its size, and what quantizing has cost."""
    output = shown(str(made["output"]), 200)
    lines = [
        f"{output}: {_types(made)}, quantized on {number(made['samples'])} samples, {number(made['bytes_before'])} bytes before, "
        f"{number(made['bytes_after'])} after"
    ]
    for row in made["outputs"]:
        agree = "" if row["agreement"] is None else f", the same largest value in {row['agreement']:.1%} of the samples"
        lines.append(
            f"  {row['name']:9} signal to noise {_db(row['sqnr_db'])}, cosine {row['cosine']:.6f}, largest error"
            f" {row['largest_error']:.4g}{agree}"
        )
    if made["worst"]:
        worst = ", ".join(f"{shown(row['tensor'], 40)} {_db(row['sqnr_db'])}" for row in made["worst"])
        lines.append(f"  worst     {worst}")
    test = made["test"]
    if test:
        lines.append(
            f"  accuracy  float {test['compared']:.2%}, int8 {test['value']:.2%} of {number(test['samples'])} labelled samples;"
            f" {number(test['engine_differing'])} samples differ between the C and {test['engine']}"
        )
    lines += [f"  warning   {row['what']} ({row['code']})" for row in made["warnings"]]
    lines += [f"  FAILED    {reason}" for reason in made["failed"]]
    data = "" if test else "; `emitc evaluate` measures the accuracy, which equal bits say nothing about"
    return "\n".join([*lines, f"  next      emitc verify {output}{data}"])


def _types(made: dict[str, Any]) -> str:
    """Type of the activations, and the operators that have another one."""
    parts = ["int8"]
    for key, kind in (("int16", "int16"), ("excluded", "float32")):
        if made[key]:
            parts.append(f"{kind} in {', '.join(shown(name, 40) for name in made[key])}")
    changed = f", after {' and '.join(made['remedies'])}" if made["remedies"] else ""
    return " and ".join(parts) + changed


def _db(ratio: float | None) -> str:
    return "without noise" if ratio is None else f"{ratio:.1f} dB"
