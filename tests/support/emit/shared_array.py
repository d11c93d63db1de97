"""Layer functions run with input and output in one array, at a distance of the test's choice."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emitc.compiled import Compiled
from emitc.ir import Array
from emitc.layer import Overlap
from emitc.lower.layers import lower_nodes
from emitc.program import Step
from emitc.schedule.buffers import LoweredNode
from emitc.verify.build import run_compiler, sources

_MARGIN = 64
"""Bytes kept free around everything; a multiple of every element's size."""
_SEEDS = range(4)
_MANY_SEEDS = range(40)
"""One element that is overwritten too early may change one output by less than its last bit."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An overlap that a layer declares, and the layer's function in a loaded library."""

    id: str
    node: LoweredNode
    step: Step
    overlap: Overlap
    function: ctypes._CFuncPtr

    def _call(self, operands: Sequence[Array], x_at: int, y_at: int, size: int) -> list[bytes]:
        """The outputs' bytes, with operand `overlap.input` at x_at and output `overlap.output` at y_at of one array."""
        place = self.node.layer.operands.index(self.overlap.input)
        shared = np.full(size, 0x5A, np.uint8)
        shared[x_at : x_at + operands[place].nbytes] = operands[place].view(np.uint8)
        inputs = [operand.copy() for operand in operands]
        outputs = [np.zeros(t.size_bytes, np.uint8) for t in self.node.bound.outputs]
        scratch = [np.zeros(s.size_bytes, np.uint8) for s in self.node.layer.scratch]
        pointers = [value.ctypes.data for value in [*inputs, *outputs, *scratch]]
        pointers[place] = shared.ctypes.data + x_at
        pointers[len(inputs) + self.overlap.output] = shared.ctypes.data + y_at
        self.function(*(ctypes.c_void_p(p) for p in pointers))
        results = [value.tobytes() for value in outputs]
        written = self.node.bound.outputs[self.overlap.output].size_bytes
        results[self.overlap.output] = shared[y_at : y_at + written].tobytes()
        return results

    def agrees(self, distance: int, seed: int) -> bool:
        """Whether random operands give the same outputs at input offset - output offset = distance as apart."""
        rng = np.random.default_rng(seed)
        operands = [_drawn(rng, t.dtype.value, t.elements) for t in self.node.inputs]
        x = operands[self.node.layer.operands.index(self.overlap.input)]
        room = x.nbytes + self.node.bound.outputs[self.overlap.output].size_bytes + abs(distance)
        room = -(-room // _MARGIN) * _MARGIN + 2 * _MARGIN
        apart = self._call(operands, room, _MARGIN, 2 * room)
        y_at = _MARGIN + (0 if distance >= 0 else -(distance // _MARGIN) * _MARGIN)
        return self._call(operands, y_at + distance, y_at, 2 * room) == apart

    def right(self) -> bool:
        """Whether the layer is right at the derived distance, rounded up to whole elements."""
        x, y = self.node.bound.input(self.overlap.input), self.node.bound.outputs[self.overlap.output]
        size = max(x.dtype.bytes, y.dtype.bytes)
        distance = -(-self.overlap.distance_bytes // size) * size
        return all(self.agrees(distance, seed) for seed in _SEEDS)

    def wrong_closer(self) -> bool | None:
        """Whether it is wrong one element closer; None where the output may lie anywhere."""
        x, y = self.node.bound.input(self.overlap.input), self.node.bound.outputs[self.overlap.output]
        if self.overlap.distance_bytes <= -x.size_bytes:
            return None
        closer = self.overlap.distance_bytes - max(x.dtype.bytes, y.dtype.bytes)
        return not all(self.agrees(closer, seed) for seed in _MANY_SEEDS)


def _drawn(rng: np.random.Generator, dtype: str, count: int) -> Array:
    """Random values, flat, none of them zero (some operators divide)."""
    if dtype.startswith("float"):
        return (rng.uniform(0.1, 2.0, count) * rng.choice([-1.0, 1.0], count)).astype(dtype)
    if dtype == "bool":
        return rng.integers(0, 1, count, endpoint=True).astype(np.uint8)
    info = np.iinfo(dtype)
    values = rng.integers(max(info.min, -(2**20)), min(info.max, 2**20), count, endpoint=True)
    return np.where(values == 0, 1, values).astype(dtype)


def subjects(compiled: Compiled, folder: Path) -> Iterator[Subject]:
    """Every declared overlap of a model's layers, its layer functions made callable."""
    nodes = {node.bound.node.index: node for node in lower_nodes(compiled.partition)}
    steps = [(nodes[step.index], step) for step in compiled.program.steps]  # in another order, and some have vanished
    chosen = [(node, step) for node, step in steps if node.layer.overlaps]
    if not chosen:
        return
    package = folder / compiled.program.name
    compiled.write(package)
    files, includes = sources(package)
    (model,) = [file for file in files if file.stem == compiled.program.name]
    lines = [f'#include "{model.name}"']
    for _, step in chosen:
        arguments = [*step.inputs, *step.outputs, *step.scratch]
        names = ", ".join(f"void *p{i}" for i in range(len(arguments)))
        passed = ", ".join(f"p{i}" for i in range(len(arguments)))
        lines.append(
            f"void call_{step.name}({names});\nvoid call_{step.name}({names})\n{{\n    {step.name}({passed});\n}}"
        )
    driver = folder / f"{compiled.program.name}_driver.c"
    driver.write_text("\n".join(lines) + "\n", encoding="ascii")
    library = folder / f"{compiled.program.name}.so"
    others = [str(file) for file in files if file != model]
    options = ["-std=c11", "-O1", "-shared", "-fPIC", *(f"-I{folder}" for folder in includes)]
    run_compiler([*options, str(driver), *others, "-o", str(library), "-lm"])
    loaded = ctypes.CDLL(str(library))
    for node, step in chosen:
        for overlap in node.layer.overlaps:
            label = f"{compiled.program.name}/{step.name} {node.layer.kernel_name} {overlap.order}"
            yield Subject(label, node, step, overlap, getattr(loaded, f"call_{step.name}"))
