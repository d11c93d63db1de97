"""Kernels that take bytes four by four on cores with the DSP extension: pools and elementwise operators.

On the host their functions are plain C, under the sanitizers and against TFLite Micro; the emulator runs the instructions.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from emitc.backends.portable import backend
from emitc.backends.portable.backend import cost_of
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.ir import BoundNode
from emitc.kernels.contract import Variant
from emitc.target import Target
from emitc.writers.tflite import write_tflite
from tests.kernels.pooling import test_pooling
from tests.kernels.quantization import test_unsigned_bytes
from tests.support.elementwise_cases import pairs
from tests.support.layer_cases import Slide, pool
from tests.support.single_op import Case, model_of, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

SAME, TWO = Slide(padding="SAME"), Slide((2, 2))


def tied(h: int, w: int) -> Case:
    """The sums of test_pooling's ties, in four channels."""
    case = test_pooling.ties(f"ties_{h}x{w}", (h, w))
    assert case.draw is not None
    (values,) = case.draw(np.random.default_rng(0), 0)
    values = np.concatenate([values, values[:, ::-1], values, ~values], axis=3)
    kept = pool(case.id, "AVERAGE_POOL_2D", values.shape, (h, w), Slide((h, w)))
    return test_pooling.drawing(kept, values)


def _pools() -> Iterator[Case]:
    for opcode in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        kind = opcode[:3].lower()
        for channels in (4, 5, 6, 7, 8, 23):
            yield pool(f"{kind}_{channels}", opcode, (2, 6, 7, channels), (3, 2), SAME)
            yield pool(f"{kind}_2x2_{channels}", opcode, (2, 7, 6, channels), (2, 2), TWO)
            yield pool(f"{kind}_2x2_stride_1_{channels}", opcode, (1, 4, 5, channels), (2, 2))
        yield pool(f"{kind}_2x2_same", opcode, (1, 5, 7, 4), (2, 2), Slide((2, 2), "SAME"))
        yield pool(f"{kind}_whole", opcode, (1, 25, 5, 8), (25, 5), Slide((25, 5)))
        yield pool(f"{kind}_one", opcode, (2, 3, 4, 5), (1, 1), Slide((1, 1), "VALID", activation="RELU6"), 0.05, -90)
        yield pool(f"{kind}_limits", opcode, (1, 4, 4, 6), (2, 2), Slide((2, 2), activation="RELU6"), 0.1, 4)
        for value in (-128, 127):
            largest = pool(f"{kind}_16x16_{value}", opcode, (1, 16, 16, 4), (16, 16))
            yield test_pooling.drawing(largest, np.full((1, 16, 16, 4), value, np.int8))
    yield from (tied(h, w) for h, w in ((1, 2), (1, 3), (2, 2), (1, 5), (2, 3), (3, 3), (4, 4), (5, 3)))


def _counts() -> Iterator[Case]:
    for opcode in ("ADD", "SUB", "MUL"):
        for count in (1, 3, 4, 1023):
            for activation, zero in (("NONE", -20), ("RELU", -20), ("RELU6", 5), ("NONE", 127)):
                a, b = quantized((1, count), 0.0235, -128), quantized((1, count), 0.0412, 4)
                options = {"fused_activation_function": activation}
                y = quantized((1, count), 0.0391 if opcode != "MUL" else 0.004, zero)
                yield Case(f"{opcode}_{count}_{activation}_{zero}".replace("-", "m"), opcode, (a, b), (y,), options, 2)


def _pairs() -> Iterator[Case]:
    """Every pair of values, and counts that leave some over."""
    for opcode, y in (("ADD", 0.1234), ("SUB", 0.1234), ("MUL", 0.0431)):
        for zeros in ((-128, -128, -128), (127, 127, 127), (-128, 127, 9), (3, -4, -60)):
            names = "_".join(map(str, zeros))
            (a, b, c), options = zeros, {"fused_activation_function": "RELU6" if zeros[2] == -60 else "NONE"}
            yield pairs(f"{opcode}_{names}", opcode, (0.053117, a), (0.071379, b), (y, c), options)
        yield pairs(f"{opcode}_saturates", opcode, (0.053117, 3), (0.071379, -4), (y / 3, 5))
    yield pairs("MUL_ties", "MUL", (0.5, 0), (0.5, 0), (1.0, 0))
    yield pairs("MUL_least_shift", "MUL", (0.5, -128), (0.5, 127), (0.50001, 0))
    yield pairs("MUL_largest_shift", "MUL", (0.5, -128), (0.5, 127), (2.0**19, 0))
    yield from _counts()
    # A weight that is 2.05 at 22 bits is too wide to be multiplied by 256.
    yield pairs("ADD_wide", "ADD", (0.0205, 3), (0.041, -4), (0.02, 5))


CASES = {"pools": _pools, "pairs": _pairs}
TEMPLATES = {
    "pools": {"average_pool_2d_dsp", "max_pool_2d_dsp"},
    "pairs": {"weighted_sum_dsp", "product_dsp"},
}


def _preferring(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
    return 0.0 if row and row.name == "dsp" else cost_of(bound, target, row)


@pytest.fixture(autouse=True)
def _every_node_gets_it() -> Iterator[None]:
    """Whatever it costs."""
    with patch.object(backend, "cost_of", _preferring):
        yield


@pytest.mark.parametrize("table", CASES)
def test_on_the_host(table: str) -> None:
    cases = list(CASES[table]())
    proven = prove(cases, target="cortex-m4")
    for case in cases:
        proven.outcomes[case.id].check()
    assert proven.memory_errors == ()
    steps = [step for outcome in proven.outcomes.values() if (step := outcome.step) is not None]
    assert [step.label for step in steps if step.variant != "dsp"] == []
    assert {step.kernel_name for step in steps} == TEMPLATES[table]


@pytest.mark.parametrize("module", [test_pooling], ids=lambda m: m.__name__)
def test_tables_of_the_portable_kernels(module: object) -> None:
    cases: list[Case] = module.CASES  # type: ignore[attr-defined]
    proven = prove(cases, target="cortex-m4")
    for case in cases:
        proven.outcomes[case.id].check()
    assert proven.memory_errors == ()
    steps = [step for outcome in proven.outcomes.values() if (step := outcome.step) is not None]
    assert sum(step.variant == "dsp" for step in steps) > len(cases) / 2


def test_pools_of_legacy_models() -> None:
    """Means of uint8 values are rounded half up."""
    options = test_unsigned_bytes.slide
    make = test_unsigned_bytes.pool
    cases = [
        make("ties", "AVERAGE_POOL_2D", (1, 30, 30, 4), (1, 15, 15, 4), 2, options(2)),
        make("edges", "AVERAGE_POOL_2D", (1, 7, 7, 5), (1, 7, 7, 5), 4, options(1), 255),
        make("of_two", "AVERAGE_POOL_2D", (1, 1, 40, 4), (1, 1, 40, 4), 2, options(1), 128),
        make("largest", "MAX_POOL_2D", (1, 7, 7, 6), (1, 4, 4, 6), 3, options(2, "SAME", "RELU"), 99),
    ]
    proven = prove(cases, engine="litert", target="cortex-m4")
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    kernels = {step.kernel for outcome in proven.outcomes.values() if (step := outcome.step) is not None}
    assert {"average_pool_2d_dsp_up", "average_pool_2d_dsp_up_2x2"} <= kernels


@pytest.mark.board
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("cases", [_pools, _counts])
def test_on_an_emulated_cortex_m4(cases: Callable[[], Iterator[Case]], tmp_path: Path) -> None:
    model = tmp_path / "cases.tflite"
    model.write_bytes(write_tflite(model_of(list(cases()))))
    compiled = compile_model(model, target="cortex-m4", package="platformio")
    result = on_emulator(compiled, "qemu_m4", reference="numpy", samples=3, seed=1, layers=False, workdir=tmp_path)
    assert result.match


def test_small_code_gets_the_kernels_that_are_no_larger(tmp_path: Path) -> None:
    model = tmp_path / "pools.tflite"
    found = {}
    for channels in (8, 6):
        cases = [
            pool("two", "MAX_POOL_2D", (1, 6, 6, channels), (2, 2), TWO),
            pool("three", "AVERAGE_POOL_2D", (1, 6, 6, channels), (3, 3)),
        ]
        model.write_bytes(write_tflite(model_of(cases)))
        for optimize in ("speed", "size"):
            compiled = compile_model(model, target="cortex-m4", optimize=optimize)
            found[channels, optimize] = [step.variant for step in compiled.program.steps]
    assert found == {
        (8, "speed"): ["dsp", "dsp"],
        (8, "size"): ["dsp", "portable"],
        (6, "speed"): ["dsp", "dsp"],
        (6, "size"): ["portable", "portable"],
    }
