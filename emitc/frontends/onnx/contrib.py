"""ONNX Runtime's own operators (domain com.microsoft) that emitc knows: which standard operator gives each its shapes."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Contrib:
    """standard: operator of the same shapes. operands: its inputs among this one's, given how many there are.

    type_of: input whose element type the output has; an absent one makes it float32, or uint8 where unsigned says so.
    attributes: those that both share. outputs: how many there may be.
    """

    standard: str
    operands: Callable[[int], tuple[int, ...]]
    type_of: int
    attributes: tuple[str, ...] = ()
    outputs: int = 1
    unsigned: bool = False


def _at(*positions: int) -> Callable[[int], tuple[int, ...]]:
    return lambda count: positions


_POOL = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides", "dilations")

CONTRIB: dict[str, Contrib] = {
    **{f"QLinear{kind}": Contrib(kind, _at(0, 3), 0) for kind in ("Add", "Mul")},
    **{f"QLinear{kind}": Contrib("Identity", _at(0), 0) for kind in ("Sigmoid", "LeakyRelu", "Softmax")},
    "QLinearAveragePool": Contrib("AveragePool", _at(0), 0, _POOL),
    "QLinearGlobalAveragePool": Contrib("GlobalAveragePool", _at(0), 0),
    "QLinearConcat": Contrib("Concat", lambda count: tuple(range(2, count, 3)), 2, ("axis",)),
    "QGemm": Contrib("Gemm", _at(0, 3), 8, ("transA", "transB")),
    "QuantizeLinear": Contrib("Identity", _at(0), 2, unsigned=True),
    "DequantizeLinear": Contrib("Identity", _at(0), 3),
    "Gelu": Contrib("Identity", _at(0), 0),
    "DynamicQuantizeLSTM": Contrib("LSTM", _at(0, 1, 2), 0, ("direction", "hidden_size"), outputs=3),
}
