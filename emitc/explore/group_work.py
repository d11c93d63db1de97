"""What a layer has to do where a kernel takes several rows, columns or channels at a time.

Groups that are filled in part take as long as full ones, which no number of elements says.
"""

from collections.abc import Mapping


def groups_of(count: int, size: int) -> int:
    """Groups of `size` that `count` fill, the last in part."""
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
