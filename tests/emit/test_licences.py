"""Every file that emitc writes or copies into a package or a project states its licence; the documents state the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emitc.boards.project import Firmware, RunModel, RunTensor, write_flash_project, write_qemu_project
from emitc.compiler import compile_model
from emitc.emit.licence import LICENSE, TAG
from emitc.emit.package import PACKAGES, runtime_dir
from emitc.explore.shared_arena import together, together_header
from emitc.target import boards, load_board

ROOT = Path(__file__).resolve().parents[2]


def silent(folder: Path) -> list[str]:
    """Text files below a folder that do not state the licence where a reader looks: within the first lines, or under a key."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            stated = json.loads(text).get("license") == LICENSE
        else:
            stated = any(line.strip(" /*#;<!->") == TAG for line in text.splitlines()[:2])
        if not stated:
            found.append(str(path.relative_to(folder)))
    return found


@pytest.mark.parametrize("target", ["generic32", "cortex-m4f", "cortex-m55"])
@pytest.mark.parametrize("layout", PACKAGES)
def test_every_file_of_a_package_states_it(layout: str, target: str, tiny: Path, tmp_path: Path) -> None:
    compile_model(tiny / "spotter.tflite", package=layout, target=target).write(tmp_path / "package")
    assert silent(tmp_path / "package") == []


def test_every_file_of_the_runtime_states_it() -> None:
    assert silent(runtime_dir()) == []
    assert silent(ROOT / "emitc" / "backends" / "ethos_u" / "c") == []


def test_the_header_of_a_shared_arena_states_it(tiny: Path) -> None:
    programs = [compile_model(tiny / f"{name}.tflite").program for name in ("spotter", "branches")]
    assert together_header(together(programs, concurrent=False, name="pair")).startswith(f"/* {TAG} */\n")


@pytest.mark.parametrize("board", ["qemu_m4", *(name for name in boards() if load_board(name).kind == "silicon")])
def test_what_is_written_around_a_package_to_prove_it_states_it(board: str, tiny: Path, tmp_path: Path) -> None:
    compile_model(tiny / "spotter.tflite", package="platformio").write(tmp_path / "package")
    model = RunModel("spotter", (RunTensor(4, "int8_t"),), (RunTensor(4, "int8_t"),), 16)
    cases = [([b"abcd"], [b"efgh"])]
    described = load_board(board)
    if described.kind == "qemu":
        firmware = Firmware(tmp_path / "package", model, cases)
        write_qemu_project(firmware, described, tmp_path / "out", with_timer=False)
    else:
        write_flash_project(tmp_path / "package", model, described, cases, tmp_path / "out")
    # The emulator's platform is a part of emitc and no part of a product; what of it is compiled is looked at.
    others = [name for name in silent(tmp_path / "out") if not name.startswith("emitc_platform/")]
    assert others + silent(ROOT / "boards" / "platform" / "runtime") == []


def test_the_licences_are_there_and_the_documents_name_them() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "BSD Zero Clause License" in (ROOT / "LICENSE-0BSD").read_text(encoding="utf-8")
    for page in ("README.md", "docs/integration.md"):
        assert f"`{LICENSE}`" in (ROOT / page).read_text(encoding="utf-8")
