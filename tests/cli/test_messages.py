"""Whole texts: three error messages to the letter, and what a person reads on success."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emitc.compiled as emitc_compiled
from emitc.compiler import compile_model
from emitc.options import Options
from emitc.verify.reference import random_samples, run_reference
from tests.support.cli_call import Emitc


def test_every_refusal_of_a_model_in_one_run(emitc: Emitc, tiny: Path) -> None:
    assert emitc("compile", tiny / "unsupported.tflite", "-o", "out").err == (
        "error: DENSIFY is not supported\n"
        '  at:    unsupported.tflite, op 1 DENSIFY "z"\n'
        "  why:   emitc has no kernel for this operator\n"
        "  try:   replace the operator; `emitc ops` lists what there is\n"
        "  code:  E0301\n"
        "error: CUSTOM:Mystery is not supported\n"
        '  at:    unsupported.tflite, op 2 CUSTOM:Mystery "out"\n'
        "  why:   emitc has no kernel for this operator\n"
        "  try:   bring its definition along with --plugin (docs/custom-operators.md), or replace it\n"
        "  code:  E0301\n"
    )


def test_a_budget_that_is_too_small_names_the_peak(emitc: Emitc, tiny: Path) -> None:
    """A budget below the default has layers run row by row; below what that gives there is an error."""
    arena = compile_model(tiny / "spotter.tflite").program.plan.arena_bytes
    least = compile_model(tiny / "spotter.tflite", Options(ram_budget="min")).program.plan.arena_bytes
    assert (arena, least) == (208, 176)
    called = emitc("plan", tiny / "spotter.tflite", "--ram-budget", 170)
    assert called.code == 1
    assert called.err == (
        "error: the smallest arena found has 176 bytes, 6 over the budget\n"
        "  at:    spotter.tflite, ops 0 to 1, row by row, --ram-budget 170\n"
        '  why:   alive at once at ops 0 to 1, row by row: int8[1,8,6,2] "spectrogram", input 0: 96 bytes;'
        ' rows of int8[1,8,6,4] "stem/conv", from op 0: 72 bytes;'
        ' int8[1,4,3,4] "block/depthwise", from op 1: 48 bytes\n'
        "  try:   a smaller input, or fewer channels at the peak\n"
        "  code:  E0701\n"
    )
    assert emitc("plan", tiny / "spotter.tflite", "--ram-budget", least).code == 0
    assert emitc("plan", tiny / "spotter.tflite", "--ram-budget", least - 1).code == 1
    assert emitc("plan", tiny / "spotter.tflite", "--ram-budget", "least").code == 2


def test_a_file_that_is_no_model(emitc: Emitc, tmp_path: Path) -> None:
    (tmp_path / "notes.tflite").write_bytes(b"Not a model at all, but some notes.")
    assert emitc("inspect", "notes.tflite").err == (
        "error: this is not a .tflite file\n"
        "  at:    notes.tflite\n"
        "  why:   the identifier TFL3 is missing at byte 4\n"
        "  try:   pass a TFLite FlatBuffers file\n"
        "  code:  E0201\n"
    )


def test_a_foreign_directory(emitc: Emitc, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.c").write_text("int main(void);\n", encoding="ascii")
    called = emitc("compile", tiny / "wires.tflite", "-o", "src")
    assert called.code == 2
    assert called.err.replace(f"{tmp_path}/", "") == (
        "error: src has content that emitc did not write\n"
        "  at:    -o\n"
        "  why:   the whole directory would be replaced, and main.c is not of an emitc package\n"
        "  try:   choose an empty or new directory, or move the file out of it\n"
        "  code:  E0104\n"
    )


def test_what_compile_says(emitc: Emitc, tiny: Path) -> None:
    called = emitc("compile", tiny / "spotter.tflite", "-o", "out")
    assert (called.code, called.err) == (0, "")
    lines = called.out.splitlines()
    assert re.fullmatch(r"spotter\.tflite -> out/ \(plain, 6 files\) in \d+\.\d\d s", lines[0])
    assert lines[1].split() == ["layers", "5,", "3", "912", "multiply-accumulates"]
    assert "arena 208 B = lower bound 208 B" in lines[3]
    target = "  target      generic32: portable C for any core; estimated speed of kernels for one core: "
    assert lines[-1].startswith(target)
    factors = r"(cortex-m\w+|rv32\w+) \d+(\.\d)? times(, .+)? \(--target NAME\) \(N0801\)"
    assert re.fullmatch(factors, lines[-1].removeprefix(target))


def test_every_note_has_its_code_in_the_text_in_json_and_in_the_manifest(emitc: Emitc, tmp_path: Path) -> None:
    model = Path(__file__).parents[2] / "examples" / "models" / "kws_ref_int8.tflite"
    text = emitc("compile", model, "-o", "out").out
    notes = emitc("compile", model, "-o", "out", "--json").json["notes"]
    assert [note["code"] for note in notes] == ["N0501", "N0801"]
    assert all(f"  {note['what']} ({note['code']})\n" in text for note in notes)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert list(zip(manifest["note_codes"], manifest["notes"], strict=True)) == [("N0501", notes[0]["what"])]


def test_a_wrong_element_fails_the_proof_and_is_named(
    emitc: Emitc, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The C is changed without the compiler's knowledge: one bias of the first layer."""
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    real = emitc_compiled.package_files

    def wrong(*arguments: Any, **named: Any) -> dict[str, bytes]:
        files = real(*arguments, **named)
        source = files["spotter.c"].decode("ascii")
        changed = re.sub(r"(op0_conv_2d_bias\[4\] = \{\s+)(-?\d+)", lambda m: f"{m[1]}{int(m[2]) + 9000}", source)
        assert changed != source
        return files | {"spotter.c": changed.encode("ascii")}

    assert emitc("verify", tiny / "spotter.tflite", "--layers").code == 0
    monkeypatch.setattr(emitc_compiled, "package_files", wrong)
    called = emitc("verify", tiny / "spotter.tflite", "--layers", "--samples", 3, "--json")
    assert (called.code, called.err) == (1, "")
    assert called.json["match"] is False
    assert called.json["first_divergence"]["op"] == "CONV_2D"
    assert called.json["first_divergence"]["index"] == 0
    assert called.json["first_divergence"]["tensor"] == "stem/conv"
    text = emitc("verify", tiny / "spotter.tflite", "--layers", "--samples", 3)
    assert (text.code, text.err) == (1, "")
    assert text.out.startswith("spotter.tflite: MISMATCH\n")
    assert re.search(r"^  first       op 0 CONV_2D: \d+ elements of stem/conv, largest difference \d+$", text.out, re.M)


def test_given_vectors_are_compared_too(emitc: Emitc, tiny: Path, tmp_path: Path) -> None:
    graph = compile_model(tiny / "spotter.tflite").graph
    (value,) = random_samples(graph, 1, 5)[0]
    right = run_reference(graph, [value])[graph.outputs[0]]
    arguments = [
        "verify",
        tiny / "spotter.tflite",
        "--reference",
        "numpy",
        "--samples",
        0,
        "--vectors",
        "v.npz",
        "--json",
    ]
    np.savez(tmp_path / "v.npz", in0_0=value, out0_0=right)
    assert emitc(*arguments).code == 0
    wrong = right.copy()
    wrong[0, 1] ^= 1
    np.savez(tmp_path / "v.npz", in0_0=value, out0_0=wrong)
    called = emitc(*arguments)
    assert called.code == 1
    assert (called.json["differing"], called.json["elements"]) == (1, 6)
