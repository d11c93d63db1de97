"""What a layer has to do on a core with vector registers of 16 bytes (Arm's MVE): how many registers are filled.

A register that is filled in part takes as long as a full one. So the numbers are rounded up, group by group, as the loops of
the templates for MVE are. `layer_work` has what counts on every core.
"""

from collections.abc import Mapping

from emitc.explore.group_work import groups_of

_BYTES = 16


def _blocks(values: int, size: int = _BYTES) -> int:
    """Registers that `values` fill, the last in part."""
    return groups_of(values, size)


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
        deep = _blocks(values["in_c"], lanes)
        return {
            "pixel_blocks": pixels * deep,
            "tap_blocks": pixels * taps * deep,
            "filter_fours": pixels * _blocks(filters, 4),
            "filter_blocks": pixels * filters * _blocks(window, lanes),
            "filter_rows": pixels * filters * values["kernel_h"] * _blocks(run, lanes),
        }
    pairs, fours = _blocks(pixels, 2), _blocks(filters, 4)
    direct = bool(values.get("direct"))
    size = window if direct else _BYTES * _blocks(window)
    running = direct and values["stride_w"] == values["kernel_w"] and values["stride_h"] == 1
    by_row = [0] if running else _placed(values)
    placed = sum(by_row)
    gathered = (pixels - placed) * values["kernel_h"]
    work: dict[str, float] = {
        "running_pairs" if running else "pairs": pairs,
        "pair_outputs": pairs * _blocks(filters, 8),
        f"pair_groups_{_filling(size)}": pairs * fours,
        "pair_blocks": pairs * fours * (size // _BYTES),
        "placed": placed,
    }
    if not direct:
        rows = sum(count * inside for count, inside in zip(by_row, rows_inside(values), strict=True))
        work |= {
            "gathered_short" if run <= _BYTES else "gathered_rows": gathered,
            "gathered_blocks": gathered * _blocks(run),
            "placed_rows": rows,
            "placed_outside": placed * values["kernel_h"] - rows,
            "placed_blocks": placed * values["kernel_h"] * _blocks(run),
        }
    return work


def rows_inside(values: Mapping[str, int]) -> list[int]:
    """For each output row: the rows of its windows that lie inside the input."""
    step, stride, pad = values.get("dilation_h", 1), values.get("stride_h", 1), values.get("pad_top", 0)
    rows = range(0, step * values["kernel_h"], step)
    return [sum(0 <= row * stride - pad + y < values["in_h"] for y in rows) for row in range(values["out_h"])]


def _placed(values: Mapping[str, int]) -> list[int]:
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
    blocks = lines * (full * _blocks(channels * together) + single * _blocks(channels))
    placed = whole * (single + (full > 0)) + (lines - whole) * (full + single)
    return {
        "groups": groups,
        "group_blocks": blocks,
        "group_taps": blocks * _blocks(taps, 2),
        "group_outputs": lines * (full * _blocks(channels * together, 4) + single * _blocks(channels, 4)),
        "placed": placed,
        "placed_taps": placed * taps,
        "moved_taps": (groups - placed) * taps if values["stride_w"] != 1 else 0,
        "single": lines * single if together > 1 else 0,
    }


def vector_products(rows: int, depth: int, filters: int) -> dict[str, float]:
    """Of a product of matrices: eight channels at a time, with registers of the input in part and in full, which go by
    fours where that leaves none; and registers of the output."""
    eights = rows * _blocks(filters, 8)
    return {
        "eights": eights,
        "eight_parts": eights if depth % _BYTES else 0,
        "eight_blocks": eights * (depth // _BYTES),
        "eight_turns": eights * (depth // 64 if depth % 64 == 0 else depth // _BYTES),
        "output_blocks": rows * _blocks(filters),
        "depth_blocks": rows * _blocks(depth),
    }


def filters_with_memory(filters: int, depth: int, steps: int) -> dict[str, float]:
    """Of filters that remember `steps` scores (SVDF)."""
    return {
        "filters": filters,
        "filter_blocks": filters * _blocks(depth),
        "memory_blocks": filters * _blocks(steps),
    }
