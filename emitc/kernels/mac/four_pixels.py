"""Layers of RISC-V kernels whose tile is four output pixels, which share the weights that are read.

Rows of a matrix product are read in place. Windows of a convolution are copied to scratch, each as one row of values. Where a
window reaches outside the input it has the zero point, so that one bias holds its term for all pixels.
"""

from dataclasses import replace

from emitc.kernels.mac.problem import FoldedWeights, MacProblem
from emitc.kernels.shared.windows import whole_window
from emitc.layer import ByRows, Layer, Param, Scratch, Table, WindowOrder

PIXELS = 4


def reads_rows_in_place(problem: MacProblem) -> bool:
    """Whether the problem is a matrix product, and no tile of it has pixels of two images."""
    images = 1 if problem.window is None else problem.bound.output.shape[0]
    return problem.is_matrix_product and (images == 1 or problem.pixels // images % PIXELS == 0)


def matrix(
    folded: FoldedWeights,
    template: str,
    tables: Table | tuple[Table, ...],
    size: int,
    channels: int,
    headers: tuple[str, ...],
) -> Layer:
    """A matrix product. size: bytes of a row of weights. channels: how many the kernel makes at a time."""
    problem = folded.problem
    rows, _, out = problem.size_params
    return folded.layer(
        template,
        tables,
        (rows, out, _size_param(size), *problem.output_limits),
        ahead=whole_window(problem.channels, channels, 1),
        by_rows=ByRows(counted="rows"),
        headers=headers,
    )


def convolution(
    folded: FoldedWeights, template: str, tables: Table | tuple[Table, ...], size: int, headers: tuple[str, ...]
) -> Layer:
    """A convolution without groups. size: bytes of a window in scratch."""
    problem = folded.problem
    return folded.layer(
        template,
        tables,
        (*problem.window_params, _size_param(size), problem.zero_point, *problem.output_limits),
        scratch=(Scratch("windows", PIXELS * size),),
        headers=headers,
    )


def tiled(layer: Layer, pixels: int = PIXELS) -> Layer:
    """The layer of a kernel that makes so many pixels at a time."""
    orders = (overlap.order for overlap in layer.overlaps)
    changed = [replace(order, tile=pixels) for order in orders if isinstance(order, WindowOrder)]
    return replace(layer, overlaps=tuple(replace(o, order=t) for o, t in zip(layer.overlaps, changed, strict=True)))


def _size_param(size: int) -> Param:
    return Param("size", "int32_t", size, "bytes of a window")
