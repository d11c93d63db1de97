"""`emitc diff`: figures, layers, kernels and the interface of two packages or measurements, and the gate."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import emitc as package
from emitc.errors import EmitcError
from emitc.explore.difference import Change, difference, read_side
from emitc.report.cost import diff_markdown
from tests.support.cli_call import Emitc

MODEL = Path(__file__).resolve().parents[2] / "examples" / "models" / "digits_int8.tflite"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One model for two cores."""
    folder = tmp_path_factory.mktemp("diff")
    for target in ("cortex-m4f", "cortex-m3"):
        package.compile_model(MODEL, target=target).write(folder / target)
    return folder / "cortex-m4f", folder / "cortex-m3"


def with_port(side: dict[str, Any], **changes: object) -> dict[str, Any]:
    return side | {"inputs": [side["inputs"][0] | changes, *side["inputs"][1:]]}


def test_a_package_and_its_manifest_are_the_same(packages: tuple[Path, Path]) -> None:
    found = difference(read_side(packages[0]), read_side(packages[0] / "manifest.json"))
    assert found.layers == found.kernels == found.facts == found.breaks == found.failed(0.0) == ()
    assert {change.name for change in found.figures} == {"arena_bytes", "state_bytes", "constant_bytes", "macs"}


def test_other_kernels_and_targets_are_named(packages: tuple[Path, Path]) -> None:
    old, new = map(read_side, packages)
    found = difference(old, new)
    assert ("target", "cortex-m4f", "cortex-m3") in found.facts
    assert [name for name, _, _ in found.facts if name.startswith("option ")] == []
    before, after = ([layer["kernel"] for layer in side["layers"]] for side in (old, new))
    assert [(a, b) for _, a, b in found.kernels] == [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert found.breaks == ()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scale": 0.5}, "scale of input 0 was 0.003921568859368563, and is 0.5"),
        ({"zero_point": 0}, "zero point of input 0 was -128, and is 0"),
        ({"dtype": "int16"}, "dtype of input 0 was int8, and is int16"),
        ({"shape": [1, 8, 8, 1]}, "shape of input 0 was [1, 16, 16, 1], and is [1, 8, 8, 1]"),
    ],
)
def test_a_changed_input_breaks_the_interface(
    changes: dict[str, object], says: str, packages: tuple[Path, Path]
) -> None:
    old = dict(read_side(packages[0]))
    found = difference(old, with_port(old, **changes))
    assert found.breaks == found.failed(10.0) == (says,)


def test_another_number_of_outputs_breaks_it(packages: tuple[Path, Path]) -> None:
    old = dict(read_side(packages[0]))
    assert difference(old, old | {"outputs": []}).breaks == ("the number of outputs was 1, and is 0",)


def test_measurements_and_their_layers() -> None:
    layer = {"index": 0, "op": "CONV_2D", "macs": 5}
    old = {"instructions": 1000, "arena_bytes": 10, "match": True, "layers": [layer | {"instructions": 900}]}
    new = {"instructions": 1021, "arena_bytes": 10, "match": False, "layers": [layer | {"instructions": 921}]}
    found = difference(old, new)
    assert [(c.name, c.new) for c in found.layers] == [("op 0 CONV_2D instructions", 921)]
    assert found.failed(0.02) == ("instructions grew by +2.1 %", "match was True, and is False")
    assert found.failed(0.03) == ("match was True, and is False",)


def test_shares_of_nothing_are_infinite() -> None:
    assert (Change("a", 0, 0).share, Change("a", 0, 1).share, Change("a", 4, 3).share) == (0.0, math.inf, -0.25)
    assert Change("a", 0, 1).to_json()["share"] is None


@pytest.mark.parametrize("text", ["", "[", "[]", "{}", '{"arena_bytes": true}', '{"arena_bytes": NaN}', "[" * 100000])
def test_what_cannot_be_compared_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    with pytest.raises(EmitcError):
        read_side(tmp_path / "a.json")
    with pytest.raises(EmitcError):
        read_side(tmp_path / "absent")


def test_a_name_of_a_file_changes_no_table() -> None:
    layer = {"index": "a|b<script>\n# x", "op": "O"}
    old, new = ({"macs": 1, "layers": [layer | {"macs": n}]} for n in (1, 2))
    text = diff_markdown(difference(old, new), ())
    assert "<script>" not in text and "\n# x" not in text and "a\\|b" in text


def test_the_command_and_its_gate(emitc: Emitc, packages: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = packages
    assert emitc("diff", old, new).code == 0
    text = emitc("diff", old, new, "--markdown").out
    assert "| arena\\_bytes |" in text and "| ---: |" in text
    changed = dict(read_side(old)) | {"constant_bytes": read_side(old)["constant_bytes"] * 2}
    (tmp_path / "m.json").write_text(json.dumps(changed), encoding="utf-8")
    called = emitc("diff", old, "m.json", "--fail-on", "+2%", "--json")
    assert called.code == 1 and called.json["failed"] == ["constant_bytes grew by +100.0 %"]
    assert emitc("diff", old, "m.json", "--fail-on", "+100%").code == 0
    assert emitc("diff", old, "m.json", "--fail-on", "two").code == 2


def test_only_options_that_differ_are_named(packages: tuple[Path, Path]) -> None:
    old = read_side(packages[0])
    new = dict(old, options=old["options"] | {"optimize": "size"})
    assert difference(old, new).facts == (("option optimize", '"speed"', '"size"'),)
