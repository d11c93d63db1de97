"""The signal operators of TFLite Micro that keep something between runs, which the file does not show, get a variable tensor."""

from __future__ import annotations

from dataclasses import replace

from emitc.frontends.source import SourceModel, SourceNode, SourceTensor

_KEEPS_NOISE = "CUSTOM:SignalFilterBankSpectralSubtraction"


def with_noise_estimates(model: SourceModel) -> SourceModel:
    """The model whose spectral subtractions have their estimate of the noise as second input: a variable, zeros at first."""
    tensors = list(model.tensors)

    def kept(node: SourceNode) -> SourceNode:
        x = node.inputs[0] if len(node.inputs) == 1 else None
        if node.op_type != _KEEPS_NOISE or x is None or -1 in x.shape:
            return node
        name = f"{node.name}_noise"
        tensors.append(SourceTensor(len(tensors), name, x.dtype, x.shape, None, None, is_variable=True))
        return replace(node, inputs=(x, tensors[-1]))

    nodes = tuple(kept(node) for node in model.nodes)
    return model if len(tensors) == len(model.tensors) else replace(model, tensors=tuple(tensors), nodes=nodes)
