"""The first layer that a board computes otherwise: faults put into a real model on emulated boards, and into its serial line."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from emitc.boards import divergence_run
from emitc.boards.divergence import Search
from emitc.boards.divergence_run import (
    expected_layers,
    heard_of,
    search_image,
    search_on_emulator,
    search_on_silicon,
    write_search_project,
)
from emitc.boards.run import booted
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError, Where
from emitc.report.run import divergence_text
from emitc.target import load_board
from emitc.verify.golden_run import HostLayer, differing_elements
from emitc.verify.tolerances import EXACT, NEAR, Tolerance
from tests.support.board_standin import needs_boards
from tests.support.serial_line import serial_line

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "models" / "digits_int8.tflite"
SAMPLES, SEED = 2, 0
LAYERS = 7
"""Of the model."""
WHERE = Where(option="--board qemu_m4")


@cache
def compiled_for(board: str) -> Compiled:
    return compile_model(DIGITS, package="platformio", target=load_board(board).target)


@cache
def expected_of(board: str) -> tuple[tuple[HostLayer, ...], ...]:
    return tuple(map(tuple, expected_layers(compiled_for(board), SAMPLES, SEED)))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The image of a board, built once."""

    @cache
    def image(board: str) -> Path:
        folder = tmp_path_factory.mktemp(board)
        return search_image(compiled_for(board), board, folder, expected_of(board), SAMPLES, SEED)

    return image


def said_by(image: Path, board: str) -> str:
    printed, error = booted(load_board(board), image, (), timeout=60)
    assert error is None
    return printed


def damaged_image(image: Path, symbol: str, byte: int, bit: int, to: Path) -> Path:
    """A copy of the image with one bit of a constant flipped, as flash may lose it."""
    data = bytearray(image.read_bytes())
    with image.open("rb") as file:
        elf = ELFFile(file)
        (entry,) = elf.get_section_by_name(".symtab").get_symbol_by_name(symbol)
        section = elf.get_section(entry["st_shndx"])
        data[section["sh_offset"] + entry["st_value"] - section["sh_addr"] + byte] ^= 1 << bit
    to.write_bytes(data)
    return to


@needs_boards
@pytest.mark.parametrize("board", ["qemu_m4", "qemu_rv32"])
def test_a_flipped_weight_is_found_in_its_layer_and_channel(
    board: str, images: Callable[[str], Path], tmp_path: Path
) -> None:
    lines = said_by(images(board), board).splitlines()
    search = heard_of(lines, board, expected_of(board), WHERE)[1]
    assert search == Search(board, SAMPLES, SAMPLES * LAYERS, None)
    image = damaged_image(images(board), "op1_depthwise_conv_2d_bias", 4 * 5 + 1, 2, tmp_path / "damaged.elf")
    heard, search = heard_of(said_by(image, board).splitlines(), board, expected_of(board), WHERE)
    assert search is not None and search.divergence is not None and heard.unreadable == 0
    first = search.divergence
    assert (first.case, first.layer.index, first.layer.op, first.equal) == (0, 1, "DEPTHWISE_CONV_2D", 1)
    assert first.channels == (5,) and first.first[-1] == 5
    assert first.pattern == "all in channel 5 of 24, as a damaged weight or bias of that channel gives"
    text = divergence_text("digits.tflite", search)
    assert text.startswith(f"digits.tflite on {board}: DIFFERS\nfirst wrong layer   op 1 DEPTHWISE_CONV_2D")
    assert f"first wrong element {list(first.first)}: {first.got}, and {first.expected} on this machine" in text


def with_source(compiled: Compiled, old: str, new: str) -> Compiled:
    """The model with other C on the board than on this machine."""
    (name,) = (name for name in compiled.files if name.endswith("/digits_int8.c"))
    text = compiled.files[name].decode("ascii")
    assert len(re.findall(old, text)) == 1
    return replace(compiled, files=compiled.files | {name: re.sub(old, new, text).encode("ascii")})


BODY = r"(static void op3_add\(.*\)\n\{\n)"


def broken(statement: str) -> Compiled:
    return with_source(compiled_for("qemu_m4"), BODY, rf"\1    {statement}\n")


def said_when(statement: str, folder: Path, timeout: float = 60) -> tuple[str, CannotCompile | None]:
    """What the board says with a statement at the start of op 3, and how it ended."""
    image = search_image(broken(statement), "qemu_m4", folder, expected_of("qemu_m4"), SAMPLES, SEED)
    return booted(load_board("qemu_m4"), image, (), timeout=timeout)


@needs_boards
def test_a_wrong_kernel_is_found_and_the_board_is_heard_over_a_serial_line(
    images: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an input that is changed before op 3 reads it; op 1, whose output it is, was right when it ended."""
    printed, error = said_when("((int8_t *)(uintptr_t)a)[77] ^= 64;", tmp_path)
    assert error is None
    search = serial(printed, monkeypatch)
    assert search.divergence is not None
    first = search.divergence
    assert (first.case, first.layer.index, first.equal, first.differing) == (0, 3, 3, 1)
    assert first.first == (0, 0, 3, 5)
    good = serial(said_by(images("qemu_m4"), "qemu_m4"), monkeypatch)
    assert good.divergence is None and good.calls == SAMPLES * LAYERS


def serial(
    said: str | Callable[[int], str], monkeypatch: pytest.MonkeyPatch, timeout: float = 20, pause: float = 0.05
) -> Search:
    """The result of a real board on whose port a text arrives again and again."""
    monkeypatch.setattr(divergence_run, "upload", lambda *arguments, **options: None)
    texts = said if callable(said) else lambda turn: said
    with serial_line(lambda turn: texts(turn).encode("latin-1"), pause) as port:
        return search_on_silicon(
            "digits_int8", "nucleo_f446re", Path("unused"), expected_of("qemu_m4"), port=port, timeout=timeout
        )


def refused(
    said: str | Callable[[int], str], monkeypatch: pytest.MonkeyPatch, timeout: float = 1.5, pause: float = 0.05
) -> EmitcError:
    with pytest.raises(CannotCompile) as error:
        serial(said, monkeypatch, timeout, pause)
    return error.value


@needs_boards
def test_a_board_that_hangs_says_in_which_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed, stopped = said_when("for (volatile const int8_t *at = a;; (void)*at) {}", tmp_path, timeout=2)
    assert stopped is not None
    error = refused(printed, monkeypatch, pause=30)
    assert error.what == "the firmware stopped on the board"
    assert error.why.startswith("nothing more came within 1.5 s; case 0: op 2 CONV_2D ")
    assert ' was the last layer that ended, and op 3 ADD "' in error.why
    restarted = refused(printed, monkeypatch)
    assert restarted.what == "the board starts again and again"
    assert re.match(r"it began \d+ times, and did not reach its end \d+ times; case 0: op 2 CONV_2D", restarted.why)
    monkeypatch.setattr(divergence_run, "expected_layers", lambda *arguments: expected_of("qemu_m4"))
    hanging = broken("for (volatile const int8_t *at = a;; (void)*at) {}")
    with pytest.raises(CannotCompile, match="the firmware stopped on the board"):
        search_on_emulator(hanging, "qemu_m4", samples=SAMPLES, seed=SEED, timeout=2, workdir=tmp_path)


@needs_boards
def test_a_fault_is_named_with_its_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed, stopped = said_when("__builtin_trap();", tmp_path)
    assert stopped is not None
    error = refused(printed, monkeypatch, pause=30)
    assert error.what == "the firmware faulted on the board"
    assert re.match(r"emitc fault exception 3 pc \d+; case 0: op 2 CONV_2D", error.why)


@needs_boards
def test_a_disturbed_line(images: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that are lost in one round arrive in another. Where every round loses the same, the line is blamed."""
    image = damaged_image(images("qemu_m4"), "op1_depthwise_conv_2d_bias", 21, 2, tmp_path / "damaged.elf")
    text = said_by(image, "qemu_m4")

    def noisy(turn: int) -> str:
        draw = random.Random(turn)
        return "".join(chr(draw.randrange(256)) if draw.random() < 0.002 else letter for letter in text)

    search = serial(noisy, monkeypatch)
    assert search.divergence is not None and search.unreadable > 0
    assert (search.divergence.layer.index, search.divergence.channels) == (1, (5,))
    broken_line = text.replace("emitc-layer crc 00000000 00000001", "emitc-layer crc 00000000 0000000!")
    error = refused(broken_line, monkeypatch)
    assert error.what == "the serial line is disturbed"
    assert re.match(r"\d+ of \d+ lines have a wrong checksum, or are cut; case 1: op \d", error.why)
    silence = refused("\x00\xff" * 50, monkeypatch, timeout=0.5)
    assert (silence.what, silence.why) == ("the board is silent", "no line of the firmware came within 0.5 s")


def checked(text: str) -> str:
    return f"{text} *{zlib.crc32(text.encode('ascii')):08x}"


@needs_boards
def test_what_a_board_contradicts(images: Callable[[str], Path]) -> None:
    """Another firmware, other layers, another value in each round, and bytes that are not those of the checksum."""
    lines = [line.strip() for line in said_by(images("qemu_m4"), "qemu_m4").splitlines()]
    at = next(i for i, line in enumerate(lines) if line.startswith("emitc-layer crc 00000000 00000003"))
    words = lines[at].split()
    ended = [*lines, *lines[:-1]]

    def judged(old: str, new: str) -> str:
        with pytest.raises(CannotCompile) as error:
            heard_of([new if line == old else line for line in lines], "b", expected_of("qemu_m4"), WHERE)
        return error.value.what

    begin = next(line for line in lines if line.startswith("emitc-layer begin"))
    assert judged(begin, checked("emitc-layer begin 00000007")) == "the board runs another firmware"
    other = " ".join([*words[:4], "00000009", *words[5:7]])
    assert judged(lines[at], checked(other)) == "the layers that ran are not the model's"
    wrong = checked(" ".join([*words[:6], "00000000"]))
    unfinished = [wrong if line == lines[at] else line for line in lines]
    heard, search = heard_of(unfinished, "b", expected_of("qemu_m4"), WHERE)
    assert search is None and heard.unreadable == 0  # its bytes are not there
    with pytest.raises(CannotCompile, match="change from one reading to the next"):
        heard_of([*unfinished, *ended], "b", expected_of("qemu_m4"), WHERE)
    size = int(words[5], 16)
    pieces = [
        checked(f"emitc-layer tensor 00000000 00000003 {offset:08x} {'00' * min(32, size - offset)}")
        for offset in range(0, size, 32)
    ]
    with pytest.raises(CannotCompile, match="change from one reading to the next"):
        heard_of([*unfinished[:-1], *pieces, lines[-1]], "b", expected_of("qemu_m4"), WHERE)


def test_a_project_for_a_real_board_has_the_search(tmp_path: Path) -> None:
    project = tmp_path / "project"
    compiled = compile_model(DIGITS, package="platformio", target="cortex-m4f")
    expected = write_search_project(compiled, "nucleo_f446re", project, samples=1, seed=0)
    assert [layer.index for layer in expected[0]] == [0, 1, 2, 3, 4, 6, 7]
    ini = (project / "platformio.ini").read_text(encoding="utf-8")
    assert "-DEMITC_TRACE -DEMITC_DIVERGENCE" in ini
    text = (project / "src" / "divergence.c").read_text(encoding="utf-8")
    assert all(f"0x{zlib.crc32(layer.data):08x}u, 1u" in text for layer in expected[0])


@pytest.mark.parametrize("compiler", ["gcc", "arm-none-eabi-gcc -mthumb -mcpu=cortex-m0"])
def test_the_search_is_free_of_warnings(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler.split()[0]) is None:
        pytest.skip(f"{compiler.split()[0]} is not installed")
    project = tmp_path / "project"
    write_search_project(compiled_for("qemu_m4"), "nucleo_f446re", project, samples=1, seed=0)
    defines = [
        "-DEMITC_TRACE",
        "-DEMITC_DIVERGENCE",
        "-DEMITC_COUNT_WITH_TIMER",
        "-Wconversion",
        "-Wsign-conversion",
        "-Wshadow",
    ]
    include = ["-I", str(project / "lib" / "model" / "include")]
    for name in ("divergence.c", "proof.c"):
        command = [
            *compiler.split(),
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Wundef",
            "-Werror",
            *defines,
            *include,
        ]
        command += [
            "-Wmissing-prototypes",
            "-Wvla",
            "-Wcast-qual",
            "-c",
            str(project / "src" / name),
            "-o",
            "/dev/null",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("dtype", "rule", "got", "first"),
    [
        ("int8", EXACT, [0, 1, 2, 3, 4, 9], (1, 2)),
        ("float32", EXACT, [0.0, 1.0, 2.0, 3.0, 4.0, 5.000001], (1, 2)),
        ("float32", NEAR, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0000005], None),
        ("float32", NEAR, [0.0, 1.0, 2.1, 3.0, 4.0, 5.1], (0, 2)),
        ("float32", NEAR, [0.0, 1.0, 2.0, 3.0, float("nan"), 5.0], (1, 1)),
        ("float32", NEAR, [0.0, 1.0, 2.0, 3.0, 4.0, float("inf")], (1, 2)),
        ("float32", EXACT, [-0.0, 1.0, 2.0, 3.0, 4.0, 5.0], (0, 0)),
        ("float32", Tolerance(zeros=True), [-0.0, 1.0, 2.0, 3.0, 4.0, 5.0], None),
    ],
)
def test_elements_are_judged_by_the_rule_of_their_tensor(
    dtype: str, rule: Tolerance, got: list[float], first: tuple[int, ...] | None
) -> None:
    import numpy as np

    expected = np.arange(6, dtype=dtype)
    layer = HostLayer(0, "ADD", "t", dtype, (2, 3), expected.tobytes(), rule)
    found = differing_elements(layer, np.array(got, dtype).tobytes())
    assert (None if found is None else found[1]) == first
