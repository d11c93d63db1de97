"""Layers that sum products of integers, as the kernels of every instruction set take them.

A convolution, a depthwise convolution and a fully connected layer are one problem: filters, a window, and what becomes of the
sums. `MacProblem` states it. `FoldedWeights` has its numbers with the input's zero point folded into the bias. It is for
kernels that read the zero point where a window reaches outside the input.

Source of the arithmetic: TFLite 8-bit quantization specification. Rounding halves up is enough where the output's lower limit is
its zero point: the two roundings differ for results below it only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.errors import Reason
from emitc.ir import Array, BoundNode
from emitc.kernels.mac import accumulation
from emitc.kernels.mac.weight_packing import shape_text
from emitc.kernels.shared.windows import BY_ROWS, Window, window_overlap, window_params
from emitc.layer import PLAIN, ByRows, KernelSpec, Layer, Param, Scratch, Table, integers
from emitc.numerics.requantize import Clamp, Int64, activation_clamp
from emitc.records import dataclass, replace

DILATED = Reason("it is dilated along the row", "a dilation of 1 there")
ONE_CHANNEL = Reason("it has one output channel", "two output channels or more")
WEIGHT_ZERO_POINTS = Reason("its weights have zero points", "symmetric weights")
FOUR_BITS = Reason("its weights have four bits", "weights of eight bits")
BIAS_OVERFLOWS = "folding the zero point into the bias could overflow int32"
POINTER_BYTES = 8
"""Of a host's pointer, so that a package runs there too."""
FULL = Clamp(-128, 127)
_SHORT_SUM = 1 << 30
"""Sums below this may be doubled, which the multiplication that keeps the upper half needs."""
LARGEST_SHIFT = 22
_LARGEST_RESULT = 1 << 30
"""From here on a shift or the addition of a zero point may wrap, so that larger sums give no larger outputs."""
_JOINED_SUM = (1 << 23) - 3 * 128 * 128
"""A second sum of joined weights has 24 bits, with its sign; kernels may add up to three products of bytes later."""


class NoKernel(Exception):
    """Raised with the reason for which a kernel cannot run a problem."""


@dataclass(frozen=True, slots=True, eq=False)
class MacProblem:
    """A convolution without groups, a depthwise convolution, or a fully connected layer.

    filters: weights less their zero points, [O, KH, KW, I], or [1, KH, KW, C * multiplier] of a depthwise convolution. window:
    None of a fully connected layer. folded: the model's bias has the zero point's term already.
    """

    bound: BoundNode
    filters: Array
    activation: str
    folded: bool
    window: Window | None
    depthwise: bool = False

    @property
    def channels(self) -> int:
        return int(self.filters.shape[3 if self.depthwise else 0])

    @property
    def kernel(self) -> tuple[int, int]:
        """Height and width of the window."""
        return self.filters.shape[1], self.filters.shape[2]

    @property
    def pixels(self) -> int:
        """Output pixels, which are the rows of a matrix product."""
        return self.bound.output.elements // self.channels

    @property
    def matrix(self) -> Array:
        """The filters as [O, K]."""
        channels = self.channels
        return self.filters.reshape(-1, channels).T if self.depthwise else self.filters.reshape(channels, -1)

    @property
    def is_matrix_product(self) -> bool:
        """Whether each output pixel is a product of one input pixel with the filters."""
        window = self.window
        if window is None:
            return True
        return (*self.kernel, window.stride_h, window.stride_w) == (1, 1, 1, 1) and not window.padding.any

    def require_runs(self) -> None:
        """Raises NoKernel where a row of the window is no run of the input."""
        if self.window is not None and self.window.dilation_w != 1:
            raise NoKernel(DILATED)

    @property
    def window_params(self) -> tuple[Param, ...]:
        """The window's parameters; the rows of a fully connected layer are a column of pixels."""
        if self.window is not None:
            return window_params(self.bound, self.window, *self.kernel)
        sizes = {"batches": 1, "in_h": self.pixels, "out_h": self.pixels}
        params = accumulation.pixel_params(self.pixels, self.matrix.shape[1], self.channels)
        return tuple(replace(param, value=sizes.get(param.name, param.value)) for param in params)

    @property
    def size_params(self) -> tuple[Param, ...]:
        return integers(**{"rows": self.pixels, "in": self.matrix.shape[1], "out_c": self.channels})

    @property
    def zero_point(self) -> Param:
        return Param("zero_point", "int32_t", self.bound.input(0).zero_point, "of the input")

    @property
    def clamp(self) -> Clamp:
        return activation_clamp(self.activation, self.bound.output)

    @property
    def output_limits(self) -> tuple[Param, ...]:
        return accumulation.output_limits(self.bound, self.clamp)

    @property
    def output_params(self) -> tuple[Param, ...]:
        """Output offset, clamp, and step from channel to channel in the tables of multipliers and shifts."""
        return accumulation.output_params(self.bound, accumulation.requantization(self.bound), self.clamp)


@dataclass(frozen=True, slots=True, eq=False)
class FoldedWeights:
    """Filters [O, K] of a problem, its bias with the zero point's term, its requantization, and the kernel's spec."""

    problem: MacProblem
    filters: Int64
    bias: Int64
    scale: accumulation.Requantization
    spec: KernelSpec = PLAIN

    @property
    def largest_sums(self) -> Int64:
        """Bound on every partial sum of int8 values, per output channel."""
        sums: Int64 = np.abs(self.filters).sum(axis=1) * 128 + np.abs(self.bias)
        return sums

    @property
    def largest_sum(self) -> int:
        return int(self.largest_sums.max())

    @property
    def ends(self) -> Int64:
        """The lowest sum that int8 values can give, and the highest one, per output channel."""
        low, high = -128 * self.filters, 127 * self.filters
        return np.stack([self.bias + pick(low, high).sum(axis=1) for pick in (np.minimum, np.maximum)])

    def joined(self, zero: int = 0) -> FoldedWeights:
        """The same with the weights of two channels as one number of 16 bits, where all of these numbers and sums allow it.

        SMLAD of the number gives 256 times the second channel's sum plus the first one's. zero: weights' zero point, which the
        filters lack here and the kernel takes off.
        """
        first, second = self.filters[:-1] + zero, self.filters[1:] + zero
        fits = not ((second == -128) & (first < 0)).any() and zero != -128
        low, high = self.ends
        if not fits or low.min() < -_JOINED_SUM or high.max() >= _JOINED_SUM:
            return self
        return replace(self, spec=self.spec.extended("_joined", joined=True))

    def short_requantization(self, largest_sum: int) -> FoldedWeights:
        """The same with the requantization in its spec: by the short functions where sums and shifts let it.

        largest_sum: bound on the magnitude of every number that the short functions take.
        """
        scale, clamp = self.scale, self.problem.clamp
        shared = "" if scale.per_channel else "_shared"
        clamped = "_clamped" if clamp != FULL else ""
        spec = replace(PLAIN, suffix=shared, per_tensor=bool(shared))
        if not scale.q31:
            spec = replace(spec, suffix=f"_f32{clamped}{shared}", fixed_point=False, clamped=bool(clamped))
        elif largest_sum < _SHORT_SUM and all(-LARGEST_SHIFT <= shift <= -1 for shift in scale.shift):
            short = rounding(self.problem)
            spec = replace(spec, suffix=f"_{short}{clamped}{shared}", rounding=short, clamped=bool(clamped))
        return replace(self, spec=spec)

    @property
    def bias_table(self) -> Table:
        values = tuple(self.bias.tolist())
        return Table("bias", "int32_t", values, "bias per output channel, with the zero point's share")

    @property
    def scaling_tables(self) -> tuple[Table, ...]:
        """Multipliers and shifts; the short functions take bits to the right."""
        scale, spec = self.scale, self.spec
        extent = "per output channel" if scale.per_channel else "for all channels"
        if spec.exact_rounding:
            mantissa, left = (tuple(part.tolist()) for part in factor_parts(scale))
            what = f"left shift of the sum {extent}"
            return (
                Table("multiplier", "int32_t", mantissa, f"mantissa of the float32 factor {extent}"),
                Table("left_shift", "int8_t", left, what),
            )
        tables = accumulation.requantization_tables(scale, spec)
        if not spec.rounding:
            return tables
        right = tuple(-int(value) for value in tables[1].values)
        if spec.rounding == "up_xpulp" and spec.small_sums:
            tables = (replace(tables[0], comment=f"multiplier of 32-bit products {extent}, in two parts"), tables[1])
        return tables[0], Table("right", "int8_t", right, f"right shift of the product {extent}")

    def tables(self, weights: Table) -> tuple[Table, ...]:
        return (weights, self.bias_table, *self.scaling_tables)

    def layer(
        self,
        template: str,
        weights: Table | tuple[Table, ...],
        params: tuple[Param, ...],
        *,
        headers: tuple[str, ...],
        ahead: int | None = None,
        scratch: tuple[Scratch, ...] = (),
        by_rows: ByRows | None = BY_ROWS,
    ) -> Layer:
        """The layer of one input. weights: their table, or all tables. ahead: bytes, as `WindowOrder` says."""
        problem = self.problem
        tables = self.tables(weights) if isinstance(weights, Table) else weights
        overlaps = window_overlap(problem.bound, problem.window_params, ahead)
        macs = problem.pixels * self.filters.size
        return Layer(
            template, "portable", (0,), tables, params, scratch, overlaps, macs, self.spec, by_rows=by_rows,
            headers=headers,
        )  # fmt: skip


# The variants of one node ask for its numbers one after another.
@lru_cache(maxsize=1)
def folded_weights(problem: MacProblem) -> FoldedWeights:
    """The numbers with the zero point folded into the bias. Raises NoKernel where that cannot be."""
    filters = problem.matrix.astype(np.int64)
    bias = accumulation.bias_inside(problem.bound, filters, folded=problem.folded)
    if bias is None:
        raise NoKernel(BIAS_OVERFLOWS)
    filters.flags.writeable = False
    return FoldedWeights(problem, filters, bias, accumulation.requantization(problem.bound))


@lru_cache(maxsize=1)
def simplified(folded: FoldedWeights) -> FoldedWeights:
    """The same with constant output channels in the plainest form that gives the same constant.

    A rectifier may cut off a channel in every case. Such channels often have scales and biases of a size for which all
    channels would have to do without the short requantization.
    """
    scale, y = folded.scale, folded.problem.bound.output
    if not scale.per_channel or not scale.q31:
        return folded
    outputs = scale.apply(folded.ends, y.zero_point, folded.problem.clamp, y.dtype).astype(np.int64)
    factors = np.array(scale.q31) * np.exp2(np.array(scale.shift) - 31.0)
    constant = (outputs[0] == outputs[1]) & (np.abs(folded.ends).max(axis=0) * factors < _LARGEST_RESULT)
    if not constant.any():
        return folded
    # A multiplier of 1/2 and a shift by 1 divide by 4.
    return replace(
        folded,
        filters=np.where(constant[:, None], 0, folded.filters),
        bias=np.where(constant, 4 * (outputs[0] - y.zero_point), folded.bias),
        scale=replace(
            scale,
            q31=tuple(np.where(constant, 1 << 30, scale.q31).tolist()),
            shift=tuple(np.where(constant, -1, scale.shift).tolist()),
        ),
    )


def rounding(problem: MacProblem) -> str:
    """The rounding that is enough: halves `up` where no result below the output's zero point is kept, else `away` from zero."""
    return "up" if problem.clamp.low >= problem.bound.output.zero_point else "away"


def factor_parts(scale: accumulation.Requantization) -> tuple[Int64, Int64]:
    """Float32 factors as mantissas in 2**30..2**31 and shifts to the left, for products with 14 bits of fraction.

    factor = mantissa * 2 ** (left - 46): (sum << left) * mantissa / 2**32 is the product times 2**14.
    """
    bits = np.array(scale.real, np.float32).view(np.uint32).astype(np.int64)
    return (bits & 0x7FFFFF | 0x800000) << 7, (bits >> 23) - 111


def packed_table(
    values: NDArray[Any], shape: Sequence[int], order: str, pixels_per_load: int, *, c_type: str = "int8_t"
) -> Table:
    """Weights of that shape whose values are packed in an order, at a word's boundary."""
    what = f"{shape_text(tuple(shape))}, {order}"
    return Table("weights", c_type, tuple(values.tolist()), what, 4, pixels_per_load)


def maker(
    problem: Callable[[BoundNode], MacProblem], make: Callable[..., Layer], **form: Any
) -> Callable[[BoundNode], Layer | str]:
    """The maker of a variant: what `make` gives for a node's problem, or the reason of NoKernel. form: its further arguments."""

    def made(bound: BoundNode) -> Layer | str:
        try:
            return make(problem(bound), **form)
        except NoKernel as refusal:
            reason: str = refusal.args[0]
            return reason

    return made
