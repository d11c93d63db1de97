"""`emitc quantize` as a value: the model that was made, what quantizing has cost, and the accuracy on a test."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from emitc.calibrate.calibrate import FloatModel, Measures, Quantized, quantize_model
from emitc.calibrate.precision import order_of_raising
from emitc.calibrate.settings import METHODS, REMEDIES, QuantizeSettings
from emitc.errors import CannotCompile, Code, EmitcError, Warned, Where, unknown_choice
from emitc.evaluate.dataset import Preparation
from emitc.evaluate.evaluation import Evaluation
from emitc.evaluate.quality import (
    COMPARED,
    Quality,
    channel_statistics,
    least_error_ranges,
    outputs_of,
    quality,
    sqnr_db,
    tensor_ratios,
    tested,
)
from emitc.ir import Array
from emitc.records import dataclass, field, replace


@dataclass
class MixedPrecision:
    """A search with a labelled test. max_drop: of the accuracy against the float model, as a share of 1.

    trail: what was tried, as pairs of the number of operators with 16 bits and the drop.
    """

    test: Path
    preparation: Preparation
    max_drop: float
    trail: list[tuple[int, float]] = field(default_factory=list)

    def choose(self, model: FloatModel, settings: QuantizeSettings) -> QuantizeSettings:
        """The settings with operators added to `int16`, none where the model is good enough without.

        Operators are raised in the order of `order_of_raising`. Their number doubles until the drop is met, and is then halved
        between the last two. Raises CannotCompile where 16 bits everywhere are not enough, and what `evaluate` raises.
        """
        if self._meets(model, settings):
            return settings
        ratios = tensor_ratios(model.model, model.quantized(settings), model.samples)
        already_set = (*settings.int16, *settings.excluded)
        order = [name for name in order_of_raising(model.message, ratios) if name not in already_set]

        def raised(count: int) -> QuantizeSettings:
            return replace(settings, int16=(*settings.int16, *order[:count]))

        low, high = 0, 1
        while high < len(order) and not self._meets(model, raised(high)):
            low, high = high, 2 * high
        high = min(high, len(order))
        if high == len(order) and not (order and self._meets(model, raised(high))):
            least = min(drop for _, drop in self.trail)
            what = "no mix of 8 and 16 bits keeps the accuracy"
            why = f"the least drop of {len(self.trail)} mixes is {least:.4f}, and --max-drop allows {self.max_drop:g}"
            hint = "more calibration samples, another --method, or --exclude for the operators with the most noise"
            raise CannotCompile(what, Where(option="--auto-mixed"), why, hint)
        while high - low > 1:
            middle = (low + high) // 2
            if self._meets(model, raised(middle)):
                high = middle
            else:
                low = middle
        return raised(high)

    def _meets(self, model: FloatModel, settings: QuantizeSettings) -> bool:
        evaluation, _ = tested(model.path, model.quantized(settings), self.test, self.preparation)
        assert evaluation.drop is not None
        self.trail.append((len(settings.int16), evaluation.drop))
        return evaluation.drop <= self.max_drop


_MOST_DB, _WITH_CHANNELS = 100.0, 3
_GAIN_DB = 0.1
"""By which the worst output has to gain for a remedy to be taken."""


def with_helpful_remedies(model: FloatModel, settings: QuantizeSettings) -> QuantizeSettings:
    """The settings with those remedies that they do not have and that raise the ratio of signal to noise of the
    outputs.

    Each is tried with those that were taken before it. Raises what `FloatModel.quantized` and `outputs_of` raise.
    """
    cases = [tuple(sample.values()) for sample in model.samples[:COMPARED]]
    exact = outputs_of(model.model, cases)

    def ratio_of(tried: QuantizeSettings) -> float:
        made = outputs_of(model.quantized(tried), cases)
        return min(channels_db(before, after) for before, after in zip(exact, made, strict=True))

    best = ratio_of(settings)
    for remedy in REMEDIES:
        if remedy not in settings.remedies:
            tried = replace(settings, remedies=(*settings.remedies, remedy))
            ratio = ratio_of(tried)
            if ratio >= best + _GAIN_DB:
                settings, best = tried, ratio
    return settings


def channels_db(before: Array, after: Array) -> float:
    """Mean of the ratios of an output's channels, which are dimension 2 of [samples, 1, channels, ...]: each counts
    alike, be its values large or small. Ratios are cut at 100 dB.
    """
    if before.ndim < _WITH_CHANNELS:
        return float(np.clip(sqnr_db(before, after), -_MOST_DB, _MOST_DB))
    pairs = zip(np.moveaxis(before, 2, 0), np.moveaxis(after, 2, 0), strict=True)
    return float(np.clip([sqnr_db(x, y) for x, y in pairs], -_MOST_DB, _MOST_DB).mean())


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
