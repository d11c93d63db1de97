"""`emitc quantize` as a value: the model that was made, what quantizing has cost, and the accuracy on a test."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from emitc.calibrate.calibrate import FloatModel, Measures, Quantized, quantize_model
from emitc.calibrate.settings import METHODS, REMEDIES, QuantizeSettings
from emitc.errors import Code, EmitcError, Warned, Where, unknown_choice
from emitc.evaluate.dataset import Preparation
from emitc.evaluate.evaluation import Evaluation
from emitc.evaluate.mixed_precision import MixedPrecision
from emitc.evaluate.quality import Quality, quality, tested
from emitc.evaluate.ranges import channel_statistics, least_error_ranges
from emitc.evaluate.remedy_choice import with_helpful_remedies


@dataclass(frozen=True, slots=True, repr=False)
class Quantization:
    """made: the file and its sizes. quality: of the outputs on the calibration. test: None where there is none.

    warnings: what makes the calibration doubtful. failed: why the accuracy is refused.
    """

    made: Quantized
    quality: Quality
    test: Evaluation | None
    warnings: tuple[Warned, ...]
    failed: tuple[str, ...] = ()

    @property
    def output(self) -> Path:
        return self.made.output

    def to_json(self) -> dict[str, Any]:
        """What `emitc quantize --json` prints."""
        content = self.made.as_json() | self.quality.to_json()
        test = self.test.to_json() if self.test else None
        doubts = [doubt.as_json() for doubt in self.warnings]
        return content | {"test": test, "warnings": doubts, "failed": list(self.failed)}

    def __repr__(self) -> str:
        ratios = ", ".join(f"{output.name} {output.sqnr_db:.1f} dB" for output in self.quality.outputs)
        accuracy = f", accuracy {self.test.value:.2%}" if self.test else ""
        doubts = f", {len(self.warnings)} warnings" if self.warnings else ""
        return f"<Quantization {self.output}: {self.made.samples} samples, {ratios}{accuracy}{doubts}>"


@dataclass(frozen=True, slots=True)
class QuantizeOptions:
    """settings: how the model is quantized. preparation: of the samples of a test. force: replace a file that is not emitc's.

    max_drop: accuracy that may be lost in the test, as a share of 1; more of it is a failure. auto_mixed: raise operators to 16
    bits until no more is lost. auto_remedies: those of the remedies that reduce the noise, in addition to those of the settings.
    """

    settings: QuantizeSettings = field(default_factory=QuantizeSettings)
    preparation: Preparation = field(default_factory=Preparation)
    max_drop: float | None = None
    auto_mixed: bool = False
    auto_remedies: bool = False
    force: bool = False

    def check(self, test: Path | None) -> None:
        """Raises EmitcError for options that need others, and for a method or remedy that does not exist."""
        for remedy in self.settings.remedies:
            if remedy not in REMEDIES:
                raise unknown_choice("--remedy", remedy, (*REMEDIES, "auto"))
        if self.settings.method not in METHODS:
            raise unknown_choice("--method", self.settings.method, METHODS)
        option = "--auto-mixed" if self.auto_mixed else "--max-drop"
        if test is None and (self.auto_mixed or self.max_drop is not None):
            why = "a drop is measured on labelled samples"
            raise EmitcError(f"{option} has no samples", Where(option=option), why, "add --test DATA", Code.OPTION)
        if self.auto_mixed and self.max_drop is None:
            why = "the search ends where the drop is small enough"
            raise EmitcError("--auto-mixed has no goal", Where(option=option), why, "add --max-drop 0.005", Code.OPTION)


def _chosen(
    options: QuantizeOptions, test: Path | None, model: FloatModel, settings: QuantizeSettings
) -> QuantizeSettings:
    """The settings with what is looked for: remedies first, since they cost no cycles, then operators with 16 bits."""
    if options.auto_remedies:
        settings = with_helpful_remedies(model, settings)
    if options.auto_mixed and test is not None and options.max_drop is not None:
        settings = MixedPrecision(test, options.preparation, options.max_drop).choose(model, settings)
    return settings


_DEFAULT = QuantizeOptions()


def quantized(
    model: Path,
    calibration: Path,
    output: Path,
    test: Path | None = None,
    options: QuantizeOptions = _DEFAULT,
) -> Quantization:
    """Quantizes a float ONNX model, and measures what that has cost.

    Raises what `QuantizeOptions.check`, `quantize_model`, `MixedPrecision.choose`, `quality` and `tested` raise.
    """
    options.check(test)
    made = quantize_model(
        model,
        calibration,
        output,
        force=options.force,
        settings=options.settings,
        choose=partial(_chosen, options, test),
        measures=Measures(least_error_ranges, channel_statistics),
    )
    loss = quality(made.model, made.data, made.calibration)
    if test is None:
        return Quantization(made, loss, None, loss.warnings)
    evaluation, warnings = tested(model, made.data, test, options.preparation)
    failed = []
    if options.max_drop is not None and evaluation.drop is not None and evaluation.drop > options.max_drop:
        lost = f"{evaluation.metric} is {evaluation.drop:.6g} worse than the float model"
        failed = [f"{lost}, and --max-drop allows {options.max_drop:g}"]
    return Quantization(made, loss, evaluation, (*loss.warnings, *warnings), tuple(failed))
