"""The description of a CMSIS-Pack: its files build the program that it offers, and the published schema accepts it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from emitc.compiler import compile_model
from emitc.emit.package_kinds import Content
from emitc.emit.package_kinds.build_systems import cmsis_pack
from emitc.program import Requirement

SCHEMA = os.environ.get("EMITC_PACK_SCHEMA", "")
NAME = "Wh1le_net"


@pytest.fixture(scope="module", params=["plain", "split"])
def pack(request: pytest.FixtureRequest, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package whose model's file has a name that is markup."""
    folder = tmp_path_factory.mktemp(request.param)
    model = folder / '"><a b=&x;>]]>--.tflite'
    shutil.copyfile(tiny / "spotter.tflite", model)
    split = request.param == "split"
    compile_model(model, package="cmsis-pack", name=NAME, split_weights=split).write(folder / "pack")
    return folder / "pack"


def description(pack: Path) -> ElementTree.Element:
    return ElementTree.parse(pack / f"emitc.{NAME}.pdsc").getroot()


def components(pack: Path) -> dict[str, list[ElementTree.Element]]:
    """The files of each component, by its group."""
    return {c.attrib["Cgroup"]: list(c.iter("file")) for c in description(pack).iter("component")}


def test_every_file_of_the_package_is_in_one_component(pack: Path) -> None:
    listed = [file.attrib["name"] for files in components(pack).values() for file in files]
    assert [name for name in listed if name.endswith("/")] == ["include/", "include/"]
    files = sorted(name for name in listed if not name.endswith("/"))
    others = {"manifest.json", f"emitc.{NAME}.pdsc", f"layer/{NAME}.clayer.yml"}
    assert files == sorted({str(p.relative_to(pack)) for p in pack.rglob("*") if p.is_file()} - others)
    kinds = {
        (Path(file.attrib["name"]).suffix, file.attrib["category"]) for c in components(pack).values() for file in c
    }
    assert kinds == {("", "include"), (".h", "header"), (".c", "source")}


def test_the_components_build_and_the_template_prints_match(pack: Path, tmp_path: Path) -> None:
    """What a csolution project does with the pack, by the description alone: CMSIS-Toolbox is not installed."""
    named = components(pack)
    assert set(named) == {"Network", "Network Runtime"}
    files = [pack / file.attrib["name"] for group in named.values() for file in group]
    templates = [pack / file.attrib["name"] for file in named["Network"] if file.get("attr") == "template"]
    for template in templates:
        shutil.copyfile(template, tmp_path / template.name)
    options = sorted({f"-I{path}" for path in files if path.is_dir()})
    sources = [str(path) for path in files if path.suffix == ".c" and path not in templates]
    command = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", *options, *sources, "main.c", "-o", "check"]
    for step in (command, ["./check"]):
        done = subprocess.run(step, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "MATCH\n"


def test_the_description_has_what_the_schema_requires(pack: Path) -> None:
    root = description(pack)
    assert [child.tag for child in root] == [
        "vendor", "name", "description", "url", "releases", "keywords", "conditions", "components", "csolution",
    ]  # fmt: skip
    assert re.fullmatch(r"[\-_A-Za-z0-9]+", root.findtext("name", "")) and root.findtext("vendor") == "emitc"
    for release in root.iter("release"):
        assert re.fullmatch(r"\d+\.\d+\.\d+", release.attrib["version"])
    network = next(c for c in root.iter("component") if c.get("Csub") == NAME)
    conditions = {c.attrib["id"]: [dict(r.attrib) for r in c.iter("require")] for c in root.iter("condition")}
    assert conditions[network.attrib["condition"]] == [{"Cclass": "Machine Learning", "Cgroup": "Network Runtime"}]
    (layer,) = root.iter("clayer")
    assert (pack / layer.attrib["path"] / layer.attrib["file"]).is_file()


def test_the_layer_names_the_pack_and_its_components(pack: Path) -> None:
    lines = (pack / "layer" / f"{NAME}.clayer.yml").read_text(encoding="ascii").splitlines()
    assert [line.strip() for line in lines if line.strip().startswith("- ")] == [
        f"- pack: emitc::{NAME}@0.1.0",
        "- component: emitc::Machine Learning:Network Runtime",
        f"- component: emitc::Machine Learning:Network:{NAME}",
    ]


def test_a_model_with_cmsis_nn_asks_for_its_component(tiny: Path) -> None:
    library = Requirement("cmsis-nn", "CMSIS-NN", "7.0.0", license="Apache-2.0", cmake="cmsis-nn")
    program = replace(compile_model(tiny / "spotter.tflite").program, requirements=(library,))
    made = cmsis_pack(Content(program, "-O2", (), False))
    root = ElementTree.fromstring(made["emitc.spotter.pdsc"].encode())
    assert {"Cclass": "CMSIS", "Cgroup": "NN Lib"} in [dict(r.attrib) for r in root.iter("require")]
    assert "    - component: CMSIS:NN Lib\n" in made["layer/spotter.clayer.yml"]


@pytest.mark.skipif(not SCHEMA, reason="EMITC_PACK_SCHEMA names no PACK.xsd")
def test_the_published_schema_accepts_the_description(pack: Path) -> None:
    command = ["xmllint", "--noout", "--schema", SCHEMA, str(pack / f"emitc.{NAME}.pdsc")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
