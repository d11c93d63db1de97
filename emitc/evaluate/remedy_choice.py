"""Which remedies reduce the noise of a quantized model: measured on the samples that calibrate."""

from dataclasses import replace

import numpy as np

from emitc.calibrate.calibrate import FloatModel
from emitc.calibrate.settings import REMEDIES, QuantizeSettings
from emitc.evaluate.quality import COMPARED, outputs_of, sqnr_db
from emitc.ir import Array

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
