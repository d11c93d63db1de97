"""Arm Ethos-U55 and Ethos-U65 as a backend: regions of the graph, compiled by vela, run through the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from emitc.backends.contract import Backend, BackendDef, BackendOption, HostHook, Offload, Refusal, Region, Settings
from emitc.backends.ethos_u import vela
from emitc.backends.ethos_u.export import export, refusal
from emitc.backends.ethos_u.recorded import Bytes, Call, source
from emitc.backends.ethos_u.regions import Cut, convex_regions, cut, in_order
from emitc.errors import EmitcError, Where
from emitc.ir import BoundNode, Graph, Node, Numerics
from emitc.kernels import kernel_of
from emitc.kernels.contract import Expression, Layer, LibraryCall, Pin, Scratch, Table
from emitc.kernels.offloaded import Offloaded
from emitc.program import Program, Requirement
from emitc.target import BuildSupport, Target

NAME = "ethos-u"
ALIGNMENT = 16
_C = Path(__file__).resolve().parent / "c"
_ROUNDS = 8
_SCRATCH, _INPUTS, _OUTPUTS = 1, 3, 4
"""Regions of the driver's call."""
_CALL_CYCLES = 5000.0
"""What a driver call costs the core: reserving, starting, waiting and releasing the NPU."""
_COPY_CYCLES = 0.75
"""Of the core, per byte that is gathered into or spread out of an edge buffer."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """vela's architecture name, multiply-accumulates per cycle, default system configuration and memory modes."""

    architecture: str
    macs: int
    system: str
    memories: tuple[str, ...]


_LIMITS = {"Dedicated_Sram": 384 << 10}
"""Bytes of fast memory that vela may plan with, where it is not the arena."""
_U55 = ("Shared_Sram", "Sram_Only")
_U65 = ("Dedicated_Sram", "Shared_Sram", "Sram_Only")
ACCELERATORS: Mapping[str, Accelerator] = {
    **{
        f"ethos-u55-{macs}": Accelerator("EthosU55", macs, "Ethos_U55_High_End_Embedded", _U55)
        for macs in (32, 64, 128, 256)
    },
    "ethos-u65-256": Accelerator("EthosU65", 256, "Ethos_U65_High_End", _U65),
}
"""By the name that `--npu` takes. The first memory mode is the default."""


def _up(value: int) -> int:
    return -(-value // ALIGNMENT) * ALIGNMENT


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
        """Whether nothing has to be copied."""
        return self.offsets == (0,)


class EthosU(Backend):
    """Regions for one accelerator."""

    name = NAME
    alignment = 32

    def __init__(self, settings: Settings, accelerator: Accelerator, core: Callable[[BoundNode], float]) -> None:
        memory = settings.value("npu-memory") or accelerator.memories[0]
        if memory not in accelerator.memories:
            raise EmitcError(
                f"{settings.value('npu')} has no memory mode {memory}",
                Where(option=f"--npu-memory {memory}"),
                f"it has {', '.join(accelerator.memories)}",
                "choose one of these",
            )
        optimize = "Size" if settings.value("npu-optimise") == "size" else "Performance"
        self.accelerator = settings.value("npu")
        self.configuration = vela.Configuration(
            accelerator.architecture,
            accelerator.macs,
            accelerator.system,
            memory,
            optimize,
            _LIMITS.get(memory, 4 << 20),
        )
        self._core = core
        self._driver = settings.value("ethosu-driver")
        self._rounding = bool(settings.value("allow-npu-rounding"))
        self._always = bool(settings.value("npu-always"))
        self._edges: dict[int, tuple[tuple[tuple[str, int, int], ...], tuple[tuple[str, int, int], ...]]] = {}
        vela.version()

    # ---- cutting ----

    def offload(self, graph: Graph, keep: frozenset[int]) -> Offload:
        """Cuts, asks vela, takes back what it leaves over, and asks again."""
        reasons: dict[int, str] = {}
        for bound in graph.bound():
            why = "kept on the core" if bound.node.index in keep else self._refusal(bound)
            if why:
                reasons[bound.node.index] = why
        settled: dict[tuple[int, ...], tuple[Cut, vela.Compiled]] = {}
        for _ in range(_ROUNDS):
            eligible = frozenset(node.index for node in graph.nodes) - frozenset(reasons)
            wanted = convex_regions(graph, eligible)
            settled = {indices: found for indices, found in settled.items() if indices in wanted}
            changed = False
            for indices in wanted:
                if indices in settled:
                    continue
                answer = self._asked(graph, indices, reasons)
                if answer is None:
                    changed = True
                else:
                    settled[indices] = answer
            if not changed:
                break
        return self._replaced(graph, settled, reasons)

    def _refusal(self, bound: BoundNode) -> str:
        if bound.node.op.numerics is not Numerics.TFLITE and self._rounding:
            bound = replace(bound, node=_rounded_as_tflite(bound.node))
            try:
                kernel_of(bound).check(bound)
            except EmitcError as error:
                return f"TensorFlow Lite has no such operator: {error.what}"
        why = refusal(bound)
        if not why and bound.node.op.numerics is not Numerics.TFLITE:
            why = "the NPU rounds as TensorFlow Lite does, this model is rounded as ONNX Runtime does (--allow-npu-rounding)"
        return why

    def _asked(
        self, graph: Graph, indices: tuple[int, ...], reasons: dict[int, str]
    ) -> tuple[Cut, vela.Compiled] | None:
        """vela's answer for one region; None where nodes were taken out of it, with the reason."""
        region = cut(graph, indices)
        nodes = tuple(_rounded_as_tflite(node) for node in region.graph.nodes)
        region = replace(region, graph=replace(region.graph, nodes=nodes))
        exported = export(region.graph)
        # A region that is the whole net needs no memory besides the scratch; others keep their edges where the planner wants.
        whole = set(region.inputs) <= set(graph.inputs) and {graph.root(n).name for n in graph.outputs} >= set(
            region.outputs
        )
        answer = vela.compile_region(exported.data, self.configuration, separate=not whole)
        if isinstance(answer, vela.Declined):
            blamed = {exported.owners[name] for name in answer.names if name in exported.owners} & set(indices)
            for index in blamed or indices:
                reasons[index] = answer.reason
            return None
        by_name = dict(zip((*exported.inputs, *exported.outputs), (*region.inputs, *region.outputs), strict=True))
        missing = [name for name in by_name if answer.offsets.get(name, -1) < 0]
        if missing:
            for index in indices:
                reasons[index] = "vela does not say where the region's edges lie"
            return None
        answer = replace(answer, offsets={by_name[name]: answer.offsets[name] for name in by_name})
        core = sum(self._core(bound) for bound in region.graph.bound())
        price = answer.cycles + _CALL_CYCLES + _copied(region, answer) * _COPY_CYCLES
        if price >= core and not self._always:
            for index in indices:
                reasons[index] = f"it does not pay: about {price:.0f} cycles with the NPU, {core:.0f} without"
            return None
        return region, answer

    def _replaced(
        self, graph: Graph, settled: Mapping[tuple[int, ...], tuple[Cut, vela.Compiled]], reasons: Mapping[int, str]
    ) -> Offload:
        nodes = list(graph.nodes)
        regions: list[Region] = []
        for indices, (region, answer) in settled.items():
            inside = [node for node in nodes if node.index in indices]
            macs = sum(kernel_of(b).lower(b).macs for b in region.graph.bound())
            layer = self._layer(region, answer, macs)
            bases = (_INPUTS, _OUTPUTS) if answer.separate else (_SCRATCH, _SCRATCH)
            self._edges[indices[0]] = (
                tuple((name, bases[0], answer.offsets[name]) for name in region.inputs),
                tuple((name, bases[1], answer.offsets[name]) for name in region.outputs),
            )
            foreign = any(n.op.numerics is not Numerics.TFLITE for n in inside)
            op = Offloaded(region.graph, layer, foreign)
            label = f"{len(inside)} operators on {self.accelerator}"
            made = Node(op, "NPU", region.inputs, region.outputs, indices[0], label)
            place = nodes.index(inside[0])
            nodes = [made if i == place else node for i, node in enumerate(nodes) if i == place or node not in inside]
            regions.append(
                Region(indices[0], indices, macs, region.edge_bytes, answer.cycles, 1, _cache_operations(answer))
            )
        refusals = tuple(Refusal(index, why) for index, why in sorted(reasons.items()))
        notes = (f"vela {vela.version()} for {self.accelerator}, {self.configuration.memory}",) if settled else ()
        if not settled:
            return Offload(graph, (), refusals, notes)
        inner = {t.name for region, _ in settled.values() for t in region.graph.tensors}
        ordered = in_order(graph, nodes)
        used = {name for node in ordered for name in (*node.inputs, *node.outputs) if name}
        used |= set(graph.inputs) | set(graph.outputs)
        for name in sorted(used):
            tensor = graph.tensor(name)
            while tensor.alias_of:
                tensor = graph.tensor(tensor.alias_of)
                used.add(tensor.name)
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
            scratch.append(Scratch(role, _up(size)))
            return Expression(role)

        base(Expression(table="constants") if answer.constants else Expression("NULL"), len(answer.constants))
        own = buffer("npu_scratch", answer.scratch_bytes) if answer.scratch_bytes else Expression("NULL")
        base(own, answer.scratch_bytes)
        fast = buffer("npu_fast", answer.fast_bytes) if answer.fast_bytes else own
        base(fast, answer.fast_bytes or answer.scratch_bytes)
        if not answer.separate:
            call = LibraryCall(
                "emitc_npu_invoke", tuple(part for pair in bases for part in pair), unused=_parameters(region)
            )
            pins = (
                *(Pin(False, i, "npu_scratch", offset) for i, offset in enumerate(inputs.offsets)),
                *(Pin(True, i, "npu_scratch", offset) for i, offset in enumerate(outputs.offsets)),
            )
            return Layer(
                "ethos_u/invoke", self.accelerator, tuple(range(len(region.inputs))), tuple(tables), scratch=tuple(scratch),
                macs=macs, fallible=True, call=call, pins=pins,
            )  # fmt: skip
        base(Expression("x0") if inputs.direct else buffer("npu_inputs", inputs.bytes), inputs.bytes)
        base(Expression("y0") if outputs.direct else buffer("npu_outputs", outputs.bytes), outputs.bytes)
        arguments = tuple(part for pair in bases for part in pair)
        copies = [
            *(("npu_inputs", offset, f"x{i}", size) for i, (offset, size) in _copies(inputs)),
            *((f"y{i}", offset, "npu_outputs", size) for i, (offset, size) in _copies(outputs)),
        ]
        call = LibraryCall("emitc_npu_invoke", arguments, copies=tuple(copies))
        return Layer(
            "ethos_u/invoke", self.accelerator, tuple(range(len(region.inputs))), tuple(tables), scratch=tuple(scratch),
            macs=macs, fallible=True, call=call,
        )  # fmt: skip

    def lower(self, bound: BoundNode) -> Layer:
        """The layer that was made when the region was cut."""
        return kernel_of(bound).lower(bound)

    # ---- building ----

    def requirement(self, program: Program) -> Requirement:
        """The driver, behind one function that an application may replace."""
        return Requirement(
            NAME,
            "Arm Ethos-U core driver",
            "1.0 or later",
            ("emitc_npu.h",),
            cmake="ethosu_core_driver",
            zephyr=("ARM_ETHOS_U",),
        )

    def files(self, program: Program) -> Mapping[str, str]:
        """The function that calls the driver, and its header."""
        return {name: (_C / name).read_text(encoding="ascii") for name in ("emitc_npu.h", "emitc_npu.c")}

    def runs_on(self, target: Target) -> bool:
        """Everywhere: on this machine the host model takes the driver's calls."""
        return True

    def recorded(self, program: Program, runs: Sequence[Mapping[str, bytes]]) -> Mapping[str, str]:
        """The driver's function, playing back the host model."""
        calls = []
        for step in program.steps:
            if step.backend != NAME or step.call is None:
                continue
            (payload,) = [c.table.values for c in step.constants if c.name == step.tables["payload"]]
            edges = self._edges[step.index]
            for run in runs:
                inputs, outputs = (
                    tuple(Bytes(base, offset, run[name]) for name, base, offset in side) for side in edges
                )
                calls.append(Call(bytes(int(v) for v in payload), inputs, outputs))
        return {"emitc_npu.c": source(tuple(dict.fromkeys(calls)))}

    def support(self, program: Program, target: Target) -> BuildSupport:
        """On this machine the stand-in for the driver; for others its header where --ethosu-driver names it."""
        if not target.compiler_prefix:
            return BuildSupport((_C / "host" / "ethosu_host.c",), (_C / "stub",))
        if self._driver:
            return BuildSupport((), (_header_folder(Path(self._driver)),))
        return BuildSupport((), (_C / "stub",))

    def host_hooks(self) -> tuple[HostHook, ...]:
        """`ethosu_invoke_v3` of the stand-in, routed into the host model."""
        # Imported here: the host model is loaded only where it runs.
        from emitc.host.ethosu.driver import host_callback

        declaration = (
            "void emitc_host_set_npu(int (*function)(const void *payload, int payload_bytes, const uint64_t *bases,"
            " const size_t *sizes, int count));"
        )
        signature = "int(const void *, int, const uint64_t *, const size_t *, int)"
        return (HostHook(declaration, "emitc_host_set_npu", signature, host_callback()),)


def _rounded_as_tflite(node: Node) -> Node:
    """The node under the arithmetic that the NPU has."""
    return replace(node, op=replace(node.op, numerics=Numerics.TFLITE))


def _header_folder(path: Path) -> Path:
    for folder in (path, path / "include"):
        if (folder / "ethosu_driver.h").is_file():
            return folder
    raise EmitcError(
        "there is no driver for the Ethos-U at this path",
        Where(option=f"--ethosu-driver {path}"),
        "neither it nor its folder include has ethosu_driver.h",
        "give the folder of Arm's Ethos-U core driver",
    )


def _edge(region: Cut, names: tuple[str, ...], answer: vela.Compiled) -> _Edge:
    offsets = tuple(answer.offsets[name] for name in names)
    sizes = tuple(region.graph.tensor(name).size_bytes for name in names)
    return _Edge(max(offset + size for offset, size in zip(offsets, sizes, strict=True)), offsets, sizes)


def _parameters(region: Cut) -> tuple[str, ...]:
    """Names of the layer function's parameters for inputs and outputs."""
    return (*(f"x{i}" for i in range(len(region.inputs))), *(f"y{i}" for i in range(len(region.outputs))))


def _copies(edge: _Edge) -> list[tuple[int, tuple[int, int]]]:
    return [] if edge.direct else list(enumerate(zip(edge.offsets, edge.sizes, strict=True)))


def _copied(region: Cut, answer: vela.Compiled) -> int:
    """Bytes that the core moves for a region."""
    if not answer.separate:
        return 0
    edges = (_edge(region, region.inputs, answer), _edge(region, region.outputs, answer))
    return sum(sum(edge.sizes) for edge in edges if not edge.direct)


def _cache_operations(answer: vela.Compiled) -> int:
    """Ranges that the driver cleans before a call and invalidates after it: its base addresses."""
    del answer
    return 2 * 5


def _open(settings: Settings) -> Backend | None:
    chosen = settings.value("npu")
    if not chosen:
        return None
    # What the core would need for a node decides whether a region pays.
    from emitc.backends.portable import Portable

    return EthosU(settings, ACCELERATORS[chosen], Portable(settings.target).cost)


BACKEND = BackendDef(
    NAME,
    "regions on Arm's Ethos-U55 and Ethos-U65, compiled by vela",
    _open,
    kernels=False,
    options=(
        BackendOption("npu", "the accelerator that runs what it can.", "NAME", tuple(ACCELERATORS)),
        BackendOption("npu-memory", "where vela keeps constants and scratch.", "MODE", _U65),
        BackendOption("npu-optimise", "what vela is to save.", "WHAT", ("speed", "size"), "speed"),
        BackendOption("npu-always", "Take regions also where they do not pay.", ""),
        BackendOption(
            "allow-npu-rounding", "Give ONNX models to the NPU too, which rounds as TensorFlow Lite does.", ""
        ),
        BackendOption("ethosu-driver", "Arm's driver: the folder with ethosu_driver.h, for boards.", "PATH"),
    ),
)
