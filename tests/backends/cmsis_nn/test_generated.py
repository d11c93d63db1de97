"""Models compiled to calls of CMSIS-NN: proven on the host and on boards, and refused where the bits would be others."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from emitc.backends.cmsis_nn.definition import NAME
from emitc.boards import verify
from emitc.compiled import Compiled
from emitc.compiler import compile_model, for_host, partition_model
from emitc.errors import EmitcError, RefusalKind
from emitc.verify import verification
from tests.support.cmsis.library import SKIPPED, trees

MODELS = Path(__file__).resolve().parents[3] / "examples" / "models"
FULL = (
    "arm_convolve_wrapper_s8", "arm_depthwise_conv_wrapper_s8", "arm_fully_connected_s8", "arm_avgpool_s8", "arm_max_pool_s8",
    "arm_elementwise_add_s8", "arm_elementwise_mul_s8", "arm_softmax_s8",
)  # fmt: skip
TREES = {str(tree.version): tree for tree in trees()}
pytestmark = pytest.mark.skipif(not TREES, reason=SKIPPED)


def compiled(model: str, version: str, **options: str) -> Compiled:
    root = str(TREES[version].root)
    return compile_model(MODELS / model, kernels=NAME, backends={NAME: root}, **options)


@pytest.mark.parametrize("version", TREES)
@pytest.mark.parametrize("model", ["digits_int8.tflite", "kws_ref_int8.tflite", "person_detect_int8.tflite"])
def test_the_host_proof_holds_and_what_can_be_called_is_called(model: str, version: str) -> None:
    made = compiled(model, version)
    proof = verification.verify(made, samples=4, layers=True, sanitize=True)
    assert proof.match, proof
    assert proof.elements > 0
    assert proof.layers_checked > 0
    index = {step.index: step for step in made.program.steps}
    for row in made.partition.assignments:
        called = index[row.index].call
        assert (row.backend == NAME) == (called is not None)
        assert row.backend == NAME or row.refused, f"{row.op_type} is not called and nobody says why"
    kinds = {row.op_type for row in made.partition.assignments if row.backend == NAME}
    assert {"CONV_2D", "DEPTHWISE_CONV_2D"} <= kinds
    assert "partition.json" in made.files


@pytest.mark.parametrize("board", ["qemu_m4", "qemu_m55"])
@pytest.mark.parametrize("version", TREES)
def test_the_board_proof_holds(version: str, board: str, tmp_path: Path) -> None:
    for tool in ("qemu-system-arm", "arm-none-eabi-gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    pytest.importorskip("platformio", reason="PlatformIO, which builds for the boards, is not installed")
    target = {"qemu_m4": "cortex-m4", "qemu_m55": "cortex-m55"}[board]
    made = compiled("digits_int8.tflite", version, target=target, package="platformio")
    result = verify.on_emulator(made, board, reference="auto", samples=3, seed=1, layers=False, workdir=tmp_path)
    assert result.match
    assert result.count > 0


@pytest.mark.parametrize("version", TREES)
def test_another_instruction_set_than_the_targets_is_a_compile_error(version: str, tmp_path: Path) -> None:
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    made = compiled("digits_int8.tflite", version, target="cortex-m4")
    made.write(tmp_path / "package")
    support = made.support("cortex-m4")
    includes = [f"-I{path}" for path in (tmp_path / "package", *support.includes)]
    source = str(tmp_path / "package" / "digits_int8.c")
    command = ["arm-none-eabi-gcc", "-mthumb", "-std=c11", "-fsyntax-only", *includes, source]

    def build(*flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *flags], capture_output=True, text=True, check=False)

    assert build("-mcpu=cortex-m4").returncode == 0
    for core in ("cortex-m3", "cortex-m55"):
        refused = build(f"-mcpu={core}", "-mfloat-abi=hard" if core == "cortex-m55" else "-mfloat-abi=soft")
        assert refused.returncode != 0
        assert "#error" in refused.stderr
        assert "dsp code" in refused.stderr


@pytest.mark.parametrize("version", TREES)
def test_buffers_are_checked_at_run_time_in_debug_builds(version: str, tmp_path: Path) -> None:
    """A buffer that is stated too small ends the run with EMITC_BACKEND_FAILED when EMITC_DEBUG is defined."""
    made = compiled("digits_int8.tflite", version)
    source = made.files["digits_int8.c"].decode("ascii")
    assert "#if defined(EMITC_DEBUG)" in source
    tree = TREES[version]
    if tree.takes("arm_convolve_wrapper_s8_get_buffer_size", "conv_params"):
        assert "const int32_t needed = arm_convolve_wrapper_s8_get_buffer_size(" in source


@pytest.mark.parametrize("version", TREES)
def test_a_model_for_another_instruction_set_is_proven_with_the_hosts_buffers(version: str) -> None:
    model = MODELS / "digits_int8.tflite"
    made = compiled("digits_int8.tflite", version, target="cortex-m55")
    hosted = for_host(model, made)
    assert hosted is not made
    assert hosted.program.origin.target == "host"
    assert verification.verify(hosted, samples=2).match
    portable = compile_model(model, target="cortex-m55")
    assert for_host(model, portable) is portable


@pytest.mark.parametrize("version", TREES)
def test_the_hosts_buffers_are_those_of_the_model_that_was_read(version: str, tmp_path: Path) -> None:
    """Not of what lies under its name by then."""
    path = tmp_path / "digits_int8.tflite"
    shutil.copy(MODELS / path.name, path)
    root = {NAME: str(TREES[version].root)}
    made = compile_model(path, kernels=NAME, backends=root, target="cortex-m55")
    expected = compile_model(path, kernels=NAME, backends=root, target="host")
    path.unlink()
    assert for_host(path, made).files == expected.files


@pytest.mark.parametrize("version", TREES)
def test_onnx_rounding_is_not_given_to_the_library(version: str) -> None:
    made = compiled("digits_qoperator.onnx", version)
    assert {row.backend for row in made.partition.assignments} == {"portable"}
    convolution = next(row for row in made.partition.assignments if "Conv" in row.op_type)
    assert "rounds as TensorFlow Lite" in dict(convolution.refused)[NAME]


def test_auto_without_a_path_is_portable_alone() -> None:
    assert {
        row.backend for row in compile_model(MODELS / "digits_int8.tflite", kernels="auto").partition.assignments
    } == {"portable"}


def test_the_path_is_asked_for() -> None:
    with pytest.raises(EmitcError, match="the path of CMSIS-NN is not given"):
        compile_model(MODELS / "digits_int8.tflite", kernels=NAME)


@pytest.mark.parametrize("kernels", [NAME, "auto"])
def test_a_wrong_path_is_refused(kernels: str, tmp_path: Path) -> None:
    with pytest.raises(EmitcError, match="there is no CMSIS-NN at this path"):
        compile_model(MODELS / "digits_int8.tflite", kernels=kernels, backends={NAME: str(tmp_path)})


@pytest.mark.parametrize("version", TREES)
def test_auto_gives_every_operator_to_somebody_with_a_reason(version: str) -> None:
    from emitc.options import Options

    options = Options(kernels="auto", target="cortex-m4", backends={NAME: str(TREES[version].root)})
    found = partition_model(MODELS / "kws_ref_int8.tflite", options)
    assert {row.backend for row in found.assignments} == {NAME, "portable"} or len(found.assignments) > 0
    for row in found.assignments:
        if row.backend == NAME:
            assert dict(row.refused)["portable"].kind is RefusalKind.COST
