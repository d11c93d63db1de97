"""The examples as a user runs them, by the commands of their READMEs: built, booted, and right in the golden engine's eyes."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import emitc
from emitc.boards.build import environment
from emitc.verify.golden_run import golden_run
from emitc.verify.reference import Sample

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "examples" / "models"
KEYWORDS = ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes", "silence", "unknown")
TOOLS = {
    "qemu_m4": ("arm-none-eabi-gcc", "qemu-system-arm"),
    "qemu_m55": ("arm-none-eabi-gcc", "qemu-system-arm"),
    "qemu_rv32": ("riscv64-unknown-elf-gcc", "qemu-system-riscv32"),
}
FIRMWARE = ("keyword_spotter", "person_detector", "wake_word")
STRICT = "-std=c11 -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-qual -Wcast-align=strict"
STRICT += " -Wundef -Wmissing-prototypes -Wdouble-promotion -Wvla -Werror"
STATUSES = (
    "EMITC_NOT_READY",
    "EMITC_INVALID_ARGUMENT",
    "EMITC_ARENA_TOO_SMALL",
    "EMITC_STATE_TOO_SMALL",
    "EMITC_MISALIGNED",
    "EMITC_BACKEND_FAILED",
    "EMITC_VERSION_MISMATCH",
    "EMITC_SELF_TEST_FAILED",
    "EMITC_MORE",
)


def copied(name: str, folder: Path) -> Path:
    """The example in a checkout of its own, without what earlier builds left in it; models and boards are the real ones."""
    left = shutil.ignore_patterns(".pio", "generated", "build", "clip.h", "images.h", "sound.h")
    project = folder / "examples" / name
    shutil.copytree(ROOT / "examples" / name, project, ignore=left)
    (folder / "examples" / "models").symlink_to(MODELS)
    (folder / "boards").symlink_to(ROOT / "boards")
    return project


def blocks(project: Path) -> list[list[str]]:
    """The indented blocks of the README, line by line: the first holds the commands, the second what they end with."""
    found = re.findall(r"(?:^    .*\n)+", (project / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    return [[line.strip() for line in block.splitlines()] for block in found]


def shell(command: str, project: Path) -> str:
    """What one command of a README prints, run in the project with this Python's scripts first on PATH."""
    env = environment(project / ".pio" / "core")
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    words = shlex.split(command)
    program = project / words[0] if (project / words[0]).is_file() else shutil.which(words[0], path=env["PATH"])
    assert program, f"{words[0]} is not installed"
    done = subprocess.run([str(program), *words[1:]], cwd=project, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert "warning" not in done.stdout + done.stderr, done.stdout + done.stderr
    return done.stdout


def promised(line: str) -> re.Pattern[str]:
    """A line that a README shows; "..." stands for a number."""
    return re.compile("^" + re.escape(line).replace(re.escape("..."), "[0-9]+") + "$", re.MULTILINE)


def golden(model: str, cases: list[Sample]) -> list[np.ndarray]:
    """Output 0 of each case on TensorFlow Lite Micro, flat."""
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    run = golden_run(emitc.compile_model(MODELS / model), "tflm", cases, preserve=False)
    return [outputs[0].reshape(-1) for outputs in run.outputs]


def vectors(model: str, count: int) -> list[Sample]:
    """The first inputs of the model's shipped vectors."""
    with np.load(MODELS / f"{model}.npz") as cases:
        return [(cases[f"in0_{k}"],) for k in range(count)]


def line(label: str, score: int) -> str:
    """An int8 score of scale 1/256 and zero point -128 as the firmware prints it."""
    per_mille = (2 * 1000 * (score + 128) + 256) // 512
    return f"{label} {per_mille // 10}.{per_mille % 10} %"


def compiled_for(project: Path, board: str) -> dict[str, Path]:
    """The libraries of a project by name, made as its README says that they are made before a build."""
    (commands,) = (block for block in blocks(project) if block[0].startswith("emitc compile "))
    for command in commands:
        assert "qemu_m4" in command
        shell(command.replace("qemu_m4", board), project)
    return {path.name: path for path in (project / "generated" / board).iterdir()}


def headline(model: str) -> int:
    """Instructions of a model in the README's table."""
    row = re.search(rf"^\| {model} \| ([0-9 ]+) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert row, f"the README has no figures of {model}"
    return int(row[1].replace(" ", ""))


def booted(name: str, board: str, folder: Path) -> str:
    """What the README's commands print for the board."""
    missing = [tool for tool in TOOLS[board] if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    pytest.importorskip("platformio", reason="the extra emitc[boards] is not installed")
    project = copied(name, folder)
    commands = blocks(project)[0]
    assert commands[-1] == "pio run -e qemu_m4 -t upload"
    commands[-1] = commands[-1].replace("qemu_m4", board)
    output = [shell(command, project) for command in commands][-1]
    for expected in blocks(project)[1]:
        assert promised(expected).search(output), f"{expected}\n{output}"
    assert promised("time: ... instructions").search(output)
    return output


def require_the_tables_count(output: str, model: str) -> None:
    """Whoever follows the README measures what its table says, within 1 %."""
    counts = [int(count) for count in re.findall(r"^time: (\d+) instructions$", output, re.MULTILINE)]
    assert counts and all(abs(count / headline(model) - 1) < 0.01 for count in counts), (counts, headline(model))


@pytest.mark.board
def test_the_readmes_run_measures_what_its_table_says() -> None:
    """The model, core and board of the README's own commands; of the kernels for any core it would be 2.6 times as many."""
    missing = [tool for tool in TOOLS["qemu_m4"] if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    for module, extra in (("platformio", "boards"), ("tflite_micro", "verify")):
        pytest.importorskip(module, reason=f"the extra emitc[{extra}] is not installed")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    compile_line = re.search(r"^\$ (emitc compile \S+) (.*)-o \w+$", readme, re.MULTILINE)
    run_line = re.search(r"^\$ (emitc run (\S+) --board qemu_m4)$", readme, re.MULTILINE)
    assert compile_line and run_line and compile_line[1] == f"emitc compile {run_line[2]}"
    said = json.loads(shell(f"{run_line[1]} {compile_line[2]} --json", ROOT))
    expected = headline(Path(run_line[2]).stem)
    assert said["match"] and abs(said["instructions"] / expected - 1) < 0.01, (said["instructions"], expected)


@pytest.mark.board
@pytest.mark.parametrize("board", TOOLS)
def test_the_keyword_spotter_prints_what_the_interpreter_computes(board: str, tmp_path: Path) -> None:
    (scores,) = golden("kws_ref_int8.tflite", vectors("kws_ref_int8", 1))
    output = booted("keyword_spotter", board, tmp_path)
    if board == "qemu_m4":
        require_the_tables_count(output, "kws_ref_int8")
    word = int(scores.argmax())
    assert f"\nkeyword: {line(KEYWORDS[word], int(scores[word]))}\n" in output


@pytest.mark.board
@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("board", TOOLS)
def test_the_person_detector_prints_what_the_interpreter_computes(board: str, tmp_path: Path) -> None:
    person, empty = golden("person_detect_int8.tflite", vectors("person_detect_int8", 2))
    output = booted("person_detector", board, tmp_path)
    if board == "qemu_m4":
        require_the_tables_count(output, "person_detect_int8")
    assert person[1] > person[0] and f"\nfirst image: {line('person', int(person[1]))}\n" in output
    assert empty[0] > empty[1] and f"\nsecond image: {line('no person', int(empty[0]))}\n" in output


def wake_word_lines() -> list[str]:
    """What the wake word firmware has to print of its clips: the same decisions on the golden engine's features and scores."""
    clips = runpy.run_path(str(ROOT / "examples" / "wake_word" / "make_sound.py"))["clips"]()
    lines = []
    for name, samples in clips.items():
        sound = np.concatenate([np.zeros(320, np.int16), samples])  # the first 10 ms lie after 20 ms of nothing
        windows = [(sound[at : at + 480].reshape(1, 480),) for at in range(0, len(sound) - 479, 160)]
        features = np.stack(golden("audio_preprocessor_int8.tflite", windows))
        frames = features[: len(features) // 3 * 3].reshape(-1, 1, 3, 40)
        scores = np.concatenate(golden("mww_hey_jarvis_v2.tflite", [(frame,) for frame in frames])).astype(int)
        means = np.convolve(scores, np.ones(5, int))[: len(scores)] / (256 * 5)
        heard = np.flatnonzero(means > 0.97)
        mean = means[heard[0]] if heard.size else means.max()
        percent = f"{int(1000 * mean + 0.5) / 10:.1f} %"
        lines.append(
            f"{name}: wake word after {30 * (heard[0] + 1)} ms, {percent}"
            if heard.size
            else f"{name}: nothing, at most {percent}"
        )
    return lines


@pytest.mark.board
@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("board", TOOLS)
def test_the_wake_word_is_heard_where_the_interpreter_hears_it_and_nowhere_else(board: str, tmp_path: Path) -> None:
    expected = wake_word_lines()
    assert [": wake word after " in line for line in expected] == [False, False, True, False]
    output = booted("wake_word", board, tmp_path).splitlines()
    assert output[output.index(expected[0]) :][: len(expected)] == expected
    assert blocks(ROOT / "examples" / "wake_word")[1][:-1] == expected


def test_two_models_in_one_cmake_program_print_what_the_interpreter_computes(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    project = copied("cmake_host", tmp_path)
    drawing = re.findall(r'"([ #]{16})"', (project / "main.c").read_text(encoding="utf-8"))
    pixels = np.array([[127 if c == "#" else -128 for c in row] for row in drawing], np.int8).reshape(1, 16, 16, 1)
    (digits,) = golden("digits_int8.tflite", [(pixels,)])
    (words,) = golden("kws_ref_int8.tflite", [(np.full((1, 49, 10, 1), 83, np.int8),)])
    output = [shell(command, project) for command in blocks(project)[0]][-1]
    digit, word = int(digits.argmax()), int(words.argmax())
    assert output.splitlines() == [
        f"digit: {digit} {100 * (int(digits[digit]) + 128) / 256:.1f} %",
        f"keyword: {KEYWORDS[word]} {100 * (int(words[word]) + 128) / 256:.1f} %",
    ]
    assert output.splitlines() == blocks(project)[1]


@pytest.mark.parametrize("name", FIRMWARE)
def test_platformio_finds_nothing_wrong_and_no_real_board_is_built_by_default(name: str, tmp_path: Path) -> None:
    pytest.importorskip("platformio", reason="the extra emitc[boards] is not installed")
    project = copied(name, tmp_path)
    assert "is free from linting errors" in shell("pio project config --lint", project)
    ini = (project / "platformio.ini").read_text(encoding="utf-8")
    assert "\ndefault_envs = qemu_m4, qemu_m55, qemu_rv32\n" in ini
    for board in ("nucleo_f446re", "nano33ble"):
        assert f"\n[env:{board}]\n" in ini
        toml = (ROOT / "boards" / f"{board}.toml").read_text(encoding="utf-8")
        for key in ("platform", "board"):
            value = re.search(rf'^{key} = "(.+)"$', toml, re.MULTILINE)
            assert value and f"\n{key} = {value[1]}\n" in ini


ARDUINO_H = """\
#include <stdint.h>
struct Port {
    void begin(long);
    void print(const char *);
    void print(char);
    void print(unsigned long);
};
extern Port Serial;
unsigned long micros();
void delay(unsigned long);
void setup();
void loop();
"""


@pytest.mark.parametrize("name", FIRMWARE)
def test_the_arduino_side_compiles_against_a_stand_in(name: str, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    (tmp_path / "Arduino.h").write_text(ARDUINO_H, encoding="utf-8")
    source = ROOT / "examples" / name / "src" / "arduino.cpp"
    include = ["-I", str(tmp_path), "-I", str(ROOT / "boards" / "platform" / "runtime")]
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
    command = ["g++", *flags, *include, "-c", str(source), "-o", str(tmp_path / "arduino.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


BOARD_C = """\
#include <stdio.h>
#include "emitc_board.h"
void emitc_print(const char *text) { fputs(text, stdout); }
void emitc_print_u32(uint32_t value) { printf("%u", (unsigned)value); }
void emitc_print_u64(uint64_t value) { printf("%u", (unsigned)value); }
void emitc_timer_start(void) {}
uint64_t emitc_timer_read(void) { return 0; }
uint64_t emitc_timer_in_units(uint64_t ticks) { return ticks; }
const char *emitc_timer_name(void) { return "ticks"; }
"""

# A model of which every call answers what the test says.
MODEL_C = """\
#include "@model@.h"
#ifndef @model@_init_answer
#define @model@_init_answer EMITC_OK
#endif
#ifndef @model@_run_answer
#define @model@_run_answer EMITC_OK
#endif
#ifndef @model@_reset_answer
#define @model@_reset_answer EMITC_OK
#endif
emitc_status @model@_init(@model@_t *self, void *arena, size_t arena_bytes, void *state, size_t state_bytes)
{
    (void)state;
    (void)arena_bytes;
    (void)state_bytes;
    self->arena = arena;
    return @model@_init_answer;
}
emitc_status @model@_run(@model@_t *self) { (void)self; return @model@_run_answer; }
emitc_status @model@_reset(@model@_t *self) { (void)self; return @model@_reset_answer; }
@input@ *@model@_input_0(@model@_t *self) { return (@input@ *)self->arena; }
const @output@ *@model@_output_0(const @model@_t *self) { return (const @output@ *)self->arena; }
"""


@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize(
    ("name", "models", "calls"),
    [
        ("keyword_spotter", ("kws",), ("init", "run")),
        ("person_detector", ("person",), ("init", "run")),
        ("wake_word", ("frontend", "wake_word"), ("init", "reset", "run")),
    ],
)
def test_the_firmware_reports_every_status_and_fails(
    name: str, models: tuple[str, ...], calls: tuple[str, ...], tmp_path: Path
) -> None:
    project = copied(name, tmp_path)
    for command in blocks(project)[0][:-1]:
        shell(command, project)
    found = compiled_for(project, "nucleo_f446re")
    assert set(found) == set(models)
    libraries = [found[model] for model in models]
    (tmp_path / "board.c").write_text(BOARD_C, encoding="utf-8")
    include = ["-I", str(ROOT / "boards" / "platform" / "runtime")]
    objects, parts = [], []
    for model, library in zip(models, libraries, strict=True):
        include += ["-I", str(library / "include")]
        header = (library / "include" / f"{model}.h").read_text(encoding="utf-8")
        stand_in = MODEL_C.replace("@model@", model)
        for what, declared in (
            ("@input@", rf"^(\w+) \*{model}_input_0\("),
            ("@output@", rf"^const (\w+) \*{model}_output_0\("),
        ):
            found = re.search(declared, header, re.MULTILINE)
            assert found, header
            stand_in = stand_in.replace(what, found[1])
        (tmp_path / f"{model}.c").write_text(stand_in, encoding="utf-8")
        parts.append(tmp_path / f"{model}.c")
    main = ["-c", str(project / "src" / "main.c"), "-o", str(tmp_path / "main.o")]
    done = subprocess.run(["gcc", *STRICT.split(), *include, *main], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for source in (tmp_path / "board.c", libraries[0] / "src" / "emitc_runtime.c"):
        objects.append(tmp_path / f"{source.stem}.o")
        subprocess.run(["gcc", "-std=c11", *include, "-c", str(source), "-o", str(objects[-1])], check=True)

    def run(answer: str = "") -> subprocess.CompletedProcess[str]:
        program = tmp_path / "firmware"
        given = [f"-D{answer}"] if answer else []
        command = ["gcc", "-std=c11", *given, *include, *map(str, parts), str(tmp_path / "main.o"), *map(str, objects)]
        subprocess.run([*command, "-o", str(program)], check=True)
        return subprocess.run([str(program)], capture_output=True, text=True, check=False)

    assert run().returncode == 0
    runtime = (libraries[0] / "include" / "emitc_runtime.h").read_text(encoding="utf-8")
    assert set(re.findall(r"^    (EMITC_\w+) = \d", runtime, re.MULTILINE)) == {"EMITC_OK", *STATUSES}
    for model in models:
        for call in calls:
            for status in STATUSES:
                done = run(f"{model}_{call}_answer={status}")
                assert done.returncode == 1
                said = re.fullmatch(rf"{model}_{call}: ([^:\n]+): ([^\n]+)\n", done.stdout)
                assert said, done.stdout
