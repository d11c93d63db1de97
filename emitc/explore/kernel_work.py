"""What a layer has to do where a kernel takes several rows, columns, channels or values at a time. `layer_work` has the rest.

Groups that are filled in part take as long as full ones, which no number of elements says. So numbers are rounded up, group by
group, as the loops of the templates are. Of cores without instructions for pairs the last rows or pixels, up to three, are taken
alone, and each alone takes as long as four (templates `conv_2d_halves`, `matrix_halves`, `depthwise_conv_2d_scalar`). A layer
that runs by rows has last pixels in each row.
"""

from collections.abc import Mapping

_BYTES = 16
"""Of a vector register."""


def groups_of(count: int, size: int = _BYTES) -> int:
    """Groups of `size` that `count` fill, the last in part; registers by default."""
    return -(-count // size)


def plane_work(values: Mapping[str, int]) -> dict[str, float]:
    """Of a depthwise convolution plane by plane (depthwise_planes_dsp), in tiles of two rows and two columns.

    values: the parameters by name. bands: of rows, by groups of channels; channel_bands: by channels. tiles and tile_rows: of all
    planes. widened, widened_rows: values and rows of the input that are spread to planes. strips: words of planes that are kept.
    """
    channels, columns, batches = values["in_c"], values["out_w"], values.get("batches", 1)
    groups = batches * groups_of(channels, values.get("group", 4))
    band = max(1, values["band"])
    bands = groups_of(values["out_h"], band)
    full, rest = divmod(values["out_h"], band)
    tile_rows = batches * channels * (full * groups_of(band, 2) + groups_of(rest, 2))
    read = min(values["in_h"], values["out_h"] + values["kernel_h"] - 1)
    return {
        "groups": groups,
        "bands": groups * bands,
        "channel_bands": batches * channels * bands,
        "tiles": tile_rows * groups_of(columns, 2),
        "tile_rows": tile_rows,
        "widened": groups * read * values["in_w"],
        "widened_rows": groups * read,
        "strips": groups * bands * values["strips"],
        "tile_taps": tile_rows * groups_of(columns, 2) * values["kernel_h"] * values["kernel_w"],
    }


def row_groups(rows: int, depth: int, filters: int) -> dict[str, float]:
    """Of a product of matrices, four rows at a time."""
    fours = groups_of(rows, 4)
    return {
        "row_fours": fours,
        "row_fours_work": fours * depth * filters,
        "row_fours_outputs": fours * filters,
        "row_fours_values": fours * depth,
    }


# ---- vector registers of 16 bytes (Arm's MVE) ----


def vector_windows(values: Mapping[str, int], filters: int, lanes: int) -> dict[str, float]:
    """Of a convolution or a pooling. values: its parameters by name. lanes: values that fill a register.

    pairs: two pixels at a time; running_pairs are those that need no step to the next window. pair_outputs: registers of
    their outputs. pair_groups: four channels of them, named by how the values of a window fill registers. pair_blocks: full
    registers of these.

    Windows are moved together. gathered_rows, gathered_short, gathered_blocks: rows of those inside the input, those that
    fill one register, and registers. placed, placed_rows, placed_outside, placed_blocks: windows that are looked for one by one,
    their rows inside and outside of the input, and registers.

    Other kernels have registers of pixels, of taps, and of windows for each filter.
    """
    pixels = values.get("batches", 1) * values["out_h"] * values["out_w"]
    run, taps = values["kernel_w"] * values["in_c"], values["kernel_h"] * values["kernel_w"]
    if "together" in values:
        return _grouped(values, taps)
    window = values["kernel_h"] * run
    if "inner_first" not in values:
        deep = groups_of(values["in_c"], lanes)
        return {
            "pixel_blocks": pixels * deep,
            "tap_blocks": pixels * taps * deep,
            "filter_fours": pixels * groups_of(filters, 4),
            "filter_blocks": pixels * filters * groups_of(window, lanes),
            "filter_rows": pixels * filters * values["kernel_h"] * groups_of(run, lanes),
        }
    pairs, fours = groups_of(pixels, 2), groups_of(filters, 4)
    direct = bool(values.get("direct"))
    size = window if direct else _BYTES * groups_of(window)
    running = direct and values["stride_w"] == values["kernel_w"] and values["stride_h"] == 1
    by_row = [0] if running else _placed_in_rows(values)
    placed = sum(by_row)
    gathered = (pixels - placed) * values["kernel_h"]
    work: dict[str, float] = {
        "running_pairs" if running else "pairs": pairs,
        "pair_outputs": pairs * groups_of(filters, 8),
        f"pair_groups_{_filling(size)}": pairs * fours,
        "pair_blocks": pairs * fours * (size // _BYTES),
        "placed": placed,
    }
    if not direct:
        rows = sum(count * inside for count, inside in zip(by_row, rows_inside(values), strict=True))
        work |= {
            "gathered_short" if run <= _BYTES else "gathered_rows": gathered,
            "gathered_blocks": gathered * groups_of(run),
            "placed_rows": rows,
            "placed_outside": placed * values["kernel_h"] - rows,
            "placed_blocks": placed * values["kernel_h"] * groups_of(run),
        }
    return work


def rows_inside(values: Mapping[str, int]) -> list[int]:
    """For each output row: the rows of its windows that lie inside the input."""
    step, stride, pad = values.get("dilation_h", 1), values.get("stride_h", 1), values.get("pad_top", 0)
    rows = range(0, step * values["kernel_h"], step)
    return [sum(0 <= row * stride - pad + y < values["in_h"] for y in rows) for row in range(values["out_h"])]


def _placed_in_rows(values: Mapping[str, int]) -> list[int]:
    """For each output row: the pixels whose windows are looked for one by one. Two are where the pixels do not go on
    inside the input.

    It goes as the template `conv_2d_mve` does.
    """
    whole = [inside == values["kernel_h"] for inside in rows_inside(values)]
    columns, end = values["out_w"], values["inner_end"]
    rest = columns * len(whole) * values.get("batches", 1)
    placed = [0] * len(whole)
    row = column = 0
    while rest > 0:
        two = min(2, rest)
        for _ in range(two):
            if column == columns:
                column, row = 0, (row + 1) % len(whole)
            column += 1
            placed[row] += 1
        inside = (end - column) & ~1 if whole[row] and values["inner_first"] <= column < end else 0
        column += inside
        rest -= two + inside
    return placed


def _filling(size: int) -> str:
    """The loop of emitc_mve_pairs.h for windows of `size` values."""
    if size % 32 == 0:
        return "even"
    if size % _BYTES == 0:
        return "one" if size == _BYTES else "odd"
    return "half" if size == _BYTES // 2 else "part"


def _grouped(values: Mapping[str, int], taps: int) -> dict[str, float]:
    """Of kernels for each channel, whose registers hold `together` pixels.

    groups: of pixels that share a register; their registers, those of their taps, two at a time, and of their outputs.
    placed, placed_taps: groups whose taps are looked for. moved_taps: taps of others, where they are not neighbours.
    single: pixels alone.
    """
    together, channels, batches = max(1, values["together"]), values["in_c"], values.get("batches", 1)
    whole = batches * sum(inside == values["kernel_h"] for inside in rows_inside(values))
    lines = batches * values["out_h"]
    full = max(0, values.get("inner_end", 0) - values.get("inner_first", 0)) // together
    single = values["out_w"] - full * together
    groups = lines * (full + single)
    blocks = lines * (full * groups_of(channels * together) + single * groups_of(channels))
    placed = whole * (single + (full > 0)) + (lines - whole) * (full + single)
    return {
        "groups": groups,
        "group_blocks": blocks,
        "group_taps": blocks * groups_of(taps, 2),
        "group_outputs": lines * (full * groups_of(channels * together, 4) + single * groups_of(channels, 4)),
        "placed": placed,
        "placed_taps": placed * taps,
        "moved_taps": (groups - placed) * taps if values["stride_w"] != 1 else 0,
        "single": lines * single if together > 1 else 0,
    }


def vector_products(rows: int, depth: int, filters: int) -> dict[str, float]:
    """Of a product of matrices: eight channels at a time, with registers of the input in part and in full, which go by
    fours where that leaves none; and registers of the output."""
    eights = rows * groups_of(filters, 8)
    return {
        "eights": eights,
        "eight_parts": eights if depth % _BYTES else 0,
        "eight_blocks": eights * (depth // _BYTES),
        "eight_turns": eights * (depth // 64 if depth % 64 == 0 else depth // _BYTES),
        "output_blocks": rows * groups_of(filters),
        "depth_blocks": rows * groups_of(depth),
    }


def filters_with_memory(filters: int, depth: int, steps: int) -> dict[str, float]:
    """Of filters that remember `steps` scores (SVDF)."""
    return {
        "filters": filters,
        "filter_blocks": filters * groups_of(depth),
        "memory_blocks": filters * groups_of(steps),
    }


# ---- fours ----


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
