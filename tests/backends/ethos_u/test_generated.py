"""Models with regions on the NPU: the C with the driver's calls routed to the host model, against the interpreter."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from emitc.backends.ethos_u.definition import NAME
from emitc.backends.ethos_u.driver import Bytes, Call, source
from emitc.backends.ethos_u.options import ACCELERATORS
from emitc.boards import verify
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.verify import verification
from emitc.verify.build import WARNINGS, run_compiler

MODELS = Path(__file__).resolve().parents[3] / "examples" / "models"
CORPUS = MODELS.parents[2] / "shared" / "models"
STUB = MODELS.parents[1] / "emitc" / "backends" / "ethos_u" / "c" / "stub"
pytestmark = pytest.mark.usefixtures("vela")


def compiled(model: str, npu: str = "ethos-u55-128", *, keep: tuple[str, ...] = (), **more: str) -> Compiled:
    backends = {"npu": npu, "npu-always": "yes", **{name.replace("_", "-"): value for name, value in more.items()}}
    return compile_model(MODELS / model, backends=backends, cpu_only=keep)


def regions(made: Compiled) -> list[list[int]]:
    return [list(region.nodes) for _, region in made.partition.regions]


CASES = [
    (npu, memory, optimise)
    for npu, accelerator in ACCELERATORS.items()
    for memory in accelerator.memories
    for optimise in ("speed", "size")
]


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize(("npu", "memory", "optimise"), CASES)
def test_every_configuration_gives_the_interpreters_bits(npu: str, memory: str, optimise: str) -> None:
    made = compiled("digits_int8.tflite", npu, npu_memory=memory, npu_optimise=optimise)
    assert regions(made) == [[row.index for row in made.partition.assignments]]
    proof = verification.verify(made, samples=10, layers=True)
    assert proof.match, proof
    assert proof.elements == 100


@pytest.mark.parametrize("keep", ["ADD", "DEPTHWISE_CONV_2D", "SOFTMAX"])
@pytest.mark.parametrize("npu", ["ethos-u55-64", "ethos-u65-256"])
def test_a_mixed_graph_runs_on_both(npu: str, keep: str) -> None:
    """Operators that stay on the core cut the net into regions; the tensors between them are compared too."""
    made = compiled("digits_int8.tflite", npu, keep=(keep,))
    rows = {row.index: row for row in made.partition.assignments}
    kept = [row for row in rows.values() if row.op_type == keep]
    assert kept
    assert {row.backend for row in kept} == {"portable"}
    assert all((NAME, "kept on the core") in row.refused for row in kept)
    assert sum(map(len, regions(made))) == len(rows) - len(kept)
    assert len(regions(made)) >= (1 if keep == "SOFTMAX" else 2)
    proof = verification.verify(made, samples=10, layers=True)
    assert proof.match, proof
    assert proof.layers_checked == 10 * sum(len(step.outputs) for step in made.program.steps)


@pytest.mark.parametrize("model", ["kws_ref_int8.tflite", "person_detect_int8.tflite"])
def test_larger_nets_need_no_more_memory_than_velas_scratch(model: str) -> None:
    made = compiled(model)
    (step,) = made.program.steps
    (scratch,) = step.scratch
    assert made.program.plan.arena_bytes == -(-scratch.size_bytes // 32) * 32
    assert {slot.what.split(",")[-1].strip() for slot in made.program.pins} == {"input 0", "from op 0"}
    assert verification.verify(made, samples=3).match


def test_a_region_that_does_not_pay_stays_on_the_core() -> None:
    found = compile_model(MODELS / "digits_int8.tflite", backends={"npu": "ethos-u55-32"}, cpu_only=("CONV_2D",))
    for row in found.partition.assignments:
        if row.backend == "portable" and row.op_type != "CONV_2D":
            assert any("it does not pay" in reason for _, reason in row.refused)


def test_onnx_needs_leave_for_another_rounding() -> None:
    refused = compiled("digits_qoperator.onnx")
    assert regions(refused) == []
    assert any("--allow-npu-rounding" in reason for row in refused.partition.assignments for _, reason in row.refused)


@pytest.mark.parametrize("model", ["digits_qoperator.onnx", "digits_qdq.onnx"])
def test_onnx_with_leave_equals_the_arithmetic_of_tflite_and_the_deviation_is_told(model: str) -> None:
    made = compiled(model, allow_npu_rounding="yes")
    assert len(regions(made)) == 1
    proof = verification.verify(made, samples=20, sanitize=True)
    assert proof.match, proof
    assert proof.rule == "npu"
    assert proof.reference == "onnxruntime"
    assert proof.numpy_differing == 0
    assert 0 < proof.differing <= proof.elements // 4
    plain = compile_model(MODELS / model)
    assert verification.verify(plain, samples=10).differing == 0


@pytest.mark.board
@pytest.mark.parametrize(("model", "keep"), [("digits_int8.tflite", "ADD"), ("digits_qoperator.onnx", "QLinearAdd")])
def test_a_mixed_graph_runs_on_an_emulated_m55_with_the_npus_results_played_back(
    model: str, keep: str, tmp_path: Path
) -> None:
    for tool in ("qemu-system-arm", "arm-none-eabi-gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    pytest.importorskip("platformio", reason="PlatformIO, which builds for the boards, is not installed")
    backends = {"npu": "ethos-u55-128", "npu-always": "yes", "allow-npu-rounding": "yes"}
    made = compile_model(MODELS / model, backends=backends, cpu_only=(keep,), package="platformio", target="cortex-m55")
    assert len(regions(made)) >= 2
    result = verify.on_emulator(
        made, "qemu_m55", reference="auto", samples=2, seed=3, layers=False, workdir=tmp_path / "run"
    )
    assert result.match
    text = next((tmp_path / "run").rglob("src/emitc_npu.c")).read_text(encoding="ascii")
    assert "plays back what the host model" in text


def test_played_back_calls_know_their_inputs(tmp_path: Path) -> None:
    """A byte of an input that the host has not seen ends the call with -1."""
    call = Call(b"commands", (Bytes(0, 4, b"\1\2\3"),), (Bytes(1, 2, b"\7\x08"),))
    (tmp_path / "emitc_npu.c").write_text(source([call]), encoding="ascii")
    shutil.copyfile(STUB.parent / "emitc_npu.h", tmp_path / "emitc_npu.h")
    (tmp_path / "main.c").write_text(
        '#include "emitc_npu.h"\nint main(void) {\n'
        "    uint8_t in[8] = {0, 0, 0, 0, 1, 2, 3, 0}, out[4] = {0};\n"
        "    uint64_t base[2] = {(uint64_t)(uintptr_t)in, (uint64_t)(uintptr_t)out};\n"
        "    const size_t bytes[2] = {8, 4};\n"
        '    if (emitc_npu_invoke("commands", 8, base, bytes, 2) != 0 || out[2] != 7 || out[3] != 8) { return 1; }\n'
        '    if (emitc_npu_invoke("commandz", 8, base, bytes, 2) != -1) { return 2; }\n'
        '    in[5]++;\n    return emitc_npu_invoke("commands", 8, base, bytes, 2) == -1 ? 0 : 3;\n}\n',
        encoding="ascii",
    )
    sources = [str(tmp_path / "main.c"), str(tmp_path / "emitc_npu.c")]
    run_compiler([*WARNINGS, *sources, "-o", str(tmp_path / "main")])
    assert subprocess.run([str(tmp_path / "main")], check=False).returncode == 0


def test_the_map_and_the_manifest_say_what_runs_where() -> None:
    made = compiled("digits_int8.tflite", keep=("ADD",))
    content = json.loads(made.files["partition.json"])
    assert {b["backend"] for b in content["backends"]} == {NAME, "portable"}
    assert all(p["edge_bytes"] > 0 and p["estimated_cycles"] > 0 and p["waits"] == 1 for p in content["partitions"])
    manifest = json.loads(made.files["manifest.json"])
    assert {r["backend"] for r in manifest["requirements"]} == {NAME}
    assert any(note.startswith("vela 5.") for note in manifest["notes"])


def test_two_compilations_give_the_same_bytes() -> None:
    assert compiled("digits_int8.tflite", keep=("ADD",)).files == compiled("digits_int8.tflite", keep=("ADD",)).files


def test_a_driver_that_fails_ends_the_run_with_backend_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled("digits_int8.tflite")
    hook = made.host_hooks()[0]
    failing = type(hook)(hook.declaration, hook.register, hook.signature, lambda *_: -1)
    monkeypatch.setattr(Compiled, "host_hooks", lambda self: (failing,))
    with pytest.raises(RuntimeError, match="digits_int8_run returned status 6"):
        verification.verify(made, samples=1)


@pytest.mark.parametrize("flags", [[], ["-DEMITC_NPU_ASYNC"]])
@pytest.mark.parametrize("package", ["plain", "cmake"])
def test_the_sources_are_clean_for_a_cortex_m55(package: str, flags: list[str], tmp_path: Path) -> None:
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    backends = {"npu": "ethos-u55-128", "npu-always": "yes"}
    made = compile_model(MODELS / "digits_int8.tflite", backends=backends, cpu_only=("ADD",), package=package)
    made.write(tmp_path / "package")
    folders = [tmp_path / "package", tmp_path / "package" / "include"]
    sources = [str(p) for p in (tmp_path / "package").rglob("*.c")]
    assert any(source.endswith("emitc_npu.c") for source in sources)
    warnings = (
        "-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-qual -Wundef -Wmissing-prototypes "
        "-Wvla -Werror"
    )
    command = ["arm-none-eabi-gcc", "-mcpu=cortex-m55", "-mthumb", "-std=c11", "-Os", *warnings.split(), *flags, "-c"]
    includes = [f"-I{folder}" for folder in (*folders, STUB) if folder.is_dir()]
    done = subprocess.run([*command, *includes, *sources], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"npu": "ethos-u99"}, "--npu ethos-u99 is unknown"),
        ({"npu": "ethos-u55-128", "npu-memory": "Dedicated_Sram"}, "ethos-u55-128 has no memory mode Dedicated_Sram"),
        ({"npu": "ethos-u55-128", "npu-optimise": "beauty"}, "--npu-optimise beauty is unknown"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], what: str) -> None:
    with pytest.raises(EmitcError, match=what):
        compile_model(MODELS / "digits_int8.tflite", backends=options)


def test_a_wrong_driver_path_is_refused(tmp_path: Path) -> None:
    made = compiled("digits_int8.tflite", ethosu_driver=str(tmp_path))
    with pytest.raises(EmitcError, match="there is no driver for the Ethos-U at this path"):
        made.support("cortex-m55")
