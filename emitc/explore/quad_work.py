"""What a layer has to do on cores without instructions for pairs: their kernels take four pixels or rows at a time.

The last ones, up to three, are taken alone, and each alone takes as long as four (templates `conv_2d_halves`, `matrix_halves`,
`depthwise_conv_2d_scalar`). A layer that runs by rows has last pixels in each row.
"""

from collections.abc import Mapping

from emitc.explore.vector_work import rows_inside

KERNELS = ("conv_2d_halves", "matrix_halves", "depthwise_conv_2d_scalar")
_MOST_QUADS = 1 << 14
"""Groups up to which it is looked at where each of them lies."""


def quads_of(count: int) -> int:
    """Groups of four, and the last ones alone.

    >>> quads_of(8), quads_of(11)
    (2, 5)
    """
    return count // 4 + count % 4


def quad_rows(values: Mapping[str, int], rows: int, depth: int, filters: int) -> dict[str, float]:
    """Of a product of matrices. values: the parameters by name; pairs: of values, as the weights are stored.

    quads: groups of rows. quad_pairs: products, two at a time. quad_pairs_left: those that are no fours of pairs. quad_odd: those
    of a channel that has no second one. quad_outputs: sums. quad_values: what is read.
    """
    quads, pairs = quads_of(rows), values.get("pairs", -(-depth // 2))
    return {
        "quads": quads,
        "quad_pairs": quads * filters * pairs,
        "quad_pairs_left": quads * filters * (pairs % 4),
        "quad_odd": quads * pairs * (filters % 2),
        "quad_outputs": quads * filters,
        "quad_values": quads * depth,
    }


def quad_windows(values: Mapping[str, int], filters: int) -> dict[str, float]:
    """Of a convolution: as of `quad_rows`, and rows of windows. edge_rows, edge_values: rows that are put together for a window
    that is not wholly inside the input, and their values."""
    batches, pixels = values.get("batches", 1), values["out_h"] * values["out_w"]
    run, height = values["kernel_w"] * values["in_c"], values["kernel_h"]
    work = quad_rows(values, pixels, run * height, filters)
    inside, wide = rows_inside(values), inside_columns(values)
    by_row = [wide * (height - rows) + (values["out_w"] - wide) * height for rows in inside]
    alone = pixels % 4
    last = sum(_edge_rows(values, inside, pixel) for pixel in range(pixels - alone, pixels))
    work |= {"quad_rows": work["quads"] * height, "edge_rows": sum(by_row) + 3 * last}
    work["edge_values"] = work["edge_rows"] * run
    return {name: batches * value for name, value in work.items()}


def inside_columns(values: Mapping[str, int]) -> int:
    """Outputs of a row whose windows have all their columns inside the input."""
    return sum(_inside_column(values, x) for x in range(values["out_w"]))


def _inside_column(values: Mapping[str, int], x: int) -> bool:
    left = x * values.get("stride_w", 1) - values.get("pad_left", 0)
    return left >= 0 and left + values.get("dilation_w", 1) * (values["kernel_w"] - 1) < values["in_w"]


def _edge_rows(values: Mapping[str, int], inside: list[int], pixel: int) -> int:
    y, x = divmod(pixel, values["out_w"])
    return values["kernel_h"] - inside[y] if _inside_column(values, x) else values["kernel_h"]


def quad_taps(values: Mapping[str, int], filters: int) -> dict[str, float]:
    """Of a convolution channel by channel. quad_taps: taps of all groups; quad_products: of all channels. placed, placed_taps:
    groups whose four windows are looked for one by one, and their taps."""
    batches, pixels = values.get("batches", 1), values["out_h"] * values["out_w"]
    quads, taps = quads_of(pixels), values["kernel_h"] * values["kernel_w"]
    placed = _placed(values) if quads <= _MOST_QUADS else 0
    return {
        "quads": batches * quads,
        "quad_taps": batches * quads * taps,
        "quad_products": batches * quads * taps * filters,
        "quad_outputs": batches * quads * filters,
        "quad_odd": batches * quads * taps * (filters % 2),
        "placed": batches * placed,
        "placed_taps": batches * placed * taps,
    }


def _placed(values: Mapping[str, int]) -> int:
    """Groups that do not lie in one row, inside the input, before the row's last pixel: as the template goes."""
    stride, columns = values.get("stride_w", 1), values["out_w"]
    high = (values["kernel_h"] - 1) * values.get("dilation_h", 1)
    wide = (values["kernel_w"] - 1) * values.get("dilation_w", 1) + 3 * stride
    top, left, pad = values.get("pad_top", 0), values.get("pad_left", 0), values.get("stride_h", 1)
    fits = [
        x * stride >= left and x * stride - left + wide < values["in_w"] and x + 4 < columns for x in range(columns)
    ]
    rows = [y * pad >= top and y * pad - top + high < values["in_h"] for y in range(values["out_h"])]
    pixels, pixel, placed = columns * len(rows), 0, 0
    while pixel < pixels:
        y, x = divmod(pixel, columns)
        placed += not (rows[y] and fits[x])
        pixel += 4 if pixels - pixel > 3 else 1
    return placed


def single_windows(values: Mapping[str, int], filters: int) -> dict[str, float]:
    """Of a convolution pixel by pixel, four channels at a time (template `conv_2d_lean_dsp`); channels left over come one by one.

    four_work, four_rows, four_outputs: values, rows of windows and outputs of fours of channels. edge_rows: rows of windows that
    reach out of the input; cut_rows: those of them that are inside in part; cut_values: their values, where pixels are no fours
    of values. left_work, left_outputs: values and outputs of channels left over; where windows reach out of the input,
    left_checked, left_inside: values, and those inside the input, since the place of each is looked at.
    """
    batches, pixels, fours = values.get("batches", 1), values["out_h"] * values["out_w"], filters // 4
    height, run, left = values["kernel_h"], values["kernel_w"] * values["in_c"], filters % 4
    inside, wide = rows_inside(values), inside_columns(values)
    cut = sum(inside) * (values["out_w"] - wide)
    edge = sum((values["out_w"] - (wide if rows == height else 0)) * height for rows in inside)
    columns = sum(_inside_values(values, x) for x in range(values["out_w"]))
    work: dict[str, float] = {
        "single_pixels": pixels,
        "four_work": pixels * fours * run * height,
        "four_rows": pixels * fours * height,
        "four_outputs": pixels * fours,
        "edge_rows": edge * fours,
        "cut_rows": cut * fours,
        "cut_values": cut * fours * run if values["in_c"] % 4 else 0,
        "left_work": 0 if edge else pixels * left * run * height,
        "left_checked": pixels * left * run * height if edge else 0,
        "left_inside": sum(inside) * columns * left if edge else 0,
        "left_outputs": pixels * left,
    }
    return {name: batches * value for name, value in work.items()}


def _inside_values(values: Mapping[str, int], x: int) -> int:
    """Values of a row of the window of column `x` that are inside the input."""
    left = x * values.get("stride_w", 1) - values.get("pad_left", 0)
    columns = min(values["in_w"], left + values["kernel_w"]) - max(0, left)
    return max(0, columns) * values["in_c"]
