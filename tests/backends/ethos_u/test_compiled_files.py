"""Files that vela has compiled already: the C with the host model as its NPU gives the bits that the model before vela has."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emitc.backends.ethos_u.driver import NAME
from emitc.compiled import Compiled
from emitc.compiler import compile_model, partition_model
from emitc.errors import EmitcError
from emitc.frontends.tflite.npu import OPERATOR, with_npu_operands
from emitc.frontends.tflite.reader import read_tflite
from emitc.report.inspection import inspect_model
from emitc.verify import golden_run, verification
from emitc.verify.engines.run import run_isolated
from emitc.verify.reference import random_samples
from emitc.writers.tflite import ModelSpec, OperatorSpec, write_tflite
from tests.support.single_op import plain, quantized

MODEL = Path(__file__).resolve().parents[3] / "examples" / "models" / "digits_int8.tflite"
U55 = ("ethos-u55-128", "Ethos_U55_High_End_Embedded", "Shared_Sram")
U65 = ("ethos-u65-256", "Ethos_U65_High_End", "Dedicated_Sram")
pytestmark = pytest.mark.usefixtures("vela")


def vela_file(folder: Path, model: Path, chip: tuple[str, str, str] = U55, *options: str) -> Path:
    """The file that vela's own command makes of a model."""
    names = ("--accelerator-config", "--system-config", "--memory-mode")
    arguments = [part for pair in zip(names, chip, strict=True) for part in pair]
    start = "import sys; from ethosu.vela.vela import main; sys.exit(main())"
    command = [sys.executable, "-c", start, str(model), "--config", "Arm/vela.ini", *arguments, *options]
    done = subprocess.run([*command, "--output-dir", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / f"{model.stem}_vela.tflite"


def agrees(made: Compiled, model: Path, samples: int = 6) -> None:
    """Asserts that the C has the outputs of the interpreter for the model before vela, and proves itself."""
    cases = random_samples(made.graph, samples, 5)
    golden = run_isolated(model.read_bytes(), cases, engine="tflm")
    values = golden_run.layer_values(made, cases)
    for found, expected in zip(values, golden.outputs, strict=True):
        for name, value in zip(made.graph.outputs, expected, strict=True):
            root = made.graph.root(name).name
            assert np.array_equal(found[root].reshape(value.shape), value)
    proof = verification.verify(made, samples=3, layers=True, sanitize=True)
    assert proof.match, proof
    assert (proof.reference, proof.rule) == ("numpy", "npu-commands")


@pytest.mark.parametrize("chip", [U55, U65, (*U55[:2], "Sram_Only")], ids=lambda chip: f"{chip[0]} {chip[2]}")
def test_a_whole_net_lies_where_vela_has_placed_it(chip: tuple[str, str, str], tmp_path: Path) -> None:
    made = compile_model(vela_file(tmp_path, MODEL, chip))
    (step,) = made.program.steps
    assert step.backend == NAME
    assert step.call is not None and step.call.copies == ()
    assert len(made.program.pins) == 2
    assert made.program.plan.arena_bytes == sum(-(-s.size_bytes // 32) * 32 for s in step.scratch)
    assert "emitc_npu.c" in made.files
    agrees(made, MODEL)


NETS = (
    "ad01_int8", "ad01_int8_floatio", "catdog_int8_floatio", "hello_world_int8", "ic_resnet_int8", "kws_ref_int8",
    "micro_speech_int8", "openmv_force_int_quant", "person_detect_int8", "vww_96_int8",
)  # fmt: skip


@pytest.mark.corpus
@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("chip", [U55, U65], ids=lambda chip: str(chip[0]))
def test_nets_of_the_corpus(name: str, chip: tuple[str, str, str], shared_models: Path, tmp_path: Path) -> None:
    model = shared_models / "tflite" / f"{name}.tflite"
    made = compile_model(vela_file(tmp_path, model, chip))
    agrees(made, model)


def test_operators_that_vela_leaves_run_on_the_core_and_several_streams_share_the_scratch(tmp_path: Path) -> None:
    made = compile_model(vela_file(tmp_path, MODEL, U55, "--ignore-ops", "ADD,SOFTMAX"))
    kinds = [row.op_type for row in made.partition.assignments]
    assert kinds.count(OPERATOR) >= 2
    assert {"ADD", "SOFTMAX"} <= set(kinds)
    assert {row.backend for row in made.partition.assignments if row.op_type != OPERATOR} == {"portable"}
    for step in made.program.steps:
        if step.backend == NAME:
            assert step.call is not None and step.call.copies == step.call.results == ()
            assert "scratch memory" in step.outputs[-1].tensor
    agrees(made, MODEL)


def test_the_core_around_one_stream(tmp_path: Path) -> None:
    made = compile_model(vela_file(tmp_path, MODEL, U55, "--ignore-ops", "SOFTMAX"))
    assert [row.op_type for row in made.partition.assignments if row.op_type != OPERATOR] == ["SOFTMAX"]
    assert len(made.program.pins) == 2
    agrees(made, MODEL)


def test_a_float_interface_stays_outside_the_scratch(tmp_path: Path) -> None:
    """The scratch need not live while the core quantizes an input that is larger than what the NPU reads."""
    tensors = [quantized((1, 8, 8, 4), 0.05, 1) for _ in range(2)] + [plain((1, 8, 8, 4))]
    named = tuple(replace(tensor, name=f"t{i}") for i, tensor in enumerate(tensors))
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "filter_height": 3, "filter_width": 3}
    operators = (OperatorSpec("QUANTIZE", (2,), (0,)), OperatorSpec("MAX_POOL_2D", (0,), (1,), options))
    model = tmp_path / "pool.tflite"
    model.write_bytes(write_tflite(ModelSpec(named, operators, (2,), (1,))))
    made = compile_model(vela_file(tmp_path, model))
    assert [row.backend for row in made.partition.assignments] == ["portable", NAME]
    assert [pin.what.split(",")[-1].strip() for pin in made.program.pins] == ["from op 1"]
    agrees(made, model)


def test_two_inputs_lie_in_the_scratch(tmp_path: Path) -> None:
    named = tuple(replace(quantized((1, 4, 4, 8), 0.05, 1), name=f"t{i}") for i in range(3))
    operators = (OperatorSpec("ADD", (0, 1), (2,), {"fused_activation_function": "NONE"}),)
    model = tmp_path / "add.tflite"
    model.write_bytes(write_tflite(ModelSpec(named, operators, (0, 1), (2,))))
    made = compile_model(vela_file(tmp_path, model))
    assert len(made.program.pins) == 3
    agrees(made, model)


def test_every_command_takes_such_a_file(tmp_path: Path) -> None:
    path = vela_file(tmp_path, MODEL)
    (row,) = partition_model(path).assignments
    assert (row.op_type, row.backend, row.kernel) == (OPERATOR, NAME, "ethos_u/invoke")
    content = inspect_model(path, {})
    assert content["compiles"]
    assert [each["op"] for each in content["operators"]] == [OPERATOR]


def test_no_engine_and_no_other_npu(tmp_path: Path) -> None:
    path = vela_file(tmp_path, MODEL)
    with pytest.raises(EmitcError, match="no engine runs a model that is compiled for an NPU"):
        verification.verify(compile_model(path), reference="tflm", samples=1)
    with pytest.raises(EmitcError, match="the model is compiled for an NPU already"):
        compile_model(path, backends={"npu": "ethos-u55-128"})


def test_models_without_streams_are_left_alone() -> None:
    data = MODEL.read_bytes()
    source = read_tflite(data)
    assert with_npu_operands(source, data) is source
    assert "emitc_npu.c" not in compile_model(MODEL).files
    assert "partition.json" not in compile_model(MODEL).files


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (b"OfflineMemoryAllocation", b"OfflineMemoryAllocatioN", "the file does not say where its tensors lie"),
        (b"COP1", b"COP2", "has no driver payload"),
    ],
)
def test_damaged_files_are_refused(old: bytes, new: bytes, what: str, tmp_path: Path) -> None:
    path = vela_file(tmp_path, MODEL)
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(EmitcError, match=what):
        compile_model(path)


def test_changed_bytes_give_an_error_or_a_package(tmp_path: Path) -> None:
    """Nothing else: no exception of another kind, whatever stands in the file."""
    data, rng, refused = vela_file(tmp_path, MODEL).read_bytes(), np.random.default_rng(4), 0
    edges = [*range(2500), *range(len(data) - 5000, len(data))]
    for _ in range(60):
        changed = bytearray(data)
        for place in rng.choice(edges, int(rng.integers(1, 5))):
            changed[place] = int(rng.choice([0, 1, 127, 128, 255]))
        (tmp_path / "changed.tflite").write_bytes(bytes(changed))
        try:
            compile_model(tmp_path / "changed.tflite")
        except EmitcError:
            refused += 1
    assert 0 < refused < 60


def test_places_outside_the_scratch_are_refused(tmp_path: Path) -> None:
    path = vela_file(tmp_path, MODEL)
    data = bytearray(path.read_bytes())
    count = len(read_tflite(bytes(data)).tensors)
    header = np.array([0, 1, count], "<i4").tobytes()
    at = bytes(data).index(header) + len(header)
    offsets = np.frombuffer(bytes(data[at : at + 4 * count]), "<i4").copy()
    offsets[offsets > 0] = 1 << 24
    offsets[offsets == 0] = (1 << 24) * (offsets[offsets == 0] * 0 + 1)
    data[at : at + 4 * count] = offsets.tobytes()
    path.write_bytes(bytes(data))
    with pytest.raises(EmitcError, match=r"does not start the arena|lies outside the scratch memory"):
        compile_model(path)
