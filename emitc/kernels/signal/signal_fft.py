"""SignalRfft, SignalIrfft and SignalFftAutoScale: Fourier transforms of real frames.

SignalRfft: frames x [..., L], filled with zeros up to fft_length >= L; y [..., fft_length + 2]: complex numbers, real and
        imaginary parts in turn. A real transform of `fft_length` values is a complex one of half as many points. It has the
        even values as real and the odd ones as imaginary parts; then the two spectra are separated.
SignalIrfft: the other way round. x [..., fft_length + 2], y [..., fft_length]. The spectrum is put together to that of the
        even and odd values, which is transformed back. In float32 the results are divided by fft_length; in fixed point the steps
        have done that.
        Types of both: int16, int32, float32; T of the options says which (7, 2, 0).
        Errors: lengths that are odd, have prime factors over 5, or are out of [4, 65536]; other types.
SignalFftAutoScale: y = x * 2**b with the largest b at which no value leaves 15 bits, and b itself.
        b = max(0, 15 - bits of the largest magnitude), 0 for zeros alone. x any, y as x, int16; b one element of int32.
Source  TFLite Micro's signal library, whose transform is that of KISS FFT.

SignalFilterBank: energies weighted into channels; what a channel's weight leaves of 1 goes to the next one.

Shapes  x [N], weights and unweights [W], starts of frequencies, starts of weights and widths [C + 1], y [C].
Types   x uint32, constants int16, y uint64. Sums are modulo 2**64.
        y[c] = sum of x * weights over band c + 1, plus sum of x * unweights over band c; band 0 adds to channel 0 only.
Errors  computed constants, bands that leave x or the weights.
Source  TFLite Micro's signal library.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Parsed, illegal, parser, require_constants, require_dtypes
from emitc.kernels.shared.pointwise import operand
from emitc.kernels.signal.simd import int16_vectors, pairs, uint32_vectors
from emitc.layer import PLAIN, KernelSpec, Layer, Param, Scratch, Table, integers
from emitc.numerics.kiss_fft import Numbers, Values, order_of, places_of, radices_of
from emitc.records import dataclass, replace
from emitc.source import SourceNode

_TYPES = (DType.INT16, DType.INT32, DType.FLOAT32)
_LARGEST = 1 << 16
"""Values of a transform: places of half as many are uint16."""
_NUMBERED = {0: DType.FLOAT32, 2: DType.INT32, 7: DType.INT16}
"""The types by their numbers in the schema, which the option T has."""
_FORTH, _BACK = -1, 1
"""Directions of a transform."""


@dataclass(frozen=True, slots=True)
class RealFourier(Op):
    """length: of the transform, in real values. dtype: of the values and of the spectrum."""

    length: int
    dtype: DType


class SignalRfft(RealFourier):
    """From values to a spectrum."""


class SignalIrfft(RealFourier):
    """From a spectrum to values."""


@dataclass(frozen=True, slots=True)
class SignalFftAutoScale(Op):
    """No attributes."""


def _from_tflite(op: type[RealFourier], node: SourceNode) -> Parsed:
    node.counts((1, 1))
    dtype = _NUMBERED.get(node.integer("T"))
    if dtype is None:
        why = f"T is {node.integer('T')}, there is code for 7 (int16), 2 (int32) and 0 (float32)"
        raise node.unsupported("of this type is not supported", why, "use one of these")
    length = node.integer("fft_length", low=1)
    if length % 2 or not 4 <= length <= _LARGEST or not radices_of(length // 2):
        raise node.unsupported(
            f"of length {length} is not supported",
            f"there is code for even lengths from 4 to {_LARGEST} without prime factors over 5, as in TFLite Micro",
            "use one of these",
        )
    return Parsed(op(length, dtype))


def _check_frames(bound: BoundNode) -> None:
    """Refuses another type than the option T says, frames longer than the transform, and spectra of another length."""
    op, x = bound.op(RealFourier), bound.input(0)
    require_dtypes(bound, [(op.dtype,) * 2])
    forth, last = isinstance(op, SignalRfft), x.shape[-1] if x.shape else 0
    if not (1 <= last <= op.length if forth else last == op.length + 2 and 0 not in x.shape):
        what = f"has {'frames' if forth else 'spectra'} that do not fit"
        raise illegal(bound, what, f"{list(x.shape)} for {op.length}", tensor=x)


def _rfft_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Step by step, all values of a step at once."""
    op, frame = bound.op(RealFourier), bound.input(0).shape[-1]
    n, points = Numbers(op.dtype), op.length // 2
    frames: Values = np.zeros((bound.input(0).elements // frame, op.length), n.computed)
    frames[:, :frame] = operand(bound, inputs, 0).reshape(-1, frame)
    whole = n.transformed(frames.reshape(-1, points, 2), _FORTH)
    half = n.divided(whole, 2)
    y: Values = np.zeros((len(frames), points + 1, 2), n.computed)
    y[:, 0, 0], y[:, points, 0] = half[:, 0, 0] + half[:, 0, 1], half[:, 0, 0] - half[:, 0, 1]
    near = half[:, 1 : points // 2 + 1]
    far = n.divided(n.opposite(whole[:, points - 1 : points - points // 2 - 1 : -1]), 2)
    total = n.kept(near + far)
    turned = n.product(n.kept(near - far), np.array(n.splits(points, _FORTH), n.computed).reshape(-1, 2))
    # Sums of int16 are halved before they wrap, those of int32 after it.
    kept = n.kept if n.bits > 15 else np.asarray
    y[:, 1 : points // 2 + 1] = n.halved(kept(total + turned))
    y[:, points - 1 : points - points // 2 - 1 : -1, 0] = n.halved(kept(total[..., 0] - turned[..., 0]))
    y[:, points - 1 : points - points // 2 - 1 : -1, 1] = n.halved(kept(turned[..., 1] - total[..., 1]))
    return (y.astype(bound.output.dtype.value).reshape(bound.output.shape),)


def _irfft_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Step by step, all values of a step at once."""
    op = bound.op(RealFourier)
    n, points = Numbers(op.dtype), op.length // 2
    x: Values = operand(bound, inputs, 0).astype(n.computed).reshape(-1, points + 1, 2)
    whole: Values = np.zeros((len(x), points, 2), n.computed)
    ends = np.stack([x[:, 0, 0] + x[:, points, 0], x[:, 0, 0] - x[:, points, 0]], axis=-1)
    whole[:, 0] = n.divided(n.kept(ends), 2)
    near = n.divided(x[:, 1 : points // 2 + 1], 2)
    far = n.divided(n.opposite(x[:, points - 1 : points - points // 2 - 1 : -1]), 2)
    total = n.kept(near + far)
    turned = n.product(n.kept(near - far), np.array(n.splits(points, _BACK), n.computed).reshape(-1, 2))
    whole[:, 1 : points // 2 + 1] = n.kept(total + turned)
    whole[:, points - 1 : points - points // 2 - 1 : -1] = n.opposite(n.kept(total - turned))
    y = n.transformed(whole, _BACK)
    if not n.fixed:
        y = y / np.float32(2 * points)
    return (y.astype(bound.output.dtype.value).reshape(bound.output.shape),)


def _transform(bound: BoundNode, places: Table, splitting: str, frames: tuple[Param, ...], direction: int) -> Layer:
    """The steps in a buffer. places: which value comes where. splitting: what the turns of the halves do. frames: parameters."""
    op = bound.op(RealFourier)
    numbers, points, c_type = Numbers(op.dtype), op.length // 2, op.dtype.c_type
    radices = radices_of(points)
    unit = {DType.INT16: ", Q15", DType.INT32: ", Q31", DType.FLOAT32: ""}[op.dtype]
    tables = (
        places,
        Table("radices", "int8_t", radices, "steps of the transform"),
        Table("turns", c_type, numbers.twiddles(points, direction), f"turns of the steps{unit}"),
        Table("splits", c_type, numbers.splits(points, direction), f"turns that {splitting}{unit}"),
    )
    steps = integers(points=(points, "of the complex transform"), steps=len(radices))
    scratch = (Scratch("work", 2 * op.dtype.bytes * points),)
    wide, mixed = "" if op.dtype is DType.INT16 else "_wide", "_mixed" if set(radices) & {3, 5} else ""
    spec = KernelSpec(f"_{op.dtype.value}", numbers.fixed, x=c_type, w=c_type, y=c_type) if wide else PLAIN
    template = f"signal/fft/signal_{'rfft' if direction == _FORTH else 'irfft'}{wide}{mixed}"
    return Layer(template, "portable", (0,), tables, (*frames, *steps), scratch=scratch, spec=spec)


def _rfft_lower(bound: BoundNode) -> Layer:
    frame = bound.input(0).shape[-1]
    order = Table("order", "uint16_t", order_of(bound.op(RealFourier).length // 2), "which value comes where")
    frames = integers(frames=bound.input(0).elements // frame, frame=frame)
    return _transform(bound, order, "separate the spectra of even and odd values", frames, _FORTH)


def _irfft_lower(bound: BoundNode) -> Layer:
    length = bound.op(RealFourier).length
    places = tuple(int(place) for place in np.argsort(order_of(length // 2)))
    table = Table("places", "uint16_t", places, "where each value goes")
    frames = (Param("frames", "int32_t", bound.output.elements // length),)
    return _transform(bound, table, "put the spectra of even and odd values together", frames, _BACK)


def _by_steps(bound: BoundNode) -> Layer:
    """Of int16 values: the first step takes them from where they are and turns nothing, the others are of radix 4."""
    points = bound.op(RealFourier).length // 2
    general, numbers = _rfft_lower(bound), Numbers(DType.INT16)
    tables = (
        Table("places", "uint16_t", places_of(points), "where the first step's results go"),
        Table("turns", "int16_t", numbers.turns_by_step(points, _FORTH), "turns of the other steps, Q15", alignment=4),
        *(table for table in general.tables if table.role == "splits"),
    )
    params = tuple(param for param in general.params if param.name != "steps")
    return replace(general, tables=tables, params=params)


def _rfft_of_pairs(bound: BoundNode) -> Layer | str:
    """Complex numbers in words."""
    op, radices = bound.op(RealFourier), radices_of(bound.op(RealFourier).length // 2)
    if op.dtype is not DType.INT16 or set(radices) - {2, 4} or len(radices) < 2:
        return f"{op.dtype.value} of length {op.length}: there is code for int16 and powers of two from 16 on"
    layer = _by_steps(bound)
    return replace(layer, params=(*layer.params, Param("radix", "int32_t", radices[0], "of the first step")))


def _rfft_of_vectors(bound: BoundNode) -> Layer | str:
    """Four complex numbers at a time."""
    op, radices = bound.op(RealFourier), radices_of(bound.op(RealFourier).length // 2)
    if op.dtype is not DType.INT16 or set(radices) != {4} or len(radices) < 2:
        return f"{op.dtype.value} of length {op.length}: there is code for int16 and 32, 128, 512, ..."
    return _by_steps(bound)


def _scale_check(bound: BoundNode) -> None:
    require_dtypes(bound, [(DType.INT16, DType.INT16, DType.INT32)])


def _scale_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In int64."""
    x = operand(bound, inputs, 0).astype(np.int64)
    largest = int(np.abs(x).max())
    bits = max(0, 15 - largest.bit_length()) if largest else 0
    return (x << bits).astype(np.int16), np.array(bits, np.int32)


def _scale_lower(bound: BoundNode) -> Layer:
    params = (Param("count", "int32_t", bound.output.elements),)
    return Layer("signal/fft/signal_fft_auto_scale", "portable", (0,), params=params, headers=("emitc_bits.h",))


_LARGEST_START = 2**15 - 1
_ROLES = ("weights", "unweights", "frequency_starts", "weight_starts", "widths")


@dataclass(frozen=True, slots=True)
class SignalFilterBank(Op):
    """channels: of the output."""

    channels: int


def _bank_from_tflite(node: SourceNode) -> Parsed:
    node.counts((6, 6))
    return Parsed(SignalFilterBank(node.integer("num_channels", low=1, high=1 << 15)), (0, 1, 2, 3, 4, 5))


def _check_bank(bound: BoundNode) -> None:
    """Refuses what the module's docstring lists."""
    require_dtypes(bound, [(DType.UINT32, *(DType.INT16,) * 5, DType.UINT64)])
    constants = [bound.input(i) for i in range(1, 6)]
    what = "with computed filters is not supported"
    require_constants(bound, constants, what, "they must be constants", "export again")
    bands = (bound.op(SignalFilterBank).channels + 1,)
    fits = len(bound.input(0).shape) == 1 and all(tensor.shape == bands for tensor in constants[2:])
    if not fits or len(constants[0].shape) != 1 or constants[0].shape != constants[1].shape:
        raise illegal(bound, "has inputs that do not fit", f"{bands[0]} bands are expected")
    first, weights, widths = (tensor.array().astype(np.int64) for tensor in constants[2:])
    inside = (first >= 0) & (weights >= 0) & (first + widths <= bound.input(0).elements)
    if not ((inside & (weights + widths <= constants[0].elements)) | (widths <= 0)).all():
        raise illegal(bound, "has a band outside of its inputs", "starts and widths lead too far")


def _bank_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In Python's integers."""
    x = [int(v) for v in operand(bound, inputs, 0).tolist()]
    weights, unweights, first, start, widths = (bound.input(i).array().tolist() for i in range(1, 6))
    sums, carried = [], 0
    for band, width in enumerate(widths):
        values = x[first[band] : first[band] + max(width, 0)]
        sums.append(carried + sum(a * b for a, b in zip(values, weights[start[band] :], strict=False)))
        carried = sum(a * b for a, b in zip(values, unweights[start[band] :], strict=False))
    return (np.array([total % (1 << 64) for total in sums[1:]], np.uint64),)


def _trimmed(bound: BoundNode) -> dict[str, list[int]]:
    """The constants by role, without weights at the ends of bands that are both 0, and without those that no band has.

    As they are where none is left, or bands share so many weights that a table for each band would be longer.
    """
    arrays = [bound.input(i).array().tolist() for i in range(1, 6)]
    weights, unweights, first, start, widths = arrays
    tables: dict[str, list[int]] = {role: [] for role in _ROLES}
    for frequency, begin, width in zip(first, start, widths, strict=True):
        counting = [i for i in range(max(width, 0)) if weights[begin + i] or unweights[begin + i]] or [0, -1]
        low, end = counting[0], counting[-1] + 1
        tables["frequency_starts"].append(frequency + low)
        tables["weight_starts"].append(len(tables["weights"]))
        tables["widths"].append(end - low)
        tables["weights"] += weights[begin + low : begin + end]
        tables["unweights"] += unweights[begin + low : begin + end]
    small = 0 < len(tables["weights"]) <= len(weights) and max(tables["frequency_starts"]) <= _LARGEST_START
    return tables if small else dict(zip(_ROLES, arrays, strict=True))


def _lower_bank(bound: BoundNode) -> Layer:
    """Band by band. Products with weights that are not negative take fewer instructions."""
    tables = {role: values or [0] for role, values in _trimmed(bound).items()}
    signed = min(tables["weights"] + tables["unweights"]) < 0
    spec = KernelSpec("_signed" if signed else "", w="int16_t" if signed else "uint16_t")
    places = zip(tables["frequency_starts"], tables["weight_starts"], tables["widths"], strict=True)
    return _layer(
        bound,
        Table("weights", spec.w, tuple(tables["weights"]), "weights of the bands", pixels_per_load=0),
        Table("unweights", spec.w, tuple(tables["unweights"]), "unweights of the bands"),
        Table("places", "int16_t", tuple(chain(*places)), "starts of the bands' frequencies and weights, and widths"),
        spec=spec,
    )


def _layer(bound: BoundNode, *tables: Table, spec: KernelSpec = PLAIN) -> Layer:
    params = (Param("bands", "int32_t", bound.op(SignalFilterBank).channels + 1),)
    return Layer("signal/signal_filter_bank", "portable", (0,), tables, params, spec=spec)


def _in_groups(bound: BoundNode, size: int) -> Layer | str:
    """Of bands of whole groups of `size` frequencies, one or more: with weights of 0, in front where the frequencies end."""
    tables, frequencies = _trimmed(bound), bound.input(0).elements
    widths = [max(width, 0) for width in tables["widths"]]
    if not tables["weights"] or min(tables["weights"] + tables["unweights"]) < 0:
        return "it has no weights, or negative ones"
    if sum(widths) > len(tables["weights"]):
        return "its bands share weights"
    counts = [max(-(-width // size), 1) for width in widths]
    if size * max(counts) > frequencies:
        return "has fewer frequencies than a band in whole groups"
    groups: list[int] = []
    places: list[int] = []
    for first, start, width, count in zip(
        tables["frequency_starts"], tables["weight_starts"], widths, counts, strict=True
    ):
        begin = min(max(first, 0), frequencies - size * count)
        places += [begin, count]
        for group in range(begin - first, begin - first + size * count, size):
            for role in ("weights", "unweights"):
                groups += [tables[role][start + i] if 0 <= i < width else 0 for i in range(group, group + size)]
    together = f"weights and unweights of {size} frequencies at a time, band by band"
    return _layer(
        bound,
        Table("groups", "uint16_t", tuple(groups), together),
        Table("places", "int16_t", tuple(places), f"starts of the bands' frequencies, and times {size} of them"),
    )


KERNELS = (
    KernelDef(
        SignalRfft, "Fourier transform of real values", _TYPES, ("CUSTOM:SignalRfft",), partial(_from_tflite, SignalRfft),
        _check_frames, _rfft_reference, _rfft_lower,
        output_shapes=lambda bound: ((*bound.input(0).shape[:-1], bound.op(RealFourier).length + 2),),
        variants=(int16_vectors(_rfft_of_vectors), pairs(_rfft_of_pairs)),
    ),
    KernelDef(
        SignalIrfft, "real values from their Fourier transform", _TYPES, ("CUSTOM:SignalIrfft",),
        partial(_from_tflite, SignalIrfft), _check_frames, _irfft_reference, _irfft_lower,
        output_shapes=lambda bound: ((*bound.input(0).shape[:-1], bound.op(RealFourier).length),),
    ),
    KernelDef(
        SignalFftAutoScale, "values shifted up to use 15 bits", (DType.INT16,), ("CUSTOM:SignalFftAutoScale",),
        parser(SignalFftAutoScale(), outputs=2), _scale_check, _scale_reference, _scale_lower,
        output_shapes=lambda bound: (bound.input(0).shape, ()),
        variants=(int16_vectors(_scale_lower), pairs(_scale_lower)),
    ),
    KernelDef(
        SignalFilterBank,
        "energies weighted into channels",
        (DType.UINT32,),
        tflite={"CUSTOM:SignalFilterBank": _bank_from_tflite},
        check=_check_bank,
        reference=_bank_reference,
        lower=_lower_bank,
        output_shapes=lambda bound: ((bound.op(SignalFilterBank).channels,),),
        variants=(
            uint32_vectors(lambda bound: _in_groups(bound, 4)),
            pairs(lambda bound: _in_groups(bound, 2), DType.UINT32),
        ),
    ),
)  # fmt: skip
