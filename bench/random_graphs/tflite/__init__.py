"""Random TFLite graphs."""

from bench.random_graphs.tflite.draw import draw
from bench.random_graphs.tflite.file import write

__all__ = ["draw", "write"]
