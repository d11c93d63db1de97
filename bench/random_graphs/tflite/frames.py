"""Operators of TFLite Micro's signal library that keep frames, and those of a front end for speech after a filter bank.

What an operator gives in a run whose answer does not count, TFLite Micro leaves as its memory was: framers are filled before
the first run, and stackers have one frame, so that every answer counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.random_graphs.case import Value
from bench.random_graphs.tflite.graph_builder import GraphBuilder, offers
from bench.random_graphs.tflite.signal import custom, model_input, roots, samples, top_level


@offers(("int8", "int16"), "CUSTOM:SignalFramer", weight=0.3)
def framer(d: GraphBuilder, x: Value) -> Sequence[Value]:
    top_level(d)
    step = d.between(1, 16)
    size, frames = step + d.between(0, 20), d.between(1, 4)
    x = samples(d, step * frames)
    y, valid = d.computed("int16", (frames, size)), d.computed("bool", ())
    custom(d, "SignalFramer", (x,), (y, valid), frame_size=size, frame_step=step, prefill=True)
    if d.chance(0.5):
        overlapped(d, y, d.between(1, size))
    return []


def overlapped(d: GraphBuilder, x: Value, step: int) -> Value:
    """Frames added up again."""
    frames, _ = x.shape
    y = d.computed(x.dtype, (frames * step,))
    custom(d, "SignalOverlapAdd", (x,), (y,), T=7 if x.dtype == "int16" else 0, frame_step=step)
    return y


@offers(("int8", "int16", "float32"), "CUSTOM:SignalOverlapAdd", weight=0.3)
def overlap_add(d: GraphBuilder, x: Value) -> Sequence[Value]:
    top_level(d)
    frames, size = d.between(1, 4), d.between(1, 20)
    overlapped(d, model_input(d, "float32" if x.dtype == "float32" else "int16", frames, size), d.between(1, size))
    return []


@offers(("int8", "int16"), "CUSTOM:SignalStacker", weight=0.3)
def stacker(d: GraphBuilder, x: Value) -> Sequence[Value]:
    top_level(d)
    channels, left = d.between(1, 12), d.between(0, 3)
    x = samples(d, channels)
    y, valid = d.computed("int16", ((left + 1) * channels,)), d.computed("bool", ())
    custom(d, "SignalStacker", (x,), (y, valid), num_channels=channels, stacker_left_context=left,
           stacker_right_context=0, stacker_step=1)  # fmt: skip
    return []


@offers(("int8", "int16"), "CUSTOM:SignalFilterBankLog", weight=0.4)
def front_end(d: GraphBuilder, x: Value) -> Sequence[Value]:
    """Channels less their noise, with a gain, as logarithms: each step may be left out."""
    top_level(d)
    y = roots(d)
    noise = None
    if d.chance(0.7):
        y, noise = subtracted(d, y)
    if noise is not None and d.chance(0.7):
        y = gained(d, y, noise)
    if d.chance(0.8):
        scale, correction = d.pick((1, 64, 1600)), d.between(0, 5)
        logs = d.computed("int16", y.shape)
        custom(d, "SignalFilterBankLog", (y,), (logs,), output_scale=scale, input_correction_bits=correction)
    return []


@offers(("int8", "int16"), "CUSTOM:SignalFilterBankSpectralSubtraction", weight=0.2)
def subtraction(d: GraphBuilder, x: Value) -> Sequence[Value]:
    top_level(d)
    subtracted(d, channels(d))
    return []


@offers(("int8", "int16"), "CUSTOM:SignalPCAN", weight=0.2)
def gain(d: GraphBuilder, x: Value) -> Sequence[Value]:
    top_level(d)
    signal = channels(d)
    gained(d, signal, model_input(d, "uint32", *signal.shape))
    return []


def channels(d: GraphBuilder) -> Value:
    """An input of the graph: channels of a filter bank."""
    return model_input(d, "uint32", d.between(1, 24))


def subtracted(d: GraphBuilder, x: Value) -> tuple[Value, Value]:
    """x less an estimate of its noise, and the estimate."""
    y, noise = d.computed("uint32", x.shape), d.computed("uint32", x.shape)
    smoothing, other = d.between(100, 2000), d.between(100, 2000)
    one = 1 << 14
    custom(d, "SignalFilterBankSpectralSubtraction", (x,), (y, noise), num_channels=x.elements, smoothing=smoothing,
           one_minus_smoothing=one - smoothing, alternate_smoothing=other, alternate_one_minus_smoothing=one - other,
           smoothing_bits=d.between(4, 10), min_signal_remaining=d.between(0, 2000), clamping=d.chance(0.5),
           spectral_subtraction_bits=14)  # fmt: skip
    return y, noise


def gained(d: GraphBuilder, x: Value, noise: Value) -> Value:
    """x with a gain by its noise."""
    y = d.computed("uint32", x.shape)
    table = d.constant(np.linspace(30000, 40, 125).round().astype(np.int16))
    custom(d, "SignalPCAN", (x, noise, table), (y,), snr_shift=d.between(4, 8))
    return y
