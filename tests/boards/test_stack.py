"""`compile --stack`: the bound that the compiler's call graph gives, against what a board measures, and where there is none."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from pathlib import Path

import pytest

import emitc
from bench import stack as stacking
from emitc.boards.stack import CallGraph, library_frames, measured
from emitc.boards.verify import on_emulator
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError
from emitc.target import load_board

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
EMULATOR = {"qemu_m4": "qemu-system-arm", "qemu_m0_big": "qemu-system-arm", "qemu_rv32": "qemu-system-riscv32"}


def compiled_for(target: str, model: Path = MODELS / "digits_int8.tflite", **options: object) -> Compiled:
    """A model with its stack; the test is skipped where the target's compiler is missing."""
    gcc = "riscv64-unknown-elf-gcc" if target.startswith("rv") else "arm-none-eabi-gcc"
    if shutil.which(gcc) is None:
        pytest.skip(f"{gcc} is not installed")
    return measured(compile_model(model, target=target, package="platformio", **options))


def header_of(compiled: Compiled) -> str:
    """The public header."""
    return compiled.files[f"include/{compiled.program.name}.h"].decode("ascii")


@pytest.mark.board
@pytest.mark.parametrize(
    ("model", "board"),
    [
        ("kws_ref_int8.tflite", "qemu_m4"),
        ("digits_qdq.onnx", "qemu_m0_big"),
        ("digits_int8.tflite", "qemu_rv32"),
    ],
)
def test_a_board_measures_no_more_and_little_less(model: str, board: str) -> None:
    """On the Cortex-M0 the deepest frames are those of the compiler's multiplication. The bound is that of every path."""
    pytest.importorskip("platformio", reason="the extra emitc[boards] is not installed")
    if shutil.which(EMULATOR[board]) is None:
        pytest.skip(f"{EMULATOR[board]} is not installed")
    compiled = compiled_for(load_board(board).target, MODELS / model)
    assert compiled.stack is not None and compiled.stack.outside == ()
    result = on_emulator(compiled, board, reference="numpy", samples=2, seed=0, layers=False, workdir=None)
    assert result.stack_bytes is not None
    assert result.stack_bytes <= compiled.stack.size_bytes <= 1.15 * result.stack_bytes
    linked = emitc.cost(MODELS / model, compiled.program.origin.target, link=True)
    assert (linked.code_bytes, linked.flash_bytes) == (result.code_bytes, result.model_flash_bytes)
    assert linked.linked_by.split()[0].endswith("-gcc")


def test_only_a_core_has_flash_that_a_compiler_tells() -> None:
    with pytest.raises(EmitcError, match="generic32 is no core whose flash is known") as refused:
        emitc.cost(MODELS / "digits_int8.tflite", link=True)
    assert "--target" in refused.value.hint


def test_no_run_of_the_corpus_takes_more_than_its_bound() -> None:
    """Every model has one on every board, never below the run's stack, and at most 64 bytes above it in the median."""
    rows = json.loads(Path(stacking.__file__).with_name("results_stack.json").read_text(encoding="utf-8"))
    assert [row for row in rows if row["bound_bytes"] is None] == []
    for board in stacking.BOARDS:
        run = [row for row in rows if row["board"] == board and row["peak_bytes"] is not None]
        over = [row["bound_bytes"] - row["peak_bytes"] for row in run]
        assert min(over) >= 0 and statistics.median(over) <= 64


def test_header_and_manifest_state_the_same() -> None:
    compiled = compiled_for("cortex-m0")
    stack = compiled.stack
    assert stack is not None and 0 < stack.library_bytes < stack.size_bytes
    assert f"#define DIGITS_INT8_STACK_BYTES {stack.size_bytes}u\n" in header_of(compiled)
    assert stack.compiler in header_of(compiled) and "-mcpu=cortex-m0" in header_of(compiled)
    stated = json.loads(compiled.files["manifest.json"])["stack"]
    assert (stated["bytes"], stated["library_bytes"], stated["not_counted"]) == (
        stack.size_bytes,
        stack.library_bytes,
        [],
    )
    assert compiled.summary()["stack_bytes"] == stack.size_bytes
    assert compiled_for("cortex-m0").files == compiled.files


def test_without_the_option_no_compiler_is_asked_and_the_header_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    compiled = compile_model(MODELS / "digits_int8.tflite", target="cortex-m4")
    header = compiled.files["digits_int8.h"].decode("ascii")
    assert "STACK_BYTES" not in header and "`emitc compile --stack`" in header


def test_only_the_line_with_the_options_differs_in_the_source() -> None:
    plain = compile_model(MODELS / "digits_int8.tflite", target="cortex-m4", package="platformio")
    name = "src/digits_int8.c"
    pairs = zip(plain.files[name].splitlines(), compiled_for("cortex-m4").files[name].splitlines(), strict=True)
    assert [b for a, b in pairs if a != b] == [
        b" * regenerate: emitc compile digits_int8.tflite -o DIR --target cortex-m4 --package platformio --stack"
    ]


def test_what_is_called_by_its_address_is_named_and_not_counted(tiny: Path) -> None:
    compiled = compiled_for("cortex-m4", tiny / "camera.tflite", input_rows=True)
    assert compiled.stack is not None and "what is called by its address" in compiled.stack.outside
    assert " * Not counted: what is called by its address." in header_of(compiled)


def test_any_core_has_no_stack() -> None:
    with pytest.raises(EmitcError, match="generic32 is no core whose stack is known"):
        measured(compile_model(MODELS / "digits_int8.tflite"))


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_model(MODELS / "digits_int8.tflite", target="cortex-m4")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CannotCompile, match="arm-none-eabi-gcc is not installed"):
        measured(compiled)


def graph(*calls: tuple[str, str], frame: str = "8 bytes (static)") -> str:
    """What gcc writes, for functions of 8 bytes each."""
    names = sorted({name for pair in calls for name in pair})
    nodes = [f'node: {{ title: "{name}" label: "{name}\\n{name}.c:1:1\\n{frame}" }}' for name in names]
    edges = [f'edge: {{ sourcename: "{a}" targetname: "{b}" label: "x.c:1:1" }}' for a, b in calls]
    return "\n".join((*nodes, *edges))


def test_the_deepest_path_counts() -> None:
    found = CallGraph()
    found.add(graph(("run", "a"), ("run", "b"), ("a", "c"), ("b", "memset")))
    assert (found.deepest(["run"]), found.deepest(["b"]), found.deepest(["memset", "c"])) == (24, 16, 8)


def test_a_function_that_calls_itself_has_no_bound() -> None:
    found = CallGraph()
    found.add(graph(("run", "a"), ("a", "b"), ("b", "a")))
    with pytest.raises(CannotCompile, match=re.escape("a -> b -> a")):
        found.deepest(["run"])
    assert not found.understood("run")


@pytest.mark.parametrize("frame", ["8 bytes (dynamic)", "8 bytes (dynamic,bounded)"])
def test_a_frame_of_no_constant_size_has_no_bound(frame: str) -> None:
    with pytest.raises(CannotCompile, match="has no bound"):
        CallGraph().add(graph(("run", "a"), frame=frame))


JUMP = """
00001000 <{name}>:
    1000:\taddi\tsp,sp,-32
    1002:\tlw\ta4,0(a4)
    1004:\tjr\ta4
"""


@pytest.mark.parametrize(
    ("name", "known"), [("__divsf3", True), ("__muldf3", True), ("__udivdi3", True), ("qsort", False)]
)
def test_a_jump_to_an_address_is_a_switch_only_in_the_compilers_arithmetic(name: str, known: bool) -> None:
    frames, _ = library_frames(JUMP.format(name=name))
    assert frames == ({name: 32} if known else {})


SAVING = """
00001000 <exp>:
    1000:\tjal\tt0,1100 <__riscv_save_4>
    1004:\tadd\tsp,sp,-16
    1008:\tjal\tra,2000 <pow>
    100c:\tj\t1200 <__riscv_restore_4>

00001100 <__riscv_save_4>:
    1100:\tadd\tsp,sp,-64
    1104:\tsub\tsp,sp,t1
    1108:\tjr\tt0

00001200 <__riscv_restore_4>:
    1200:\tadd\tsp,sp,32
    1204:\tret

00002000 <pow>:
    2000:\tadd\tsp,sp,-96
    2004:\tret
"""


def test_registers_that_a_routine_saves_are_the_callers() -> None:
    """It takes 64 bytes and gives 32 back, which stay below all that the caller calls."""
    frames, calls = library_frames(SAVING)
    assert frames == {"exp": 48, "__riscv_save_4": 32, "__riscv_restore_4": 0, "pow": 96}
    found = CallGraph(frames, calls)
    assert found.understood("exp") and found.deepest(["exp"]) == 48 + 96


def test_the_compilers_division_is_counted_on_a_core_without_float_unit() -> None:
    stack = compiled_for("rv32imac", MODELS / "digits_qoperator.onnx").stack
    assert stack is not None and stack.outside == () and stack.library_bytes > 0
