"""What a layer has to do, as the numbers that its instructions are a sum of: elements, windows, rows and what is left
over.

A kernel's instructions are nearly linear in a few such numbers: each loop has a number of turns, and each turn a number
of instructions. `kernel_counts.json` has the instructions of a turn, by kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from emitc.ir import BoundNode
from emitc.kernels import kernel_of
from emitc.layer import Layer

_MOST_ROWS = 1 << 16
"""Outputs along a dimension up to which the positions of a window are looked at one by one."""


def work_of(bound: BoundNode, layer: Layer) -> dict[str, float]:
    """The numbers of one run of a layer.

    once: 1. work: as the operator counts it, multiply-accumulates mostly. inputs, outputs: elements. rows: outputs over
    those of the last dimension. Of copies: bytes, and runs of them that lie together. Of windows, and of products of
    matrices as far as they have it: pixels; taps and gathered: positions and values of the input that windows meet;
    tap_rows: rows of windows; lines: output rows; channels, weights: of the filters; edge: pixels whose windows reach
    out of the input; and what loops over several channels, pixels or values leave over.
    """
    values = _numbers(layer)
    outputs = sum(tensor.elements for tensor in bound.outputs)
    channels = max(1, bound.output.shape[-1] if bound.output.shape else 1)
    first = bound.optional(0)
    work = {
        "once": 1.0,
        "work": kernel_of(bound).work(bound),
        "outputs": outputs,
        "rows": outputs / channels,
        "inputs": first.elements if first is not None else outputs,
    }
    if "run_bytes" in values:
        runs = prod(value for name, value in values.items() if name.startswith("count_"))
        work |= {"runs": runs, "bytes": runs * values["run_bytes"]}
    if {"kernel_h", "kernel_w", "in_h", "in_w", "in_c", "out_h", "out_w"} <= values.keys():
        work |= _of_windows(values, channels)
    elif ("in" in values and "out_c" in values) or "depth" in values:
        work |= _of_products(values, channels)
    return work


def _numbers(layer: Layer) -> dict[str, int]:
    """The whole numbers among a layer's parameters."""
    numbers = {}
    for param in layer.params:
        text = str(param.value)
        if text.lstrip("-").isdecimal():
            numbers[param.name] = int(text)
    return numbers


def met(outputs: int, stride: int, dilation: int, size: int, pad: int, inputs: int) -> int:
    """Along one dimension: positions inside the input, of the windows of all outputs."""
    if outputs > _MOST_ROWS:
        return outputs * size
    count = 0
    for tap in range(size):
        start = tap * dilation - pad
        low = max(0, -(start // stride) if start < 0 else 0)
        high = min(outputs - 1, (inputs - 1 - start) // stride)
        count += max(0, high - low + 1)
    return count


def inner(values: Mapping[str, int], axis: str) -> int:
    """Along one dimension: outputs whose windows lie inside the input."""
    stride, pad = values.get(f"stride_{axis}", 1), values.get({"h": "pad_top", "w": "pad_left"}[axis], 0)
    reach = values.get(f"dilation_{axis}", 1) * (values[f"kernel_{axis}"] - 1)
    first, last = -(-pad // stride), (values[f"in_{axis}"] - 1 - reach + pad) // stride
    return max(0, min(last, values[f"out_{axis}"] - 1) - first + 1)


def _of_windows(values: Mapping[str, int], channels: int) -> dict[str, float]:
    batches, out_h, out_w = values.get("batches", 1), values["out_h"], values["out_w"]
    kernel_h, kernel_w, depth = values["kernel_h"], values["kernel_w"], values["in_c"]
    filters = values.get("out_c", channels)
    rows = batches * met(
        out_h,
        values.get("stride_h", 1),
        values.get("dilation_h", 1),
        kernel_h,
        values.get("pad_top", 0),
        values["in_h"],
    )
    columns = met(
        out_w,
        values.get("stride_w", 1),
        values.get("dilation_w", 1),
        kernel_w,
        values.get("pad_left", 0),
        values["in_w"],
    )
    pixels, taps = batches * out_h * out_w, kernel_h * kernel_w
    patch, lines = taps * depth, batches * out_h
    edge = pixels - batches * inner(values, "h") * inner(values, "w")
    left = patch % 4
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
