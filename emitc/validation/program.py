"""A program executed on bytes: every layer finds its operands where the C looks for them, at the moment at which it does.

The values are those that the graph has by its references. Memory is the plan's: every arena and the state block, with the offsets
that the C has as macros. A layer reads its operands from there, which must be the bytes of their tensors, and its outputs are
stored there. A wrong place, moment, distance, row or tensor inside another one becomes a wrong byte, or an input that is
overwritten too early. The technique (`--without`) that is responsible for the place is named.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from emitc.backends.contract import PORTABLE
from emitc.compiled import Compiled
from emitc.ir import Array, BoundNode, DType, Graph, Tensor
from emitc.kernels.control_flow.control_flow import ControlFlow
from emitc.kernels.shared.subgraph_reference import watched
from emitc.layer import Layer
from emitc.program import Address, Move, Operand, Port, Program, RowSegment, Step, arena_variable, state_argument
from emitc.validation.access_order import overwritten
from emitc.validation.blocks import COPIED, Blocks, Outside, Place, Rows
from emitc.validation.tolerance import differing
from emitc.validation.values import Executed, Execution, Faulty, Wrong
from emitc.validation.values import executed as values_of

ORDER, VIEWS, OVERLAP, MOVES, STREAMING = "order", "views", "overlap", "moves", "streaming"
PLAN, REGIONS = "plan", "regions"
"""Offsets of buffers that no technique lets share memory, and the memory that they lie in."""
_SHARED = "the layer's output has bytes of it, though overlap is switched off"
PART_RUNS = 3
"""Runs of a program inside of an operator."""
TECHNIQUES = (ORDER, VIEWS, OVERLAP, MOVES, STREAMING, PLAN, REGIONS)


class ProgramRun:
    """One run of a program. executed: the values of its graph; disabled: what `--without` has switched off.

    What lies in memory are random bytes instead of most values: of true ones many are alike, and a byte of the wrong tensor
    would go unnoticed.
    """

    def __init__(
        self,
        program: Program,
        graph: Graph,
        layers: Mapping[int, Layer],
        executed: Executed,
        disabled: frozenset[str] = frozenset(),
    ) -> None:
        self.program = program
        self.graph = graph
        self.layers = layers
        self.disabled = disabled
        self.real = executed
        self.blocks = Blocks(program)
        self.transfers = program.transfers
        self.nodes = {bound.node.index: bound for bound in graph.bound()}
        self.executed = _scrambled(executed, {step.index for step in program.steps})
        self.run = Execution(graph, _inputs(self.executed), dict(self.executed.before))
        self.run.values.update(self.executed.values)
        self.waiting = {step.index for step in program.steps}
        self.inside = {slot.name for slot in program.pins}
        self.hosts = _hosts(program)
        self.moved = {name for slot in program.slots if slot.moved_from for name in (slot.name, slot.moved_from)}
        self.by_rows: set[str] = set()

    # ---- faults ----

    def fault(self, technique: str, bound: BoundNode | None, tensor: Tensor | str, count: int, why: str) -> None:
        """Raises Faulty."""
        ops = () if bound is None else (bound.node.describe(),)
        described = tensor if isinstance(tensor, str) else tensor.describe()
        raise Faulty(Wrong(technique, ops, described, count, why))

    def technique(self, place: Place, writer: str, default: str = PLAN) -> str:
        """Whose fault it is that a buffer has other bytes than those of its tensor. writer: what has written these."""
        slots = {place.slot, writer}
        for technique, own in ((MOVES, self.moved), (STREAMING, self.by_rows), (VIEWS, self.inside | self.hosts)):
            if slots & own:
                return technique
        return default

    # ---- values ----

    def expected(self, name: str) -> bytes:
        return self.run.value(name).tobytes()

    def require(self, bound: BoundNode | None, operand: Operand | Port, place: Place, default: str = PLAN) -> None:
        """That an operand is there, with all of its bytes."""
        tensor = self.graph.tensor(operand.tensor)
        count, writer = self.blocks.mismatch(place, self.expected(tensor.name))
        if count:
            technique = self.technique(place, writer, default)
            why = f"it lies at {place.slot}, where {writer or 'nobody'} has written"
            if self.pending(tensor.name):
                technique, why = ORDER, "it is read before it is made"
            self.fault(technique, bound, tensor, min(tensor.elements, count), why)

    def pending(self, name: str) -> bool:
        """Whether a layer that makes a tensor, or what one is made of that vanishes, has not run yet."""
        producer = self.graph.producer(self.graph.root(name).name)
        if producer is None or producer.index in self.waiting:
            return producer is not None
        ran = any(step.index == producer.index for step in self.program.steps)
        return not ran and any(self.pending(operand) for operand in producer.inputs if operand)

    # ---- the schedule ----

    def start(self) -> None:
        """Inputs and state variables before the run."""
        for port in self.program.inputs:
            if port.address is not None and (place := self.blocks.place(port.address)) is not None:
                self.blocks.write(place, self.expected(port.tensor), place.slot)
        for slot in self.program.states:
            self.blocks.write(Place("state", slot.offset_bytes, slot.name), self.expected(slot.tensor), slot.name)
        names = [name for name in self.graph.inputs if self.graph.tensor(name).is_state]
        for number, name in zip(self.program.state_args, names, strict=False):
            self.blocks.hold(state_argument(number), self.expected(name))

    def execute(self) -> None:
        """The whole run. Raises Faulty."""
        self.start()
        for position, entry in enumerate(self.program.schedule):
            try:
                self.start_transfers(position)
                if isinstance(entry, Move):
                    self.move(entry)
                elif isinstance(entry, RowSegment):
                    Rows(self, entry).execute()
                else:
                    self.step(entry)
            except Outside as outside:
                bound = self.nodes.get(entry.index) if isinstance(entry, Step) else None
                what = entry.what if isinstance(entry, Move) else getattr(entry, "name", "")
                kind = MOVES if isinstance(entry, Move) else STREAMING if isinstance(entry, RowSegment) else PLAN
                self.fault(kind, bound, what, -1, f"it reaches outside of its memory: {outside}")
        for port in self.program.outputs:
            place = None if port.address is None else self.blocks.place(port.address)
            if place is not None:
                self.require(None, port, place)

    def start_transfers(self, position: int) -> None:
        """The copies of weights whose transfer starts with a stage: from now on nobody else has their bytes."""
        for staged in self.program.staged if self.transfers else ():
            if staged.start == position:
                place = self.blocks.buffer(staged.address)
                self.blocks.write(place, COPIED * staged.size_bytes, place.slot)

    def require_copies(self, step: Step) -> None:
        """That the copies of a layer's weights are still there."""
        for staged in step.staged:
            place = self.blocks.buffer(staged.address)
            count, writer = self.blocks.mismatch(place, COPIED * staged.size_bytes)
            if count:
                why = f"{writer} has written over the copy of its weights"
                self.fault(PLAN, self.nodes[step.index], place.slot, count, why)

    def move(self, move: Move) -> None:
        source, target = self.blocks.buffer(move.source), self.blocks.buffer(move.destination)
        self.blocks.write(target, self.blocks.read(source, move.size_bytes), target.slot)

    def step(self, step: Step) -> None:
        bound = self.nodes[step.index]
        layer = self.layers[step.index]
        inputs = [(o, place) for o in step.inputs if (place := self.blocks.place(o.address)) is not None]
        outputs = [(o, place) for o in step.outputs if (place := self.blocks.place(o.address)) is not None]
        for operand, place in (*inputs, *outputs):
            if place.slot in self.blocks.regions and place.block != arena_variable(self.blocks.regions[place.slot]):
                why = f"it is looked for in {place.block}, where {place.slot} does not lie"
                self.fault(REGIONS, bound, self.graph.tensor(operand.tensor), -1, why)
        for operand, place in inputs:
            self.require(bound, operand, place)
        working = [(o.address, o.size_bytes) for o in step.scratch]
        working += [(s.address, s.size_bytes) for s in step.staged if s.start < 0]
        if not layer.pins:
            self.require_distances(bound, layer, step, inputs, outputs)
            for address, size in working:
                self.working(bound, address, size, [*inputs, *outputs])
        results = self.results(bound)
        for (_, place), result in zip(outputs, results, strict=True):
            self.blocks.write(place, result.tobytes(), place.slot)
        self.waiting.discard(step.index)
        if self.transfers:
            self.require_copies(step)
        for operand, place in outputs:
            self.require(bound, operand, place)

    def results(self, bound: BoundNode) -> tuple[Array, ...]:
        """A layer's outputs. What touches state is executed in the program's order, everything else is known."""
        if not _touches_state(self.graph, bound):
            return tuple(self.run.value(tensor.name) for tensor in bound.outputs)
        results = self.run.execute(bound)
        for tensor, value in zip(bound.outputs, results, strict=True):
            known = self.executed.values.get(tensor.name)
            if known is not None and not tensor.is_state and (count := differing(value, known)):
                self.fault(ORDER, bound, tensor, count, "the state variables are touched in another order")
            self.run.keep(tensor, value)
        return results

    def working(self, bound: BoundNode, address: Address, size: int, others: list[tuple[Operand, Place]]) -> None:
        """Working memory: nothing that the layer reads or writes lies there."""
        place = self.blocks.buffer(address)
        for operand, other in others:
            if place.overlaps(size, other, operand.size_bytes):
                technique = self.technique(other, place.slot)
                why = f"the layer's working memory {place.slot} lies over it"
                self.fault(technique, bound, self.graph.tensor(operand.tensor), -1, why)
        self.blocks.write(place, bytes([0xA5]) * size, place.slot)

    def require_distances(
        self,
        bound: BoundNode,
        layer: Layer,
        step: Step,
        inputs: list[tuple[Operand, Place]],
        outputs: list[tuple[Operand, Place]],
    ) -> None:
        """No output overlaps an input, or it lies as close as the layer's access order allows."""
        positions = {id(o): position for o, position in zip(step.inputs, layer.operands, strict=True)}
        for operand, place in inputs:
            for number, (output, target) in enumerate(outputs):
                if not place.overlaps(operand.size_bytes, target, output.size_bytes) or place.block == "state":
                    continue
                if OVERLAP in self.disabled:
                    technique = self.technique(place, target.slot)
                    self.fault(technique, bound, self.graph.tensor(operand.tensor), -1, _SHARED)
                orders = [o.order for o in layer.overlaps if (o.input, o.output) == (positions[id(operand)], number)]
                readings = overwritten(orders[0], place.offset, target.offset) if orders else -1
                if readings:
                    why = f"the output at {target.slot} overwrites it while it is read"
                    technique = VIEWS if {place.slot, target.slot} & self.inside else OVERLAP
                    self.fault(technique, bound, self.graph.tensor(operand.tensor), readings, why)


def _hosts(program: Program) -> set[str]:
    return {
        slot.name
        for part in program.pins
        for slot in program.slots
        if slot.region == part.region
        and slot.offset_bytes <= part.offset_bytes
        and part.offset_bytes + part.size_bytes <= slot.offset_bytes + slot.size_bytes
        and slot.first <= part.first
        and part.end <= slot.end
    }


def execute_program(compiled: Compiled, executed: Executed) -> None:
    """Runs the compiled program on the values of one run of its graph, and the programs inside of its operators.

    Raises Faulty.
    """
    partition, program = compiled.partition, compiled.program
    assert executed.graph == partition.graph, "the last step gives the graph that is lowered"
    ProgramRun(program, partition.graph, partition.layers, executed, compiled.options.disabled).execute()
    portable = partition.backends[PORTABLE]
    _execute_parts(program, executed, portable.lower)


def _execute_parts(program: Program, executed: Executed, lower: Callable[[BoundNode], Layer]) -> None:
    """Runs the programs inside of operators, on the inputs that their graphs get in this run."""
    parts = {step.index: step.parts for step in program.steps if step.parts}
    for bound in executed.graph.bound() if parts else ():
        op = bound.node.op
        if bound.node.index not in parts or not isinstance(op, ControlFlow):
            continue
        part_inputs: dict[int, list[Sequence[Array | None]]] = {id(graph): [] for graph in op.graphs}

        def watch(
            graph: Graph,
            inputs: Sequence[Array | None],
            part_inputs: dict[int, list[Sequence[Array | None]]] = part_inputs,
        ) -> None:
            if id(graph) in part_inputs and len(part_inputs[id(graph)]) < PART_RUNS:
                part_inputs[id(graph)].append(tuple(inputs))

        run = Execution(executed.graph, _inputs(executed), dict(executed.before))
        run.values.update(executed.values)
        with watched(watch):
            run.execute(bound)
        for part, graph in zip(parts[bound.node.index], op.graphs, strict=True):
            layers = {node.node.index: lower(node) for node in graph.bound()}
            for inputs in part_inputs[id(graph)]:
                inner = values_of(graph, [value for value in inputs if value is not None], {})
                ProgramRun(part, graph, layers, inner).execute()
                _execute_parts(part, inner, lower)


def _scrambled(executed: Executed, ran: set[int]) -> Executed:
    """A run of the graph whose layers give random bytes, except for those that touch state and those that vanish in memory.

    ran: indices of the layers that do not vanish. A graph stays as it is where an operator with graphs inside touches state.
    """
    graph = executed.graph
    touching = {bound.node.index: bound.node.op for bound in graph.bound() if _touches_state(graph, bound)}
    if any(isinstance(op, ControlFlow) for op in touching.values()):
        return executed
    rng = np.random.default_rng(3)

    def random(tensor: Tensor) -> Array:
        if tensor.dtype is DType.BOOL:
            return rng.integers(0, 2, tensor.shape).astype(bool)
        data = rng.integers(0, 256, tensor.elements * tensor.dtype.bytes, dtype=np.uint8)
        made: Array = data.view(tensor.dtype.value).reshape(tensor.shape)
        return made

    random_values = {
        n: executed.before[n] if graph.tensor(n).is_state else random(graph.tensor(n)) for n in graph.inputs
    }
    run = Execution(graph, random_values, dict(executed.before))
    for bound in graph.bound():
        known = bound.node.index in ran and bound.node.index not in touching
        streamed = known and any(t is not None and t.name in graph.streamed_inputs for t in bound.inputs)
        values = tuple(map(random, bound.outputs)) if known and not streamed else run.execute(bound)
        for tensor, value in zip(bound.outputs, values, strict=True):
            run.keep(tensor, value)
    return run.finished()


def _touches_state(graph: Graph, bound: BoundNode) -> bool:
    return any(t is not None and graph.root(t.name).is_state for t in (*bound.inputs, *bound.outputs))


def _inputs(executed: Executed) -> dict[str, Array]:
    inputs = {name: executed.values.get(name, executed.before.get(name)) for name in executed.graph.inputs}
    return {name: value for name, value in inputs.items() if value is not None}
