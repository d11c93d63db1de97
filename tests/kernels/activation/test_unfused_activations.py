"""Fused TANH and SIGN_BIT, which the engines leave out, and the notes that say so: reference, TFLite Micro and C agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emitc.backends.ethos_u import export_tflite
from emitc.ir import Array
from emitc.verify.tolerances import Tolerance
from emitc.writers.tflite import TensorSpec
from tests.support.float_cases import check, with_values
from tests.support.int16_cases import wide
from tests.support.layer_cases import Slide, conv_2d, depthwise, fully_connected, message, pool
from tests.support.single_op import Case, Proven, graph_of, integers, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

X = (1, 5, 4, 2)
VALUES = np.random.default_rng(5).normal(size=(3, 3, 3, 2))


def fusing(case: Case, activation: str) -> Case:
    return replace(
        case, id=f"{case.id}_{activation}", options={**case.options, "fused_activation_function": activation}
    )


def transposed(name: str, x: TensorSpec, w: TensorSpec, y: TensorSpec) -> Case:
    """TRANSPOSE_CONV to an image of the same size."""
    slide = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    return Case(name, "TRANSPOSE_CONV", (integers(*y.shape), w, x), (y,), slide)


def apart(rng: np.random.Generator, _sample: int) -> list[Array]:
    """Dividends, and divisors apart from the zero point of -3."""
    return [rng.integers(-128, 128, (3, 50)).astype(np.int8), rng.integers(20, 128, (3, 50)).astype(np.int8)]


def integer_cases() -> list[Case]:
    """Every operator that fuses an activation, of int8; of int16 where there is code."""
    layers = [
        conv_2d("conv", X, 3, (3, 3), Slide()),
        depthwise("depthwise", X, 2, (3, 3), Slide()),
        fully_connected("fully", (3, 7), 4, 7),
    ]
    sums = [
        Case(op, op, (quantized((3, 50), 0.05, 4), quantized((3, 50), 0.02, -3)), (quantized((3, 50), 0.06, 1),))
        for op in ("ADD", "SUB", "MUL", "DIV")
    ]
    sums[3] = replace(sums[3], draw=apart)
    pools = [pool(op, op, X, (2, 2), Slide()) for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D")]
    weights = quantized((3, 3, 3, 2), 0.02, 0, data=(VALUES * 40).round())
    back = transposed("back", quantized(X, 0.05, 4), weights, quantized((1, 5, 4, 3), 0.3, -7))
    found = [*layers, *sums, *pools, back]
    return found + [replace(wide(case), id=f"{case.id}_int16") for case in (*layers, *sums[:3], *pools)]


def float_cases() -> list[Case]:
    """The same in float32, and L2_POOL_2D."""

    def real(shape: tuple[int, ...]) -> TensorSpec:
        return TensorSpec("", "float32", shape, np.resize(VALUES, shape).astype("<f4").tobytes())

    x = plain(X)
    slide = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
    window = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "filter_width": 2, "filter_height": 2}
    found = [
        Case("conv", "CONV_2D", (x, real((3, 3, 3, 2)), real((3,))), (plain((1, 5, 4, 3)),), slide),
        Case(
            "depthwise",
            "DEPTHWISE_CONV_2D",
            (x, real((1, 3, 3, 2)), real((2,))),
            (x,),
            {**slide, "depth_multiplier": 1},
        ),
        Case("fully", "FULLY_CONNECTED", (plain((3, 7)), real((4, 7)), real((4,))), (plain((3, 4)),)),
        transposed("back", x, real((3, 3, 3, 2)), plain((1, 5, 4, 3))),
        *(Case(op, op, (x, plain(X)), (plain(X),)) for op in ("ADD", "SUB", "MUL", "DIV")),
        *(Case(op, op, (x,), (plain(X),), window) for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")),
    ]
    ordinary = np.array([0.5, -3.0, 7.25], np.float32)
    return [with_values(case, ordinary) for case in found]


INTEGERS = [fusing(case, activation) for case in integer_cases() for activation in ("TANH", "SIGN_BIT")]
FLOATS = [fusing(case, activation) for case in float_cases() for activation in ("TANH", "SIGN_BIT")]


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove(INTEGERS, samples=3)


@pytest.fixture(scope="module")
def proven_floats() -> Proven:
    return prove(FLOATS, samples=3)


@pytest.mark.parametrize("name", [case.id for case in INTEGERS])
def test_integers(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


@pytest.mark.parametrize("name", [case.id for case in FLOATS])
def test_floats(proven_floats: Proven, name: str) -> None:
    check(proven_floats.outcomes[name], Tolerance(1e-5, 1e-5))


def test_no_memory_errors(proven: Proven, proven_floats: Proven) -> None:
    assert proven.memory_errors == proven_floats.memory_errors == ()


def test_a_note_says_so() -> None:
    assert graph_of(INTEGERS[0]).notes == (
        'op 0 CONV_2D "conv_TANH/out0": fused TANH is left out, as the engines of TFLite do',
    )
    assert graph_of(integer_cases()[0]).notes == ()


def test_operators_that_no_engine_runs_so() -> None:
    case = Case("joined", "CONCATENATION", (quantized((2, 2)), quantized((2, 2))), (quantized((4, 2)),), {"axis": 0})
    for activation in ("TANH", "SIGN_BIT"):
        assert message(fusing(case, activation)).startswith(
            f"2\nerror: CONCATENATION with fused_activation_function {activation} is not defined\n"
        )


def test_relu6_between_two_scales_has_a_note() -> None:
    def relu6(y: TensorSpec) -> Case:
        return Case("a", "RELU6", (quantized((8,), 0.1, 3),), (y,))

    assert graph_of(relu6(quantized((8,), 0.2, 3))).notes == (
        'op 0 RELU6 "a/out0": the output keeps the input\'s steps, whatever its scale says, as in TFLite Micro; '
        "LiteRT goes over to its scale",
    )
    assert graph_of(relu6(quantized((8,), 0.1, 3))).notes == ()
    (bound,) = graph_of(relu6(quantized((8,), 0.2, 3))).bound()
    assert export_tflite.refusal(bound) == "the NPU goes over to the output's scale, TFLite Micro does not"
