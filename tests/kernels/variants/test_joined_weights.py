"""Weights of two channels as one number of 16 bits: the bits of the reference and the engine, and where they stay apart."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from emitc.backends.portable import backend
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.ir import Array
from emitc.kernels.mac.weight_packing import joined_pairs
from emitc.writers.tflite import write_tflite
from tests.support.layer_cases import Scales, Slide, conv_2d, fully_connected
from tests.support.single_op import Case, model_of, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

SAME = Slide(padding="SAME")
LOWEST = Scales(input_zero_point=-128, output_zero_point=-128, factor=2.0**-16)
KERNELS = ("dsp", "dsp-2px", "dsp-2px-rowwise", "dsp-1px", "dsp-stretch4", "dsp-stretch3")
DEEPEST = 257
"""Values whose largest sum is joined; three values more need more than 24 bits."""


def _filled(case: Case, value: int) -> Case:
    """The case with one value throughout its input."""
    shape = case.inputs[0].shape
    return replace(case, draw=lambda _rng, _sample: [np.full(shape, value, np.int8)])


def _pair(first: int, second: int, depth: int, channels: int = 4) -> Array:
    """1x1 weights whose channels have two values in turn."""
    return np.tile(np.array([[first], [second]], np.int8), (channels // 2, depth)).reshape(channels, 1, 1, depth)


def _sums(depth: int, value: int, weight: int) -> Case:
    name = f"sums_{depth}_{value}_{weight}".replace("-", "n")
    case = conv_2d(name, (1, 5, 1, depth), 4, (1, 1), Slide(), LOWEST, w=_pair(weight, weight, depth), bias="none")
    return _filled(case, value)


def _joined() -> list[Case]:
    """Every number of words in the last turn of a loop, channels and pixels left over, the ends of weights and of sums."""
    own = Scales(weights=tuple(0.002 * (i + 1) for i in range(7)), output_zero_point=-128)
    return [
        *(conv_2d(f"depth_{d}", (1, 3, 3, d), 4 + d % 3, (1, 1)) for d in range(1, 19)),
        *(conv_2d(f"pixels_{n}", (1, n, 1, 12), 7, (1, 1), Slide(activation="RELU"), own) for n in range(4, 9)),
        *(conv_2d(f"channels_{c}", (1, 5, 6, 5), c, (3, 2), SAME) for c in range(2, 10)),
        *(conv_2d(f"first_{c}", (1, 7, 9, c), 6, (3, 3), Slide((2, 2), "SAME")) for c in (1, 2, 3, 4)),
        *(conv_2d(f"fours_{w}_{s}", (1, 6, w, 1), 6, (3, 4), Slide((s, s), "SAME")) for w in (2, 3, 9) for s in (1, 2)),
        conv_2d("overlapping", (2, 4, 7, 3), 5, (3, 3), SAME, Scales(output_zero_point=-128)),
        conv_2d("limits", (1, 4, 5, 6), 5, (2, 3), Slide(activation="RELU_N1_TO_1")),
        *(fully_connected(f"rows_{r}_{d}", (r, d), o, d) for r, d, o in ((1, 4, 8), (1, 39, 9), (3, 64, 6), (5, 21, 5))),
        _sums(DEEPEST, 127, 127),
        _sums(DEEPEST, 127, -127),
        conv_2d("lowest_first", (1, 3, 3, 9), 4, (1, 1), w=_pair(-128, 127, 9)),
        conv_2d("lowest_second", (1, 3, 3, 9), 2, (1, 1), w=_pair(0, -128, 9, 2)),
        conv_2d("borrows", (1, 3, 3, 9), 4, (1, 1), w=_pair(-1, -127, 9)),
    ]  # fmt: skip


def _apart() -> list[Case]:
    """Sums of more than 24 bits, and two weights that no int16 holds."""
    return [
        *(_sums(depth, 127, weight) for depth in (DEEPEST + 1, DEEPEST + 3) for weight in (127, -127)),
        conv_2d("no_number", (1, 3, 3, 9), 4, (1, 1), w=_pair(-1, -128, 9)),
        fully_connected("no_number_in_a_row", (1, 9), 4, 9, w=_pair(-1, -128, 9).reshape(4, 9)),
    ]


def _only(name: str) -> Callable[..., float]:
    return lambda _bound, _target, row=None: 0.0 if row and row.name == name else 1.0


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("name", KERNELS)
def test_every_bit_is_that_of_reference_and_engine(name: str) -> None:
    cases = [*_joined(), *_apart()]
    with patch.object(backend, "cost_of", _only(name)):
        proven = prove(cases, target="cortex-m4", samples=2)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    steps = {key: step for key, outcome in proven.outcomes.items() if (step := outcome.step) and step.variant == name}
    apart = {case.id for case in _apart()}
    assert len(steps) >= 10
    assert {key for key, step in steps.items() if not step.spec.joined} == apart & set(steps)
    if name == "dsp":
        assert set(steps) == {case.id for case in cases}


@pytest.mark.board
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("optimize", ["speed", "size"])
@pytest.mark.parametrize("name", KERNELS)
def test_on_an_emulated_core(name: str, optimize: str, tmp_path: Path) -> None:
    """Where the inner loops are in assembly."""
    model = tmp_path / "cases.tflite"
    model.write_bytes(write_tflite(model_of([*_joined(), *_apart()])))
    with patch.object(backend, "cost_of", _only(name)):
        compiled = compile_model(model, target="cortex-m4", package="platformio", optimize=optimize)
    result = on_emulator(compiled, "qemu_m4", reference="numpy", samples=2, seed=1, layers=False, workdir=tmp_path)
    assert result.match


def test_both_weights_are_in_the_number() -> None:
    filters = np.array([[-128, -1, 0, 127, 5], [127, -127, -128, -5, 0]], np.int64)
    low, high = joined_pairs(filters)
    numbers = np.stack([low, high], axis=-1).astype(np.int8).view("<i2").ravel()
    assert numbers.tolist() == (256 * filters[1] + filters[0]).tolist()
