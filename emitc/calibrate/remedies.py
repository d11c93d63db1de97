"""Changes of a float model that leave less noise when it is quantized, and nearly the same results in float32."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from emitc.calibrate.correct_bias import correct_bias
from emitc.calibrate.equalize import equalize
from emitc.calibrate.float_graph import FloatGraph, Statistics
from emitc.calibrate.split_heads import split_heads

StatisticsOf = Callable[[bytes], Statistics]
"""Of the tensors of an ONNX model in float32, on the samples."""


@dataclass(frozen=True, slots=True)
class Remedied:
    """model: the float model, equalized and with its heads split. stay: operators of it that have to stay in
    float32."""

    model: bytes
    stay: tuple[str, ...] = ()


def remedied(message: Any, remedies: Sequence[str], kept: Sequence[str], statistics_of: StatisticsOf) -> Remedied:
    """The float model with those of the remedies that need no quantized one. message: an ONNX message, which is
    changed.

    kept: names of operators that are not split.
    """
    graph, stay = FloatGraph(message), tuple[str, ...]()
    if "heads" in remedies or "equalize" in remedies:
        statistics = statistics_of(_bytes(message))
        stay = split_heads(graph, statistics, kept) if "heads" in remedies else ()
        if "equalize" in remedies:
            equalize(graph, statistics)
    return Remedied(_bytes(message), stay)


def with_corrected_bias(message: Any, quantized: Any, statistics_of: StatisticsOf) -> bytes:
    """The float model whose biases take off the mean errors of the quantized one's weights. Both are ONNX messages."""
    correct_bias(FloatGraph(message), quantized, statistics_of(_bytes(message)))
    return _bytes(message)


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))
