"""`verify` proves what is right and finds what is wrong: the C of a good package is changed, and the proof must fail.

Each mutation is made in the text of the generated C, between rendering and writing, so that everything after it (the
build, the runs, the comparison, the sanitizers) is the real thing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError
from emitc.verify.proof import Proof
from emitc.verify.verification import verify

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

Change = Callable[[str], str]


@pytest.fixture(scope="module")
def spotter(tiny: Path) -> Compiled:
    return compile_model(tiny / "spotter.tflite")


def changed(compiled: Compiled, change: Change) -> Compiled:
    """The model with its C changed; the change must change something."""
    name = f"{compiled.program.name}.c"
    before = compiled.files[name].decode("ascii")
    after = change(before)
    assert after != before, "the mutation found nothing to change"
    return replace(compiled, files=compiled.files | {name: after.encode("ascii")})


def one_element_off(table: str) -> Change:
    """The first element of a constant array moved by 64, towards zero."""

    def other(match: re.Match[str]) -> str:
        value = int(match[2])
        return f"{match[1]}{value - 64 if value > 0 else value + 64}"

    return lambda text: re.sub(rf"(static const \w+ {table}\[\d+\] = \{{\s+)(-?\d+)", other, text, count=1)


def in_run(before: str, code: str) -> Change:
    """A statement in run(), before the line that starts with `before`."""

    def change(text: str) -> str:
        head, run = text.split("emitc_status spotter_run(spotter_t *self)\n")
        return (
            head
            + "emitc_status spotter_run(spotter_t *self)\n"
            + re.sub(rf"(?m)^(    {before})", rf"    {code}\n\1", run, count=1)
        )

    return change


def slot(compiled: Compiled, name: str) -> tuple[int, int]:
    """Offset and bytes of a buffer in the arena."""
    (found,) = (s for s in compiled.program.slots if s.name == name)
    return found.offset_bytes, found.size_bytes


def dead_byte(compiled: Compiled, step: int) -> int:
    """A byte of the arena that no buffer alive during the step holds."""
    alive = {
        byte
        for s in compiled.program.slots
        if s.first <= step < s.end
        for byte in range(s.offset_bytes, s.offset_bytes + s.size_bytes)
    }
    return next(byte for byte in range(compiled.program.plan.arena_bytes) if byte not in alive)


def test_the_unchanged_model_is_proven(spotter: Compiled) -> None:
    seen: list[tuple[int, int]] = []
    proof = verify(
        spotter, samples=7, layers=True, sanitize=True, progress=lambda done, total: seen.append((done, total))
    )
    assert proof.match
    assert proof.to_json() == {
        "reference": "tflm", "samples": 7, "elements": 21, "differing": 0, "max_abs_diff": 0.0, "rule": "exact",
        "tolerance": 0.0, "tolerated": 0, "numpy_samples": 3,
        "numpy_differing": 0, "layers_checked": 35, "first_divergence": None, "groups": [], "unjudged": 0,
        "given_elements": 0, "given_differing": 0, "given_cases": [],
        "arena_planned": spotter.program.plan.arena_bytes, "arena_observed": spotter.program.plan.arena_bytes,
        "sanitized": True, "memory_errors": [], "match": True,
    }  # fmt: skip
    assert seen == [(k, 7) for k in range(1, 8)]


def test_a_wrong_weight_in_the_last_layers_is_found_and_named(spotter: Compiled) -> None:
    proof = verify(changed(spotter, one_element_off("op4_fully_connected_weights")), samples=20, layers=True)
    assert not proof.match
    assert proof.first_divergence is not None
    assert (proof.first_divergence.op, proof.first_divergence.index) == ("FULLY_CONNECTED", 4)
    assert proof.first_divergence.tensor == "logits"
    assert proof.first_divergence.differing == 1
    assert proof.numpy_differing > 0


def test_the_first_of_several_diverging_layers_is_named(spotter: Compiled) -> None:
    """A wrong weight of the first layer makes every later one differ too."""
    proof = verify(changed(spotter, one_element_off("op0_conv_2d_weights")), samples=4, layers=True)
    assert not proof.match
    assert proof.first_divergence is not None
    assert (proof.first_divergence.op, proof.first_divergence.index) == ("CONV_2D", 0)


def test_without_layers_a_difference_is_counted_but_not_located(spotter: Compiled) -> None:
    wrong = changed(spotter, in_run("return EMITC_OK", "arena[AT_OP5] ^= 4;"))
    proof = verify(wrong, samples=5)
    assert (proof.differing, proof.elements, proof.max_abs_diff) == (5, 15, 4)
    assert proof.numpy_differing == 3
    assert proof.first_divergence is None
    assert not proof.match


@pytest.mark.parametrize("reference", ["tflm", "litert", "numpy"])
def test_every_reference_sees_it(reference: str, spotter: Compiled) -> None:
    if reference == "litert":
        pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    wrong = changed(spotter, in_run("return EMITC_OK", "arena[AT_OP5] ^= 64;"))
    proof = verify(wrong, reference=reference, samples=2, layers=True)
    assert proof.reference == reference
    assert not proof.match
    assert proof.first_divergence is None, "the last layer's own output was right when it was written"
    assert proof.differing > 0


def test_an_arena_that_is_used_less_than_planned_is_found(spotter: Compiled) -> None:
    offset = spotter.program.plan.arena_bytes
    plan = replace(spotter.program.plan, arena_bytes=offset + 32)
    header = spotter.files["spotter.h"].replace(
        f"ARENA_BYTES {offset}u".encode(), f"ARENA_BYTES {offset + 32}u".encode()
    )
    larger = replace(spotter, program=replace(spotter.program, plan=plan), files=spotter.files | {"spotter.h": header})
    proof = verify(larger, samples=2, reference="numpy")
    assert proof.differing == 0
    assert (proof.arena_planned, proof.arena_observed) == (offset + 32, offset)
    assert not proof.match


@pytest.mark.parametrize("beyond", [0, 100, -1])
def test_a_write_outside_the_arena_is_found(beyond: int, spotter: Compiled) -> None:
    planned = spotter.program.plan.arena_bytes
    at = planned + beyond if beyond >= 0 else beyond
    proof = verify(changed(spotter, in_run("return EMITC_OK", f"arena[{at}] ^= 1;")), samples=2, reference="numpy")
    assert not proof.match
    assert proof.memory_errors == (f"spotter_run wrote byte {at} of an arena of {planned} bytes",)
    if beyond >= 0:
        assert proof.arena_observed > proof.arena_planned


@pytest.mark.parametrize("layers", [False, True])
def test_a_layer_that_writes_outside_its_buffers_is_found(layers: bool, spotter: Compiled) -> None:
    """A stray write into dead memory changes no output, and is found all the same."""
    byte = dead_byte(spotter, 1)
    hook = 'emitc_layer_hook("spotter", 1u'
    stray = changed(spotter, lambda text: text.replace(hook, f"arena[{byte}] ^= 1, {hook}", 1))
    proof = verify(stray, samples=2, layers=layers, reference="numpy")
    assert proof.differing == 0
    assert proof.memory_errors == (f"op 1 DEPTHWISE_CONV_2D wrote arena byte {byte}, which is not its own",)
    assert not proof.match


def test_a_first_layer_that_spoils_the_input_is_found(tiny: Path) -> None:
    """The second reader of an input would see other values."""
    branches = compile_model(tiny / "branches.tflite")
    name = "branches.c"
    text = (
        branches.files[name]
        .decode("ascii")
        .replace('emitc_layer_hook("branches", 0u', 'arena[AT_INPUT_0 + 3] ^= 1, emitc_layer_hook("branches", 0u')
    )
    proof = verify(
        replace(branches, files=branches.files | {name: text.encode()}), samples=1, layers=True, reference="numpy"
    )
    offset, _ = slot(branches, "AT_INPUT_0")
    assert f"op 0 ADD wrote arena byte {offset + 3}, which is not its own" in proof.memory_errors


def test_the_build_with_the_layer_hook_must_agree(spotter: Compiled) -> None:
    code = "\n#if defined(EMITC_TRACE)\n    arena[AT_OP5] ^= 1;\n#endif"
    proof = verify(changed(spotter, in_run("return EMITC_OK", code)), samples=2, reference="numpy")
    assert "built with the layer hook, the model computes other outputs" in proof.memory_errors
    assert not proof.match


SANITIZED = {
    "a read after the arena": (
        "volatile unsigned char sink = arena[SPOTTER_ARENA_BYTES]; (void)sink;",
        "heap-buffer-overflow",
    ),
    "a read after a table": (
        "const int32_t *volatile table = op0_conv_2d_bias; volatile int32_t sink = table[4]; (void)sink;",
        "global-buffer-overflow",
    ),
    "an overflow": (
        "volatile int32_t big = INT32_MAX; volatile int32_t sink = big + 1; (void)sink;",
        "signed integer overflow",
    ),
    "a shift too far": (
        "volatile int32_t far = 32; volatile uint32_t sink = 1u << far; (void)sink;",
        "shift exponent 32",
    ),
}


@pytest.mark.parametrize("what", SANITIZED)
def test_the_sanitizers_find(what: str, spotter: Compiled) -> None:
    code, report = SANITIZED[what]
    wrong = changed(spotter, in_run("return EMITC_OK", code))
    proof = verify(wrong, samples=1, sanitize=True, reference="numpy")
    assert proof.differing == 0
    assert re.search(report, " ".join(proof.memory_errors)), proof.memory_errors
    assert not proof.match


def test_the_sanitizers_find_a_read_of_a_dead_buffer(spotter: Compiled) -> None:
    """Inside the arena, and harmless today: the bytes are there, but belong to nobody at that step."""
    code = f"volatile unsigned char sink = arena[{dead_byte(spotter, 3)}]; (void)sink;"
    wrong = changed(spotter, in_run("op4_", code))
    proof = verify(wrong, samples=1, sanitize=True, reference="numpy")
    assert any("use-after-poison" in error for error in proof.memory_errors), proof.memory_errors
    assert verify(wrong, samples=1, layers=True, reference="numpy").match, "only the sanitizers can see it"


def test_the_sanitized_program_must_compute_the_same(spotter: Compiled) -> None:
    code = "\n#if defined(__SANITIZE_ADDRESS__)\n    arena[AT_OP5] ^= 1;\n#endif"
    proof = verify(changed(spotter, in_run("return EMITC_OK", code)), samples=1, sanitize=True, reference="numpy")
    assert proof.memory_errors == ("the sanitized program computed other outputs",)


def test_c_that_does_not_compile_is_an_error_with_the_compilers_words(spotter: Compiled) -> None:
    with pytest.raises(CannotCompile, match="the host compiler refused the package") as refused:
        verify(changed(spotter, in_run("return EMITC_OK", "int8_t narrow = self->ready;")), samples=1)
    assert "conversion" in refused.value.why


def test_the_first_error_of_a_compiler_is_shown(spotter: Compiled) -> None:
    """A wrong definition leaves functions without a use. A compiler complains of each one, after its first error."""
    wrong = changed(
        spotter, lambda text: text.replace("emitc_status spotter_run(", f"int 1;{'int 2;' * 90}\nint spotter_run(")
    )
    with pytest.raises(CannotCompile, match="the host compiler refused the package") as refused:
        verify(wrong, samples=1)
    assert "int 1;" in refused.value.why


def test_json_has_no_infinity() -> None:
    proof = Proof("tflm", 1, 1, 1, float("inf"), 1, 0, 0, None, 16, 16, False)
    assert json.loads(json.dumps(proof.to_json(), allow_nan=False))["max_abs_diff"] is None


def test_another_interface_needs_another_reference(tiny: Path) -> None:
    edges = compile_model(tiny / "edges.tflite", io="int8")
    with pytest.raises(EmitcError, match="the engine runs the model with its own interface"):
        verify(edges, samples=1)
    assert verify(edges, samples=1, reference="numpy").match
    same = verify(compile_model(tiny / "spotter.tflite", io="int8"), samples=1)
    assert same.match and same.reference != "numpy", "there are no float ends to drop"
