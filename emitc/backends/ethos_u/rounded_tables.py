"""The tables that vela makes of LOGISTIC and TANH, compared with TFLite Micro's, which rounds in fixed point."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emitc.ir import BoundNode, Numerics, Tensor
from emitc.kernels import kernel_of
from emitc.kernels.activation.activations import Logistic, Tanh

_CODES = np.arange(-128, 128, dtype=np.int8)
_LARGEST = 8.0
"""From here on vela takes the logistic function for 0 or 1."""


def rounds_otherwise(bound: BoundNode) -> bool:
    """Whether some value of an int8 LOGISTIC or TANH of TFLite is another one on the NPU; False for other operators."""
    op = bound.node.op
    if not isinstance(op, Logistic | Tanh) or op.numerics is not Numerics.TFLITE:
        return False
    row = replace(bound, inputs=(_row(bound.input(0)),), outputs=(_row(bound.output),))
    (expected,) = kernel_of(row).reference(row, [_CODES])
    return bool((expected != _vela(bound)).any())


def _row(tensor: Tensor) -> Tensor:
    return replace(tensor, shape=(_CODES.size,), alias_of="", order=(), channels=())


def _vela(bound: BoundNode) -> NDArray[np.int64]:
    """Real values in float64, rounded with halves away from zero."""
    quantization, made = bound.input(0).quantization, bound.output.quantization
    assert quantization is not None and made is not None
    x = np.float64(np.float32(quantization.scale)) * (_CODES.astype(np.float64) - quantization.zero_point)
    if isinstance(bound.node.op, Tanh):
        y = np.tanh(x)
    else:
        y = np.where(
            x <= -_LARGEST, 0.0, np.where(x >= _LARGEST, 1.0, 1 / (1 + np.exp(-np.clip(x, -_LARGEST, _LARGEST))))
        )
    codes = made.zero_point + y / np.float64(np.float32(made.scale))
    return np.clip(np.trunc(codes + np.copysign(0.5, codes)), -128, 127).astype(np.int64)
