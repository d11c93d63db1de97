"""What a layer has to do, as the numbers that its instructions are a sum of: elements, windows, rows and what is left
over.

A kernel's instructions are nearly linear in a few such numbers: each loop has a number of turns, and each turn a number
of instructions. `kernel_counts.json` has the instructions of a turn, by kernel.
"""

from collections.abc import Mapping
from math import prod

from emitc.explore.kernel_work import KERNELS as QUAD_KERNELS
from emitc.explore.kernel_work import (
    filters_with_memory,
    plane_work,
    quad_rows,
    quad_taps,
    quad_windows,
    row_groups,
    single_windows,
    vector_products,
    vector_windows,
)
from emitc.ir import BoundNode
from emitc.kernels import kernel_of
from emitc.layer import Layer
from emitc.target import MVE

_MOST_ROWS = 1 << 16
"""Outputs along a dimension up to which the positions of a window are looked at one by one."""

_VECTOR_KEPT = ("pixels", "lines", "channels", "taps", "gathered", "edge")
"""Of windows, what also counts on a core with vector registers."""
_SHORT_RUN = 32
"""Bytes of a run up to which a compiler needs no call."""
_LANES = {"s16": 8, "float": 4}
"""Values in a register, by words of kernels; 16 of other kernels."""


def work_of(bound: BoundNode, layer: Layer, shared: bool, runs: int = 1, zeros: float = 0.0) -> dict[str, float]:
    """The numbers of a layer in one inference. shared: whether other layers have its kernel; a kernel of one layer is compiled
    for its parameters. runs: of its function, each for the part of the node that the layer's parameters say. zeros: the share
    of inputs that are 0, which float routines of cores without a float unit take a short way for.

    once: runs. work: as the operator counts it, multiply-accumulates mostly. inputs, outputs: elements; outputs_wide those of
    more than a byte. rows: outputs over those of the last dimension. shared..., alone...: the same of a kernel that is shared,
    or is not. Of
    copies: bytes, and runs of them that lie together. Of windows, and of products of matrices as far as they have it: pixels;
    taps and gathered: positions and values of the input that windows meet; tap_rows: rows of windows; lines: output rows;
    channels, weights: of the filters; edge: pixels whose windows reach out of the input; inside_work: products without
    padding; and what loops over several channels, pixels or values leave over. `emitc.explore.kernel_work` says more.
    """
    outputs = sum(tensor.elements for tensor in bound.outputs)
    channels = max(1, bound.output.shape[-1] if bound.output.shape else 1)
    first = bound.optional(0)
    work: dict[str, float] = {
        "once": runs,
        "work": kernel_of(bound).work(bound),
        "outputs": outputs,
        "rows": outputs / channels,
        "inputs": first.elements if first is not None else outputs,
    }
    if bound.output.dtype.bytes > 1:
        work["outputs_wide"] = outputs
    values = _numbers(layer)
    if any(table.role == "padding_byte" for table in layer.tables):
        work |= {"filled": 1, "bytes_filled": bound.output.size_bytes}
    work |= _of_scaling(values, outputs)
    work |= {name: runs * value for name, value in _of_parameters(layer, values, channels).items()}
    kind, products, grouped = "shared" if shared else "alone", work.get("inside_work", work["work"]), _by_groups(work)
    if "float" in layer.kernel_name:
        work |= {"zero_work": zeros * products, "other_work": (1 - zeros) * products}
    of_kind = {"": runs, "_rows": work["rows"], "_outputs": outputs, "_work": products}
    if grouped:
        work |= {"rows": 0, "inputs": 0, "outputs": 0}
        of_kind |= grouped
    return work | {kind + name: value for name, value in of_kind.items()}


def _by_groups(work: Mapping[str, float]) -> dict[str, float]:
    """Rows, outputs and products of kernels whose groups `kernel_work` counts. No number of elements says what these do."""
    names = ("quads", "quad_outputs", "quad_pairs" if "quad_pairs" in work else "quad_products")
    names = ("four_rows", "four_outputs", "four_work") if "four_work" in work else names
    if names[0] not in work:
        return {}
    return {of: work[name] for of, name in zip(("_rows", "_outputs", "_work"), names, strict=True)}


def _of_parameters(layer: Layer, values: Mapping[str, int], channels: int) -> dict[str, float]:
    """The numbers of one run. channels: of the output, where no parameter says it."""
    words = layer.kernel_name.split("_")
    if "run_bytes" in values:
        return _of_copies(layer, values)
    if {"kernel_h", "kernel_w", "in_h", "in_w", "in_c", "out_h", "out_w"} <= values.keys():
        filters = values.get("out_c", channels)
        windows = _of_windows(values, channels, _filter_depth(layer.kernel_name, values))
        if MVE in words:
            lanes = next((count for word, count in _LANES.items() if word in words), 16)
            kept = {name: windows[name] for name in _VECTOR_KEPT}
            return kept | vector_windows(values, values.get("out_c", channels), lanes)
        if layer.kernel_name.startswith(QUAD_KERNELS):
            return {"channels": filters} | (quad_windows if "pairs" in values else quad_taps)(values, filters)
        if layer.kernel_name.startswith("conv_2d_lean"):
            return single_windows(values, filters)
        return windows | plane_work(values) if "strips" in values else windows
    if ("in" in values and "out_c" in values) or "depth" in values:
        depth, filters = values.get("in", values.get("depth", 1)), values.get("out_c", values.get("columns", channels))
        if layer.kernel_name.startswith(QUAD_KERNELS):
            return {"channels": filters} | quad_rows(values, values.get("rows", 1), depth, filters)
        products = vector_products if MVE in words else row_groups
        return _of_products(values, channels) | products(values.get("rows", 1), depth, filters)
    if "steps" in values and "filters" in values:
        return filters_with_memory(values["filters"], values["in"], values["steps"])
    return {}


def _of_copies(layer: Layer, values: Mapping[str, int]) -> dict[str, float]:
    """Runs of bytes. Short ones are compiled into loads and stores, and a run from the start moves to where it is."""
    size = values["run_bytes"]
    runs = prod(value for name, value in values.items() if name.startswith("count_") and value)
    if layer.kernel_name == "copy_run":
        start = values.get("x_start", 0)
        if not start:
            return {"runs_in_place": runs}
        if start < size:
            return {"runs": runs, "bytes_overlapping": runs * size}
    if size <= _SHORT_RUN:
        return {"runs_short": runs, "bytes_short": runs * size}
    return {"runs": runs, "bytes": runs * size}


def _of_scaling(values: Mapping[str, int], outputs: int) -> dict[str, float]:
    """Outputs whose scaling takes more: by a multiplier that is no power of two, and with a shift to the right."""
    multiplier, shift = values.get("multiplier", 0), values.get("shift", 0)
    power = multiplier & (multiplier - 1) == 0
    return {"outputs_scaled": 0 if power else outputs, "outputs_shifted_right": outputs if shift < 0 else 0}


def _numbers(layer: Layer) -> dict[str, int]:
    numbers = {}
    for param in layer.params:
        text = str(param.value)
        if text.lstrip("-").isdecimal():
            numbers[param.name] = int(text)
    return numbers


def met(values: Mapping[str, int], axis: str) -> int:
    """Along one dimension: positions inside the input, of the windows of all outputs."""
    stride, dilation, pad = _window(values, axis)
    outputs, size = values[f"out_{axis}"], values[f"kernel_{axis}"]
    if outputs > _MOST_ROWS:
        return outputs * size
    count = 0
    for tap in range(size):
        start = tap * dilation - pad
        low = max(0, -(start // stride) if start < 0 else 0)
        high = min(outputs - 1, (values[f"in_{axis}"] - 1 - start) // stride)
        count += max(0, high - low + 1)
    return count


def _window(values: Mapping[str, int], axis: str) -> tuple[int, int, int]:
    """Stride, dilation and padding in front."""
    pad = values.get({"h": "pad_top", "w": "pad_left"}[axis], 0)
    return values.get(f"stride_{axis}", 1), values.get(f"dilation_{axis}", 1), pad


def inner(values: Mapping[str, int], axis: str) -> int:
    """Along one dimension: outputs whose windows lie inside the input."""
    stride, dilation, pad = _window(values, axis)
    reach = dilation * (values[f"kernel_{axis}"] - 1)
    first, last = -(-pad // stride), (values[f"in_{axis}"] - 1 - reach + pad) // stride
    return max(0, min(last, values[f"out_{axis}"] - 1) - first + 1)


def _filter_depth(kernel: str, values: Mapping[str, int]) -> int:
    """Channels of the input that one filter reads."""
    groups = values["in_c"] if kernel.startswith(("depthwise", "average_pool", "max_pool")) else values.get("groups", 1)
    return values["in_c"] // max(1, groups)


def _of_windows(values: Mapping[str, int], channels: int, filter_depth: int) -> dict[str, float]:
    batches, out_h, out_w = values.get("batches", 1), values["out_h"], values["out_w"]
    kernel_h, kernel_w, depth = values["kernel_h"], values["kernel_w"], values["in_c"]
    filters = values.get("out_c", channels)
    rows, columns = batches * met(values, "h"), met(values, "w")
    pixels, taps = batches * out_h * out_w, kernel_h * kernel_w
    patch, lines = taps * filter_depth, batches * out_h
    edge = pixels - batches * inner(values, "h") * inner(values, "w")
    left = patch % 4
    offset = values.get("input_offset", values.get("zero_point", 0))
    return {
        "pixels": pixels,
        "taps": rows * columns,
        "gathered": rows * columns * depth,
        "tap_rows": rows * out_w,
        "lines": lines,
        "channels": filters,
        "weights": filters * taps,
        "values_left": pixels * left,
        "sums_with_values_left": pixels * filters * (left > 0),
        "channels_left": pixels * patch * (filters % 2),
        "channels_left_of_4": pixels * patch * (filters % 4),
        "pixels_left": lines * (out_w % 2) * filters * patch,
        "pixels_left_of_3": lines * (out_w % 3) * filters * patch,
        "pixels_left_of_4": lines * (out_w % 4) * filters * patch,
        "edge": edge,
        "edge_work": edge * filters * patch,
        "edge_uneven": edge * filters * patch if depth % 4 else 0,
        "inside_work": rows * columns * filter_depth * filters,
        "inside_taps": rows * columns * filters,
        "inside_rows": rows * out_w * filters,
        "edge_offset_work": (rows * columns * filter_depth - (pixels - edge) * patch) * filters if offset else 0,
        "rows_of_channels_left": pixels * kernel_h * (filters % 4),
        "edge_channels_left": edge * patch * (filters % 4),
        "channels_left_inside": rows * columns * filter_depth * (filters % 4),
    }


def _of_products(values: Mapping[str, int], channels: int) -> dict[str, float]:
    depth = values.get("in", values.get("depth", 1))
    filters, rows = values.get("out_c", values.get("columns", channels)), values.get("rows", 1)
    left = depth % 4
    return {
        "gathered": rows * depth,
        "channels": filters,
        "values_left": rows * filters * left,
        "sums_with_values_left": rows * filters * (left > 0),
        "channels_left": rows * depth * (filters % 2),
        "channels_left_of_4": rows * depth * (filters % 4),
        "pixels_left": (rows % 2) * depth * filters,
    }
