"""Random valid ONNX graphs: QDQ, QOperator, dynamically quantized, float32 and mixed, of opsets 11 to 24."""

from bench.random_graphs.onnx.draw import draw
from bench.random_graphs.onnx.file import write

__all__ = ["draw", "write"]
