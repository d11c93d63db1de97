"""Arm Ethos-U55 and Ethos-U65 as a backend: regions of the graph, compiled by vela, run through the driver.

The graph is cut into the largest convex sets of nodes that the NPU may run. A set is convex when no path leaves it and comes
back: all its inputs can be there before it starts. Sets grow along the order of execution. Two that meet at a node become one
where that stays convex. Nodes that touch a state variable are in none, and keep their order: a path leads from one to the next,
although no tensor does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from emitc.backends.contract import Offload, Region, Settings
from emitc.backends.ethos_u import vela
from emitc.backends.ethos_u.driver import Driven, Edge
from emitc.backends.ethos_u.export_tflite import export, refusal
from emitc.backends.ethos_u.options import Accelerator
from emitc.errors import EmitcError, Note, NoteCode, Where
from emitc.ethosu.simulator import scratch_effects
from emitc.ir import BoundNode, Graph, Node, Numerics
from emitc.kernels import kernel_of
from emitc.kernels.npu.npu_command import ALIGNMENT, SCRATCH_REGION, Offloaded
from emitc.layer import Expression, Layer, LibraryCall, Pin, Scratch, Table
from emitc.records import dataclass, replace


@dataclass(slots=True)
class _Grown:
    """A set of nodes. ancestors: sets from which a path leads to it through nodes outside of both."""

    nodes: set[int]
    ancestors: set[int]


def convex_regions(graph: Graph, eligible: frozenset[int]) -> tuple[tuple[int, ...], ...]:
    """Disjoint convex sets of the eligible nodes, each with its indices in order of execution."""
    states = {tensor.name for tensor in graph.states}
    writers = {graph.root(name).name: node.index for node in graph.nodes for name in node.outputs if name not in states}
    grown: dict[int, _Grown] = {}
    member: dict[int, int] = {}
    reached: dict[int, set[int]] = {}  # sets from which some path leads to the node, its own left out
    waits = waits_for_state(graph)
    for node in graph.nodes:
        sources = {writers[root] for name in node.inputs if name and (root := graph.root(name).name) in writers}
        sources |= waits.get(node.index, set())
        reached[node.index] = _reached(sources, member, reached)
        if node.index not in eligible:
            continue
        chosen = _joined(node, sources, member, reached, grown)
        grown[chosen].nodes.add(node.index)
        member[node.index] = chosen
        reached[node.index] -= {chosen}
        grown[chosen].ancestors |= reached[node.index]
    order = {node.index: i for i, node in enumerate(graph.nodes)}
    return tuple(tuple(sorted(region.nodes, key=order.__getitem__)) for region in grown.values())


def waits_for_state(graph: Graph) -> dict[int, set[int]]:
    """By index of a node, the nodes that have to run before it because of a state variable."""
    writers: dict[int, set[int]] = {}
    for earlier, later in graph.state_order():
        writers.setdefault(graph.nodes[later].index, set()).add(graph.nodes[earlier].index)
    return writers


def _reached(sources: set[int], member: dict[int, int], reached: dict[int, set[int]]) -> set[int]:
    result: set[int] = set()
    for source in sources:
        result |= reached[source]
        if source in member:
            result.add(member[source])
    return result


def _ancestors(sets: set[int], grown: dict[int, _Grown]) -> set[int]:
    """The sets from which some chain of sets leads to one of these: none of them may need a result of these in turn."""
    ancestors: set[int] = set()
    waiting = list(sets)
    while waiting:
        for ancestor in grown[waiting.pop()].ancestors - ancestors:
            ancestors.add(ancestor)
            waiting.append(ancestor)
    return ancestors


def _joined(
    node: Node, sources: set[int], member: dict[int, int], reached: dict[int, set[int]], grown: dict[int, _Grown]
) -> int:
    """The set that the node joins: those of its operands where that is legal, merged; else a new one."""
    wanted = sorted({member[source] for source in sources if source in member})
    legal: list[int] = []
    for candidate in wanted:
        group = {*legal, candidate}
        outside = {s for s in sources if member.get(s) not in group}
        detour = any(group & reached[s] for s in outside)
        mixed = any(group & grown[number].ancestors for number in group)
        before = reached[node.index].union(*(grown[number].ancestors for number in group)) - group
        if not detour and not mixed and not group & _ancestors(before, grown):
            legal.append(candidate)
    if not legal:
        grown[node.index] = _Grown(set(), set())
        return node.index
    first, *rest = legal
    for other in rest:
        for index in grown[other].nodes:
            member[index] = first
        grown[first].nodes |= grown[other].nodes
        grown[first].ancestors |= grown[other].ancestors
        del grown[other]
        for closed in (*(g.ancestors for g in grown.values()), *reached.values()):
            if other in closed:
                closed.discard(other)
                closed.add(first)
    grown[first].ancestors.discard(first)
    return first


@dataclass(frozen=True, slots=True)
class Cut:
    """A region as a graph of its own, and what crosses its border. inputs, outputs: names in both graphs."""

    graph: Graph
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def edge_bytes(self) -> int:
        return sum(self.graph.tensor(name).size_bytes for name in (*self.inputs, *self.outputs))


def cut(graph: Graph, indices: Sequence[int]) -> Cut:
    """The region of these nodes. Its inputs and outputs are tensors that own their bytes."""
    chosen = set(indices)
    nodes = tuple(node for node in graph.nodes if node.index in chosen)
    written = {graph.root(name).name for node in nodes for name in node.outputs}
    read = [graph.root(name) for node in nodes for name in node.inputs if name]
    inputs = tuple(dict.fromkeys(t.name for t in read if not t.is_constant and t.name not in written))
    others = [name for node in graph.nodes if node.index not in chosen for name in node.inputs if name]
    outside = {graph.root(name).name for name in (*others, *graph.outputs)}
    made = [graph.root(name).name for node in nodes for name in node.outputs]
    outputs = tuple(name for name in made if name in outside)
    names = {name for node in nodes for name in (*node.inputs, *node.outputs) if name}
    names |= shared_with(graph, names)
    tensors = tuple(tensor for tensor in graph.tensors if tensor.name in names)
    return Cut(Graph(graph.name, tensors, nodes, inputs, outputs), inputs, outputs)


def shared_with(graph: Graph, names: Iterable[str]) -> set[str]:
    """The tensors whose bytes the named ones share."""
    shared: set[str] = set()
    for name in names:
        tensor = graph.tensor(name)
        while tensor.alias_of:
            tensor = graph.tensor(tensor.alias_of)
            shared.add(tensor.name)
    return shared


def in_order(graph: Graph, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes in an order in which each follows the nodes that it reads; otherwise the given order is kept.

    graph: as it was before regions were cut, with the order that state asks for.
    """
    waiting = list(nodes)
    ready = {tensor.name for tensor in graph.tensors if tensor.is_constant or tensor.is_state}
    ready |= {graph.root(name).name for name in graph.inputs}
    waits = waits_for_state(graph)
    ordered: list[Node] = []
    while waiting:
        left = {node.index for node in waiting}
        node = next(
            n
            for n in waiting
            if all(graph.root(name).name in ready for name in n.inputs if name) and not waits.get(n.index, set()) & left
        )
        waiting.remove(node)
        ready |= {graph.root(name).name for name in node.outputs}
        ordered.append(node)
    return tuple(ordered)


_ROUNDS = 8
_INPUTS, _OUTPUTS = 3, 4
"""Regions of the driver's call."""
_CALL_CYCLES = 5000.0
"""What a driver call costs the core: reserving, starting, waiting and releasing the NPU."""
_COPY_CYCLES = 0.75
"""Of the core, per byte that is gathered into or spread out of an edge buffer."""


_CACHE_OPERATIONS = 2 * 5
"""Ranges that the driver cleans before a call and invalidates after it: its base addresses."""
_LIMITS = {"Dedicated_Sram": 384 << 10}
"""Bytes of fast memory that vela may plan with, where it is not the arena."""


@dataclass(frozen=True, slots=True)
class _Edge:
    """Tensors on one side of a region. bytes: of the driver's region. offsets: of each tensor in it.

    direct: one tensor that fills the region, so that the driver gets its own address.
    """

    bytes: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def direct(self) -> bool:
        return self.offsets == (0,)

    @property
    def copies(self) -> tuple[tuple[int, int, int], ...]:
        """Position, offset and bytes of each tensor that is copied."""
        return () if self.direct else tuple(zip(range(len(self.sizes)), self.offsets, self.sizes, strict=True))


class EthosU(Driven):
    """Regions for one accelerator."""

    def __init__(self, settings: Settings, accelerator: Accelerator, core: Callable[[BoundNode], float]) -> None:
        super().__init__(settings.value("ethosu-driver"))
        memory = settings.value("npu-memory") or accelerator.memories[0]
        if memory not in accelerator.memories:
            what, why = f"{settings.value('npu')} has no memory mode {memory}", ", ".join(accelerator.memories)
            raise EmitcError(what, Where(option=f"--npu-memory {memory}"), f"it has {why}", "choose one of these")
        optimize = "Size" if settings.value("npu-optimise") == "size" else "Performance"
        self.accelerator = settings.value("npu")
        limit = _LIMITS.get(memory, 4 << 20)
        self.configuration = vela.Configuration(
            accelerator.architecture, accelerator.macs, accelerator.system, memory, optimize, limit
        )
        self._core = core
        self._rounding = bool(settings.value("allow-npu-rounding"))
        self._always = bool(settings.value("npu-always"))
        vela.version()

    # ---- cutting ----

    def offload(self, graph: Graph, keep: frozenset[int]) -> Offload:
        """Cuts regions, compiles them with vela, takes out the nodes that vela refuses, and compiles again."""
        refusals = {
            b.node.index: "kept on the core" if b.node.index in keep else self._refusal(graph, b) for b in graph.bound()
        }
        reasons = {index: why for index, why in refusals.items() if why}
        compiled: dict[tuple[int, ...], tuple[Cut, vela.Compiled]] = {}
        for _ in range(_ROUNDS):
            eligible = frozenset(node.index for node in graph.nodes) - frozenset(reasons)
            wanted = convex_regions(graph, eligible)
            compiled = {indices: cut for indices, cut in compiled.items() if indices in wanted}
            changed = False
            for indices in wanted:
                if indices in compiled:
                    continue
                answer = self._compile(graph, indices, reasons)
                if answer is None:
                    changed = True
                else:
                    compiled[indices] = answer
            if not changed:
                break
        return self._replaced(graph, compiled, reasons)

    def _refusal(self, graph: Graph, bound: BoundNode) -> str:
        tensors = [tensor for tensor in (*bound.inputs, *bound.outputs) if tensor is not None]
        if any(tensor.is_state for tensor in tensors):
            return "it reads or writes state, which is the core's"
        if any(tensor.quantization != graph.root(tensor.name).quantization for tensor in tensors):
            return "it reads values with another scale or zero point than they were written with"
        if bound.node.op.numerics is not Numerics.TFLITE and self._rounding:
            bound = replace(bound, node=_rounded_as_tflite(bound.node))
            try:
                kernel_of(bound).check(bound)
            except EmitcError as error:
                return f"TensorFlow Lite has no such operator: {error.what}"
        why = refusal(bound)
        if not why and bound.node.op.numerics is not Numerics.TFLITE:
            engine = bound.node.op.numerics.engine
            why = f"the NPU rounds as TensorFlow Lite does, this model is rounded as {engine} does"
            why += " (--allow-npu-rounding)"
        return why

    def _compile(
        self, graph: Graph, indices: tuple[int, ...], reasons: dict[int, str]
    ) -> tuple[Cut, vela.Compiled] | None:
        """The compiled region; None where vela refused nodes, which then have a reason and are taken out."""
        region = cut(graph, indices)
        if not region.inputs:
            reasons |= dict.fromkeys(indices, "it is computed from constants alone")
            return None
        nodes = tuple(_rounded_as_tflite(node) for node in region.graph.nodes)
        region = replace(region, graph=replace(region.graph, nodes=nodes))
        exported = export(region.graph)
        # A region that is the whole net needs only its scratch; others keep their edges where the planner wants.
        # The NPU may write over what it has read: nothing else may want the inputs.
        outputs = {graph.root(name).name for name in graph.outputs}
        others = {graph.root(n).name for node in graph.nodes if node.index not in indices for n in node.inputs if n}
        whole = set(region.inputs) <= set(graph.inputs) - others - outputs and set(region.outputs) <= outputs
        answer = vela.compile_region(exported.data, self.configuration, separate=not whole)
        if isinstance(answer, vela.Declined):
            blamed = {exported.owners[name] for name in answer.names if name in exported.owners} & set(indices)
            reasons |= dict.fromkeys(blamed or indices, answer.reason)
            return None
        by_name = dict(zip((*exported.inputs, *exported.outputs), (*region.inputs, *region.outputs), strict=True))
        missing = [name for name in by_name if answer.offsets.get(name, -1) < 0]
        if missing:
            reasons |= dict.fromkeys(indices, "vela does not say where the region's edges lie")
            return None
        answer = replace(answer, offsets={by_name[name]: answer.offsets[name] for name in by_name})
        if answer.separate:
            answer = replace(answer, scratch_bytes=_used(answer))
        core = sum(self._core(bound) for bound in region.graph.bound())
        price = answer.cycles + _CALL_CYCLES + _copied(region, answer) * _COPY_CYCLES
        if price >= core and not self._always:
            why = f"it does not pay: about {price:.0f} cycles with the NPU, {core:.0f} without"
            reasons |= dict.fromkeys(indices, why)
            return None
        return region, answer

    def _replaced(
        self, graph: Graph, compiled: Mapping[tuple[int, ...], tuple[Cut, vela.Compiled]], reasons: Mapping[int, str]
    ) -> Offload:
        nodes = list(graph.nodes)
        regions: list[Region] = []
        for indices, (region, answer) in compiled.items():
            inside = [node for node in nodes if node.index in indices]
            macs = sum(kernel_of(b).lower(b).macs for b in region.graph.bound())
            layer = self._layer(region, answer, macs)
            bases = (_INPUTS, _OUTPUTS) if answer.separate else (SCRATCH_REGION, SCRATCH_REGION)
            self.edges[indices[0]] = (
                tuple(Edge(name, bases[0], answer.offsets[name]) for name in region.inputs),
                tuple(Edge(name, bases[1], answer.offsets[name]) for name in region.outputs),
            )
            other_arithmetic = any(n.op.numerics is not Numerics.TFLITE for n in inside)
            op = Offloaded(region.graph, layer, other_arithmetic)
            label = f"{len(inside)} operators on {self.accelerator}"
            made = Node(op, "NPU", region.inputs, region.outputs, indices[0], label)
            place = nodes.index(inside[0])
            nodes = [made if i == place else node for i, node in enumerate(nodes) if i == place or node not in inside]
            regions.append(Region(indices[0], indices, macs, region.edge_bytes, answer.cycles, 1, _CACHE_OPERATIONS))
        refusals = dict(sorted(reasons.items()))
        used_tool = f"vela {vela.version()} for {self.accelerator}, {self.configuration.memory}"
        notes = (Note(NoteCode.TOOL, used_tool),) if compiled else ()
        if not compiled:
            return Offload(graph, (), refusals, notes)
        inner = {t.name for region, _ in compiled.values() for t in region.graph.tensors}
        ordered = in_order(graph, nodes)
        used = {name for node in ordered for name in (*node.inputs, *node.outputs) if name}
        used |= set(graph.inputs) | set(graph.outputs)
        used |= shared_with(graph, used)
        tensors = tuple(t for t in graph.tensors if t.name in used or t.name not in inner)
        return Offload(replace(graph, tensors=tensors, nodes=ordered), tuple(regions), refusals, notes)

    # ---- lowering ----

    def _layer(self, region: Cut, answer: vela.Compiled, macs: int) -> Layer:
        """A driver call with its constants; edges of several tensors are gathered in buffers of their own."""
        inputs, outputs = _edge(region, region.inputs, answer), _edge(region, region.outputs, answer)
        tables = [Table("payload", "uint8_t", tuple(answer.payload), f"commands for {self.accelerator}", ALIGNMENT)]
        if answer.constants:
            what = "weights, scales and tables, as vela packs them"
            tables.append(Table("constants", "uint8_t", tuple(answer.constants), what, ALIGNMENT))
        scratch: list[Scratch] = []
        bases: list[tuple[Expression, Expression]] = []

        def base(expression: Expression, size: int) -> None:
            bases.append((expression, Expression(f"{size}u")))

        def buffer(role: str, size: int) -> Expression:
            scratch.append(Scratch(role, -(-size // ALIGNMENT) * ALIGNMENT))
            return Expression(role)

        base(Expression(table="constants") if answer.constants else Expression("NULL"), len(answer.constants))
        own = buffer("npu_scratch", answer.scratch_bytes) if answer.scratch_bytes else Expression("NULL")
        base(own, answer.scratch_bytes)
        fast = buffer("npu_fast", answer.fast_bytes) if answer.fast_bytes else own
        base(fast, answer.fast_bytes or answer.scratch_bytes)
        pins: tuple[Pin, ...] = ()
        if answer.separate:
            base(Expression("x0") if inputs.direct else buffer("npu_inputs", inputs.bytes), inputs.bytes)
            base(Expression("y0") if outputs.direct else buffer("npu_outputs", outputs.bytes), outputs.bytes)
        else:
            pins = tuple(
                Pin(output, position, "npu_scratch", offset)
                for output, edge in ((False, inputs), (True, outputs))
                for position, offset in enumerate(edge.offsets)
            )
        call = LibraryCall(
            "emitc_npu_invoke",
            tuple(part for pair in bases for part in pair),
            copies=tuple(("npu_inputs", offset, f"x{i}", size) for i, offset, size in inputs.copies)
            if not pins
            else (),
            results=tuple((f"y{i}", offset, "npu_outputs", size) for i, offset, size in outputs.copies)
            if not pins
            else (),
            unused=tuple(f"{'y' if pin.output else 'x'}{pin.position}" for pin in pins),
        )
        return Layer(
            "ethos_u/invoke", self.accelerator, tuple(range(len(region.inputs))), tuple(tables), scratch=tuple(scratch),
            macs=macs, fallible=True, call=call, pins=pins,
        )  # fmt: skip

    def lower(self, bound: BoundNode) -> Layer:
        """The layer that was made when the region was cut."""
        return kernel_of(bound).lower(bound)


def _used(answer: vela.Compiled) -> int:
    """Bytes of the scratch memory that the stream uses, where it holds no edges: vela states some more at times."""
    effects = scratch_effects(answer.payload, answer.scratch_bytes, answer.fast_bytes)
    return answer.scratch_bytes if effects is None else effects.end


def _rounded_as_tflite(node: Node) -> Node:
    return replace(node, op=replace(node.op, numerics=Numerics.TFLITE))


def _edge(region: Cut, names: tuple[str, ...], answer: vela.Compiled) -> _Edge:
    offsets = tuple(answer.offsets[name] for name in names)
    sizes = tuple(region.graph.tensor(name).size_bytes for name in names)
    return _Edge(max(offset + size for offset, size in zip(offsets, sizes, strict=True)), offsets, sizes)


def _copied(region: Cut, answer: vela.Compiled) -> int:
    """Bytes that the core moves for a region."""
    if not answer.separate:
        return 0
    edges = (_edge(region, names, answer) for names in (region.inputs, region.outputs))
    return sum(size for edge in edges for _, _, size in edge.copies)
