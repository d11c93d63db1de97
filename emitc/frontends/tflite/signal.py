"""Custom operators of TFLite Micro that keep something between runs get a variable tensor as their second input.

Of signal operators the file does not show what they keep: its shape follows from the options and the input's shape. Where these
are beyond their limits there is none, and the operator says what is wrong with them. CIRCULAR_BUFFER writes a variable and goes
on from what it holds: here it reads one and writes a tensor of its own.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from emitc.frontends.subgraphs import rewritten
from emitc.frontends.tflite.additions import Additions, with_tensors
from emitc.ir import Array, DType
from emitc.source import SourceModel, SourceNode, SourceTensor

LARGEST_OPTION = 1 << 15
"""Of a number of values, frames or channels."""
_LARGEST_STATE = 1 << 22
"""Elements."""


class _Beyond(Exception):
    """An option that is missing or too large."""


def _option(node: SourceNode, name: str, low: int) -> int:
    value = node.attributes.get(name)
    if not isinstance(value, int) or not low <= value <= LARGEST_OPTION:
        raise _Beyond
    return int(value)


def _zeros(dtype: str, *shape: int) -> Array:
    if math.prod(shape) > _LARGEST_STATE or dtype not in {t.value for t in DType}:
        raise _Beyond
    return np.zeros(shape, dtype)


def _stacked(node: SourceNode, x: SourceTensor) -> Array:
    """How many frames there are, -1 before the first one, then the frames."""
    channels, step = _option(node, "num_channels", 1), _option(node, "stacker_step", 1)
    frames = 1 + _option(node, "stacker_left_context", 0) + _option(node, "stacker_right_context", 0)
    if step > frames:
        raise _Beyond
    state = _zeros("int16", 1 + (frames - 1) * channels)
    state[0] = -1
    return state


def _framed(node: SourceNode, x: SourceTensor) -> Array:
    """How many frames are still incomplete, then the values of each row that belong to frames to come."""
    size, step = _option(node, "frame_size", 1), _option(node, "frame_step", 1)
    prefilled = bool(node.attributes.get("prefill", False))
    if (prefilled and step > size) or not x.shape or x.shape[-1] < 1:
        raise _Beyond
    steps = -(-size // step)
    state = _zeros("int16", 1 + x.elements // x.shape[-1] * (size - step if prefilled else (steps - 1) * step))
    state[0] = 0 if prefilled else steps - 1
    return state


def _delayed(node: SourceNode, x: SourceTensor) -> Array:
    """The last values of each row."""
    if not x.shape or x.shape[-1] < 1:
        raise _Beyond
    return _zeros("int16", x.elements // x.shape[-1], _option(node, "delay_length", 1))


def _overlapping(node: SourceNode, x: SourceTensor) -> Array:
    """What of each row's last frame lies over the next ones; one value where nothing does."""
    step = _option(node, "frame_step", 1)
    if len(x.shape) < 2 or 0 in x.shape or x.shape[-1] < step:
        raise _Beyond
    return _zeros(x.dtype, math.prod(x.shape[:-2]), max(x.shape[-1] - step, 1))


_KEPT: dict[str, tuple[str, Callable[[SourceNode, SourceTensor], Array]]] = {
    "CUSTOM:SignalFilterBankSpectralSubtraction": ("noise", lambda node, x: _zeros(x.dtype, *x.shape)),
    "CUSTOM:SignalStacker": ("frames", _stacked),
    "CUSTOM:SignalFramer": ("values", _framed),
    "CUSTOM:SignalDelay": ("values", _delayed),
    "CUSTOM:SignalOverlapAdd": ("values", _overlapping),
}
"""What each operator keeps: its name, and its value before the first run."""


def with_signal_state(model: SourceModel) -> SourceModel:
    """The model whose signal operators have what they keep as second input, a variable."""
    return rewritten(model, _with_state)


def _with_state(model: SourceModel) -> SourceModel:
    work = Additions(model)

    def kept(node: SourceNode) -> SourceNode:
        x = node.inputs[0] if len(node.inputs) == 1 else None
        if node.op_type not in _KEPT or x is None or -1 in x.shape:
            return node
        name, first = _KEPT[node.op_type]
        try:
            value = first(node, x)
        except _Beyond:
            return node
        label, dtype = f"{node.name}_{name}", str(value.dtype)
        variable = work.tensor(SourceTensor(0, label, dtype, value.shape, None, None, True, value.tobytes()))
        return replace(node, inputs=(x, variable))

    work.nodes = [kept(node) for node in model.nodes]
    return work.finished()


_OPERATOR = "CUSTOM:CIRCULAR_BUFFER"


def with_circular_buffers(model: SourceModel) -> SourceModel:
    """The model whose circular buffers have the variable as second input, and a tensor made anew in every run as output.

    A buffer that is read before it is written would be read as the run before has left it: it stays as it is, and is refused.
    """
    return rewritten(model, _with_buffers)


def _with_buffers(model: SourceModel) -> SourceModel:
    work = Additions(model)
    made: dict[int, SourceTensor] = {}
    read: set[int] = set()
    for node in model.nodes:
        y = node.outputs[0] if len(node.outputs) == 1 else None
        if node.op_type == _OPERATOR and len(node.inputs) == 1 and y and y.is_variable and y.index not in read:
            made[y.index] = work.tensors[y.index] = replace(y, is_variable=False, initial=None)
            node = replace(node, inputs=(*node.inputs, work.tensor(y, name=f"{y.name}_kept")))
        read |= {tensor.index for tensor in node.inputs if tensor}
        work.nodes.append(node)
    work.nodes = [with_tensors(node, made, outputs=True) for node in work.nodes]
    return work.finished()
