"""Operators of TFLite Micro's signal library, as chains from int16 samples to outputs: what they give is not quantized."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from flatbuffers import flexbuffers

from bench.random_graphs.case import Value
from bench.random_graphs.tflite.graph_builder import GraphBuilder, Unfit, offers


def model_input(d: GraphBuilder, dtype: str, *shape: int, bounds: tuple[float, float] | None = None) -> Value:
    """An input of the graph without a scale."""
    value = d.add(Value(d.name(), dtype, shape, bounds=bounds))
    d.inputs.append(value.name)
    return value


def samples(d: GraphBuilder, count: int) -> Value:
    """int16 numbers: an input of the graph."""
    return model_input(d, "int16", count)


def custom(d: GraphBuilder, name: str, inputs: Sequence[Value], outputs: Sequence[Value], **options: object) -> None:
    """One operator with options in a flexbuffer."""
    d.node(f"CUSTOM:{name}", inputs, outputs, custom_options=bytes(flexbuffers.Dumps(options)))


def top_level(d: GraphBuilder) -> None:
    """Raises Unfit inside of graphs, and for most values: one chain is a lot."""
    if d.depth or d.chance(0.5):
        raise Unfit


def spectrum(d: GraphBuilder, length: int) -> Value:
    """A windowed, scaled frame and its transform."""
    x = samples(d, d.between(length // 2 + 1, length))
    if d.chance(0.7):
        weights = d.constant(d.rng.integers(0, 4096, x.shape).astype(np.int16))
        y = d.computed("int16", x.shape)
        custom(d, "SignalWindow", (x, weights), (y,), shift=12)
        x = y
    if d.chance(0.6):
        y, shift = d.computed("int16", x.shape), d.computed("int32", ())
        custom(d, "SignalFftAutoScale", (x,), (y, shift))
        x = y
    y = d.computed("int16", (length + 2,))
    custom(d, "SignalRfft", (x,), (y,), T=7, fft_length=length)
    return y


@offers(("int8", "int16"), "CUSTOM:SignalRfft", weight=0.4)
def there_and_back(d: GraphBuilder, x: Value) -> Sequence[Value]:
    top_level(d)
    length = d.pick((16, 32, 64, 128))
    y = spectrum(d, length)
    if d.chance(0.5):
        return []
    back = d.computed("int16", (length,))
    custom(d, "SignalIrfft", (y,), (back,), T=7, fft_length=length)
    return []


@offers(("int8", "int16"), "CUSTOM:SignalEnergy", weight=0.4)
def energies(d: GraphBuilder, x: Value) -> Sequence[Value]:
    top_level(d)
    roots(d)
    return []


def roots(d: GraphBuilder) -> Value:
    """Roots of the channels of an input's energies."""
    y = filter_bank(d, energy_of(d))
    root = d.computed("uint32", y.shape)
    shift = d.constant(np.int32(d.between(0, 6)))
    custom(d, "SignalFilterBankSquareRoot", (y, shift), (root,))
    return root


def energy_of(d: GraphBuilder) -> Value:
    """The energy of each frequency of an input."""
    length = d.pick((32, 64, 128))
    y = spectrum(d, length)
    made = d.computed("uint32", (length // 2 + 1,))
    # The engine leaves what lies outside of the range as it was in its memory.
    custom(d, "SignalEnergy", (y,), (made,), start_index=0, end_index=length // 2 + 1)
    return made


def filter_bank(d: GraphBuilder, x: Value) -> Value:
    """Channels of energies."""
    widths = [d.between(1, 4) for _ in range(d.between(2, 6))]
    channels = len(widths) - 1
    starts = np.cumsum([0, *widths[:-1]])
    tables = [d.rng.integers(1, 4096, sum(widths)) for _ in range(2)]
    constants = [d.constant(table.astype(np.int16)) for table in (*tables, starts, starts, np.array(widths))]
    y = d.computed("uint64", (channels,))
    if sum(widths) > x.elements:
        raise Unfit
    custom(d, "SignalFilterBank", (x, *constants), (y,), num_channels=channels)
    return y


_T = {"int16": 7, "int32": 2, "float32": 0}


@offers(("int8", "float32"), "CUSTOM:SignalIrfft", weight=0.4)
def transforms(d: GraphBuilder, x: Value) -> Sequence[Value]:
    """The transform of wider values, and what it came from."""
    top_level(d)
    dtype = "float32" if x.dtype == "float32" else "int32"
    length = d.pick((16, 32, 64, 128))
    x = model_input(d, dtype, length, bounds=None if dtype == "float32" else (-(1 << 20), 1 << 20))
    y = d.computed(dtype, (length + 2,))
    custom(d, "SignalRfft", (x,), (y,), T=_T[dtype], fft_length=length)
    if d.chance(0.6):
        custom(d, "SignalIrfft", (y,), (d.computed(dtype, (length,)),), T=_T[dtype], fft_length=length)
    return []


@offers(("int8", "int16"), "CUSTOM:SignalDelay", weight=0.3)
def delay(d: GraphBuilder, x: Value) -> Sequence[Value]:
    top_level(d)
    x = samples(d, d.between(2, 40))
    y = d.computed("int16", x.shape)
    custom(d, "SignalDelay", (x,), (y,), delay_length=d.between(1, 50))
    return []
