"""Small models for the packages that wrap the C for another language: ports of several types, state, hostile names."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.writers.tflite import ModelSpec, write_tflite
from tests.support.models import streaming, tiny
from tests.support.models.onnx_net import OnnxNet

FILE = "a\"b'c ]] {0} \\ `$(x)` * # ''\n\r.onnx"
"""The name of a file, with what ends strings and comments in some language."""


def floats() -> bytes:
    """An ONNX model on floats, whose sums and exponentials the proof compares within its tolerance."""
    net = OnnxNet()
    x = net.input((2, 7))
    weights = net.constant(net.rng.normal(size=(7, 5)).astype("float32"))
    y = net.op("Softmax", net.op("MatMul", x, weights), axis=1)
    net.output(y)
    return net.serialized()


TFLITE: dict[str, Callable[[], ModelSpec]] = {
    "spotter": tiny.spotter,
    "branches": tiny.branches,
    "edges": tiny.edges,
    "wires": tiny.wires,
    "sums": streaming.accumulator,
}


def wrapped(name: str, package: str, folder: Path, *, as_name: str = "", **changes: Any) -> Compiled:
    """The model of that name as a package, under `as_name` where that is given. Its file goes to `folder`.

    `match` is a model on floats, in a file whose name is hostile; many languages have a keyword of that name.
    """
    if name == "match":
        path, data = folder / FILE, floats()
    else:
        path, data = folder / f"{name}.tflite", write_tflite(TFLITE[name]())
    path.write_bytes(data)
    return compile_model(path, name=as_name or name, package=package, **changes)


def with_a_wrong_byte(golden: str) -> str:
    """The text of an example with another last byte of its expected outputs."""
    *_, last = re.finditer(r"\\x([0-9a-f]{2})", golden)
    other = f"\\x{int(last[1], 16) ^ 0x40:02x}"
    return golden[: last.start()] + other + golden[last.end() :]
