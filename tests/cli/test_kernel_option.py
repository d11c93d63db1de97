"""--kernel: the variant of one operator; what is reported of kernels; what modes that save memory do about working memory."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.writers.tflite import write_tflite
from tests.support.cli_call import Emitc
from tests.support.models.tiny import Net

ROOT = Path(__file__).resolve().parents[2]
KEYWORDS = ROOT / "examples" / "models" / "kws_ref_int8.tflite"
M4 = ("--target", "cortex-m4")


def variants(compiled: Compiled) -> dict[int, str]:
    return {step.index: step.variant for step in compiled.program.steps}


def test_a_core_gets_its_kernels_and_another_core_does_not(tiny: Path) -> None:
    model = tiny / "spotter.tflite"
    with_pairs = variants(compile_model(model, target="cortex-m4"))
    assert (with_pairs[0], with_pairs[1], with_pairs[4]) == ("dsp-stretch3", "dsp", "dsp")
    assert set(variants(compile_model(model, target="generic32")).values()) == {"portable"}


def test_one_operator_gets_the_kernel_that_is_asked_for(emitc: Emitc, tiny: Path, tmp_path: Path) -> None:
    model = tiny / "spotter.tflite"
    done = emitc("compile", model, *M4, "--kernel", "op0=portable", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert {layer["index"]: layer["variant"] for layer in manifest["layers"]} == {
        0: "portable", 1: "dsp", 2: "dsp", 4: "dsp", 5: "portable",
    }  # fmt: skip
    assert manifest["options"]["variants"] == [[0, "portable"]]
    assert "--kernel op0=portable" in (tmp_path / "out" / "spotter.c").read_text(encoding="ascii")


def test_a_kernel_runs_on_a_core_without_its_instructions(tiny: Path) -> None:
    compiled = compile_model(tiny / "spotter.tflite", target="generic32", variants=((0, "dsp"),))
    assert variants(compiled)[0] == "dsp"
    assert "emitc_dsp.h" in compiled.files


@pytest.mark.parametrize(
    ("wanted", "what", "why"),
    [
        ("op77=dsp", "the model has no operator 77 to choose a kernel for", "its operators are 0, 1, 2, 4, 5"),
        ("op5=dsp", "there is no kernel dsp for this operator", "it has portable"),
        (
            "op4=vector",
            "there is no kernel vector for this operator",
            "it has portable, mve, fpu, dsp, xpulp, rvv, gpr31, swar, mul32",
        ),
    ],
)
def test_refuses_what_does_not_exist(
    wanted: str, what: str, why: str, emitc: Emitc, tiny: Path, tmp_path: Path
) -> None:
    done = emitc("compile", tiny / "spotter.tflite", *M4, "--kernel", wanted, "-o", tmp_path / "out")
    assert done.code == 2
    assert f"error: {what}" in done.err
    assert why in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wanted", ["0=dsp", "op=dsp", "opx=dsp", "op0", "op0=", "op-1=dsp"])
def test_refuses_another_syntax(wanted: str, emitc: Emitc, tiny: Path, tmp_path: Path) -> None:
    done = emitc("compile", tiny / "spotter.tflite", "--kernel", wanted, "-o", tmp_path / "out")
    assert done.code == 2
    assert "is not opN=VARIANT" in done.err


def test_the_report_counts_kernels_and_names_what_is_slow_and_why(emitc: Emitc, tiny: Path, tmp_path: Path) -> None:
    net = Net(9)
    x = net.activation("x", (1, 8, 8, 4), 0.05, 3)
    y = net.activation("y", (1, 8, 8, 4), 0.06, 1)
    operands = (x, net.weights("w", (4, 3, 3, 4), (0.004,)), net.bias("b", 4, (0.0002,)))
    net.op("CONV_2D", operands, (y,), padding="SAME", stride_w=1, stride_h=1, dilation_w_factor=2, dilation_h_factor=1,
           fused_activation_function="NONE")  # fmt: skip
    (tmp_path / "dilated.tflite").write_bytes(write_tflite(net.spec((x,), (y,))))
    done = emitc("compile", tmp_path / "dilated.tflite", *M4, "-o", tmp_path / "out")
    assert done.code == 0, done.err
    assert "  kernels     1 portable" in done.out
    assert (
        "  slow        op 0 CONV_2D (100 % of the estimated cycles) has no dsp kernel, because it is dilated along the row"
        " (a dilation of 1"
        " there would have one)" in done.out
    )
    assert re.search(r"^    conv_2d\w*: op 0 \d+\.\d\d$", done.out, re.M)
    quiet = emitc("compile", tiny / "spotter.tflite", "-o", tmp_path / "other")
    assert "  kernels     " not in quiet.out


def test_memory_is_saved_before_working_memory_is_spent() -> None:
    fast = compile_model(KEYWORDS, target="cortex-m4").program.plan.arena_bytes
    portable = compile_model(KEYWORDS, target="generic32").program.plan.arena_bytes
    size = compile_model(KEYWORDS, target="cortex-m4", optimize="size")
    least = compile_model(KEYWORDS, target="cortex-m4", ram_budget="min")
    within = compile_model(KEYWORDS, target="cortex-m4", ram_budget=fast - 1)
    assert portable < fast
    assert size.program.plan.arena_bytes <= portable + 64
    assert least.program.plan.arena_bytes <= 13 / 12 * portable
    assert within.program.plan.arena_bytes < fast
    assert all("dsp-noscratch" in variants(each).values() for each in (size, within))
