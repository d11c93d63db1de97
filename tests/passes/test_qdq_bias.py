"""A bias of a QDQ layer at another scale than its sum: no output shows that it becomes an integer, or the layer stays float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.ir import DType, Numerics
from emitc.kernels.mac.accumulation import BIAS, WEIGHTS
from emitc.passes import qdq_bias
from emitc.passes.qdq_bias import VISIBLE, Sum, fitted
from emitc.verify.verification import verify
from tests.support.models.onnx_net import OnnxNet

SIDE = 24
X_SCALE, W_SCALE, Y_SCALE = 0.0513, 0.00917, 0.4137
"""No round numbers: sums would lie on the middle between two steps, which the engine's float noise breaks either way."""


def net(kind: str, times: float, w_dtype: str = "int8") -> OnnxNet:
    """A layer on an image of 4 channels whose int32 bias has `times` the scale of its sum; "real": it is float32."""
    built = OnnxNet()
    x = built.qdq(built.input((1, 4, SIDE, SIDE)), X_SCALE, 3)
    zero = 117 if w_dtype == "uint8" else 0
    shape = {"conv": (8, 4, 3, 3), "depthwise": (4, 1, 3, 3), "gemm": (64, 4 * SIDE)}[kind]
    weights = built.dequantize(built.integers(shape, w_dtype), W_SCALE, zero, w_dtype)
    numbers = built.rng.integers(-2000, 2000, shape[0])
    if times:
        scale = X_SCALE * W_SCALE * times
        bias = built.dequantize(built.constant(numbers.astype(np.int32)), scale, 0, "int32")
    else:
        bias = built.constant((numbers * X_SCALE * W_SCALE * 1.37).astype(np.float32))
    if kind == "gemm":
        y = built.op("Gemm", built.op("Reshape", x, built.ints(SIDE, 4 * SIDE)), weights, bias, transB=1)
    else:
        y = built.op("Conv", x, weights, bias, group=4 if kind == "depthwise" else 1, pads=[1, 1, 1, 1])
    built.output(built.qdq(y, Y_SCALE, -5))
    return built


def compiled(built: OnnxNet, folder: Path) -> Compiled:
    path = folder / "m.onnx"
    path.write_bytes(built.serialized())
    return compile_model(path)


def layer(made: Compiled) -> tuple[DType, DType, Numerics]:
    """Types of input and weights of the one layer, and its arithmetic."""
    (node,) = (n for n in made.graph.nodes if n.op_type in ("Conv", "Gemm"))
    tensors = [made.graph.tensor(node.inputs[position]) for position in (0, WEIGHTS, BIAS)]
    assert node.op.numerics is not Numerics.QDQ or tensors[2].dtype is DType.INT32
    return tensors[0].dtype, tensors[1].dtype, node.op.numerics


CASES = {
    "own": (1, DType.INT8),
    "third": (1 / 3, DType.INT16),
    "real": (0, DType.INT16),
    "far": (1e-4, DType.INT16),
}


@pytest.mark.sweep(keep=5)
@pytest.mark.parametrize("kind", ["conv", "depthwise", "gemm"])
@pytest.mark.parametrize("case", CASES)
def test_the_engine_sees_no_rounded_bias(case: str, kind: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    times, weights = CASES[case]
    made = compiled(net(kind, times), tmp_path)
    assert layer(made) == (DType.INT8, weights, Numerics.QDQ)
    proof = verify(made, samples=8)
    assert proof.match, [group.to_json() for group in proof.groups]


def test_weights_with_a_zero_point_become_finer_without_it(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    made = compiled(net("conv", 1 / 3, "uint8"), tmp_path)
    assert layer(made) == (DType.INT8, DType.INT16, Numerics.QDQ)
    assert verify(made, samples=8).match


def test_the_engine_sees_what_is_rounded_without_finer_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof of the tests above: with the rounding that was, they fail."""
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    monkeypatch.setattr(qdq_bias, "VISIBLE", 1.0)
    made = compiled(net("conv", 1 / 3), tmp_path)
    assert layer(made) == (DType.INT8, DType.INT8, Numerics.QDQ)
    assert not verify(made, samples=8).match


def test_a_layer_whose_sums_are_too_coarse_stays_in_float32_and_says_how_much_it_would_lose(tmp_path: Path) -> None:
    """A unit of the sum is 40 steps of the output here: no 8 bits more are enough."""
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    built = OnnxNet()
    x = built.qdq(built.input((1, 4, SIDE, SIDE)), 4.0)
    bias = built.constant(np.array([0.3, 1.1, -0.7, 0.01], np.float32))
    y = built.op("Conv", x, built.dequantize(built.integers((4, 4, 1, 1)), 1.0, 0), bias)
    built.output(built.dequantize(built.quantize(y, 0.1)))
    made = compiled(built, tmp_path)
    assert layer(made) == (DType.FLOAT32, DType.FLOAT32, Numerics.QOPERATOR)
    (note,) = (note for note in made.graph.notes if "stays" in note)
    assert note.endswith(
        "stays in float32: rounded to a multiple of input scale times weight scale, its bias moves outputs by up to 11 steps"
    )
    for reference in ("auto", "numpy"):
        assert verify(made, samples=4, reference=reference).match


@pytest.mark.parametrize("finest", [0, 3, 8])
def test_the_bias_is_the_nearest_in_the_coarsest_units_that_will_do(finest: int) -> None:
    rng = np.random.default_rng(finest)
    weights = rng.integers(-127, 128, (16, 27))
    # What one unit of the sum is worth decides how fine it has to be.
    factor = np.full(1, VISIBLE * 4 * 2.0**finest * 0.9)
    made = Sum(weights, np.full(1, 0.001), factor, 255, wide=False)
    value = rng.uniform(-10, 10, 16)
    found, lost = fitted(value, made)
    assert found is not None and abs(found.finer - finest) <= 1
    steps = np.abs(value / 0.001 * 2.0**found.finer - found.integers) * factor / 2.0**found.finer
    assert steps.mean() <= VISIBLE
    assert lost == pytest.approx(float(np.abs(value / 0.001 - np.rint(value / 0.001)).max() * factor[0]))
    if found.finer:
        coarser = np.rint(value / 0.001 * 2.0 ** (found.finer - 1))
        off = np.abs(value / 0.001 * 2.0 ** (found.finer - 1) - coarser) * factor / 2.0 ** (found.finer - 1)
        assert off.mean() > VISIBLE


def test_sums_stay_within_their_type() -> None:
    """Wide enough weights leave fewer bits, or none."""
    weights = np.full((1, 40_000), 127, np.int64)
    made = Sum(weights, np.ones(1), np.ones(1), 255, wide=False)
    assert list(made.finer(np.zeros(1))) == [0]
    assert fitted(np.array([0.5]), made)[0] is None
    narrow = Sum(weights[:, :100], np.ones(1), np.ones(1), 255, wide=False)
    assert list(narrow.finer(np.zeros(1))) == list(range(9))
    assert list(narrow.finer(np.array([2.0**29]))) == [0, 1]


def test_a_channel_without_weights_has_the_right_value_or_none() -> None:
    """Its outputs are all the same: they must not be off in a whole channel."""
    made = Sum(np.zeros((1, 9), np.int64), np.ones(1), np.full(1, 1.0000001e-7), 255, wide=False)
    value = np.array([0.5e7 - 0.9])  # rounded up it is beyond the tie
    assert made.lost(value, np.ceil(value), 0).tolist() == [1.0]
    assert made.lost(value, np.floor(value), 0).tolist() == [0.0]


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e9])
def test_a_bias_that_no_sum_can_start_with_is_none(value: float) -> None:
    made = Sum(np.ones((1, 9), np.int64), np.ones(1), np.ones(1), 255, wide=False)
    assert fitted(np.array([value]), made) == (None, np.inf)
