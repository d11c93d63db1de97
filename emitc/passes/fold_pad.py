"""PAD in front of a convolution or a pool becomes the window's own padding, and the padded copy is never made.

Legal where the window would read just what PAD wrote: convolutions and counting averages take the zero point outside
their input, so PAD must write it; MAX_POOL_2D ignores what is outside, so PAD must write the type's smallest value.
Every window must still meet the input, which the kernels count on. PAD must only pad rows and columns, and its output
must have no other reader.
"""

from dataclasses import replace

from emitc.ir import BoundNode, Graph, Node, Op
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.mac.accumulation import WEIGHTS
from emitc.kernels.movement.pad import Pad, padding_value
from emitc.kernels.pooling.pool_ops import AveragePool2D, MaxPool2D
from emitc.kernels.shared.windows import Padding
from emitc.passes.rewriter import only_reader, with_nodes


def _padded(reader: BoundNode, pad: BoundNode, extra: Padding) -> Op | None:
    """The reader's op with `extra` around its input, None where that is not the same computation."""
    x, op = pad.input(0), reader.node.op
    assert isinstance(pad.node.op, Pad)
    value, zero_point = padding_value(pad), x.zero_point
    if isinstance(op, Conv2D | DepthwiseConv2D) and not op.zero_point_folded and value == zero_point:
        window = replace(op.window, padding=op.window.padding.plus(extra))
        return replace(op, window=window) if window.meets(*reader.input(WEIGHTS).shape[1:3]) else None
    if not isinstance(op, AveragePool2D | MaxPool2D) or op.window.padding.any:
        return None
    window = replace(op.window, padding=extra)
    if not window.meets(op.kernel_h, op.kernel_w):
        return None
    if isinstance(op, AveragePool2D) and value == zero_point:
        return replace(op, window=window, count_padding=True)
    if isinstance(op, MaxPool2D) and value == x.dtype.range[0]:
        return replace(op, window=window)
    return None


def _rows_and_columns(pad: BoundNode) -> Padding | None:
    """What PAD adds around an image, None where it pads anything else."""
    assert isinstance(pad.node.op, Pad)
    paddings = pad.node.op.paddings
    if len(paddings) != 4 or paddings[0] != (0, 0) or paddings[3] != (0, 0):
        return None
    return Padding(*paddings[1], *paddings[2])


def fold_pad(graph: Graph) -> Graph:
    """The graph with every PAD folded that can be; of PADs in a row the last one comes first."""
    changed: dict[int, Node | None] = {}
    for bound in graph.bound():
        if not isinstance(bound.node.op, Pad) or bound.input(0).quantization is None:
            continue
        extra, name = _rows_and_columns(bound), bound.output.name
        reader = only_reader(graph, name)
        op = _padded(graph.bind(reader), bound, extra) if extra is not None and reader is not None else None
        if op is not None and reader is not None and reader.inputs.count(name) == 1:
            inputs = (bound.node.inputs[0], *reader.inputs[1:])
            changed |= {reader.index: replace(reader, op=op, inputs=inputs), bound.node.index: None}
    return fold_pad(with_nodes(graph, changed)) if changed else graph
