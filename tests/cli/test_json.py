"""`--json`: one object on stdout with the keys of the contract, for every command; nothing else is ever printed there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from emitc.cli.main import cli
from tests.support.cli_call import Emitc

KEYS = {
    "compile": "name target arena_bytes lower_bound_bytes proven state_bytes constant_bytes macs nodes partitions files"
    " seconds passes_checked first_wrong_pass",
    "verify": "reference samples elements differing max_abs_diff layers_checked first_divergence arena_planned"
    " arena_observed match passes_checked first_wrong_pass",
    "inspect": "format producer inputs outputs operators supported unsupported",
    "plan": "arena_bytes lower_bound_bytes proven peak buffers",
    "run": "board match instructions stack_bytes flash_bytes code_bytes constant_bytes ram_bytes arena_bytes layers",
    "boards": "boards",
    "targets": "targets",
    "ops": "operators columns variants",
}


def keys(command: str) -> set[str]:
    return set(KEYS[command].split())


def test_every_command_takes_json() -> None:
    for command in cli.commands.values():
        assert "--json" in {option for parameter in command.params for option in parameter.opts}, command.name


def test_compile(emitc: Emitc, tiny: Path, tmp_path: Path) -> None:
    called = emitc("compile", tiny / "spotter.tflite", "-o", "out", "--target", "cortex-m4", "--json")
    assert (called.code, called.err) == (0, "")
    content = called.json
    assert keys("compile") <= set(content)
    assert (content["name"], content["target"], content["nodes"], content["state_bytes"]) == (
        "spotter",
        "cortex-m4",
        5,
        0,
    )
    assert content["arena_bytes"] == content["lower_bound_bytes"]
    assert content["proven"] is True
    assert content["partitions"] == [{"backend": "portable", "nodes": 5, "macs": content["macs"]}]
    assert content["files"] == sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*"))


def test_verify(emitc: Emitc, tiny: Path) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    called = emitc("verify", tiny / "spotter.tflite", "--samples", 4, "--layers", "--json")
    assert (called.code, called.err) == (0, "")
    content = called.json
    assert keys("verify") <= set(content)
    assert content["match"] is True
    assert (content["samples"], content["elements"], content["differing"], content["layers_checked"]) == (4, 12, 0, 20)
    assert content["first_divergence"] is None
    assert content["arena_planned"] == content["arena_observed"]


def test_inspect(emitc: Emitc, tiny: Path) -> None:
    called = emitc("inspect", tiny / "unsupported.tflite", "--json")
    assert (called.code, called.err) == (0, "")
    content = called.json
    assert keys("inspect") <= set(content)
    assert (content["format"], content["producer"]) == ("tflite", "made by a test")
    assert [(o["index"], o["op"], o["supported"]) for o in content["operators"]] == [
        (0, "ADD", True),
        (1, "DENSIFY", False),
        (2, "CUSTOM:Mystery", False),
    ]
    assert all(bool(o["reason"]) != o["supported"] for o in content["operators"])
    assert (content["supported"], content["unsupported"]) == (1, 2)
    assert content["inputs"][0]["shape"] == [1, 4]


def test_plan(emitc: Emitc, tiny: Path) -> None:
    called = emitc("plan", tiny / "branches.tflite", "--json")
    assert (called.code, called.err) == (0, "")
    content = called.json
    assert keys("plan") <= set(content)
    assert set(content["peak"]) == {"step", "op", "tensors"}
    assert {"name", "bytes", "offset", "first", "end"} <= set(content["buffers"][0])
    assert max(b["offset"] + b["bytes"] for b in content["buffers"]) <= content["arena_bytes"]


@pytest.mark.parametrize("command", ["boards", "targets", "ops"])
def test_lists(command: str, emitc: Emitc) -> None:
    called = emitc(command, "--json")
    assert (called.code, called.err) == (0, "")
    content = called.json
    assert set(content) == keys(command)
    assert len(content[KEYS[command].split()[0]]) >= 10


def test_flash_dry_run(emitc: Emitc, tiny: Path, tmp_path: Path) -> None:
    called = emitc(
        "flash", tiny / "spotter.tflite", "--board", "nucleo_f446re", "--dry-run", "--reference", "numpy", "--json"
    )
    assert (called.code, called.err) == (0, "")
    assert called.json == {"board": "nucleo_f446re", "project": "spotter-nucleo_f446re", "dry_run": True}
    assert (tmp_path / "spotter-nucleo_f446re" / "platformio.ini").is_file()


@pytest.mark.board
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
def test_run(emitc: Emitc, tiny: Path) -> None:
    called = emitc("run", tiny / "spotter.tflite", "--board", "qemu_m4", "--layers", "--reference", "numpy", "--json")
    assert called.code == 0, called.err
    content = called.json
    assert keys("run") <= set(content)
    assert content["match"] is True
    assert [(layer["index"], layer["op"]) for layer in content["layers"]] == [
        (0, "CONV_2D"), (1, "DEPTHWISE_CONV_2D"), (2, "AVERAGE_POOL_2D"), (4, "FULLY_CONNECTED"), (5, "SOFTMAX"),
    ]  # fmt: skip
    assert all({"index", "op", "name", "instructions", "macs"} <= set(layer) for layer in content["layers"])


ERRORS = [
    (2, ["compile", "absent.tflite", "-o", "out"]),
    (1, ["compile", "{tiny}/unsupported.tflite", "-o", "out"]),
    (1, ["compile", "{tiny}/spotter.tflite", "-o", "out", "--ram-budget", "16"]),
    (2, ["compile", "{tiny}/spotter.tflite", "-o", "out", "--target", "cortex-m9"]),
    (2, ["compile", "{tiny}/spotter.tflite", "-o", "out", "--board", "breadboard"]),
    (2, ["compile", "{tiny}/spotter.tflite", "-o", "out", "--without", "magic"]),
    (2, ["compile", "{tiny}/spotter.tflite", "-o", "out", "--name", "while"]),
    (2, ["compile", "{tiny}/spotter.tflite", "-o", "out", "--package", "rpm"]),
    (2, ["compile", "{tiny}/spotter.tflite", "-o", "out", "--io", "bool"]),
    (2, ["compile", "{tiny}/spotter.tflite", "-o", "out", "--kernels", "fast"]),
    (2, ["compile", "{tiny}/spotter.tflite", "-o", "out", "--optimize", "both"]),
    (2, ["compile", "{tiny}/spotter.tflite", "-o", "out", "--fallback", "gpu"]),
    (2, ["compile", "{tiny}/spotter.tflite", "-o", "out", "--shape", "nothing=1,2"]),
    (2, ["compile", "{tiny}", "-o", "out"]),
    (2, ["verify", "absent.tflite"]),
    (2, ["verify", "{tiny}/spotter.tflite", "--reference", "oracle"]),
    (2, ["verify", "{tiny}/spotter.tflite", "--samples", "0"]),
    (2, ["verify", "{tiny}/spotter.tflite", "--vectors", "absent.npz"]),
    (1, ["verify", "{tiny}/unsupported.tflite"]),
    (2, ["inspect", "absent.tflite"]),
    (2, ["plan", "absent.tflite"]),
    (1, ["plan", "{tiny}/unsupported.tflite"]),
    (2, ["run", "{tiny}/spotter.tflite", "--board", "breadboard"]),
    (2, ["run", "{tiny}/spotter.tflite", "--board", "nucleo_f446re"]),
    (2, ["flash", "{tiny}/spotter.tflite", "--board", "qemu_m4", "--dry-run"]),
]


@pytest.mark.parametrize(
    ("code", "arguments"), ERRORS, ids=lambda v: " ".join(v[:1] + v[2:]) if isinstance(v, list) else ""
)
def test_a_refusal_is_text_on_stderr_and_an_object_on_stdout(
    code: int, arguments: list[str], emitc: Emitc, tiny: Path, tmp_path: Path
) -> None:
    filled = [a.replace("{tiny}", str(tiny)) for a in arguments]
    plain = emitc(*filled)
    assert (plain.code, plain.out) == (code, "")
    assert plain.err.startswith("error: ")
    assert all(mark in plain.err for mark in ("\n  at:    ", "\n  why:   ", "\n  try:   ", "\n  code:  E"))
    called = emitc(*filled, "--json")
    assert called.code == code
    assert called.err == plain.err
    errors = called.json["error"]
    assert all(set(e) == {"what", "where", "why", "hint", "code"} and all(e.values()) for e in errors)
    assert len(errors) == plain.err.count("error: ")
    assert list(tmp_path.iterdir()) == []


USAGE = [
    ["compile"],
    ["compile", "model.tflite"],
    ["compile", "model.tflite", "-o", "out", "--bogus"],
    ["compile", "model.tflite", "-o", "out", "--ram-budget", "many"],
    ["compile", "model.tflite", "-o", "out", "--ram-budget", "-1"],
    ["compile", "model.tflite", "-o", "out", "--shape", "x"],
    ["compile", "model.tflite", "-o", "out", "--shape", "x=1,-2"],
    ["verify", "model.tflite", "--seed", "-1"],
    ["run", "model.tflite"],
    ["no-such-command"],
    ["targets", "surplus"],
]


@pytest.mark.parametrize("arguments", USAGE, ids=" ".join)
def test_a_wrong_command_line_is_refused_with_its_usage(arguments: list[str], emitc: Emitc) -> None:
    called = emitc(*arguments)
    assert (called.code, called.out) == (2, "")
    assert "Usage: " in called.err
    assert "Error: " in called.err
