"""LayerNormalization, InstanceNormalization, GroupNormalization and BatchNormalization of ONNX, in float32."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.onnx_frozen import frozen
from tests.support.onnx_node_cases import check_node_tests, node_tests
from tests.support.onnx_op import OnnxCase, computed, prove_onnx, refusal

RNG = np.random.default_rng(0)


def _reals(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype(np.float32)


def _layer_cases() -> list[OnnxCase]:
    x = {"x": computed((3, 4, 6))}
    cases = [
        OnnxCase("last", "LayerNormalization", {**x, "scale": _reals(6), "bias": _reals(6)}),
        OnnxCase("no_bias", "LayerNormalization", {**x, "scale": _reals(6)}, {"epsilon": 0.1}),
        OnnxCase("two", "LayerNormalization", {**x, "scale": _reals(4, 6), "bias": _reals(4, 6)}, {"axis": 1}),
        OnnxCase("all", "LayerNormalization", {**x, "scale": _reals(3, 4, 6)}, {"axis": -3}),
        OnnxCase("computed", "LayerNormalization", {**x, "scale": computed((6,)), "bias": computed((6,))}),
        OnnxCase("computed_bias", "LayerNormalization", {**x, "scale": _reals(6), "bias": computed((6,))}),
        OnnxCase("one", "LayerNormalization", {"x": computed((5, 1)), "scale": _reals(1)}),
        OnnxCase("far", "LayerNormalization", {"x": computed((5, 40), low=90.0, high=110.0), "scale": _reals(40)}),
    ]
    for outputs in (("y", "mean"), ("y", "", "inverse"), ("y", "mean", "inverse")):
        inputs = {**x, "scale": _reals(6), "bias": _reals(6)}
        cases.append(OnnxCase(f"outputs_{'_'.join(outputs)}", "LayerNormalization", inputs, outputs=outputs))
    return cases


def _channel_cases() -> list[OnnxCase]:
    cases = []
    for shape in ((2, 4, 5, 3), (1, 6, 7), (3, 2, 2, 2, 2)):
        x, rank, channels = {"x": computed(shape)}, len(shape), shape[1]
        affine = {"scale": _reals(channels), "bias": _reals(channels)}
        cases.append(OnnxCase(f"instance_{rank}", "InstanceNormalization", {**x, **affine}, {"epsilon": 1e-3}))
        statistics = {"mean": _reals(channels), "variance": _reals(channels, low=0.1)}
        cases.append(OnnxCase(f"batch_{rank}", "BatchNormalization", {**x, **affine, **statistics}))
    matrix = {
        "x": computed((5, 4)),
        "scale": _reals(4),
        "bias": _reals(4),
        "mean": _reals(4),
        "variance": _reals(4, low=1.0),
    }
    cases.append(OnnxCase("batch_matrix", "BatchNormalization", matrix, {"epsilon": 0.01}))
    return cases


@pytest.mark.parametrize("cases", [_layer_cases(), _channel_cases()], ids=["rows", "channels"])
def test_normalizations_are_within_the_tolerance_of_the_engine(cases: list[OnnxCase]) -> None:
    prove_onnx(cases, 3).check(rtol=1e-5, atol=1e-5)


def test_node_tests() -> None:
    check_node_tests(node_tests("LayerNormalization", "InstanceNormalization"))
    check_node_tests(frozen(node_tests("BatchNormalization", without=("training",))))


def test_group_normalization_is_within_the_tolerance_of_the_engine() -> None:
    cases = []
    for shape, groups in (((2, 4, 5, 3), 2), ((1, 6, 7), 3), ((2, 4, 3, 3), 1), ((2, 4, 3, 3), 4)):
        channels = shape[1]
        inputs = {"x": computed(shape), "scale": _reals(channels), "bias": _reals(channels)}
        cases.append(
            OnnxCase(f"{groups}_of_{channels}_{shape[2]}", "GroupNormalization", inputs, {"num_groups": groups})
        )
    prove_onnx(cases, 3).check(rtol=1e-5, atol=1e-5)


AFFINE = {"scale": _reals(4), "bias": _reals(4)}
STATISTICS = {"mean": _reals(4), "variance": _reals(4, low=0.1)}
IMAGE = {"x": computed((1, 4, 3, 3))}
TRAINING = {"training_mode": 1}
REFUSED = {
    "training": (
        OnnxCase("", "BatchNormalization", {**IMAGE, **AFFINE, **STATISTICS}, TRAINING, outputs=("y", "m", "v")),
        1,
        "in training mode is not supported",
    ),
    "computed": (
        OnnxCase("", "BatchNormalization", {**IMAGE, **AFFINE, "mean": computed((4,)), "variance": _reals(4)}),
        1,
        "has a computed mean",
    ),
    "variance": (
        OnnxCase("", "BatchNormalization", {**IMAGE, **AFFINE, "mean": _reals(4), "variance": -np.ones(4, np.float32)}),
        2,
        "statistics that make no finite factor",
    ),
    "scale": (OnnxCase("", "LayerNormalization", {"x": computed((2, 4)), "scale": _reals(1)}), 1, "1 scales or biases"),
    "epsilon": (OnnxCase("", "InstanceNormalization", {**IMAGE, **AFFINE}, {"epsilon": -1.0}), 2, "has epsilon -1.0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    case, code, message = REFUSED[name]
    error = refusal(case)
    assert message in str(error)
    assert error.exit_code == code
