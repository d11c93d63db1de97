"""An engine's values in the form that emitc gives its tensors: the common ground of the layer-by-layer comparison.

TFLite's tensors keep index, type and layout. ONNX's values have names, and emitc holds some of them otherwise: quantized uint8
as int8, 128 lower (`frontends/onnx/quantization.py`); images as NHWC under the name with a suffix (`frontends/onnx/layout.py`);
and where a Transpose has moved past an operator, in the order that `Tensor.order` says (`passes/transposes.py`). Of some
there are only the channels that `Tensor.channels` names (`passes/drop_constant_channels.py`). What exists in emitc alone has no
value here.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping

import numpy as np

from emitc.ir import DType, Graph, Tensor
from emitc.verify.engines.contract import Array, TensorKey


def _nhwc(value: Array) -> Array | None:
    """NCHW as NHWC; NCL as an image of one row."""
    if value.ndim == 3:
        return value.transpose(0, 2, 1)[:, np.newaxis]
    return value.transpose(0, 2, 3, 1) if value.ndim == 4 else None


def _nlc(value: Array) -> Array | None:
    """NCL as NLC."""
    return value.transpose(0, 2, 1) if value.ndim == 3 else None


_SUFFIXES: Mapping[str, Callable[[Array], Array | None]] = {"_nhwc": _nhwc, "_nlc": _nlc, "_s8": lambda value: value}
"""What the frontend adds to a name, and the layout that it stands for. `_s8`: the signed twin of an unsigned interface."""


def _by_label(label: str, values: Mapping[TensorKey, Array]) -> Array | None:
    """The value that a tensor's label speaks of, in the label's layout; the model's own names go before suffixes."""
    if label in values:
        return values[label]
    for suffix, layout in _SUFFIXES.items():
        if label.endswith(suffix):
            value = _by_label(label.removesuffix(suffix), values)
            return None if value is None else layout(value)
    return None


def stated_name(label: str, names: Collection[str]) -> bool:
    """Whether a tensor's label speaks of one of the model's names."""
    shorter = (label.removesuffix(suffix) for suffix in _SUFFIXES if label.endswith(suffix))
    return label in names or any(stated_name(name, names) for name in shorter)


def _as_stored(tensor: Tensor, value: Array) -> Array | None:
    """The value in the tensor's type; None where the types do not correspond."""
    if value.dtype == np.uint8 and tensor.dtype is DType.INT8:
        value = value.view(np.int8) ^ np.int8(-128)
    if tensor.channels and value.ndim:
        value = value[..., list(tensor.channels)]
    return value if value.dtype.name == tensor.dtype.value else None


def by_tensor(graph: Graph, source_format: str, values: Mapping[TensorKey, Array]) -> dict[str, Array]:
    """The engine's values by the name of emitc's tensor, dtype and layout as emitc holds them.

    values: what `Engine.tensors` gives. Left out are tensors that the engine does not have, and, for ONNX, two
    tensors of the model that share a label.
    """
    if source_format == "tflite":
        present = ((tensor, values[tensor.source]) for tensor in graph.tensors if tensor.source in values)
        known = ((tensor.name, _as_stored(tensor, value)) for tensor, value in present)
        return {name: stored for name, stored in known if stored is not None}
    labels = Counter(tensor.label for tensor in graph.tensors if tensor.source >= 0)
    values_by_name: dict[str, Array] = {}
    for tensor in graph.tensors:
        label = tensor.label or tensor.name
        value = _by_label(label, values) if labels[label] < 2 else None
        stored = None if value is None else _as_stored(tensor, value)
        if stored is None:
            continue
        if tensor.order and len(tensor.order) == stored.ndim:
            stored = stored.transpose(tensor.order)
        if stored.shape == tensor.shape:
            values_by_name[tensor.name] = stored
    return values_by_name
