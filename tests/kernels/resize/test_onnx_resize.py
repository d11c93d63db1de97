"""Resize and Upsample of ONNX: reference, onnxruntime and compiled C agree; copies of elements on every bit, sums within 1e-5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper

from emitc.errors import EmitcError
from emitc.kernels.resize.resize_onnx import COORDINATES, NEAREST
from tests.support.onnx_node import settled, source, turned_alike
from tests.support.onnx_op import Array, OnnxCase, computed, graph_of, prove_onnx

RTOL = ATOL = 1e-5
"""Of sums in float32, as for every float operator."""


def reals(*values: float) -> Array:
    return np.array(values, np.float32)


def sizes(*values: int) -> Array:
    return np.array(values, np.int64)


def resize(
    name: str,
    shape: tuple[int, ...],
    scales: Array | None = None,
    wanted: Array | None = None,
    roi: Array | None = None,
    dtype: str = "float32",
    opset: int = 19,
    **attributes: Any,
) -> OnnxCase:
    given: dict[str, Any] = {"x": computed(shape, dtype), "roi": roi, "scales": scales}
    if wanted is not None:
        given["sizes"] = wanted
    return OnnxCase(name, "Resize", given, attributes, opset)


_FACTORS = {"up": reals(1, 1, 2, 3), "down": reals(1, 1, 0.6, 0.5), "odd": reals(1, 1, 1.7, 0.8)}
_ROI = reals(0, 0, 0.1, -0.2, 1, 1, 0.8, 1.1)


def modes(mode: str, shape: tuple[int, ...] = (1, 2, 5, 7), **attributes: Any) -> list[OnnxCase]:
    """Every coordinate rule with every factor."""
    found = []
    for rule in COORDINATES:
        for factor, scales in _FACTORS.items():
            kwargs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": rule, **attributes}
            if rule == "tf_crop_and_resize":
                kwargs |= {"roi": _ROI, "extrapolation_value": -3.25}
            suffix = "".join(f"_{value}" for value in attributes.values())
            opset = 11 if rule == "tf_half_pixel_for_nn" else 19
            if opset == 11:
                kwargs["roi"] = reals()
            found.append(resize(f"{mode}_{rule}_{factor}{suffix}", shape, scales, opset=opset, **kwargs))
    return found


NEAREST_CASES = [
    *[made for rounding in NEAREST for made in modes("nearest", nearest_mode=rounding)],
    *[
        resize(f"type_{dtype}", (1, 2, 3, 4), reals(1, 1, 2, 2), dtype=dtype, mode="nearest")
        for dtype in ("int8", "uint8", "int32")
    ],
    resize("sizes", (1, 2, 5, 7), wanted=sizes(1, 2, 9, 4), mode="nearest"),
    resize("sizes_opset11", (1, 2, 5, 7), reals(), sizes(1, 2, 9, 4), reals(), opset=11, mode="nearest"),
    resize("channels", (1, 3, 4, 5), reals(2, 1.5, 1, 3), mode="nearest"),
    resize("rank1", (7,), reals(1.7), mode="nearest"),
    resize("rank2", (4, 5), reals(2, 0.5), mode="nearest"),
    resize("rank3", (2, 4, 5), reals(1, 1, 2), mode="nearest"),
    resize("rank5", (1, 2, 3, 4, 2), reals(1, 1, 2, 0.5, 2), mode="nearest"),
    resize("image_last", (1, 4, 5, 3), reals(1, 2, 2, 1), mode="nearest"),
    resize("halved", (1, 2, 8, 6), reals(1, 1, 0.5, 0.5), mode="nearest", coordinate_transformation_mode="asymmetric"),
    resize("to_one", (1, 1, 5, 5), wanted=sizes(1, 1, 1, 1), mode="nearest"),
    resize("same_size", (1, 1, 5, 5), reals(1, 1, 1.1, 1.1), mode="nearest"),
    resize("axes", (1, 2, 5, 7), reals(2, 3), axes=[3, 2], mode="nearest"),
    resize("axes_sizes", (1, 2, 5, 7), wanted=sizes(3, 10), axes=[2, 3], mode="nearest"),
    *[
        resize(policy, (1, 2, 5, 7), wanted=sizes(8, 9), axes=[2, 3], mode="nearest", keep_aspect_ratio_policy=policy)
        for policy in ("not_larger", "not_smaller")
    ],
    resize(
        "crop_axes", (1, 2, 5, 7), wanted=sizes(4, 6), roi=reals(0.2, 0.3, 0.9, 1.4), axes=[2, 3], mode="nearest",
        coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=9.5,
    ),
    resize(
        "crop_int8", (1, 2, 5, 7), wanted=sizes(1, 2, 4, 6), roi=_ROI, mode="nearest", dtype="int8",
        coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=9.75,
    ),
]  # fmt: skip


def old(name: str, op_type: str, shape: tuple[int, ...], scales: Sequence[float], opset: int, mode: str) -> OnnxCase:
    """Versions without roi and rules."""
    inputs: dict[str, Any] = {"x": computed(shape)}
    attributes: dict[str, Any] = {"mode": mode}
    if opset < 9:
        attributes["scales"] = [float(scale) for scale in scales]
    else:
        inputs["scales"] = reals(*scales)
    return OnnxCase(name, op_type, inputs, attributes, opset)


OLD_NEAREST = [
    old("resize10_up", "Resize", (1, 2, 3, 4), (1, 1, 2, 2), 10, "nearest"),
    old("resize10_down", "Resize", (1, 2, 7, 9), (1, 1, 0.6, 0.3), 10, "nearest"),
    old("resize10_odd", "Resize", (1, 2, 7, 9), (1, 1, 1.3, 2.6), 10, "nearest"),
    old("upsample9", "Upsample", (1, 2, 3, 4), (1, 1, 2, 3), 9, "nearest"),
    old("upsample9_odd", "Upsample", (1, 2, 3, 4), (1, 1, 1.7, 2.6), 9, "nearest"),
    old("upsample7", "Upsample", (1, 2, 3, 4), (1, 1, 2, 2), 7, "nearest"),
]
WEIGHTED = [
    *modes("linear"),
    *modes("cubic"),
    *modes("cubic", cubic_coeff_a=-0.5, exclude_outside=1),
    resize("linear_rank2", (5, 4), reals(2, 1.5), mode="linear"),
    resize("linear_rank3", (1, 3, 7), reals(1, 1, 2.5), mode="linear"),
    resize("linear_rank5", (1, 2, 1, 4, 5), reals(1, 1, 1, 2, 2), mode="linear"),
    resize("linear_image_last", (2, 4, 5, 3), reals(1, 2, 1.5, 1), mode="linear"),
    resize("linear_columns", (2, 3, 4, 5), reals(1, 1, 1, 2), mode="linear"),
    resize("linear_rows", (2, 3, 4, 5), reals(1, 1, 3, 1), mode="linear"),
    resize("linear_sizes", (1, 2, 4, 5), wanted=sizes(1, 2, 9, 3), mode="linear"),
    resize("linear_of_one_pixel", (1, 2, 1, 1), reals(1, 1, 3, 2), mode="linear"),
    resize("linear_aligned_to_one", (1, 1, 4, 4), wanted=sizes(1, 1, 1, 1), mode="linear",
           coordinate_transformation_mode="align_corners"),
    resize("linear_pytorch_to_one", (1, 1, 4, 4), wanted=sizes(1, 1, 1, 3), mode="linear",
           coordinate_transformation_mode="pytorch_half_pixel"),
    resize("cubic_rank2", (5, 4), reals(2, 1.5), mode="cubic"),
    resize("cubic_sizes", (1, 2, 4, 5), wanted=sizes(1, 2, 9, 3), mode="cubic"),
    old("resize10_linear", "Resize", (1, 2, 3, 4), (1, 1, 2, 0.6), 10, "linear"),
    old("upsample9_linear", "Upsample", (1, 2, 3, 4), (1, 1, 2, 3), 9, "linear"),
    old("upsample7_linear", "Upsample", (1, 2, 3, 4), (1, 1, 1.5, 2), 7, "linear"),
]  # fmt: skip


@pytest.mark.parametrize("table", [NEAREST_CASES, OLD_NEAREST], ids=["nearest", "old"])
def test_nearest(table: list[OnnxCase]) -> None:
    prove_onnx(table, samples=2).check()


def test_weighted() -> None:
    proven = prove_onnx(WEIGHTED, samples=2)
    proven.check(RTOL, ATOL)
    for name, outcome in proven.outcomes.items():
        for reference, found in zip(outcome.reference, outcome.compiled, strict=True):
            np.testing.assert_array_equal(reference[0], found[0], err_msg=name)
        if name.startswith(("linear", "resize10_linear", "upsample")) and "rank3" not in name and "rank5" not in name:
            for golden, found in zip(outcome.golden, outcome.compiled, strict=True):
                np.testing.assert_array_equal(golden[0], found[0], err_msg=name)


def quantized(name: str, dtype: str, x: tuple[float, int], y: tuple[float, int], made: OnnxCase) -> OnnxCase:
    """A Resize between a DequantizeLinear and a QuantizeLinear."""
    attributes = dict(made.attributes)
    roi, scales = made.inputs["roi"], made.inputs["scales"]
    shape = made.given["x"].shape
    nodes = (
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["d"]),
        helper.make_node("Resize", ["d", "" if roi is None else "roi", "scales"], ["r"], **attributes),
        helper.make_node("QuantizeLinear", ["r", "ys", "yz"], ["y"]),
    )
    given: dict[str, Any] = {
        "x": computed(shape, dtype), "xs": np.float32(x[0]), "xz": np.array(x[1], dtype), "scales": scales,
        "ys": np.float32(y[0]), "yz": np.array(y[1], dtype),
    }  # fmt: skip
    if roi is not None:
        given["roi"] = roi
    return OnnxCase(name, "", given, nodes=nodes, opset=19)


def test_quantized_linear_is_integer_and_exact() -> None:
    """Every tie falls as it does in the engine: the sum is made in its order."""
    up = resize("up", (1, 4, 8, 8), reals(1, 1, 2, 2), mode="linear")
    odd = resize(
        "odd", (1, 4, 8, 8), reals(1, 1, 1.5, 0.75), mode="linear", coordinate_transformation_mode="align_corners"
    )
    last = resize("last", (1, 8, 8, 4), reals(1, 2, 2, 1), mode="linear")
    crop = resize(
        "crop", (1, 4, 8, 8), reals(1, 1, 2, 0.5), roi=_ROI, mode="linear", extrapolation_value=-1.3,
        coordinate_transformation_mode="tf_crop_and_resize",
    )  # fmt: skip
    cases = [
        quantized("same", "int8", (0.1, 3), (0.1, 3), up),
        quantized("ties", "int8", (0.5, 0), (0.5, 0), up),
        quantized("unsigned", "uint8", (0.02, 128), (0.02, 128), odd),
        quantized("rescaled", "int8", (0.1, -7), (0.37, 11), odd),
        quantized("saturated", "int8", (0.5, 100), (0.01, -100), last),
        quantized("tiny_scale", "int8", (1.0, 0), (1e-30, 5), last),
        quantized("outside", "int8", (0.1, 3), (0.05, 3), crop),
    ]
    proven = prove_onnx(cases, samples=6)
    proven.check()
    resized = [step for step in proven.compiled[19].program.steps if step.op_type == "Resize"]
    assert {step.kernel_name for step in resized} == {"resample_quantized"}
    assert len(resized) == len(cases)


def test_quantized_nearest_moves_bytes() -> None:
    made = resize("up", (1, 4, 3, 5), reals(1, 1, 2, 2), mode="nearest")
    crop = resize(
        "crop", (1, 4, 8, 8), reals(1, 1, 2, 0.5), roi=_ROI, mode="nearest", extrapolation_value=-1.3,
        coordinate_transformation_mode="tf_crop_and_resize",
    )  # fmt: skip
    cases = [
        quantized("bytes", "int8", (0.1, 3), (0.1, 3), made),
        quantized("unsigned", "uint8", (0.1, 3), (0.1, 3), made),
        quantized("outside", "int8", (0.1, 3), (0.1, 3), crop),
    ]
    proven = prove_onnx(cases, samples=3)
    proven.check()
    resized = [step for step in proven.compiled[19].program.steps if step.op_type == "Resize"]
    assert {step.inputs[0].c_type for step in resized} == {"int8_t"}


@pytest.mark.parametrize(
    "made", [NEAREST_CASES[0], *NEAREST_CASES[-12:-6], *WEIGHTED[:2], *WEIGHTED[-12:-8]], ids=lambda m: m.id
)
def test_transposed(made: OnnxCase) -> None:
    """Turned from channels last or to them; weighted rows and columns must stay neighbours."""
    (bound,) = graph_of(made).bound()
    rank = len(bound.input(0).shape)
    assert turned_alike(made, tuple(range(rank)))
    if rank == 4:
        weighted, image_last = made.attributes["mode"] != "nearest", made.id == "linear_image_last"
        assert turned_alike(made, (0, 3, 1, 2)) == (not image_last)
        assert turned_alike(made, (0, 2, 3, 1)) == (image_last or not weighted)


X = (1, 2, 3, 4)
REFUSED = [
    ("no_scales", source("Resize", X), 2, "0 scales and 0 sizes"),
    ("too_few", source("Resize", X, None, reals(1, 2)), 2, "2 scales and 0 sizes"),
    ("both", source("Resize", X, None, reals(1, 1, 2, 2), sizes(1, 2, 6, 8)), 2, "4 scales and 4 sizes"),
    ("zero_scale", source("Resize", X, None, reals(1, 1, 0, 2)), 2, "finite, positive numbers"),
    ("infinite", source("Resize", X, None, reals(1, 1, np.inf, 2)), 2, "finite, positive numbers"),
    ("to_nothing", source("Resize", X, None, reals(1, 1, 0.1, 2)), 2, "positive sizes are expected"),
    ("huge", source("Resize", X, None, reals(1, 1, 2**26, 2)), 2, "positive sizes are expected"),
    ("wide", source("Resize", X, None, reals(1, 1, 2**17, 2)), 1, "65535 is the limit"),
    ("mode", source("Resize", X, None, reals(1, 1, 2, 2), mode="area"), 1, "supported: nearest, linear, cubic"),
    ("antialias", source("Resize", X, None, reals(1, 1, 2, 2), antialias=1), 1, "there is code without"),
    ("axes", source("Resize", X, None, reals(2, 2), axes=[2, 4]), 2, "different ones of a tensor of 4 dimensions"),
    ("three", source("Resize", X, None, reals(1, 2, 2, 2), mode="linear"), 1, "two neighbouring dimensions"),
    ("apart", source("Resize", X, None, reals(1, 2, 1, 2), mode="cubic"), 1, "two neighbouring dimensions"),
    ("rank1", source("Resize", (4,), None, reals(2), mode="linear"), 1, "two neighbouring dimensions"),
    (
        "integers",
        source("Resize", X, None, reals(1, 1, 2, 2), mode="linear"),
        1,
        "there is code for (float32, float32)",
    ),
    (
        "region",
        source("Resize", X, reals(0, 1), reals(1, 1, 2, 2), coordinate_transformation_mode="tf_crop_and_resize"),
        2,
        "a start and an end for each of 4 dimensions",
    ),
]


@pytest.mark.parametrize(("made", "code", "why"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refusals(made: Any, code: int, why: str) -> None:
    with pytest.raises(EmitcError) as caught:
        settled(made)
    assert caught.value.exit_code == code
    assert why in str(caught.value)
