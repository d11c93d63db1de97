"""What a float model computes on samples: ranges whose 8-bit codes have the least mean square error, and figures of channels."""

from collections.abc import Mapping, Sequence

import numpy as np

from emitc.calibrate.float_graph import ChannelStatistics, Statistics
from emitc.ir import Array
from emitc.verify.engines.run import run_isolated

SAMPLES = 64
"""Of these, every float tensor is in memory at once."""
_BINS = 1 << 12
"""Of the histogram of a tensor: sixteen for each code."""
_PARTS = np.linspace(0.3, 1.0, 36)
"""Shares of the extremes that are tried."""
_STEPS = 255


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
    cases = [tuple(sample.values()) for sample in samples[:SAMPLES]]
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
        step = part * (high - low) / _STEPS
        zero = np.rint(-part * low / step)
        codes = np.clip(np.rint(centres / step) + zero, 0, _STEPS)
        error = float((((codes - zero) * step - centres) ** 2) @ counts)
        if error <= least:
            best, least = float(part), error
    return best * low, best * high
