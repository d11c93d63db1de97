"""Weights in fast memory: which layers' are copied there before the layer runs, and the buffers that this takes.

A copy pays where a layer loads its weights many times, as convolutions do: once for every pixel, or for every few. How often is
an estimate from the multiply-accumulates, as the traffic of buffers is. Layers that run row by row take turns: their copies are
made before the first row, and stay until the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from emitc.planner import Buffer, LiveRange
from emitc.schedule.search import MemorySchedule
from emitc.schedule.stages import LoweredNode, staged_name

ROLE = "weights"
_PIXELS_AT_ONCE = {
    "convolution/conv_2d": 1,
    "convolution/conv_2d_taps": 1,
    "convolution/conv_2d_float": 1,
    "convolution/conv_2d_few_dsp": 1,
    "convolution/conv_2d_part_dsp": 2,
    "convolution/conv_2d_lean_dsp": 1,
    "convolution/conv_2d_mve": 2,
    "convolution/conv_2d_shorts_mve": 1,
    "convolution/conv_2d_shorts_dsp": 4,
    "matrix/row_shorts_dsp": 1,
    "convolution/depthwise_spread_mve": 1,
    "convolution/conv_2d_dsp": 4,
    "convolution/conv_2d_halves": 4,
    "convolution/conv_transpose": 1,
    "convolution/depthwise_conv_2d": 1,
    "convolution/depthwise_conv_2d_multiplier": 1,
    "convolution/depthwise_conv_2d_scalar": 1,
    "convolution/depthwise_conv_2d_dsp": 2,
    "convolution/depthwise_conv_2d_mve": 1,
    "convolution/depthwise_3x3_mve": 1,
    "matrix/fully_connected": 1,
    "matrix/row_dsp": 1,
    "matrix/row_mve": 1,
    "matrix/row_scalar": 1,
    "matrix/row_narrow": 1,
    "matrix/dots_mve": 2,
    "matrix/matrix_dsp": 4,
    "matrix/matrix_halves": 4,
    "convolution/conv_2d_span_dsp": 4,
    "cmsis_nn/call": 2,
}
"""Templates whose layer functions take their weights from the caller, and the pixels that share what they load of them. Of
CMSIS-NN's functions convolutions make two at once, or more with MVE; one figure for all of them gives a copy rather less often.
"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layer whose weights could be copied. position: of its stage; size_bytes: of the weights; loads_bytes: of one run."""

    position: int
    node: LoweredNode
    size_bytes: int
    loads_bytes: int

    def gain(self, home: float, fast: float) -> float:
        """What a copy saves. home, fast: cost of a byte where the weights lie, and where the copy is."""
        return self.loads_bytes * (home - fast) - self.size_bytes * (home + fast)


def loads_bytes(node: LoweredNode) -> int:
    """Bytes of its weights that a layer loads in one run, about."""
    (table,) = (table for table in node.layer.tables if table.role == ROLE)
    element = max(1, table.size_bytes // len(table.values))
    return node.layer.macs * element // _PIXELS_AT_ONCE[node.layer.template]


def candidates(arrangement: MemorySchedule) -> tuple[Candidate, ...]:
    """Every layer whose weights could be copied, in order of execution."""
    found = []
    for position, stage in enumerate(arrangement.stages):
        for node in stage.nodes:
            table = next((table for table in node.layer.tables if table.role == ROLE), None)
            if table is None or node.layer.template not in _PIXELS_AT_ONCE:
                continue
            found.append(Candidate(position, node, table.size_bytes, loads_bytes(node)))
    return tuple(found)


def with_copies(arrangement: MemorySchedule, chosen: Sequence[Candidate]) -> MemorySchedule:
    """The arrangement with a buffer for each of the chosen layers, alive for its stage."""
    stages = list(arrangement.stages)
    buffers = list(arrangement.buffers)
    for each in chosen:
        stage = stages[each.position]
        nodes = tuple(replace(node, staged=(ROLE,)) if node is each.node else node for node in stage.nodes)
        stages[each.position] = replace(stage, nodes=nodes)
        buffers.append(
            Buffer(staged_name(each.node, ROLE), each.size_bytes, LiveRange(each.position, each.position + 1))
        )
    return replace(arrangement, stages=tuple(stages), buffers=tuple(buffers))
