"""What it costs, in cycles, to run layers row by row and to move tensors: estimates, from measurements on an emulated Cortex-M4.

A row is a call: the schedule's conditions, the window's parameters, the kernel's set-up. Line buffers that are full are moved up.
Weights are read again for every row, which costs no instruction.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from emitc.backends.contract import PORTABLE
from emitc.layer import Layer, Param
from emitc.schedule.stages import LoweredNode, Segment, is_window

PER_ROW = 150
"""Cycles of one row's call in addition to its work."""
PER_BYTE = 0.5
"""Cycles for each byte that is moved."""
PORTABLE_WINDOW_SHARE = 0.07
"""What a layer with a portable kernel costs more whose window's parameters are set row by row, as a share: otherwise the
compiler knows how often loops run. Measured with person_detect.
"""
OTHER_WINDOW_SHARE = 0.01
"""The same for kernels that are written for a core, whose inner loops are in assembler or count to constants."""

SOLE_USER_PER_RUN = 40
"""The same, in cycles for every row of every window, for a kernel that serves this layer alone, to whose numbers the compiler
fits what reads the windows otherwise. Measured with the first layer of person_detect, of one channel.
"""


FITTED_SHARE = 0.03
"""The share of a kernel that is printed for the layer's numbers (`ByRows.fitted`) and serves one layer, where a row costs at
least FITTED_ROW, so that its set-up is little. Measured with ic_resnet, micro_kws and person_detect."""
FITTED_ROW = 10_000


def layer_overhead(
    layer: Layer, cost: float, rows: int, capacity: int, row_bytes: int, *, window: bool, sole_user: bool
) -> float:
    """The extra cycles of a layer that runs row by row in a segment.

    cost: cycles of the layer run whole. capacity: rows that its line buffer holds; window: whether its parameters are
    set row by row; sole_user: whether no other layer has its kernel.
    """
    sole_runs = window_runs(layer.params, rows) if sole_user else 0
    kept = max(0, capacity - 1)
    slid = max(0, rows - capacity) * kept * row_bytes
    portable = layer.variant == PORTABLE
    share = (PORTABLE_WINDOW_SHARE if portable else OTHER_WINDOW_SHARE) if window else 0.0
    own = SOLE_USER_PER_RUN * sole_runs if window and not portable else 0
    if sole_runs and window and layer.by_rows and layer.by_rows.fitted and cost >= FITTED_ROW * rows:
        share, own = FITTED_SHARE, 0
    alone = layer.by_rows.alone if layer.by_rows else 0.0
    return (share + alone + tail_waste(layer)) * cost + own + PER_ROW * rows + PER_BYTE * slid


def tail_waste(layer: Layer) -> float:
    """The share of pixels that the kernel computes in vain at the end of each row."""
    width = next((int(param.value) for param in layer.params if param.name == "out_w"), 0)
    return -width % layer.by_rows.tile / width if layer.by_rows and width else 0.0


def window_runs(params: Sequence[Param], rows: int) -> int:
    """Rows of the windows of all pixels in `rows` rows of a layer's output. params: its window's, among others."""
    values = {param.name: int(param.value) for param in params if param.name in ("out_w", "kernel_h")}
    return rows * values.get("out_w", 0) * values.get("kernel_h", 0)


def sole_users(kernels: Mapping[int, str]) -> frozenset[int]:
    """The layers, by index, whose kernel no other layer has. kernels: their names, by index."""
    counts = Counter(kernels.values())
    return frozenset(index for index, kernel in kernels.items() if counts[kernel] == 1)


def segment_overhead(
    nodes: Sequence[LoweredNode], segment: Segment, costs: Mapping[int, float], sole: Collection[int]
) -> float:
    """The extra cycles of a segment.

    nodes: its own; costs: cycles of layers run whole, by the index of the node; sole: nodes with kernels that no other
    node has.
    """
    return sum(
        layer_overhead(
            node.layer,
            costs.get(node.bound.node.index, 0.0),
            rows.rows,
            capacity,
            rows.row_bytes,
            window=is_window(node.layer, rows),
            sole_user=node.bound.node.index in sole,
        )
        for node, rows, capacity in zip(nodes, segment.layers, segment.capacities, strict=True)
    )
