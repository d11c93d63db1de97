"""Layers that are to run in parts: how far their input has to stay from their output for that."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from emitc.kernels.shared.windows import WINDOW_PARAMS
from emitc.layer import ChannelOrder, Overlap, window_order
from emitc.schedule.stages import LoweredNode


def in_parts(nodes: Sequence[LoweredNode], indices: Collection[int]) -> tuple[LoweredNode, ...]:
    """The nodes, those of the indices with overlaps that allow one part after another."""
    return tuple(_in_parts(node) if node.bound.node.index in indices else node for node in nodes)


def _in_parts(node: LoweredNode) -> LoweredNode:
    """A kernel that makes its output channel by channel keeps rows of a channel in scratch, but not from one part to the next.

    Its input has to lie as far above the output as for a kernel that reads all windows from the input. Any other kernel's input
    and output get bytes of their own.
    """
    layer = node.layer
    kept: tuple[Overlap, ...] = ()
    if layer.by_rows is not None and layer.by_rows.window:
        values = {param.name: int(param.value) for param in layer.params if param.name in WINDOW_PARAMS}
        sizes = node.bound.input(0).dtype.bytes, node.bound.output.dtype.bytes
        window = window_order(values, *sizes, None)
        kept = tuple(
            replace(overlap, order=replace(window, multiple=overlap.order.multiple))
            for overlap in layer.overlaps
            if isinstance(overlap.order, ChannelOrder)
        )
    return replace(node, layer=replace(layer, overlaps=kept))
