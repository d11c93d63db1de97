"""What the generated C does inside a run: which bytes of the arena it touches, and what every layer writes.

The library is built with the layer hook. Of the arena a layer may write its own outputs and scratch, nothing else; what it has
written is compared with the engine's values of the same tensors.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from emitc.compiled import Compiled
from emitc.ir import Array, Graph, Tensor
from emitc.kernels import kernel_of
from emitc.kernels.npu.npu_command import NpuCommand, memory_of
from emitc.program import Program, RowSegment, SlotKind
from emitc.records import asdict, dataclass
from emitc.verify.build import HostModel
from emitc.verify.engine_values import known_value
from emitc.verify.reference import Sample
from emitc.verify.tolerances import compared, finite, tolerances_of

PATTERNS = (0xA5, 0x5A)
"""Complementary, so that every byte that a run writes shows in one of them."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first operator whose output differs while everything before it agreed."""

    op: str
    index: int
    tensor: str
    differing: int
    max_abs_diff: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"max_abs_diff": finite(self.max_abs_diff)}


def observed_bytes(build: Callable[[], HostModel], samples: Sequence[Sample], alignment: int) -> tuple[int, ...]:
    """Each arena's bytes up to the last one that the runs touch, also beyond its end, rounded up to the alignment."""
    touched: list[tuple[int, ...]] = []
    for inputs in samples:
        model = build()
        for pattern in PATTERNS:
            model.fill(pattern)
            model.write_inputs(inputs)
            model.invoke()
            touched.append(model.touched_bytes())
    return tuple(_rounded_up(max(pair), alignment) for pair in zip(*touched, strict=True))


def _rounded_up(size_bytes: int, alignment: int) -> int:
    return -(-size_bytes // alignment) * alignment


def filled_bytes(compiled: Compiled) -> tuple[int, ...]:
    """Each arena's bytes up to the last one that a run is sure to touch, rounded up to the alignment.

    That is all of them, unless the arena ends with the working memory of a library function. Such a function asks for it by a
    formula and may leave some of it alone.
    """
    program, alignment = compiled.program, compiled.program.plan.alignment
    in_libraries = {
        operand.address.slot
        for step in program.steps
        if step.call is not None or step.parts
        for operand in step.scratch
    }

    pieces = []
    for region, plan in program.arenas:
        ends = {slot.name: slot.offset_bytes + slot.size_bytes for slot in program.slots if slot.region == region}
        sure = (end for name, end in ends.items() if name not in in_libraries)
        all_bytes, sure_bytes = (_rounded_up(max(group, default=0), alignment) for group in (ends.values(), sure))
        pieces.append(sure_bytes if sure_bytes < all_bytes == plan.arena_bytes else plan.arena_bytes)
    return tuple(pieces)


def _stages_of(program: Program) -> dict[int, range]:
    """By a layer's index: the stages of the memory plan since the layer before; all layers of a segment have the same."""
    stages: dict[int, range] = {}
    for traced in program.traced:
        stage = program.schedule[traced.end - 1]
        steps = [call.step for call in stage.calls] if isinstance(stage, RowSegment) else [traced.step]
        stages |= {step.index: range(traced.first, traced.end) for step in steps}
    return stages


def _completed(graph: Graph, tensor: Tensor, data: bytes, values: Mapping[str, Array]) -> Array:
    """A layer's output; rows that it has not made, since nobody reads them, are the reference's."""
    if len(data) < tensor.size_bytes:
        node = graph.producer(tensor.name)
        assert node is not None, f"{tensor.name} is short and made by nobody"
        bound = graph.bind(node)
        inputs = [None if t is None else known_value(graph, values, t.name) for t in bound.inputs]
        data += kernel_of(bound).reference(bound, inputs)[0].tobytes()[len(data) :]
    return np.frombuffer(data, tensor.dtype.value).reshape(tensor.shape)


class LayerProof:
    """Collects what each layer wrote, and checks that it wrote nothing else of the arena."""

    def __init__(self, model: HostModel, compiled: Compiled) -> None:
        self.model = model
        self.steps = {step.index: step for step in compiled.program.steps}
        self.slots = compiled.program.slots
        self.starts = {slot.name: compiled.program.start_of(slot) for slot in self.slots}
        self.stages = _stages_of(compiled.program)
        self.rules = tolerances_of(compiled)
        self.memories = {
            memory_of(bound) for bound in compiled.partition.graph.bound() if isinstance(bound.node.op, NpuCommand)
        }
        self.errors: list[str] = []
        self._states = compiled.program.states
        self.start()
        model.set_hook(self._hook)

    def start(self) -> None:
        self.written: dict[int, list[bytes]] = {}
        self._given: list[tuple[int, int]] = []
        self._before = self.model.arena.copy()
        self._state = self.model.state.tobytes()

    def _hook(self, index: int, offset: int, data: bytes) -> None:
        outputs = self.written.setdefault(index, [])
        step = self.steps[index]
        if step.by_rows and outputs:
            outputs[0] += data
        else:
            outputs.append(data)
        self._given.append((offset, offset + len(data)))
        if len(outputs) < len(step.outputs):
            return
        allowed = np.zeros(len(self.model.arena), bool)
        for start, end in self._given:
            if 0 <= start < len(allowed):  # otherwise it has written a state variable
                allowed[start:end] = True
        self._given = []
        for slot in self.slots:
            written = slot.first in self.stages[index] and slot.kind is not SlotKind.INPUT
            if written or slot.op == index:
                start = self.starts[slot.name]
                allowed[start : start + slot.size_bytes] = True
        stray = (self.model.arena != self._before) & ~allowed
        if stray.any():
            self.errors.append(
                f"op {index} {step.op_type} wrote arena byte {int(np.flatnonzero(stray)[0])}, which is not its own"
            )
        self._before = self.model.arena.copy()

    def values(self, graph: Graph, inputs: Sample) -> Mapping[str, Array]:
        """The C's own value of every tensor in the last run, by name; of state what a layer has read."""
        values = dict(zip(graph.inputs, inputs, strict=True))
        held = {s.tensor: self._state[s.offset_bytes : s.offset_bytes + s.size_bytes] for s in self._states}
        for index, step in self.steps.items():
            for operand in step.inputs:
                if graph.root(operand.tensor).is_state:
                    tensor = graph.tensor(operand.tensor)
                    value = np.frombuffer(held[graph.root(tensor.name).name], tensor.dtype.value)
                    values[tensor.name] = value.reshape(tensor.shape)
            for output, data in zip(step.outputs, self.written.get(index, []), strict=True):
                tensor = graph.tensor(output.tensor)
                if tensor.is_state:  # it has had another value before
                    held[tensor.name] = data
                    continue
                values[tensor.name] = _completed(graph, tensor, data, values)
        return values

    def first_divergence(self, expected: Mapping[str, Array]) -> tuple[int, Divergence | None]:
        """Layers compared, and the first that differs from the engine's values of emitc's tensors."""
        checked = 0
        for index, step in self.steps.items():
            for output, data in zip(step.outputs, self.written.get(index, []), strict=True):
                value = expected.get(output.tensor)
                # Of a memory that NPU operators share some bytes are nobody's, and hold anything.
                if value is None or output.tensor in self.memories:
                    continue
                # A layer that runs row by row makes no row that nobody reads.
                if len(data) != value.nbytes:
                    value = value[:, : len(data) // (value.nbytes // value.shape[1])]
                actual = np.frombuffer(data, value.dtype).reshape(value.shape)
                result = compared(actual, value, self.rules[output.tensor])
                checked += 1
                if result.differing:
                    divergence = Divergence(step.op_type, index, output.tensor, result.differing, result.largest)
                    return checked, divergence
        return checked, None
