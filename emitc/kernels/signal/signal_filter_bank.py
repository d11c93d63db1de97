"""SignalFilterBank: energies weighted into channels; what a channel's weight leaves of 1 goes to the next one.

Shapes  x [N], weights and unweights [W], starts of frequencies, starts of weights and widths [C + 1], y [C].
Types   x uint32, constants int16, y uint64. Sums are modulo 2**64.
        y[c] = sum of x * weights over band c + 1, plus sum of x * unweights over band c; band 0 adds to channel 0 only.
Errors  computed constants, bands that leave x or the weights.
Source  TFLite Micro's signal library.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_constants, require_dtypes
from emitc.kernels.shared.pointwise import operand
from emitc.kernels.signal.simd import pairs, uint32_vectors
from emitc.layer import PLAIN, KernelSpec, Layer, Param, Table
from emitc.source import SourceNode

_LARGEST = 2**15 - 1
_ROLES = ("weights", "unweights", "frequency_starts", "weight_starts", "widths")


@dataclass(frozen=True, slots=True)
class SignalFilterBank(Op):
    """channels: of the output."""

    channels: int


def from_tflite(node: SourceNode) -> Parsed:
    node.counts((6, 6))
    return Parsed(SignalFilterBank(node.integer("num_channels", low=1, high=1 << 15)), (0, 1, 2, 3, 4, 5))


def check(bound: BoundNode) -> None:
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


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[channels]."""
    return ((bound.op(SignalFilterBank).channels,),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
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
    small = 0 < len(tables["weights"]) <= len(weights) and max(tables["frequency_starts"]) <= _LARGEST
    return tables if small else dict(zip(_ROLES, arrays, strict=True))


def lower(bound: BoundNode) -> Layer:
    """Band by band. Products with weights that are not negative take fewer instructions."""
    tables = {role: values or [0] for role, values in _trimmed(bound).items()}
    signed = min(tables["weights"] + tables["unweights"]) < 0
    spec = KernelSpec("_signed" if signed else "", w="int16_t" if signed else "uint16_t")
    places = zip(tables["frequency_starts"], tables["weight_starts"], tables["widths"], strict=True)
    return _layer(
        bound,
        Table("weights", spec.w, tuple(tables["weights"]), "weights of the bands", pixels_per_load=0),
        Table("unweights", spec.w, tuple(tables["unweights"]), "unweights of the bands"),
        Table("places", "int16_t", _chained(places), "starts of the bands' frequencies and weights, and widths"),
        spec=spec,
    )


def _layer(bound: BoundNode, *tables: Table, spec: KernelSpec = PLAIN) -> Layer:
    params = (Param("bands", "int32_t", bound.op(SignalFilterBank).channels + 1),)
    return Layer("signal/signal_filter_bank", "portable", (0,), tables, params, spec=spec)


def _chained(rows: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(value for row in rows for value in row)


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
    places: list[tuple[int, int]] = []
    for first, start, width, count in zip(
        tables["frequency_starts"], tables["weight_starts"], widths, counts, strict=True
    ):
        begin = min(max(first, 0), frequencies - size * count)
        places.append((begin, count))
        for group in range(begin - first, begin - first + size * count, size):
            for role in ("weights", "unweights"):
                groups += [tables[role][start + i] if 0 <= i < width else 0 for i in range(group, group + size)]
    together = f"weights and unweights of {size} frequencies at a time, band by band"
    return _layer(
        bound,
        Table("groups", "uint16_t", tuple(groups), together),
        Table("places", "int16_t", _chained(places), f"starts of the bands' frequencies, and times {size} of them"),
    )


KERNELS = (
    KernelDef(
        SignalFilterBank,
        "energies weighted into channels",
        (DType.UINT32,),
        tflite={"CUSTOM:SignalFilterBank": from_tflite},
        check=check,
        reference=reference,
        lower=lower,
        output_shapes=output_shapes,
        variants=(
            uint32_vectors(lambda bound: _in_groups(bound, 4)),
            pairs(lambda bound: _in_groups(bound, 2), DType.UINT32),
        ),
    ),
)
