"""Files of vela whose command streams and operators on the core take turns on one scratch memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.networks.vela import vela_net
from bench.vela_files import RESULTS, WAYS, Figures, Way, measure, measure_own, text, vela_file, way_of
from emitc.backends.ethos_u import precompiled as commands_module
from emitc.backends.ethos_u.options import ACCELERATORS
from emitc.backends.ethos_u.precompiled import Command, preserved_tensors
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.ethosu import simulator
from emitc.frontends.tflite.npu import OPERATOR
from emitc.frontends.tflite.reader import read_tflite
from emitc.ir import DType, Graph, Node, Op, Tensor
from emitc.kernels.npu.npu_command import NpuCommand
from emitc.planner import PlanError
from emitc.verify import golden_run, verification
from emitc.verify.engines.run import run_isolated
from emitc.verify.reference import random_samples
from emitc.writers.tflite import ModelSpec, OperatorSpec, OptionValue, TensorSpec, write_tflite
from tests.support.layer_cases import Scales, Slide, conv_2d
from tests.support.single_op import quantized

STORED = [Figures(**row) for row in json.loads(RESULTS.read_text(encoding="utf-8"))["files"]]
OWN = [Figures(**row) for row in json.loads(RESULTS.read_text(encoding="utf-8"))["own"]]
U55 = Way("ethos-u55-128", "Shared_Sram")
U65 = Way("ethos-u65-256", "Dedicated_Sram")
NONE: dict[str, OptionValue] = {"fused_activation_function": "NONE"}
needs_engine = pytest.mark.usefixtures("vela", "engine")


@pytest.fixture(scope="module")
def engine() -> None:
    """TFLite Micro is there."""
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


@needs_engine
@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("row", STORED, ids=lambda row: f"{row.seed} {row.way}")
def test_made_files(row: Figures) -> None:
    found = measure(row.seed, way_of(row.seed), 2, sanitize=row.seed % 3 == 0)
    assert found is not None and found.right, found
    assert (found.streams, list(found.core)) == (row.streams, list(row.core))
    assert found.arena_planned == row.arena_planned


@needs_engine
@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("row", OWN, ids=lambda row: f"{row.seed} {row.way}")
def test_the_same_nets_cut_by_emitc(row: Figures) -> None:
    found = measure_own(row.seed, way_of(row.seed), 2)
    assert found.right, found


def test_the_stored_files_are_right_in_every_memory_mode() -> None:
    assert len(STORED) >= 50
    assert all(row.right and row.streams >= 2 and row.core and row.elements and row.layers for row in STORED)
    assert {row.way for row in STORED} == {way.name for way in WAYS}
    assert {memory for npu in ACCELERATORS.values() for memory in npu.memories} == {w.memory for w in WAYS}
    for row in STORED:  # the arena of the file, except for what kernels on the core need too
        assert row.arena_planned <= -(-row.file_bytes // 32) * 32 + 64 * row.streams, row
    assert all(row.right for row in OWN) and len(OWN) >= 40


def test_the_table_says_what_is_wrong() -> None:
    wrong = Figures(1, "way", 2, ("ADD",), 10, 3, 4, 0, 0, 64, 32, 0, 64, ("something",))
    assert not wrong.right
    shown = text([STORED[0], wrong])
    assert "NO" in shown and "differing: 3" in shown and "net 1, way: something" in shown
    assert replace(wrong, differing=0, arena_observed=64, errors=()).right


class Small:
    """A net of images [1, 4, 4, 8] of one scale."""

    def __init__(self) -> None:
        self.tensors: list[TensorSpec] = []
        self.operators: list[OperatorSpec] = []
        self.image()

    def tensor(self, spec: TensorSpec) -> int:
        """Adds a tensor; its index."""
        self.tensors.append(replace(spec, name=f"t{len(self.tensors)}"))
        return len(self.tensors) - 1

    def image(self, channels: int = 8) -> int:
        """Adds an image."""
        return self.tensor(quantized((1, 4, 4, channels), 0.05, 3))

    def convolved(self, x: int) -> int:
        """A convolution of 3x3."""
        scales = Scales(0.05, factor=0.003, input_zero_point=3, output=0.05)
        case = conv_2d(f"c{x}", (1, 4, 4, 8), 8, (3, 3), Slide(padding="SAME"), scales)
        constants = [self.tensor(t) for t in case.inputs[1:] if t is not None]
        y = self.tensor(case.outputs[0])
        self.operators.append(OperatorSpec("CONV_2D", (x, *constants), (y,), case.options, case.version))
        return y

    def reversed(self, x: int) -> int:
        """Rows backwards, on the core."""
        axis = self.tensor(TensorSpec("", "int32", (1,), np.array([1], "<i4").tobytes()))
        y = self.tensor(self.tensors[x])
        self.operators.append(OperatorSpec("REVERSE_V2", (x, axis), (y,), {}, 2))
        return y

    def joined(self, kind: str, *inputs: int) -> int:
        """Of several images."""
        shape = self.tensors[inputs[0]].shape
        channels = sum(self.tensors[i].shape[3] for i in inputs) if kind == "CONCATENATION" else shape[3]
        y = self.tensor(replace(self.tensors[inputs[0]], shape=(*shape[:3], channels)))
        options = NONE | {"axis": 3} if kind == "CONCATENATION" else NONE
        self.operators.append(OperatorSpec(kind, inputs, (y,), options, 2))
        return y

    def compiled(self, folder: Path, way: Way, *outputs: int) -> Path:
        """vela's file; the net is net.tflite in the same folder."""
        spec = ModelSpec(tuple(self.tensors), tuple(self.operators), (0,), outputs)
        (folder / "net.tflite").write_bytes(write_tflite(spec))
        return vela_file(folder, folder / "net.tflite", way)


def carried(graph: Graph) -> list[tuple[int, ...]]:
    """What the streams need that earlier ones have left."""
    return [node.op.carried for node in graph.nodes if isinstance(node.op, NpuCommand)]


def proven(path: Path) -> None:
    """Asserts that the C computes what TFLite Micro does for the net before vela, in an arena that is used to its end."""
    made = compile_model(path)
    cases = random_samples(made.graph, 3, 2)
    golden = run_isolated((path.parent / "net.tflite").read_bytes(), cases, engine="tflm")
    for found, expected in zip(golden_run.layer_values(made, cases), golden.outputs, strict=True):
        for name, value in zip(made.graph.outputs, expected, strict=True):
            assert np.array_equal(found[made.graph.root(name).name], value)
    proof = verification.verify(made, samples=2, layers=True)
    assert proof.match and proof.arena_planned == proof.arena_observed, proof


@needs_engine
@pytest.mark.parametrize("way", [U55, U65], ids=lambda way: way.name)
def test_a_stream_reads_what_another_has_left(way: Way, tmp_path: Path) -> None:
    """The first convolution's result is no tensor of vela's file: its two readers are on the NPU."""
    net = Small()
    kept = net.convolved(0)
    turned = net.reversed(net.convolved(kept))
    path = net.compiled(tmp_path, way, net.joined("ADD", turned, kept))
    needed = carried(compile_model(path).graph)
    assert needed[0] == ()
    assert sum(needed[1][1::2]) - sum(needed[1][::2]) == 4 * 4 * 8
    proven(path)


@needs_engine
@pytest.mark.parametrize("way", [U55, replace(U55, legacy=True), U65], ids=lambda way: way.name)
def test_two_streams_write_one_tensor(way: Way, tmp_path: Path) -> None:
    """The first stream writes some channels, the second the others; both may claim the output, or one of them."""
    net = Small()
    first = net.convolved(0)
    turned = net.reversed(first)
    second = net.convolved(turned)
    path = net.compiled(tmp_path, way, net.joined("CONCATENATION", net.convolved(first), second), second)
    proven(path)


@needs_engine
def test_without_memory_that_is_shared_the_answer_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof sees a memory that the C does not keep."""
    net = Small()
    kept = net.convolved(0)
    path = net.compiled(tmp_path, U55, net.joined("ADD", net.reversed(net.convolved(kept)), kept))
    real = commands_module.layer

    def apart(bound: object, scratch_bytes: int, inside: object, places: object = ()) -> object:
        made = real(bound, scratch_bytes, frozenset(), places)  # type: ignore[arg-type]
        return replace(made, memory=replace(made.memory, writes=())) if made.memory else made

    monkeypatch.setattr(commands_module, "layer", apart)
    with pytest.raises(PlanError, match="needs bytes"):
        compile_model(path)


def test_places_that_are_overwritten_are_given_up() -> None:
    """`late` is read after the second stream, which writes over its place; `kept` ends before."""

    def tensor(name: str) -> Tensor:
        return Tensor(name, DType.INT8, (1, 16), None)

    graph = Graph(
        "g",
        tuple(map(tensor, ("x", "kept", "late", "y", "z"))),
        (
            Node(Op(), "NPU", ("x",), ("kept", "late"), 0),
            Node(Op(), "NPU", ("kept",), ("y",), 1),
            Node(Op(), "ADD", ("y", "late"), ("z",), 2),
        ),
        ("x",),
        ("z",),
    )
    streams = {
        0: Command((("x", 0, 16),), (("kept", 16), ("late", 32)), (), ((16, 48),)),
        1: Command((("kept", 16, 32),), (("y", 0),), (), ((0, 16), (32, 48))),
    }
    wanted = {"x": 0, "kept": 16, "late": 32, "y": 0, "z": 16}
    assert preserved_tensors(graph, streams, wanted) == {name: at for name, at in wanted.items() if name != "late"}
    free = {0: streams[0], 1: replace(streams[1], writes=((0, 16),))}
    assert preserved_tensors(graph, free, wanted) == wanted
    assert "z" not in preserved_tensors(graph, free, wanted | {"z": 8})  # over its own input
    needing = {0: free[0], 1: replace(free[1], carried=((0, 8),))}
    assert "x" not in preserved_tensors(graph, needing, wanted)  # what lies where a stream wants another stream's bytes


def allocation(data: bytes) -> tuple[int, int]:
    """Where the offsets begin in a file of vela, and how many there are."""
    count = len(read_tflite(data).tensors)
    header = np.array([0, 1, count], "<i4").tobytes()
    return data.index(header) + len(header), count


def changed(data: bytes, places: dict[int, int]) -> bytes:
    """The file with other places of tensors."""
    at, _ = allocation(data)
    found = bytearray(data)
    for index, place in places.items():
        found[at + 4 * index : at + 4 * index + 4] = np.array([place], "<i4").tobytes()
    return bytes(found)


@pytest.fixture
def mixed(tmp_path: Path, vela: None) -> Path:
    """A file with two streams and a float operator on the core between DEQUANTIZE and QUANTIZE."""
    del vela
    model = tmp_path / "net.tflite"
    model.write_bytes(vela_net(0))
    return vela_file(tmp_path, model, U55)


def test_places_that_contradict_each_other(mixed: Path) -> None:
    """A tensor between operators of the core may lie anywhere: where it cannot, it gets bytes of its own."""
    data = mixed.read_bytes()
    model = read_tflite(data)
    npu = {t.index for n in model.nodes if n.op_type == OPERATOR for t in (*n.inputs, *n.outputs) if t is not None}
    core = [t for n in model.nodes if n.op_type != OPERATOR for t in n.outputs if t.index not in npu]
    assert core
    before = compile_model(mixed)
    assert {t.source for t in before.graph.tensors} >= {t.index for t in core}
    for place in (0, 16, -1):
        mixed.write_bytes(changed(data, {t.index: place for t in core}))
        made = compile_model(mixed)
        proof = verification.verify(made, samples=2, layers=True)
        assert proof.match, proof


def test_a_tensor_of_a_stream_in_a_wrong_place_is_refused(mixed: Path) -> None:
    data = mixed.read_bytes()
    streams = [n for n in read_tflite(data).nodes if n.op_type == OPERATOR]
    wanted = streams[1].inputs[4]
    assert wanted is not None
    for place, what in (
        (-1, "has a tensor outside the scratch memory"),
        (1 << 20, "has a tensor outside the scratch memory"),
    ):
        mixed.write_bytes(changed(data, {wanted.index: place}))
        with pytest.raises(EmitcError, match=what) as caught:
            compile_model(mixed)
        assert "op 2" in str(caught.value)
    (memory,) = {n.inputs[2].index for n in streams if n.inputs[2] is not None}
    mixed.write_bytes(changed(data, {memory: 64}))
    with pytest.raises(EmitcError, match="has a scratch memory that does not start the arena"):
        compile_model(mixed)


def test_a_stream_that_reads_what_nothing_has_written_is_refused(mixed: Path) -> None:
    """The first stream's input lies elsewhere than the stream reads it."""
    data = mixed.read_bytes()
    first = read_tflite(data).nodes[0].inputs[4]
    assert first is not None
    mixed.write_bytes(changed(data, {first.index: 11200}))
    with pytest.raises(EmitcError, match="reads what is not there"):
        compile_model(mixed)


def test_changed_places_give_an_error_or_a_package(mixed: Path) -> None:
    data, rng, refused = mixed.read_bytes(), np.random.default_rng(3), 0
    _, count = allocation(data)
    for _ in range(60):
        moved = {int(i): int(rng.integers(-2, 14000)) for i in rng.choice(count, int(rng.integers(1, 4)))}
        mixed.write_bytes(changed(data, moved))
        try:
            compile_model(mixed)
        except EmitcError:
            refused += 1
    assert 0 < refused < 60


@needs_engine
@pytest.mark.parametrize("seed", [0, 1, 6])
def test_streams_that_the_decoder_does_not_know(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of them but vela's plan: all that earlier ones have left is kept, and the answer is the same."""
    (tmp_path / "net.tflite").write_bytes(vela_net(seed))
    path = vela_file(tmp_path, tmp_path / "net.tflite", U55)
    known = compile_model(path)
    monkeypatch.setattr(simulator, "scratch_effects", lambda *_: None)
    made = compile_model(path)
    kept, needed = (sum(sum(r[1::2]) - sum(r[::2]) for r in carried(each.graph)) for each in (made, known))
    assert kept > needed
    cases = random_samples(made.graph, 2, seed)
    golden = run_isolated((tmp_path / "net.tflite").read_bytes(), cases, engine="tflm")
    for found, expected in zip(golden_run.layer_values(made, cases), golden.outputs, strict=True):
        for name, value in zip(made.graph.outputs, expected, strict=True):
            assert np.array_equal(found[made.graph.root(name).name].reshape(value.shape), value)


def test_a_file_that_asks_for_endless_work_is_refused(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "_MOST_BYTES", 20_000)
    with pytest.raises(EmitcError, match="the command streams touch more memory than emitc follows") as caught:
        compile_model(mixed)
    assert "op 0 CUSTOM:ethos-u" in str(caught.value)
