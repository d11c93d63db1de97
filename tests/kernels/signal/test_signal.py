"""The operators of TFLite Micro's signal library: reference, engine and C agree on every bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from flatbuffers import flexbuffers

from tests.support.single_op import Array, Case, Outcome, TensorSpec, plain, prove, refusal

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

Option = int | bool
Draw = Callable[[np.random.Generator, int], list[Array]]


def constant(values: Array, dtype: str) -> TensorSpec:
    """A constant without quantization."""
    return TensorSpec("", dtype, values.shape, values.astype(dtype).tobytes())


def signal(
    name: str,
    operator: str,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    options: dict[str, Option],
    draw: Draw | None,
) -> Case:
    """One custom operator."""
    custom = flexbuffers.Dumps(options)
    return Case(name, "CUSTOM", inputs, outputs, draw=draw, custom_code=f"Signal{operator}", custom_options=custom)


def spread(shape: tuple[int, ...], dtype: str, *more: int) -> Draw:
    """Numbers of every length in bits, the ends of the type, and `more`."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        count = int(np.prod(shape))
        edges = [v for v in (*more, 0, 1, 2, 3, low, high, high - 1) if low <= v <= high]
        bits = rng.integers(0, high.bit_length(), count, endpoint=True)
        values = [
            int(rng.integers(0, 1 << 63)) % (1 << int(b)) * (1 if low == 0 or rng.integers(2) else -1) for b in bits
        ]
        values[: len(edges)] = edges[:count]
        return [np.array(values[:count], dtype).reshape(shape)]

    return draw


def window(shape: tuple[int, ...], shift: int, length: int = 0) -> Case:
    """SignalWindow. length: of the window where that is not the length of a row."""
    values = np.linspace(-32768, 32767, length or shape[-1]).round()
    name = f"window_{len(shape)}_{shift}"
    return signal(
        name,
        "Window",
        (plain(shape, "int16"), constant(values, "int16")),
        (plain(shape, "int16"),),
        {"shift": shift},
        spread(shape, "int16"),
    )


def scaled(largest: int, count: int = 20) -> Case:
    """SignalFftAutoScale of `count` values up to `largest`."""

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        values = rng.integers(-largest, largest, count, endpoint=True)
        # The engine forgets what came before the lowest value, whose magnitude it keeps in 16 bits.
        values[sample % count if largest > 32767 else -1 - sample % count] = -largest if sample % 2 else largest
        return [np.clip(values, -32768, 32767).astype(np.int16)]

    return signal(
        f"scale_{largest}_{count}",
        "FftAutoScale",
        (plain((count,), "int16"),),
        (plain((count,), "int16"), plain((), "int32")),
        {},
        draw,
    )


T = {"int16": 7, "int32": 2, "float32": 0}


def waves(shape: tuple[int, ...], dtype: str, quiet: int) -> Draw:
    """Loud noise, the ends of the type, single lines, and noise divided by `quiet`; floats from -1 to 1.

    Even and odd values at the ends of the type, a quarter of a turn apart: their spectra together leave int16.
    """
    low, high = (-1, 1) if dtype == "float32" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        ends = rng.choice([low, high], shape)
        noise = rng.uniform(low, high, shape)
        wave = high * np.cos(2 * np.pi * np.arange(shape[-1]) * rng.integers(0, shape[-1] // 2) / shape[-1])
        lines = np.where(rng.random(shape) < 4 / shape[-1], noise, 0)
        angles = (
            2 * np.pi * (np.arange(shape[-1]) // 2 / shape[-1] * 2 * rng.integers(1, 5) - np.arange(shape[-1]) % 2 / 4)
        )
        full = np.where(np.cos(angles + rng.uniform(0, 7)) < 0, low, high)
        return [np.broadcast_to((wave, ends, noise, lines, noise / quiet, full)[sample % 6], shape).astype(dtype)]

    return draw


def transform(frame: int, length: int, frames: int = 0, dtype: str = "int16") -> Case:
    """SignalRfft."""
    shape, made = ((frames, frame), (frames, length + 2)) if frames else ((frame,), (length + 2,))
    options, name = {"T": T[dtype], "fft_length": length}, f"rfft_{frame}_{length}_{frames}_{dtype}"
    return signal(name, "Rfft", (plain(shape, dtype),), (plain(made, dtype),), options, waves(shape, dtype, 16))


def inverse(length: int, frames: int = 0, dtype: str = "int16") -> Case:
    """SignalIrfft, of spectra of real values and of any numbers."""
    shape, made = ((frames, length + 2), (frames, length)) if frames else ((length + 2,), (length,))
    options, name = {"T": T[dtype], "fft_length": length}, f"irfft_{length}_{frames}_{dtype}"
    return signal(name, "Irfft", (plain(shape, dtype),), (plain(made, dtype),), options, waves(shape, dtype, 64))


def energy(start: int, end: int) -> Case:
    """SignalEnergy."""
    options = {"start_index": start, "end_index": end}
    return signal(
        f"energy_{start}_{end}",
        "Energy",
        (plain((40,), "int16"),),
        (plain((20,), "uint32"),),
        options,
        spread((40,), "int16", -32768, -32768),
    )


def bank(name: str, *, negative: bool = False, zeros: Sequence[int] = ()) -> Case:
    """SignalFilterBank of three channels. zeros: weights that are 0, from one end of a band on."""
    rng = np.random.default_rng(4)
    low = -32768 if negative else 0
    counts = np.isin(np.arange(14), zeros, invert=True)
    constants = (
        constant(rng.integers(low, 32767, 14) * counts, "int16"),
        constant(rng.integers(low, 32767, 14) * counts, "int16"),
        constant(np.array([1, 3, 8, 2]), "int16"),
        constant(np.array([0, 4, 10, 1]), "int16"),
        constant(np.array([3, 5, 4, 0]), "int16"),
    )
    return signal(
        name,
        "FilterBank",
        (plain((12,), "uint32"), *constants),
        (plain((3,), "uint64"),),
        {"num_channels": 3},
        spread((12,), "uint32", 2**32 - 1),
    )


def bank_of_widths(*widths: int) -> Case:
    """SignalFilterBank of bands of these widths, one after the other, the last of which ends with the frequencies."""
    rng, frequencies = np.random.default_rng(6), sum(widths)
    starts = np.cumsum((0, *widths[:-1]))
    weights = (constant(rng.integers(1, 4096, frequencies), "int16") for _ in range(2))
    return signal(
        f"bank_of_{len(widths)}_bands_in_{frequencies}",
        "FilterBank",
        (
            plain((frequencies,), "uint32"),
            *weights,
            *(constant(v, "int16") for v in (starts, starts, np.array(widths))),
        ),
        (plain((len(widths) - 1,), "uint64"),),
        {"num_channels": len(widths) - 1},
        spread((frequencies,), "uint32", 2**32 - 1),
    )


def roots(bits: int | None = None) -> Case:
    """SignalFilterBankSquareRoot of squares, what is next to them, and half between. bits: a constant number of bits."""
    spans = [(1 << k, 1 << k // 2) for k in range(1, 33)]
    powers = [r for whole, half in spans for r in (whole - 1, whole - half, whole // 2 + half - 1)]
    near = [r * r + d for r in powers for d in (-r, 1 - r, -1, 0, 1, r, r + 1)]
    shape = (703,)

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        values = spread(shape, "uint64", *near)(rng, sample)
        return [*values, *([] if bits is not None else [np.array((0, 3, 15, 31)[sample % 4], np.int32)])]

    return signal(
        "roots" if bits is None else f"roots_{bits}",
        "FilterBankSquareRoot",
        (plain(shape, "uint64"), plain((), "int32") if bits is None else constant(np.array(bits), "int32")),
        (plain(shape, "uint32"),),
        {},
        draw,
    )


SUBTRACTION: dict[str, Option] = {
    "alternate_one_minus_smoothing": 15401,
    "alternate_smoothing": 983,
    "clamping": False,
    "min_signal_remaining": 819,
    "num_channels": 24,
    "one_minus_smoothing": 15975,
    "smoothing": 409,
    "smoothing_bits": 10,
    "spectral_subtraction_bits": 14,
}


def subtraction(name: str, channels: int = 24, **changes: Option) -> Case:
    """SignalFilterBankSpectralSubtraction, whose estimate lasts from sample to sample."""
    shape, options = (channels,), SUBTRACTION | changes | {"num_channels": channels}

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        values = (
            spread(shape, "uint32")(rng, sample)[0] if sample % 3 == 0 else rng.integers(0, 1 << (20 - sample), shape)
        )
        return [values.astype(np.uint32)]

    outputs = (plain(shape, "uint32"), plain(shape, "uint32"))
    return signal(name, "FilterBankSpectralSubtraction", (plain(shape, "uint32"),), outputs, options, draw)


def gain(name: str, shift: int, *, steep: bool = False) -> Case:
    """SignalPCAN."""
    rng = np.random.default_rng(9)
    table = rng.integers(-32768, 32767, 125) if steep else np.linspace(30000, 40, 125).round()
    shape = (70,)

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        powers = [v for b in range(2, 32) for v in ((1 << b) - 1, 1 << b)]
        return [*spread(shape, "uint32")(rng, sample), *spread(shape, "uint32", *powers)(rng, sample)]

    inputs = (plain(shape, "uint32"), plain(shape, "uint32"), constant(table, "int16"))
    return signal(name, "PCAN", inputs, (plain(shape, "uint32"),), {"snr_shift": shift}, draw)


def logarithm(scale: int, correction: int, count: int = 500) -> Case:
    """SignalFilterBankLog over every segment of the table."""
    segments = [(1 << b) + (i << b >> 7) for b in (7, 12, 31) for i in range(128)]
    shape = (count,)
    options = {"output_scale": scale, "input_correction_bits": correction}
    draw = spread(shape, "uint32", *segments)
    return signal(
        f"log_{scale}_{correction}_{count}",
        "FilterBankLog",
        (plain(shape, "uint32"),),
        (plain(shape, "int16"),),
        options,
        draw,
    )


CASES: list[Case] = [
    window((30,), 12), window((3, 8), 31), window((1,), 1), window((2, 3, 17), 0),
    window((30,), 15), window((2, 3, 4), 3, 12), window((2, 6), 4, 3),
    *(scaled(largest) for largest in (0, 1, 2, 255, 256, 16383, 16384, 32767, 32768)),
    *(scaled(largest, count) for largest in (1, 700, 32767) for count in (1, 2, 7, 8, 9)),
    *(transform(length - missing, length) for length in (16, 32, 64, 128, 256, 512, 1024) for missing in (0, 5)),
    transform(480, 512), transform(33, 512, 2), transform(400, 1024), transform(127, 128, 3),
    transform(7, 8, 3), transform(60, 64, 2),
    *(inverse(length) for length in (8, 16, 32, 64, 128, 256, 512, 1024)), inverse(64, 3),
    *(transform(length - 3, length, dtype=dtype) for length in (8, 16, 128, 1024) for dtype in ("int32", "float32")),
    *(inverse(length, dtype=dtype) for length in (8, 16, 128, 1024) for dtype in ("int32", "float32")),
    transform(60, 64, 2, "int32"), transform(64, 64, 2, "float32"), inverse(64, 3, "int32"), inverse(64, 3, "float32"),
    *(transform(length - 1, length) for length in (4, 6, 10, 12, 18, 30, 48, 50, 240, 1500)), transform(90, 90, 2),
    *(inverse(length) for length in (4, 6, 10, 12, 18, 30, 48, 50, 240, 1500)), inverse(90, 2),
    *(transform(length, length, dtype=dtype) for length in (4, 30, 48, 150) for dtype in ("int32", "float32")),
    *(inverse(length, dtype=dtype) for length in (4, 30, 48, 150) for dtype in ("int32", "float32")),
    energy(0, 20), energy(3, 11), energy(5, 5),
    bank("bank"), bank("bank_of_negative_weights", negative=True),
    bank("bank_of_padded_bands", zeros=(0, 2, 4, 7, 8, 12, 13)), bank("bank_without_a_band", zeros=range(4, 9)),
    bank("bank_of_nothing", zeros=range(14)),
    bank_of_widths(1, 2, 3, 4, 5, 6, 7, 8, 9, 2), bank_of_widths(1, 3), bank_of_widths(1, 2), bank_of_widths(5, 13, 1),
    roots(), roots(0), roots(7),
    subtraction("subtraction"), subtraction("subtraction_clamped", clamping=True),
    subtraction("subtraction_all_bits", smoothing_bits=0),
    *(subtraction(f"subtraction_of_{count}", count, clamping=count == 3) for count in (1, 2, 3, 21)),
    gain("gain", 6), gain("gain_wraps", 0, steep=True), gain("gain_small", 20, steep=True),
    logarithm(64, 3), logarithm(1, 0), logarithm(32768, 31), logarithm(1600, 0),
    logarithm(2**31 - 1, 0), logarithm(-1, 0), logarithm(-40000, 2),
    *(logarithm(64, 3, count) for count in (1, 2, 3, 387)),
]  # fmt: skip


def comparable(outcome: Outcome) -> Outcome:
    """The outcome without the numbers that SignalEnergy does not count: the engine leaves them as they are in memory."""
    if not outcome.case.id.startswith("energy"):
        return outcome
    return replace(outcome, golden=tuple((_counted(outcome.case, y[0]),) for y in outcome.golden))


def test_reference_engine_and_c_agree() -> None:
    proven = prove(CASES, samples=8)
    for outcome in proven.outcomes.values():
        comparable(outcome).check()
    assert proven.memory_errors == ()


def _counted(case: Case, energies: Array) -> Array:
    start, end = (int(part) for part in case.id.split("_")[1:])
    places = np.arange(len(energies))
    return np.where((places >= start) & (places < end), energies, 0).astype(np.uint32)


@pytest.mark.parametrize(
    ("case", "options", "code", "message"),
    [
        (window((30,), 1), {"shift": 32}, 2, "has shift = 32"),
        (window((30,), 1), {}, 2, "has no attribute shift"),
        (transform(16, 16), {"T": 9, "fft_length": 16}, 1, "SignalRfft of this type is not supported"),
        (transform(16, 16), {"T": 2, "fft_length": 16}, 1, "element types (int16, int16) is not supported"),
        (transform(16, 16), {"T": 7, "fft_length": 28}, 1, "of length 28 is not supported"),
        (transform(16, 16), {"T": 7, "fft_length": 25}, 1, "of length 25 is not supported"),
        (transform(16, 16), {"T": 7, "fft_length": 2}, 1, "of length 2 is not supported"),
        (transform(16, 16), {"T": 7, "fft_length": 8}, 2, "frames that do not fit"),
        (transform(16, 16), {"T": 7, "fft_length": 1 << 30}, 1, "is not supported"),
        (inverse(16), {"T": 9, "fft_length": 16}, 1, "SignalIrfft of this type is not supported"),
        (inverse(16), {"T": 7, "fft_length": 22}, 1, "of length 22 is not supported"),
        (inverse(16), {"T": 7, "fft_length": 32}, 2, "spectra that do not fit"),
        (energy(0, 20), {"start_index": 5, "end_index": 3}, 2, "range that does not fit"),
        (energy(0, 20), {"start_index": 0, "end_index": 21}, 2, "range that does not fit"),
        (bank("bank"), {"num_channels": 4}, 2, "inputs that do not fit"),
        (subtraction("s"), SUBTRACTION | {"num_channels": 25}, 2, "has num_channels = 25"),
        (subtraction("s"), SUBTRACTION | {"smoothing_bits": 40}, 2, "has smoothing_bits = 40"),
        (gain("gain", 6), {"snr_shift": 64}, 2, "has snr_shift = 64"),
        (logarithm(64, 3), {"output_scale": 64, "input_correction_bits": 32}, 2, "has input_correction_bits = 32"),
    ],
)
def test_refused_options(case: Case, options: dict[str, Option], code: int, message: str) -> None:
    error = refusal(replace(case, custom_options=flexbuffers.Dumps(options)))
    assert message in str(error) and error.exit_code == code


@pytest.mark.parametrize("position", [3, 4, 5])
def test_bands_outside_of_the_inputs_are_refused(position: int) -> None:
    case = bank("bank")
    for values in ([-1, 0, 0, 0], [32767, 0, 0, 0]):
        inputs = list(case.inputs)
        inputs[position] = constant(np.array(values), "int16")
        if (position, values[0]) == (5, -1):  # a band of no width
            continue
        error = refusal(replace(case, inputs=tuple(inputs)))
        assert "band outside of its inputs" in str(error) and error.exit_code == 2


@pytest.mark.parametrize("case", [window((30,), 1), bank("bank"), gain("gain", 6)], ids=lambda case: case.id)
def test_computed_tables_are_refused(case: Case) -> None:
    inputs = tuple(
        tensor if tensor is None or tensor.data is None else replace(tensor, data=None) for tensor in case.inputs
    )
    error = refusal(replace(case, inputs=inputs))
    assert "computed" in str(error) and error.exit_code == 1


@pytest.mark.parametrize("case", CASES[::3], ids=lambda case: case.id)
def test_other_types_are_refused(case: Case) -> None:
    other = "int64" if case.outputs[0].dtype == "float32" else "float32"
    outputs = (replace(case.outputs[0], dtype=other), *case.outputs[1:])
    error = refusal(replace(case, outputs=outputs))
    assert "with element types" in str(error)
