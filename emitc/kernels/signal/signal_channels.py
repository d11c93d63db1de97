"""The signal operators on energies and channels, value by value.

Shapes  x any, y as x, unless an operator says otherwise.   Source  TFLite Micro's signal library.

SignalEnergy: of complex numbers from start_index up to end_index, y = re * re + im * im; 0 for the others, which TFLite Micro
        leaves as they are in memory.
        x [2 * N] int16, real and imaginary parts in turn; y [N] uint32.
SignalFilterBankSquareRoot: y = root(x) >> bits, the root rounded to the nearest integer.
        x uint64, bits one element of int32, y uint32.
        The root of what fits 32 bits is 65535 at most, that of any other value 2**32 - 1.
        Bits beyond 31, which no scale of int16 values gives, leave 0; negative ones count as 0.
SignalFilterBankSpectralSubtraction: channels less an estimate of their noise, which follows them slowly from run to run.
        x, y and estimate [C] uint32; the estimate is the frontend's second input, and kept as state.
        s = x * 2**smoothing_bits in 32 bits; estimate = (s * smoothing + estimate * one_minus_smoothing) >> bits, in 64 bits,
        with factors of their own for odd channels;
        y = max((s - min(estimate, s)) >> smoothing_bits, (x * min_signal_remaining) >> bits).
        clamping: the estimate never stays above s.
SignalPCAN: automatic gain, y = shrink((x * gain(noise)) >> snr_shift), per channel.
        x, noise and y [C] uint32, table [125 or more] int16, constant.
        gain: the table has three numbers for each number of bits of noise, of a parabola over the ten bits below the first;
        for noise up to 2 the gain itself. Of the product with x, shifted, 32 bits count, of which 12 are fractions.
        shrink: v * v / 4 below 2, v - 1 from there on; 6 bits of fractions remain.
SignalFilterBankLog: y = min(32767, output_scale * ln(x * 2**input_correction_bits)), 0 for 0 and 1.
        x uint32, y int16.
        The shifted x has 32 bits. log2 has 16 bits of fractions: of the fraction f of the mantissa, log2(1 + f) - f comes from a
        table of 129 values, computed here, linear between; ln 2 is 45426 / 2**16. Each of the two products is rounded half up;
        the second one is modulo 2**32, with 16 bits of fractions.
"""

import math
from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Parsed, Variant, illegal, parser, require_constants, require_dtypes
from emitc.kernels.costs import UNKNOWN_PAIRS
from emitc.kernels.shared.pointwise import operand
from emitc.kernels.signal.simd import int16_vectors, pairs, uint32_vectors
from emitc.layer import KernelSpec, Layer, Param, Table, integers
from emitc.records import dataclass, replace
from emitc.source import SourceNode

_FACTORS = (
    *(f"{channels}{factor}" for channels in ("", "alternate_") for factor in ("smoothing", "one_minus_smoothing")),
    "min_signal_remaining",
)
_GAINS = 125
_SEGMENTS = 128
_LN_2 = 45426
_LOGARITHMS = tuple(round((math.log2(1 + i / _SEGMENTS) - i / _SEGMENTS) * 65536) for i in range(_SEGMENTS + 1))


@dataclass(frozen=True, slots=True)
class SignalEnergy(Op):
    """[start, end): the numbers that count."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SignalFilterBankSquareRoot(Op):
    """No attributes."""


@dataclass(frozen=True, slots=True)
class SignalFilterBankSpectralSubtraction(Op):
    """factors: as _FACTORS names them. smoothing_bits, bits: fractions of the estimate and of the factors."""

    factors: tuple[int, ...]
    smoothing_bits: int
    bits: int
    clamping: bool


@dataclass(frozen=True, slots=True)
class SignalPcan(Op):
    """snr_shift: bits that the products lose."""

    snr_shift: int


@dataclass(frozen=True, slots=True)
class SignalFilterBankLog(Op):
    """output_scale: factor on the logarithm, modulo 2**32. correction: bits that the input is shifted up by."""

    output_scale: int
    correction: int


def _count(bound: BoundNode) -> Param:
    return Param("count", "int32_t", bound.output.elements)


def _energy_from_tflite(node: SourceNode) -> Parsed:
    node.counts((1, 1))
    return Parsed(SignalEnergy(node.integer("start_index", low=0), node.integer("end_index", low=0)))


def _energy_check(bound: BoundNode) -> None:
    require_dtypes(bound, [(DType.INT16, DType.UINT32)])
    x, op = bound.input(0), bound.op(SignalEnergy)
    if len(x.shape) != 1 or x.shape[0] % 2 or not op.start <= op.end <= x.shape[0] // 2:
        raise illegal(bound, "has a range that does not fit", f"[{op.start}, {op.end}) of {list(x.shape)}", tensor=x)


def _energy_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In int64."""
    op, parts = bound.op(SignalEnergy), operand(bound, inputs, 0).astype(np.int64).reshape(-1, 2)
    energy = np.zeros(len(parts), np.uint32)
    energy[op.start : op.end] = (parts**2).sum(axis=1)[op.start : op.end]
    return (energy,)


def _energy_lower(bound: BoundNode) -> Layer:
    op = bound.op(SignalEnergy)
    params = (_count(bound), *integers(start=op.start, end=op.end))
    return Layer("signal/signal_energy", "portable", (0,), params=params)


def _root_check(bound: BoundNode) -> None:
    require_dtypes(bound, [(DType.UINT64, DType.INT32, DType.UINT32)])
    bits = bound.input(1)
    if bits.elements != 1 or bound.input(0).is_constant:
        what = "has inputs that do not fit"
        raise illegal(bound, what, "computed values and one number of bits are expected", tensor=bits)


def _root(value: int) -> int:
    root = math.isqrt(value)
    root += value - root * root > root
    return min(root, (1 << 16) - 1 if value < 1 << 32 else (1 << 32) - 1)


def _root_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In Python's integers."""
    scale_bits = bound.input(1).array() if bound.input(1).is_constant else inputs[1]
    assert inputs[0] is not None and scale_bits is not None
    bits = min(max(int(scale_bits.reshape(())), 0), 32)
    roots = [_root(int(v)) >> bits for v in inputs[0].reshape(-1).tolist()]
    return (np.array(roots, np.uint32).reshape(bound.output.shape),)


def _root_lower(bound: BoundNode) -> Layer:
    bits, headers = bound.input(1), ("emitc_bits.h", "emitc_isqrt.h")
    layer = Layer("signal/signal_filter_bank_square_root", "portable", (0, 1), params=(_count(bound),), headers=headers)
    if not bits.is_constant:
        return layer
    table = Table("bits", "int32_t", (int(bits.array().reshape(())),), "bits that the scale has")
    return replace(layer, operands=(0,), tables=(table,))


def _root_lower_fpu(bound: BoundNode) -> Layer:
    """Roots by the float unit, put right by integers."""
    return replace(_root_lower(bound), spec=KernelSpec("_fpu", fixed_point=False))


def _subtraction_from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, 2), (2, 2))
    channels = node.integer("num_channels", low=1)
    if node.input(0).shape != (channels,):
        raise node.refusal(f"has num_channels = {channels}", f"its input has {list(node.input(0).shape)}")
    op = SignalFilterBankSpectralSubtraction(
        tuple(node.integer(name, low=0) for name in _FACTORS),
        node.integer("smoothing_bits", low=0, high=31),
        node.integer("spectral_subtraction_bits", low=0, high=31),
        bool(node.attribute("clamping", False)),
    )
    return Parsed(op, (0, 1), states=(1,))


def _subtraction_check(bound: BoundNode) -> None:
    require_dtypes(bound, [(DType.UINT32,) * 5])
    if bound.input(0).is_constant:
        raise illegal(bound, "has constant channels", "they are computed")


def _subtraction_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In uint64, where no sum or product of the factors and 32-bit values overflows."""
    assert inputs[0] is not None and inputs[1] is not None
    op, x, old = bound.op(SignalFilterBankSpectralSubtraction), inputs[0].astype(np.uint64), inputs[1].astype(np.uint64)
    even, even_rest, odd, odd_rest, remaining = (np.uint64(f) for f in op.factors)
    place, low = np.arange(len(x)) % 2 == 0, np.uint64(2**32 - 1)
    scaled = (x << np.uint64(op.smoothing_bits)) & low
    sums = scaled * np.where(place, even, odd) + old * np.where(place, even_rest, odd_rest)
    noise = (sums >> np.uint64(op.bits)) & low
    taken = np.minimum(noise, scaled)
    floor = ((x * remaining) >> np.uint64(op.bits)) & low
    y = np.maximum((scaled - taken) >> np.uint64(op.smoothing_bits), floor).astype(np.uint32)
    kept = (taken if op.clamping else noise).astype(np.uint32)
    return y, kept, kept.copy()


def _subtraction_lower(bound: BoundNode) -> Layer:
    op = bound.op(SignalFilterBankSpectralSubtraction)
    params = (
        _count(bound),
        *(Param(name, "uint32_t", value) for name, value in zip(_FACTORS, op.factors, strict=True)),
        *integers(smoothing_bits=op.smoothing_bits, bits=op.bits, clamping=int(op.clamping)),
    )
    return Layer("signal/signal_filter_bank_spectral_subtraction", "portable", (0,), params=params)


def _pcan_from_tflite(node: SourceNode) -> Parsed:
    node.counts((3, 3))
    return Parsed(SignalPcan(node.integer("snr_shift", low=0, high=63)), (0, 1, 2))


def _pcan_check(bound: BoundNode) -> None:
    require_dtypes(bound, [(DType.UINT32, DType.UINT32, DType.INT16, DType.UINT32)])
    x, noise, table = (bound.input(i) for i in range(3))
    what = "with a computed table is not supported"
    require_constants(bound, (table,), what, "it must be constant", "export again")
    if noise.shape != x.shape or len(table.shape) != 1 or table.elements < _GAINS or noise.is_constant or x.is_constant:
        why = f"{list(x.shape)}, {list(noise.shape)}, {list(table.shape)}"
        raise illegal(bound, "has inputs that do not fit", why, tensor=x)


def _wrapped(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _gain(noise: int, table: list[int]) -> int:
    if noise <= 2:
        return table[noise]
    bits = noise.bit_length()
    constant, linear, square = table[4 * bits - 6 : 4 * bits - 3]
    fraction = ((noise << 11) >> bits) & 0x3FF
    slope = ((square * fraction) >> 5) + linear * 32
    rounded = (_wrapped(_wrapped(slope * fraction) + (1 << 14)) >> 15) + constant
    return (rounded + (1 << 15)) % (1 << 16) - (1 << 15)


def _shrunk(snr: int) -> int:
    return (snr * snr) >> 20 if snr < 1 << 13 else (snr >> 6) - 64


def _pcan_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In Python's integers."""
    assert inputs[0] is not None and inputs[1] is not None
    table = [int(v) for v in bound.input(2).array().tolist()]
    results = []
    for x, noise in zip(inputs[0].reshape(-1).tolist(), inputs[1].reshape(-1).tolist(), strict=True):
        product = int(x) * (_gain(int(noise), table) % (1 << 32)) % (1 << 64)
        results.append(_shrunk((product >> bound.op(SignalPcan).snr_shift) % (1 << 32)))
    return (np.array(results, np.uint32).reshape(bound.output.shape),)


def _pcan_lower(bound: BoundNode) -> Layer:
    table = Table("gains", "int16_t", tuple(bound.input(2).array().tolist()), "gains by bits of the noise")
    params = (_count(bound), Param("right", "int32_t", bound.op(SignalPcan).snr_shift))
    return Layer("signal/signal_pcan", "portable", (0, 1), (table,), params, headers=("emitc_bits.h",))


def _log_from_tflite(node: SourceNode) -> Parsed:
    node.counts((1, 1))
    scale = node.integer("output_scale", low=-(1 << 31), high=(1 << 31) - 1)
    return Parsed(SignalFilterBankLog(scale, node.integer("input_correction_bits", low=0, high=31)))


def _log_check(bound: BoundNode) -> None:
    require_dtypes(bound, [(DType.UINT32, DType.INT16)])


def _log_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In int64."""
    op = bound.op(SignalFilterBankLog)
    x = (operand(bound, inputs, 0).astype(np.int64) << op.correction) % (1 << 32)
    safe = np.maximum(x, 1)
    whole = np.array([int(v).bit_length() - 1 for v in safe.reshape(-1)], np.int64).reshape(x.shape)
    fraction = ((safe - (np.int64(1) << whole)) << 16) >> whole
    table = np.array((*_LOGARITHMS, 0), np.int64)
    segment = fraction >> 9
    between = ((table[segment + 1] - table[segment]) * (fraction - (segment << 9))) >> 16
    log2 = (whole << 16) + fraction + table[segment] + between
    natural = (_LN_2 * log2 + (1 << 15)) >> 16
    scaled = ((op.output_scale * natural + (1 << 15)) % (1 << 32)) >> 16
    return (np.where(x > 1, np.minimum(scaled, 2**15 - 1), 0).astype(np.int16),)


def _log_lower(bound: BoundNode) -> Layer:
    op = bound.op(SignalFilterBankLog)
    scale, correction = integers(output_scale=op.output_scale, correction=op.correction)
    table = Table("logarithms", "int16_t", _LOGARITHMS, "log2(1 + i / 128) - i / 128 with 16 bits of fractions")
    params = (_count(bound), scale, correction)
    return Layer("signal/signal_filter_bank_log", "portable", (0,), (table,), params, headers=("emitc_bits.h",))


_ROOT_HEADERS = ("emitc_fpu.h", "emitc_fpu_isqrt.h")
KERNELS = (
    KernelDef(
        SignalEnergy, "squared magnitudes of complex numbers", (DType.INT16,), ("CUSTOM:SignalEnergy",),
        _energy_from_tflite, _energy_check, _energy_reference, _energy_lower,
        output_shapes=lambda bound: ((bound.input(0).shape[0] // 2,),),
        variants=(int16_vectors(_energy_lower), pairs(_energy_lower)),
    ),
    KernelDef(
        SignalFilterBankSquareRoot, "square roots of channels", (DType.UINT64,), ("CUSTOM:SignalFilterBankSquareRoot",),
        parser(SignalFilterBankSquareRoot(), inputs=2), _root_check, _root_reference, _root_lower,
        variants=(
            uint32_vectors(_root_lower, DType.UINT64),
            Variant("fpu", "fpu", _root_lower_fpu, UNKNOWN_PAIRS, (DType.UINT64,), headers=_ROOT_HEADERS),
        ),
    ),
    KernelDef(
        SignalFilterBankSpectralSubtraction, "channels less their noise, which is kept as state", (DType.UINT32,),
        ("CUSTOM:SignalFilterBankSpectralSubtraction",),
        _subtraction_from_tflite, _subtraction_check, _subtraction_reference, _subtraction_lower,
        output_shapes=lambda bound: (bound.input(0).shape,) * 3, variants=(uint32_vectors(_subtraction_lower),),
    ),
    KernelDef(
        SignalPcan, "gain by an estimate of noise", (DType.UINT32,), ("CUSTOM:SignalPCAN",),
        _pcan_from_tflite, _pcan_check, _pcan_reference, _pcan_lower, variants=(uint32_vectors(_pcan_lower),),
    ),
    KernelDef(
        SignalFilterBankLog, "logarithms of channels", (DType.UINT32,), ("CUSTOM:SignalFilterBankLog",),
        _log_from_tflite, _log_check, _log_reference, _log_lower, variants=(uint32_vectors(_log_lower),),
    ),
)  # fmt: skip
