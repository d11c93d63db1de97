"""The stand-in model on emulated boards: proven, counted, measured, and every way in which that can fail."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import pytest

from emitc.boards import build, counter, verify
from emitc.boards.project import Case, Firmware
from emitc.boards.result import RunResult, layer_counts
from emitc.boards.run import TIMER_TOLERANCE, run_on_board
from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError, Where
from emitc.options import Options
from emitc.planner.region_assignment import Region
from emitc.target import boards, load_board
from tests.support.board_standin import (
    CASES,
    COUNTED_INSTRUCTIONS,
    COUNTED_STACK,
    MODEL,
    RUN,
    RUN_COUNTED,
    RUN_DEEP,
    RUN_FAULTING,
    RUN_HANGING,
    RUN_REFUSING,
    RUN_STRAYING,
    needs_boards,
    write_package,
)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "models"
EMULATED = [name for name in boards() if load_board(name).kind == "qemu"]


def _run(
    folder: Path,
    board: str,
    run: str = RUN,
    *,
    arena: int = 32,
    cases: Sequence[Case] = CASES,
    layers: bool = False,
    timeout: float = 60,
) -> RunResult:
    package = write_package(folder / "package", run, arena)
    return run_on_board(
        Firmware(package, MODEL, cases),
        load_board(board),
        layers=layers,
        workdir=folder / "work dir",
        timeout=timeout,
    )


@needs_boards
@pytest.mark.sweep(keep=5)
@pytest.mark.parametrize("name", EMULATED)
def test_every_emulated_board_proves_the_model(name: str, tmp_path: Path) -> None:
    result = _run(tmp_path, name, layers=True)
    assert result.match
    assert (result.board, result.cases, result.differing_bytes, result.counter) == (name, 2, 0, "plugin")
    assert 20 < result.count < 100
    assert result.stack_bytes is not None
    assert 0 < result.stack_bytes < 64
    assert result.arena_bytes == 32 <= result.ram_bytes < 200
    assert result.code_bytes is not None
    assert 50 < result.code_bytes < (300 if name == "qemu_rv32v" else 200), "clang unrolls its loops"
    assert result.constant_bytes == 64
    assert result.model_flash_bytes == result.code_bytes + result.constant_bytes < result.flash_bytes
    assert result.layers is not None
    assert [(each.index, each.op, each.name, each.macs) for each in result.layers] == [
        (0, "ADD", "plus/three", 4),
        (1, "REVERSE", "mirror", 0),
    ]
    # The traced build adds the hook's arguments and call to each layer, and nothing of what the hook prints.
    assert 0 < sum(each.count for each in result.layers) - result.count < 40
    json = result.as_json()
    assert json["match"] is True
    assert json["instructions"] == result.count
    assert "cycles" not in json
    assert json["layers"][0]["instructions"] == result.layers[0].count


@needs_boards
@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize(("name", "isa"), [("qemu_m0", "arm"), ("qemu_m55", "arm"), ("qemu_rv32", "riscv")])
def test_instructions_and_stack_are_exact_and_the_same_every_time(name: str, isa: str, tmp_path: Path) -> None:
    cases = [([bytes([1, 2, 3, 4])], [bytes([0xA5] * 4)])]
    first = _run(tmp_path, name, RUN_COUNTED, cases=cases)
    again = _run(tmp_path, name, RUN_COUNTED, cases=cases)
    assert first == again
    assert first.match
    assert first.count == COUNTED_INSTRUCTIONS[isa]
    assert first.stack_bytes == COUNTED_STACK[isa]


@needs_boards
@pytest.mark.parametrize("name", ["qemu_m3", "qemu_rv32"])
def test_without_a_plugin_the_timer_counts_and_the_result_says_so(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter, "plugin", lambda emulator, cache: None)
    result = _run(tmp_path, name, RUN_COUNTED, cases=[([bytes(4)], [bytes([0xA5] * 4)])])
    isa = "riscv" if name == "qemu_rv32" else "arm"
    assert result.match
    assert result.counter == "timer"
    assert 0 <= result.count - COUNTED_INSTRUCTIONS[isa] <= TIMER_TOLERANCE
    assert result.stack_bytes == COUNTED_STACK[isa]
    traced = _run(tmp_path, name, layers=True)
    assert traced.match
    assert traced.layers is not None
    assert all(each.count > 0 for each in traced.layers)


@needs_boards
def test_a_wrong_expectation_is_no_match(tmp_path: Path) -> None:
    wrong = [CASES[0], (CASES[1][0], [bytes([131, 130, 4, 1])])]
    result = _run(tmp_path, "qemu_m4", cases=wrong)
    assert not result.match
    assert result.differing_bytes == 2


@needs_boards
def test_a_hang_ends_with_the_last_line(tmp_path: Path) -> None:
    with pytest.raises(CannotCompile, match="did not stop within 1 s") as error:
        _run(tmp_path, "qemu_rv32", RUN_HANGING, timeout=1)
    assert "its last line was: emitc check 0 -" in str(error.value)


@needs_boards
def test_bytes_written_outside_of_the_arena_are_found(tmp_path: Path) -> None:
    """With the layer hook, where guard bytes lie round it."""
    with pytest.raises(CannotCompile, match="wrote outside of its memory") as error:
        _run(tmp_path, "qemu_m4", RUN_STRAYING, layers=True, cases=[([bytes(4)], [bytes([0xA5] * 4)])])
    assert "case 0: 3 guard bytes" in str(error.value)


@needs_boards
@pytest.mark.parametrize("name", ["qemu_m0", "qemu_fe310"])
def test_a_fault_says_where(name: str, tmp_path: Path) -> None:
    with pytest.raises(CannotCompile, match=r"exit code 70: emitc fault (exception 3|mcause 2|mcause 3) pc \d+"):
        _run(tmp_path, name, RUN_FAULTING)


@needs_boards
def test_a_call_that_refuses_is_reported_with_its_status(tmp_path: Path) -> None:
    with pytest.raises(CannotCompile, match="standin_run refused on the board") as error:
        _run(tmp_path, "qemu_m4", RUN_REFUSING)
    assert "case 0: it returned status 1" in str(error.value)


@needs_boards
def test_a_stack_that_runs_into_the_static_data_is_found(tmp_path: Path) -> None:
    with pytest.raises(CannotCompile, match="the stack is too small"):
        _run(tmp_path, "qemu_m4", RUN_DEEP)


@needs_boards
@pytest.mark.parametrize(
    ("arena", "message"),
    [
        pytest.param(20_000, r"RAM is exceeded by \d+ bytes of 16384", id="ram"),
        pytest.param(15_700, "leaves less than 1024 of 16384 bytes of RAM for the stack", id="stack"),
    ],
)
def test_an_image_that_does_not_fit_says_by_how_much(arena: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(CannotCompile, match=message):
        _run(tmp_path, "qemu_m0", arena=arena)


@needs_boards
def test_a_compiler_error_is_shown(tmp_path: Path) -> None:
    with pytest.raises(CannotCompile, match="the build for qemu_m4 failed") as error:
        _run(tmp_path, "qemu_m4", RUN + "this is not C\n")
    assert "standin.c" in error.value.why
    assert "error:" in error.value.why
    assert Path(error.value.hint.removeprefix("the whole output is in ")).is_file()


def test_a_build_in_a_folder_that_is_removed_says_how_to_keep_it(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, workdir: Path, **__: object) -> RunResult:
        raise CannotCompile(
            "the build failed", Where(option="--board"), "why", f"the whole output is in {workdir / 'build.log'}"
        )

    monkeypatch.setattr(verify, "run_on_board", failing)
    model = compile_model(tiny / "spotter.tflite", package="platformio", target="cortex-m4f")
    with pytest.raises(CannotCompile, match="the build failed") as error:
        verify.on_emulator(model, "qemu_m4", reference="numpy", samples=1, seed=0, layers=False, workdir=None)
    assert error.value.hint == "--workdir DIR keeps the project and the whole output of its build"


@needs_boards
@pytest.mark.parametrize("board", ["qemu_m4", "qemu_m33"])
def test_constants_that_are_placed_in_ram_are_not_read_from_flash(board: str) -> None:
    """A region with room for an arena is RAM, where the startup code puts them; a region of 0 bytes is a flash."""
    read = {}
    for where, size in (("RAM", 1 << 16), ("ROM", 0)):
        regions = (Region("FAST", 1 << 16, 1.0), Region(where, size, 1.0))
        options = Options(
            target=load_board(board).target, package="platformio", regions=regions, places=(("weights", where),)
        )
        model = compile_model(EXAMPLES / "kws_ref_int8.tflite", options)
        result = verify.on_emulator(model, board, reference="numpy", samples=1, seed=0, layers=False, workdir=None)
        assert result.match and result.estimate is not None
        read[where] = result.estimate.zero_wait.constant_bytes
    assert read["RAM"] < read["ROM"] / 20


@needs_boards
def test_a_counter_that_miscounts_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counter, "CALL_INSTRUCTIONS", 2)
    with pytest.raises(CannotCompile, match="a loop of 200003 instructions was counted as 200002"):
        _run(tmp_path, "qemu_m4")


def test_layers_with_several_outputs_are_one_and_foreign_layers_are_refused() -> None:
    board = load_board("qemu_m4")
    found = layer_counts(MODEL, board, [(0, 10), (0, 5), (1, 7)])
    assert [(each.index, each.count) for each in found] == [(0, 15), (1, 7)]
    with pytest.raises(CannotCompile, match=r"expected \[0, 1\], the hook saw \[0, 2\]"):
        layer_counts(MODEL, board, [(0, 10), (2, 5)])


def test_a_missing_compiler_or_emulator_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotCompile, match="arm-none-eabi-gcc is not installed") as error:
        _run(tmp_path, "qemu_m4")
    assert "apt-get install gcc-arm-none-eabi" in error.value.hint
    fake = tmp_path / "arm-none-eabi-gcc"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    with pytest.raises(CannotCompile, match="qemu-system-arm is not installed"):
        _run(tmp_path, "qemu_m4")


@pytest.mark.parametrize(("module", "package"), [("platformio", "platformio"), ("SCons", "scons")])
def test_a_missing_platformio_names_the_extra(module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else real(name))
    with pytest.raises(CannotCompile, match=f"{package} is not installed") as error:
        build.pio_command()
    assert error.value.hint == 'in a checkout of emitc: pip install -e ".[boards]"'


def test_vectors_that_are_not_the_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EmitcError, match=r"expected inputs of \[4\] bytes, got \[3\]"):
        _run(tmp_path, "qemu_m4", cases=[([bytes(3)], [bytes(4)])])
    with pytest.raises(EmitcError, match="case 1 does not fit the model's outputs"):
        _run(tmp_path, "qemu_m4", cases=[CASES[0], ([bytes(4)], [])])
    package = write_package(tmp_path / "package")
    with pytest.raises(EmitcError, match="no test case"):
        run_on_board(Firmware(package, MODEL, []), load_board("qemu_m4"), layers=False, workdir=tmp_path)


def test_a_real_board_is_not_booted(tmp_path: Path) -> None:
    with pytest.raises(EmitcError, match="is not emulated"):
        _run(tmp_path, "pico")
