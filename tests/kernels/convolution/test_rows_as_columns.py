"""Convolutions over one row, dilated along it: they take the kernels of columns, with the same bits, on every core."""

from __future__ import annotations

import pytest

from tests.support.layer_cases import Scales, Slide, conv_2d
from tests.support.single_op import prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

CASES = [
    conv_2d("causal", (1, 1, 14, 6), 5, (1, 3), Slide((1, 1), "SAME", (1, 2))),
    conv_2d("far", (1, 1, 20, 8), 8, (1, 3), Slide((1, 1), "SAME", (1, 4)), Scales(input_zero_point=-128)),
    conv_2d("valid", (2, 1, 11, 3), 7, (1, 2), Slide(dilation=(1, 3))),
    conv_2d("one_output_row", (1, 1, 9, 16), 16, (1, 5), Slide(dilation=(1, 2), activation="RELU6")),
]
WANTED = {
    "generic32": {"conv_2d"},
    "cortex-m4": {
        "conv_2d_dsp",
        "conv_2d_few_dsp",
        "conv_2d_span_dsp",
        "conv_2d_part_dsp",
        "conv_2d_lean_dsp",
        "row_dsp",
    },
    "cortex-m55": {"conv_2d_mve", "row_mve"},
}


@pytest.mark.parametrize("target", WANTED)
def test_one_row(target: str) -> None:
    proven = prove(CASES, target=target)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    assert {outcome.step.kernel_name for outcome in proven.outcomes.values() if outcome.step} <= WANTED[target]
