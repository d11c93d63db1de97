"""ONNX's quantized operators on cores with vectors or pairs of int16: against onnxruntime here, and on emulated cores."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import test_onnx_matmul as matmul
from onnx_op import OnnxCase, computed, model_of, prove_onnx

from emitc.backends.portable import backend
from emitc.boards.prove import on_emulator
from emitc.compiler import compile_model
from emitc.ir import BoundNode
from emitc.target import Target

TARGETS = {"dsp": "cortex-m4f", "mve": "cortex-m55"}


def matmul_cases() -> list[OnnxCase]:
    """Zero points at their ends; depths and columns that leave something over, a factor for each column, a single row."""
    rng = np.random.default_rng(3)
    cases = []
    for name, quantization in matmul.QUANTIZATIONS.items():
        for rows, depth, columns in ((8, 12, 8), (3, 7, 6), (5, 16, 9), (2, 37, 4), (4, 1, 3), (1, 6, 5), (6, 255, 5)):
            given = computed((2, rows, depth), quantization[0]), computed((2, depth, columns), quantization[0])
            cases.append(matmul.qlinear(f"{name}_{rows}x{depth}x{columns}", *given, name))
    cases.append(matmul.qlinear("repeated_b", computed((2, 3, 5, 7), "int8"), computed((7, 6), "int8"), "int8"))
    cases.append(matmul.qlinear("deep", computed((2, 256), "int8"), computed((256, 4), "int8"), "int8"))
    constant = rng.integers(-128, 128, (2, 3, 7), np.int8)
    cases.append(matmul.qlinear("constant_a", constant, computed((2, 7, 6), "int8"), "int8"))
    return [*cases, *matmul.column_cases()]


CASES: dict[str, Callable[[], list[OnnxCase]]] = {"matmul": matmul_cases}
"""By family."""
TEMPLATES = {"dsp": {"matmul": {"matmul_dsp"}}, "mve": {"matmul": {"matmul_mve"}}}
"""Kernels of each variant that the cases of a family have."""


_SMALL, _FEW = 2048, 60
"""Elements of an operand, and cases, that an emulated board has memory for."""


def few(family: str) -> list[OnnxCase]:
    """Some of a family's small cases, the largest first."""

    def elements(case: OnnxCase) -> int:
        return max(math.prod(spec.shape) for spec in case.given.values())

    cases = sorted((case for case in CASES[family]() if elements(case) <= _SMALL), key=elements, reverse=True)
    return cases[:: 1 + len(cases) // _FEW]


def preferring(variant: str) -> AbstractContextManager[object]:
    """The variant wherever a layer has it."""

    def cost(bound: BoundNode, target: Target, name: str) -> float:
        return 0.0 if name == variant else 1.0

    return patch.object(backend, "cost_of", cost)


@pytest.mark.parametrize(("variant", "family"), [(v, f) for v, found in TEMPLATES.items() for f in found])
def test_every_case_has_the_engines_bits(variant: str, family: str) -> None:
    with preferring(variant):
        proven = prove_onnx(CASES[family](), 4, target=TARGETS[variant])
    proven.check()
    steps = [step for compiled in proven.compiled.values() for step in compiled.program.steps]
    assert {step.template for step in steps if step.variant == variant} == TEMPLATES[variant][family]


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.parametrize("variant", sorted(TARGETS))
def test_on_emulated_cores(variant: str, tmp_path: Path) -> None:
    board = "qemu_m55" if variant == "mve" else "qemu_m4"
    for family in TEMPLATES[variant]:
        file = tmp_path / f"{family}.onnx"
        file.write_bytes(model_of(few(family)).SerializeToString())
        with preferring(variant):
            compiled = compile_model(file, target=TARGETS[variant], package="platformio")
        result = on_emulator(
            compiled, board, reference="numpy", samples=3, seed=1, layers=False, workdir=tmp_path / family
        )
        assert result.match, family
