"""`emitc evaluate`: how well MODEL does on a data set, through the generated C. `emitc quantize`: what a float model loses."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from emitc.cli import options as shared

if TYPE_CHECKING:
    from emitc.evaluate.evaluation import Evaluation


def number(text: str) -> float:
    """A number, or a fraction of two whole numbers."""
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise click.BadParameter(f"{text!r} is no number") from error


@click.command("evaluate", cls=shared.CompilingCommand, short_help="Measure the accuracy of MODEL's C on data.")
@shared.compile_options
@shared.path_option("--data", required=True, help="Samples with labels: .npz, .csv, or a folder for each class.")
@shared.choice_option("--metric", "top1", "top1 | top5 | mse | auc, or a Python file with metric(outputs, labels).")
@shared.path_option("--float", "float_model", help="The float model: compare with what its engine gives.")
@shared.flag("--engine", "Compare every output with MODEL's own engine, too.")
@click.option("--output-index", type=click.IntRange(0), default=0, show_default=True, help="The output that is judged.")
@click.option("--scale", type=number, help="Factor on the values of the data, after --mean: a number, or as 1/255.")
@click.option("--mean", type=number, help="Subtracted from the values of the data.")
@shared.choice_option("--layout", "as-is", "as-is | nhwc | nchw: of images in arrays, where MODEL has the other one.")
@click.option("--on", "board", help="An emulated board: run samples there too, and compare with the C on this machine.")
@click.option(
    "--on-samples",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Samples that --on runs, evenly spread.",
)
@click.option("--min-accuracy", type=float, help="Exit code 1 where the metric is worse.")
@click.option("--max-drop", type=float, help="With --float: exit code 1 where MODEL is worse by more.")
@shared.json_option
def evaluate(data: Path, metric: str, float_model: Path | None, as_json: bool, **values: Any) -> None:
    """Measure how well MODEL does on labelled data, through its generated C on this machine."""
    with shared.reported(as_json):
        from emitc.errors import EmitcError, Where, unknown_choice
        from emitc.evaluate.dataset import LAYOUTS, Preparation, read_dataset
        from emitc.evaluate.evaluation import EvaluationOptions
        from emitc.evaluate.evaluation import evaluate as measured
        from emitc.evaluate.on_board import on_board
        from emitc.evaluate.session import info_of
        from emitc.report.evaluate import evaluate_text
        from emitc.target import load_board

        if values["layout"] not in LAYOUTS:
            raise unknown_choice("--layout", values["layout"], LAYOUTS)
        if values["max_drop"] is not None and float_model is None:
            why = "a drop is the difference to another model"
            raise EmitcError("there is nothing to compare with", Where(option="--max-drop"), why, "add --float MODEL")
        board = values["board"]
        compiled = shared.compiled_model(values, "plain", load_board(board).target if board else "generic32")
        prepare = Preparation(values["scale"], values["mean"], values["layout"])
        options = EvaluationOptions(metric, prepare, float_model, values["engine"], values["output_index"])
        samples = read_dataset(data, tuple(map(info_of, compiled.program.inputs)), prepare) if board else None
        evaluation = measured(compiled, data, options)
        there = on_board(compiled, board, samples, values["on_samples"]) if samples is not None else None
        failed = _failed(evaluation, values["min_accuracy"], values["max_drop"])
        if there is not None and not there.match:
            failed.append(f"{there.differing} values of the samples on {board} differ from {there.reference}")
        stated = None if there is None else there.as_json()
        content = {"model": compiled.program.name, **evaluation.to_json(), "on": stated, "failed": failed}
        shared.print_result(content, as_json, lambda: evaluate_text(compiled.program.name, evaluation, failed, there))
    raise SystemExit(1 if failed else 0)


def _failed(evaluation: Evaluation, least: float | None, drop: float | None) -> list[str]:
    from emitc.evaluate.evaluation import LOWER_IS_BETTER

    failed = []
    lower = evaluation.metric in LOWER_IS_BETTER
    if least is not None and (evaluation.value > least if lower else evaluation.value < least):
        failed.append(f"{evaluation.metric} is {evaluation.value:.6g}, and --min-accuracy asks for {least:g}")
    if drop is not None and evaluation.drop is not None and evaluation.drop > drop:
        failed.append(
            f"{evaluation.metric} is {evaluation.drop:.6g} worse than the float model, and --max-drop allows {drop:g}"
        )
    if evaluation.engine_differing:
        failed.append(f"{evaluation.engine_differing} samples differ from {evaluation.engine}")
    return failed


@click.command(short_help="Quantize the float ONNX model MODEL to int8.")
@click.argument("model", type=click.Path(path_type=Path))
@shared.path_option(
    "--calibration",
    "--data",
    required=True,
    help="Sample inputs in an .npz file: in{i}_{k}, or one array per input name.",
)
@shared.path_option("-o", "--output", help="Default: MODEL_int8.onnx.")
@shared.path_option(
    "--test", help="Labelled samples, as for `emitc evaluate`: accuracy of the float and of the int8 model."
)
@shared.choice_option("--method", "minmax", "minmax | percentile | entropy | mse: how samples give ranges.")
@click.option("--exclude", multiple=True, metavar="NAME", help="An operator that stays in float32.")
@click.option("--int16", multiple=True, metavar="NAME", help="An operator whose activations get 16 bits.")
@click.option(
    "--remedy",
    multiple=True,
    metavar="NAME",
    help="heads | equalize | bias: change the float model; auto takes those that reduce the noise.",
)
@shared.flag("--auto-mixed", "With --test: raise operators to 16 bits until --max-drop is met.")
@click.option("--max-drop", type=float, help="Accuracy that may be lost: 0.005 is half a point. Exit code 1 beyond it.")
@click.option("--scale", type=number, help="Factor on the values of --test, after --mean: a number, or as 1/255.")
@click.option("--mean", type=number, help="Subtracted from the values of --test.")
@shared.force_option
@shared.json_option
def quantize(
    model: Path, calibration: Path, output: Path | None, test: Path | None, force: bool, as_json: bool, **values: Any
) -> None:
    """Quantize the float ONNX model MODEL to int8 with ONNX Runtime's quantizer, and say what that has cost."""
    with shared.reported(as_json):
        from emitc.calibrate.settings import QuantizeSettings
        from emitc.evaluate.dataset import Preparation
        from emitc.evaluate.quantization import QuantizeOptions, quantized
        from emitc.report.evaluate import quantize_text

        target = output or model.with_name(f"{model.stem}_int8.onnx")
        remedies = tuple(name for name in values["remedy"] if name != "auto")
        options = QuantizeOptions(
            QuantizeSettings(values["method"], values["exclude"], values["int16"], remedies),
            Preparation(values["scale"], values["mean"]),
            values["max_drop"],
            values["auto_mixed"],
            "auto" in values["remedy"],
            force,
        )
        result = quantized(model, calibration, target, test, options)
        content = result.to_json()
        shared.print_result(content, as_json, lambda: quantize_text(content))
    raise SystemExit(1 if result.failed else 0)
