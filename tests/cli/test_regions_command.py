"""`--regions` and `--place` on the command line: what is printed, what is written, what is refused and with which exit code."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.planner.region_assignment import Region
from tests.support.cli_call import Emitc

REGIONS = ("--regions", "DTCM=112,SRAM=4K")


@pytest.fixture(scope="module")
def compiled(tiny: Path) -> Compiled:
    return compile_model(tiny / "spotter.tflite", regions=(Region("DTCM", 112, 1.0), Region("SRAM", 4096, 2.0)))


def test_a_package_for_two_regions_says_so(emitc: Emitc, tiny: Path, compiled: Compiled) -> None:
    called = emitc("compile", tiny / "spotter.tflite", "-o", "out", *REGIONS, "--json")
    arenas = {region.name: region.plan.arena_bytes for region in compiled.program.regions}
    assert called.code == 0 and called.json["arenas"] == arenas
    assert called.json["arena_bytes"] == sum(arenas.values())
    manifest = json.loads(Path("out/manifest.json").read_text(encoding="ascii"))
    assert manifest["options"]["regions"] == [
        {"name": "DTCM", "bytes": 112, "cost": 1.0},
        {"name": "SRAM", "bytes": 4096, "cost": 2.0},
    ]
    assert {each["name"]: each["arena_bytes"] for each in manifest["memory"]["regions"]} == arenas
    assert {each["region"] for each in manifest["memory"]["buffers"]} == set(arenas)
    for each in manifest["memory"]["buffers"]:
        assert each["offset"] + each["bytes"] <= arenas[each["region"]]
    header = Path("out/spotter.h").read_text(encoding="ascii")
    for name, size in arenas.items():
        assert f"#define SPOTTER_ARENA_{name}_BYTES {size}u\n" in header
    assert "SPOTTER_ARENA_BYTES" not in header


def test_the_options_in_the_banner_make_the_same_package(emitc: Emitc, tiny: Path) -> None:
    model = tiny / "spotter.tflite"
    assert emitc("compile", model, "-o", "one", *REGIONS, "--place", "AT_OP1=sram", "--place", "weights=SRAM").code == 0
    banner = next(
        line for line in Path("one/spotter.c").read_text(encoding="ascii").splitlines() if "regenerate:" in line
    )
    assert emitc("compile", model, "-o", "two", *banner.split("-o DIR ")[1].split()).code == 0
    assert Path("one/spotter.c").read_bytes() == Path("two/spotter.c").read_bytes()


def test_the_proof_has_a_line_for_each_region(emitc: Emitc, tiny: Path, compiled: Compiled) -> None:
    called = emitc("verify", tiny / "spotter.tflite", *REGIONS, "--samples", "1", "--reference", "numpy")
    assert called.code == 0
    for region in compiled.program.regions:
        size = region.plan.arena_bytes
        assert f"    {region.name}      {size} bytes planned, {size} observed\n" in called.out
        assert f"  memory      {region.proof}\n" in called.out
    shown = emitc("verify", tiny / "spotter.tflite", *REGIONS, "--samples", "1", "--reference", "numpy", "--json").json
    assert [use["region"] for use in shown["arenas"]] == ["DTCM", "SRAM"]


def test_the_plan_has_a_table_and_a_panel_for_each_region(emitc: Emitc, tiny: Path, compiled: Compiled) -> None:
    called = emitc("plan", tiny / "spotter.tflite", *REGIONS, "--svg", "plan.svg", "--html", "plan.html")
    assert called.code == 0
    assert called.out.count("buffer ") == 2
    for region in compiled.program.regions:
        assert f"{region.proof}\n{region.name}: " in called.out
    text = Path("plan.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert text.count('<rect class="bar') == len(compiled.program.slots)
    for region in compiled.program.regions:
        assert f"{region.name}: {region.plan.arena_bytes} of {region.limit_bytes} bytes" in text
        assert region.proof.removeprefix(f"{region.name} ") in text


def test_a_board_stands_for_its_regions(emitc: Emitc, tiny: Path) -> None:
    called = emitc("compile", tiny / "spotter.tflite", "-o", "out", "--regions", "teensy41", "--json")
    assert called.code == 0 and list(called.json["arenas"]) == ["DTCM", "OCRAM"]


@pytest.mark.parametrize(
    ("board", "regions"),
    [
        ("pico2", "RAM=532480:1,FLASH=0:5:16384"),
        ("esp32s3", "RAM=327680:1,FLASH=0:13:32768"),
        ("esp32c3", "RAM=327680:1,FLASH=0:5:16384"),
    ],
)
def test_a_board_with_a_serial_flash_has_its_cost_and_its_cache(
    board: str, regions: str, emitc: Emitc, tiny: Path
) -> None:
    called = emitc("compile", tiny / "spotter.tflite", "-o", "out", "--regions", board, "--stage-weights", "ram")
    assert called.code == 0
    assert f" --regions {regions} " in Path("out/spotter.h").read_text(encoding="ascii")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--regions", "nano33ble"), 2, "nano33ble has one RAM"),
        (("--regions", "teensy42"), 2, "did you mean teensy41?"),
        (("--regions", "DTCM=lots"), 2, "'DTCM=lots' is not NAME=BYTES"),
        (("--regions", "DTCM=16K,"), 2, "'' is not NAME=BYTES"),
        (("--regions", "DTCM=16K:0,SRAM=1K"), 2, "'DTCM=16K:0' is not NAME=BYTES"),
        (("--regions", "DTCM=16K:1:,SRAM=1K"), 2, "'DTCM=16K:1:' is not NAME=BYTES"),
        (("--regions", "DTCM=-1,SRAM=1K"), 2, "'DTCM=-1' is not NAME=BYTES"),
        (("--regions", "DTCM=16K,dtcm=1K"), 2, "two regions are named dtcm"),
        (("--regions", "int=16K,SRAM=1K"), 2, "int is no name for a region"),
        (("--regions", "DTCM=16,SRAM=32"), 1, "the tensors do not fit the regions"),
        ((*REGIONS, "--place", "AT_OP1=PSRAM"), 2, "there is no region PSRAM"),
        ((*REGIONS, "--place", "AT_OPS=DTCM"), 2, "there is no tensor AT_OPS in the arena"),
        ((*REGIONS, "--place", "AT_OP1"), 2, "'AT_OP1' is not TENSOR=REGION"),
        ((*REGIONS, "--stage-weights", "PSRAM"), 2, "there is no region PSRAM"),
        ((*REGIONS, "--place", "weights=DTCM"), 1, "the constants do not fit DTCM"),
        (("--place", "AT_OP1=DTCM"), 2, "there are no regions"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], code: int, message: str, emitc: Emitc, tiny: Path) -> None:
    called = emitc("compile", tiny / "spotter.tflite", "-o", "out", *arguments)
    assert called.code == code
    assert message in called.err
    assert not Path("out").exists()


def test_several_models_share_one_region_only(emitc: Emitc, tiny: Path) -> None:
    called = emitc("plan", "--together", tiny / "spotter.tflite", tiny / "branches.tflite", "--regions", "A=64K,B=64K")
    assert called.code == 2
    assert "spotter has an arena in each of several regions" in called.err
