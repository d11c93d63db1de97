"""Board and target files: every shipped one loads, and one that is not valid is refused with its place and reason."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from emitc.boards.verify import STACK_BYTES, check_fits
from emitc.errors import CannotCompile, EmitcError
from emitc.target import Board, boards, boards_dir, load_board, load_target, read_board, read_target, targets

TARGETS = {
    "host",
    "cortex-m0",
    "cortex-m0-small-multiply",
    "cortex-m0plus",
    "cortex-m0plus-small-multiply",
    "cortex-m3",
    "cortex-m4",
    "cortex-m4f",
    "cortex-m7",
    "cortex-m33",
    "cortex-m55",
    "cortex-m85",
    "rv32imac",
    "rv32imafc",
    "rv32imac_zve32x",
    "cv32e40p",
    "generic32",
    "esp32",
    "esp32s3",
    "esp32c3",
    "esp32c6",
    "esp32p4",
}
EMULATED = {
    "qemu_m0",
    "qemu_m0_small",
    "qemu_m3",
    "qemu_m4",
    "qemu_m7",
    "qemu_m33",
    "qemu_m55",
    "qemu_rv32",
    "qemu_rv32v",
}
EMULATED |= {"qemu_fe310"}
REAL = {"nucleo_f446re", "nucleo_l4r5zi", "nucleo_h743zi", "disco_f746ng", "nano33ble", "pico", "pico2", "esp32s3"}
REAL |= {"teensy41", "nrf52840_dk", "hifive1_revb", "esp32", "esp32c3", "esp32c6", "esp32p4"}

BOARD = """\
title = "A board"
kind = "silicon"
target = "cortex-m4f"
clock_hz = 1_000_000
measures = ["match", "cycles"]

[[memory]]
name = "flash"
kind = "flash"
start = 0x08000000
bytes = 1024

[[memory]]
name = "low"
kind = "ram"
start = 0x20000000
bytes = 512

[[memory]]
name = "high"
kind = "ram"
start = 0x20000200
bytes = 256

[[memory]]
name = "apart"
kind = "ram"
start = 0x20001000
bytes = 700

[platformio]
platform = "p"
board = "b"
framework = ""
upload_protocol = "one"
upload_protocols = ["one", "two"]
"""


def test_the_shipped_names() -> None:
    assert set(targets()) == TARGETS
    assert set(boards()) >= EMULATED | REAL
    assert {load_board(name).kind for name in EMULATED} == {"qemu"}
    assert {load_board(name).kind for name in REAL} == {"silicon"}


@pytest.mark.parametrize("name", boards())
def test_every_board_loads_and_has_room(name: str) -> None:
    board = load_board(name)
    assert board.name == name
    assert load_target(board.target).name == board.target
    assert board.flash_bytes >= 256 * 1024
    assert board.ram_bytes >= 16 * 1024


@pytest.mark.parametrize("name", targets())
def test_every_target_loads_and_its_flags_compile(name: str, tmp_path: Path) -> None:
    target = load_target(name)
    compiler = shutil.which(target.c_compiler)
    if compiler is None:
        pytest.skip(f"{target.c_compiler} is not installed")
    source = tmp_path / "x.c"
    source.write_text(
        "#if defined(__ARM_FEATURE_DSP) && __ARM_FEATURE_DSP\nint dsp;\n#endif\n"
        "#if defined(__ARM_FEATURE_MVE) && __ARM_FEATURE_MVE\nint mve;\n#endif\n"
        "#if defined(__ARM_FP) || defined(__riscv_flen)\nint fpu;\n#endif\n"
        "#if (defined(__arm__) && !defined(__ARM_FEATURE_DSP)) || defined(__riscv_mul)\nint swar;\n#endif\n"
        "#if defined(__riscv_mul) && !defined(__riscv_32e)\nint gpr31;\n#endif\n"
        "#if defined(__ARM_ARCH_6M__)\nint mul32;\n#endif\n"
        "#if defined(EMITC_XPULP_CORE)\nint xpulp;\n#endif\n"
        "#if defined(__riscv_v_elen)\nint rvv;\n#endif\n"
    )
    command = [compiler, *target.compiler_flags, "-E", "-P", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if target.compiler_prefix:
        found = {word.strip(" ;") for word in done.stdout.replace("int", "").split("\n") if word.strip()}
        # No macro says how many instructions begin in a cycle: the option does that names the core.
        found |= {"dual"} if "-mcpu=cortex-m7" in target.compiler_flags else set()
        assert found == set(target.features)


def test_an_emulated_board_has_the_memory_that_its_linker_script_gets() -> None:
    for name in (each for each in boards() if load_board(each).kind == "qemu"):
        board = load_board(name)
        path = boards_dir() / "platform" / "boards" / f"{board.platformio.board}.json"
        build = json.loads(path.read_text(encoding="utf-8"))["build"]
        linked = {kind: (int(at, 0), int(size)) for kind, (at, size) in build["memory"].items()}
        assert linked == {region.kind: (region.start, region.size_bytes) for region in board.memory}
        assert int(build["f_cpu"].rstrip("L")) == board.clock_hz
        assert build["arch_flags"] == list(load_target(board.target).compiler_flags) + [
            flag for flag in build["arch_flags"] if flag.startswith("-mcmodel=")
        ]


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(EmitcError, match=r"did you mean qemu_m4\?") as board_error:
        load_board("qemu-m4")
    assert board_error.value.exit_code == 2
    with pytest.raises(EmitcError, match=r"did you mean cortex-m33\?"):
        load_target("cortex_m33")
    with pytest.raises(EmitcError, match=r"there is no board '\.\./qemu_m4'"):
        load_board("../qemu_m4")


def test_regions_that_touch_count_as_one(tmp_path: Path) -> None:
    assert _board(tmp_path, BOARD).ram_bytes == 768
    assert _board(tmp_path, BOARD).flash_bytes == 1024


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param('title = "A board"', "", "title", id="missing"),
        pytest.param(
            "clock_hz = 1_000_000",
            "clock_hz = -1",
            "expected a whole number from 1 to .*, and -1 is given",
            id="negative",
        ),
        pytest.param("clock_hz = 1_000_000", "clock_hz = true", "and True is given", id="bool"),
        pytest.param("clock_hz", "clock_khz", "and None is given", id="misspelt"),
        pytest.param("clock_hz", "volts = 3\nclock_hz", "the key is unknown", id="unknown_key"),
        pytest.param('target = "cortex-m4f"', 'target = "z80"', "'z80' is none of", id="unknown_target"),
        pytest.param("start = 0x20000200", "start = 0x20000100", "low and high overlap", id="overlap"),
        pytest.param("start = 0x20001000", "start = 0xFFFFFFF0", "beyond 32 bits", id="too_high"),
        pytest.param('kind = "flash"', 'kind = "ram"', "at least one flash", id="no_flash"),
        pytest.param('upload_protocol = "one"', 'upload_protocol = "x"', "not among", id="protocol"),
        pytest.param("[platformio]", "[platformio", "cannot be read", id="not_toml"),
    ],
)
def test_a_board_file_that_is_not_valid_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in BOARD
    with pytest.raises(EmitcError, match=message) as error:
        _board(tmp_path, BOARD.replace(old, new, 1))
    assert "mine.toml" in str(error.value)


def test_a_target_with_an_unknown_feature_is_refused(tmp_path: Path) -> None:
    text = (boards_dir() / "targets" / "cortex-m4.toml").read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('["dsp"]', '["dps"]'), encoding="utf-8")
    with pytest.raises(EmitcError, match="'dps' is none of dsp, fpu, mve"):
        read_target(path)


def test_a_model_that_fits_to_the_byte_is_accepted_and_one_byte_more_is_not() -> None:
    board = load_board("qemu_m0")
    check_fits(board, board.flash_bytes, board.ram_bytes - STACK_BYTES, "x")
    with pytest.raises(CannotCompile) as ram:
        check_fits(board, 1, board.ram_bytes - STACK_BYTES + 1, "stem/conv 9216, stem/relu 9216")
    assert str(ram.value) == (
        f"error: the model does not fit {board.title}\n"
        "  at:    --board qemu_m0\n"
        "  why:   RAM is exceeded by 1 bytes: 15361 for arena and state and 1024 kept for the stack, of 16384; "
        "at the peak: stem/conv 9216, stem/relu 9216\n"
        "  try:   shrink the tensors at the peak, or choose a larger board (`emitc boards`)"
    )
    assert ram.value.exit_code == 1
    with pytest.raises(CannotCompile, match="flash is exceeded by 7 bytes: 262151 of 262144"):
        check_fits(board, board.flash_bytes + 7, 0, "x")


def _board(folder: Path, text: str) -> Board:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return read_board(path)
