"""Convolutions whose weights are computed: reference, TFLite Micro and C agree on every bit, floats within the tolerance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emitc.backends.cmsis_nn.calls import Library
from emitc.backends.cmsis_nn.mac import transposed_refusal
from emitc.backends.cmsis_nn.versions import InstructionSet, named
from emitc.backends.ethos_u import export_tflite
from emitc.verify.tolerances import Tolerance
from tests.kernels.convolution.test_transpose_conv import transposed
from tests.kernels.variants import test_float_windows as windows
from tests.support.float_cases import check, with_values
from tests.support.int16_cases import wide
from tests.support.layer_cases import Scales, Slide, conv_2d, depthwise, late, message, with_input
from tests.support.single_op import Case, Proven, graph_of, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

ENDS = Scales(input_zero_point=-128, output_zero_point=127)
OTHER_ENDS = Scales(input_zero_point=127, output_zero_point=-128, factor=0.0005)
CHANNELS = Scales(weights=(0.01, 0.004, 0.02, 0.001))
MODEST = np.array([0.5, -3.0, 1.25, 0.0], np.float32)


def computed(case: Case) -> Case:
    """The case with its weights for an input."""
    return with_input(case, 1, data=None)


def short(case: Case, bias: str = "int64") -> Case:
    """The case of int16, its weights still bytes."""
    return replace(wide(case, bias), id=f"{case.id}_{bias}")


LAYERS = [
    conv_2d("plain", (1, 5, 6, 3), 4, (3, 3)),
    conv_2d("pixels", (1, 4, 4, 5), 3, (1, 1)),
    conv_2d("padded", (2, 5, 4, 3), 5, (3, 2), Slide((2, 1), "SAME", activation="RELU6"), ENDS),
    conv_2d("dilated", (1, 8, 9, 2), 4, (3, 3), Slide((1, 2), "SAME", (2, 3)), OTHER_ENDS),
    conv_2d("groups", (1, 5, 5, 6), 4, (2, 3), groups=2),
    conv_2d("channels", (1, 5, 6, 3), 4, (3, 3), Slide(padding="SAME"), CHANNELS),
    conv_2d("no_bias", (1, 3, 3, 2), 3, (3, 3), bias="none"),
    depthwise("depthwise", (1, 5, 6, 3), 1, (3, 3)),
    depthwise("multiplier", (2, 5, 4, 2), 2, (3, 2), Slide((2, 2), "SAME", activation="RELU"), ENDS),
    depthwise("one_channel", (1, 6, 5, 1), 4, (3, 3), Slide(padding="SAME", dilation=(2, 1)), OTHER_ENDS),
    depthwise("depthwise_channels", (1, 5, 4, 4), 1, (3, 3), Slide(padding="SAME"), CHANNELS),
]
BACK = [
    transposed("back", (1, 4, 5, 3), 4, (3, 3), (8, 10)),
    transposed("back_valid", (2, 3, 4, 2), 3, (3, 4), (7, 10), padding="VALID", scales=ENDS),
    transposed("back_channels", (1, 4, 4, 2), 4, (2, 3), (8, 8), scales=CHANNELS, activation="RELU"),
    transposed("back_no_bias", (1, 3, 3, 2), 3, (3, 3), (6, 6), bias="none"),
]


CASES = [
    *(computed(case) for case in (*LAYERS, *BACK)),
    *(computed(short(case)) for case in (*LAYERS[:6], *LAYERS[7:], *BACK[:3])),
    *(computed(short(case, "int32")) for case in LAYERS[:2]),
    *(late(case) for case in (*LAYERS[:6], *LAYERS[7:])),
    *(late(computed(case)) for case in (*LAYERS[:3], *LAYERS[7:9], *BACK[:3])),
    *(late(case) for case in BACK[:3]),
    *(late(short(case)) for case in (LAYERS[0], *LAYERS[2:6], *LAYERS[7:], *BACK[:3])),
    *(late(short(case, "int32")) for case in LAYERS[:6]),
    *(late(short(case, "int16")) for case in BACK[:3]),
    *(
        late(computed(short(case, bias)))
        for case, bias in (
            (LAYERS[1], "int64"),
            (LAYERS[5], "int32"),
            (LAYERS[8], "int64"),
            (BACK[0], "int64"),
            (BACK[2], "int16"),
        )
    ),
    with_input(computed(replace(LAYERS[0], id="of_a_constant")), 0, data=bytes(range(90))),
]
FLOATS = [
    replace(with_values(computed(case), MODEST), id=f"{case.id}_floats")
    for case in windows.SUMS
    if case.opcode == "DEPTHWISE_CONV_2D"
]


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove(CASES)


@pytest.fixture(scope="module")
def proven_floats() -> Proven:
    return prove(FLOATS)


@pytest.mark.parametrize("name", [case.id for case in CASES])
def test_case(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


@pytest.mark.parametrize("name", [case.id for case in FLOATS])
def test_floats(proven_floats: Proven, name: str) -> None:
    check(proven_floats.outcomes[name], Tolerance(1e-5, 1e-5))


def test_no_memory_errors(proven: Proven, proven_floats: Proven) -> None:
    assert proven.memory_errors == proven_floats.memory_errors == ()


def test_is_not_for_the_npu() -> None:
    """Its commands are made with the weights."""
    (bound,) = graph_of(computed(BACK[0])).bound()
    assert export_tflite.refusal(bound) == "computed weights"


@pytest.mark.parametrize("case", [computed(BACK[0]), late(BACK[0])], ids=lambda case: case.id)
def test_is_not_for_cmsis_nn(case: Case) -> None:
    """Its tables are made of both."""
    (bound,) = graph_of(case).bound()
    library = Library(named("7.0.0"), InstructionSet.DSP, frozenset())
    assert transposed_refusal(library, bound) == "computed weights or bias"


@pytest.mark.parametrize("kernel", [(200, 400)])
def test_refuses_sums_that_leave_their_type(kernel: tuple[int, int]) -> None:
    for case in (
        computed(conv_2d("deep", (1, *kernel, 1), 2, kernel)),
        computed(depthwise("deep", (1, *kernel, 2), 1, kernel)),
    ):
        assert f"{case.opcode} with computed weights over 80000 elements is not supported" in message(case)


@pytest.mark.parametrize("case", [LAYERS[0], LAYERS[7], BACK[0]], ids=lambda case: case.opcode)
def test_refuses_weights_with_a_zero_point(case: Case) -> None:
    spoilt = with_input(computed(case), 1, zero_points=(3,))
    assert f"{case.opcode} has weights with a zero point" in message(spoilt)
