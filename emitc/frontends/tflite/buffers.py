"""CIRCULAR_BUFFER writes a variable and goes on from what it holds: here it reads one and writes a tensor of its own."""

from dataclasses import replace

from emitc.frontends.subgraphs import rewritten
from emitc.frontends.tflite.additions import Additions, with_tensors
from emitc.source import SourceModel, SourceTensor

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
