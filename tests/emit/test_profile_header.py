"""emitc_profile.h of a package: compiled as a user would, its text decoded, and recorded on emulated boards."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.boards import NETS
from bench.profile_overhead import BOARDS, firmware_of, profile_images
from emitc.boards.profile import Profile, ProfileReader, profile_of, read_model
from emitc.boards.run import boot
from emitc.cli.main import cli
from emitc.compiler import compile_model, plan_model
from emitc.emit.package import PACKAGES
from emitc.errors import EmitcError
from emitc.explore.layer_cycles import layer_cycles
from emitc.explore.layer_timing import INTERVAL, RECORD_CYCLES, profiling_of
from emitc.options import Options
from emitc.target import load_board
from emitc.verify.build import WARNINGS
from emitc.writers.tflite import ModelSpec, write_tflite
from tests.support.board_standin import needs_boards
from tests.support.models import tiny
from tests.support.serial_line import serial_line

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
DIGITS = MODELS / "digits_int8.tflite"
MAIN = """\
#include "digits_int8.h"
#include "emitc_profile.h"

#include <stdio.h>
#include <stdlib.h>

EMITC_PROFILE_HOOK;

static digits_int8_t model;
static uint8_t memory[DIGITS_INT8_ARENA_BYTES + DIGITS_INT8_ARENA_ALIGN];
static emitc_profile_record ring[128];
static emitc_profile profile;
static uint32_t now = 0xFFFFFF00u;

static uint32_t clock_of_the_test(void)
{
    now += 100u;
    return now;
}

static void write_text(void *context, const char *text, size_t bytes)
{
    (void)fwrite(text, 1, bytes, (FILE *)context);
}

/* Arguments: records of the ring, and one of how many runs is recorded. */
int main(int count, char **arguments)
{
    unsigned char *const arena =
        memory + (DIGITS_INT8_ARENA_ALIGN - (uintptr_t)memory % DIGITS_INT8_ARENA_ALIGN) % DIGITS_INT8_ARENA_ALIGN;
    if (digits_int8_init(&model, arena, DIGITS_INT8_ARENA_BYTES, NULL, 0) != EMITC_OK) {
        return 1;
    }
    const uint32_t records = count > 1 ? (uint32_t)strtoul(arguments[1], NULL, 10) : 128u;
    emitc_profile_init(&profile, "digits_int8", DIGITS_INT8_MODEL_SHA256, ring, records, clock_of_the_test, 1000000u);
    if (count > 2) {
        emitc_profile_interval(&profile, (uint32_t)strtoul(arguments[2], NULL, 10));
    }
    for (int run = 0; run < 3; run++) {
        emitc_profile_begin(&profile);
        if (digits_int8_run(&model) != EMITC_OK) {
            return 1;
        }
        emitc_profile_end(&profile);
    }
    if (digits_int8_run(&model) != EMITC_OK) { /* not recorded */
        return 1;
    }
    emitc_profile_write(&profile, write_text, stdout);
    return 0;
}
"""
INTERVAL_TEXT = b"""\
/* For emitc_profile_interval(): one run of so many is recorded. */
#define DIGITS_INT8_PROFILE_INTERVAL 1u

"""
STRICT = (
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wconversion",
    "-Wsign-conversion",
    "-Wshadow",
    "-Wcast-qual",
    "-Wundef",
    "-Werror",
)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profile") / "package"
    compile_model(DIGITS, profile=True).write(folder)
    (folder.parent / "main.c").write_text(MAIN, encoding="ascii")
    return folder


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with two records, the second of which is of several layers."""
    return _tiny(tmp_path_factory.mktemp("short"), tiny.spotter())


def _tiny(folder: Path, model: ModelSpec) -> Path:
    (folder / "a.tflite").write_bytes(write_tflite(model))
    compile_model(folder / "a.tflite", profile=True, target="cortex-m55", name="digits_int8").write(folder / "package")
    (folder / "main.c").write_text(MAIN, encoding="ascii")
    return folder / "package"


def _run(package: Path, *arguments: int, flag: str = "-DEMITC_TRACE") -> str:
    """What the program prints, built once with warnings as errors and under the sanitizers."""
    program = package.parent / f"program{flag}"
    if not program.exists():
        _build(package, program, flag)
    return subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True, check=True).stdout


def _build(package: Path, program: Path, flag: str) -> None:
    sources = [str(package.parent / "main.c"), *map(str, sorted(package.glob("*.c")))]
    command = ["gcc", "-std=c11", "-O2", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *WARNINGS]
    done = subprocess.run(
        [*command, flag, f"-I{package}", *sources, "-o", str(program)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def _read(printed: str, package: Path) -> Profile:
    reader = ProfileReader()
    blocks = list(reader.read(printed.splitlines()))
    return profile_of(read_model(package), blocks, reader.problems)


def test_every_run_is_recorded_with_its_layers(package: Path) -> None:
    profile = _read(_run(package), package)
    layers = json.loads((package / "manifest.json").read_text(encoding="utf-8"))["layers"]
    assert (len(profile.runs), profile.lost, profile.problems, profile.rate) == (3, 0, (), 1_000_000)
    assert [(layer.index, layer.op, layer.macs) for layer, _ in profile.by_layer] == [
        (layer["index"], layer["op"], layer["macs"]) for layer in layers
    ]
    assert all(ticks == (100, 100, 100) for _, ticks in profile.by_layer)
    assert all(run.total == 100 * (len(layers) + 1) for run in profile.runs)


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("records", [1, 6, 7, 8, 9, 13, 100])
def test_a_ring_of_any_size_keeps_the_latest_records(records: int, package: Path) -> None:
    printed = _run(package, records)
    layers = len(read_model(package).layers)
    written = 3 * (layers + 2)
    reader = ProfileReader()
    (block,) = reader.read(printed.splitlines())
    assert reader.problems == []
    assert (len(block.records), block.lost) == (min(records, written), max(0, written - records))
    assert block.records[-1][1] == (0xFFFFFF00 + 100 * written) % (1 << 32)
    if records >= layers + 2:
        assert len(_read(printed, package).runs) == min(records, written) // (layers + 2)


def test_without_the_layer_hook_whole_runs_are_recorded(package: Path) -> None:
    profile = _read(_run(package, flag="-DNO_TRACE"), package)
    assert ([run.total for run in profile.runs], profile.by_layer) == ([100, 100, 100], ())


def test_short_layers_share_a_record(short: Path) -> None:
    profile = _read(_run(short), short)
    stated = json.loads((short / "manifest.json").read_text(encoding="utf-8"))["profile"]
    header = (short / "digits_int8.h").read_text(encoding="ascii")
    assert len(profile.runs) == 3 and profile.problems == ()
    assert [[*layer.before, layer.index] for layer, _ in profile.by_layer] == stated["records"]
    assert stated["records"] == [[0], [1, 2, 4, 5]]
    assert all(ticks == (100, 100, 100) for _, ticks in profile.by_layer)
    assert f"#define DIGITS_INT8_PROFILE_INTERVAL {stated['interval']}u" in header
    assert "estimate: op 1 to 5. */" in header


def test_a_record_of_all_layers_is_the_whole_run(tmp_path: Path) -> None:
    edges = _tiny(tmp_path, tiny.edges())
    profile = _read(_run(edges, 6), edges)
    assert [(layer.label, ticks) for layer, ticks in profile.by_layer] == [("0 to 8", (100, 100, 100))]
    assert "#define DIGITS_INT8_PROFILE_INTERVAL 64u" in (edges / "digits_int8.h").read_text(encoding="ascii")


@pytest.mark.parametrize(("apart", "recorded"), [(0, 3), (1, 3), (2, 2), (3, 1)])
def test_one_run_of_several_is_recorded(apart: int, recorded: int, short: Path) -> None:
    assert len(_read(_run(short, 64, apart), short).runs) == recorded


@pytest.mark.parametrize("model", sorted(MODELS.glob("*.tflite")), ids=lambda path: path.stem)
@pytest.mark.parametrize("target", ["generic32", "cortex-m55"])
def test_a_run_is_long_enough_for_its_records(model: Path, target: str) -> None:
    partition, program = plan_model(model, target=target)
    cycles = sum(layer_cycles(partition, program).values())
    layers = [traced.step.index for traced in program.traced]
    records = profiling_of(partition, program, Options(target=target, profile=True))
    assert [index for record in records.records for index in record] == layers
    assert (records.interval == INTERVAL) == (cycles < RECORD_CYCLES * (len(records.records) + 2))
    assert bool(records.shared) == (cycles < RECORD_CYCLES * (len(layers) + 2))
    own = profiling_of(partition, program, Options(target=target, profile=True, profile_layers=True))
    assert (own.records, own.interval) == (tuple((index,) for index in layers), 1)


def test_recording_takes_less_than_2_percent_of_the_instructions_on_every_board() -> None:
    rows = json.loads((MODELS.parents[1] / "bench" / "results_profile.json").read_text(encoding="utf-8"))["rows"]
    assert {(row["model"], row["board"]) for row in rows} == {(net, board) for net in NETS for board in BOARDS}
    assert max(row["profiled"] / row["instructions"] for row in rows) < 1.02


def test_records_of_layers_are_refused_without_a_profile() -> None:
    with pytest.raises(EmitcError, match="--profile-layers has no effect"):
        compile_model(DIGITS, profile_layers=True)


@pytest.mark.parametrize("trace", ["-DEMITC_TRACE", "-DNO_TRACE"])
@pytest.mark.parametrize(
    "compiler",
    ["gcc -std=c11", "clang -std=c11", "g++ -x c++ -std=c++11", "arm-none-eabi-gcc -mthumb -mcpu=cortex-m0 -std=c11",
     "riscv64-unknown-elf-gcc -march=rv32imac -mabi=ilp32 --specs=picolibc.specs -std=c11"],
)  # fmt: skip
def test_no_compiler_warns_of_the_header(compiler: str, trace: str, short: Path, tmp_path: Path) -> None:
    if shutil.which(compiler.split()[0]) is None:
        pytest.skip(f"{compiler.split()[0]} is not installed")
    command = [*compiler.split(), *STRICT, trace, f"-I{short}", "-c", str(short.parent / "main.c")]
    done = subprocess.run([*command, "-o", "main.o"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", PACKAGES)
def test_the_option_adds_one_file_and_nothing_else(kind: str) -> None:
    plain, more = (compile_model(DIGITS, package=kind, profile=wanted).files for wanted in (False, True))
    (added,) = more.keys() - plain.keys()
    assert Path(added).name == "emitc_profile.h"
    changed = {
        name for name in plain if plain[name] != more[name].replace(b" --profile", b"").replace(INTERVAL_TEXT, b"")
    }
    # The description of a CMSIS-Pack lists the headers.
    assert changed <= {"manifest.json", "emitc.digits_int8.pdsc"}
    assert json.loads(more["manifest.json"])["options"]["profile"] is True
    assert "profile" not in json.loads(plain["manifest.json"])["options"]


@needs_boards
@pytest.mark.parametrize("board", ["qemu_m4", "qemu_m0", "qemu_rv32"])
def test_an_emulated_board_is_profiled_over_a_serial_line(board: str, tmp_path: Path) -> None:
    """Damage to a first profile on the line is named, and the next one is taken."""
    firmware = firmware_of(DIGITS, board, tmp_path)
    printed = boot(load_board(board), profile_images(firmware, board, tmp_path, loops=2)[0], (), timeout=120)
    assert "differs" not in printed and "failed" not in printed
    damaged = printed.replace("ffffffff", "fffffffe", 1)
    trace = tmp_path / "trace.json"
    with serial_line(lambda turn: (printed if turn else damaged).encode()) as port:
        arguments = ["profile", "--port", port, "--manifest", str(firmware.package), "--chrome-trace", str(trace)]
        called = CliRunner().invoke(cli, [*arguments, "--seconds", "20", "--clock", "1000000", "--json"])
    assert called.exit_code == 0, called.output
    result = json.loads(called.stdout)
    assert (result["model"], result["runs"], result["lost_records"]) == ("digits_int8", 2, 0)
    assert len(result["problems"]) == 1 and "its checksum is" in result["problems"][0]
    layers = read_model(firmware.package).layers
    assert [layer["op"] for layer in result["layers"]] == [layer.op for layer in layers]
    assert all(layer["ticks_min"] > 100 for layer in result["layers"][:2])
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    assert len([event for event in events if event["ph"] == "X"]) == 2 * (len(layers) + 1)


def test_a_silent_port_and_a_wrong_place_are_refused(package: Path, tmp_path: Path) -> None:
    def refused(*arguments: str) -> str:
        called = CliRunner().invoke(cli, ["profile", "--manifest", str(package), *arguments])
        assert called.exit_code in (1, 2) and called.exception is not None
        return called.stderr

    with serial_line(lambda turn: b"log line\n") as port:
        assert "no line of a profile arrived" in refused("--port", port, "--seconds", "0.5")
    assert "one place to read from is needed" in refused()
    assert "one place to read from is needed" in refused("--port", "a", "--file", "b")
    assert "cannot be read" in refused("--file", str(tmp_path / "nothing"))
    log = tmp_path / "log"
    log.write_bytes(bytes(range(256)) * 100)
    assert "there is no whole run in the profile" in refused("--file", str(log))
    assert "which the command reads" in refused("--file", str(log), "--chrome-trace", str(log), "--force")
