"""AVERAGE_POOL_2D and MAX_POOL_2D: reference, engine and C agree on every bit; what has no code is refused by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.layer_cases import Image, Slide, lowered, message, pool, with_input, with_output
from tests.support.single_op import Array, Case, Proven, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

SAME = "SAME"
OPCODES = ("AVERAGE_POOL_2D", "MAX_POOL_2D")
X: Image = (1, 6, 5, 5)


def drawing(case: Case, *values: Array) -> Case:
    """The case with given inputs, one after the other."""
    return replace(case, draw=lambda _rng, sample: [values[sample % len(values)]])


def ties(name: str, kernel: tuple[int, int], stride: int = 0) -> Case:
    """Averages of windows whose sums are every number from the smallest to the largest: every tie of either sign."""
    count = kernel[0] * kernel[1]
    sums = np.arange(-128 * count, 127 * count + 1)
    windows = np.full((len(sums), count), -128)
    rest = sums + 128 * count
    for i in range(count):
        step = np.minimum(rest, 255)
        windows[:, i] += step
        rest = rest - step
    values = windows.reshape(len(sums) * kernel[0], kernel[1], 1).astype(np.int8)[None]
    case = pool(name, "AVERAGE_POOL_2D", values.shape, kernel, Slide(kernel))
    return drawing(case, values)


CASES: list[Case] = [
    *(
        case
        for op, short in zip(OPCODES, ("average", "max"), strict=True)
        for case in (
            pool(f"{short}_2x2", op, X, (2, 2), Slide((2, 2))),
            pool(f"{short}_stride_1", op, X, (3, 2)),
            pool(f"{short}_same", op, X, (3, 3), Slide((1, 1), SAME)),
            pool(f"{short}_same_stride_2_even_pads_at_the_end", op, (1, 6, 8, 5), (3, 3), Slide((2, 2), SAME)),
            pool(f"{short}_same_stride_2_odd", op, (1, 7, 9, 5), (3, 3), Slide((2, 2), SAME)),
            pool(f"{short}_same_even_kernel", op, (1, 5, 6, 5), (4, 2), Slide((1, 1), SAME)),
            pool(f"{short}_stride_over_kernel", op, (1, 9, 8, 5), (2, 2), Slide((3, 4))),
            pool(f"{short}_stride_over_kernel_same", op, (1, 9, 8, 5), (2, 1), Slide((4, 3), SAME)),
            pool(f"{short}_strides_differ", op, (1, 8, 9, 3), (3, 2), Slide((1, 3), SAME)),
            pool(f"{short}_kernel_over_input", op, (1, 2, 3, 5), (5, 8), Slide((1, 1), SAME)),
            pool(f"{short}_kernel_over_input_stride_2", op, (1, 3, 2, 5), (8, 9), Slide((2, 2), SAME)),
            pool(f"{short}_global", op, (1, 7, 6, 9), (7, 6)),
            pool(f"{short}_1x1", op, X, (1, 1)),
            pool(f"{short}_1x1_stride_2", op, X, (1, 1), Slide((2, 2), SAME)),
            pool(f"{short}_1xn", op, (1, 4, 9, 5), (1, 5), Slide((1, 2), SAME)),
            pool(f"{short}_nx1", op, (1, 9, 4, 5), (5, 1), Slide((2, 1), SAME)),
            pool(f"{short}_batch_2", op, (2, 5, 4, 3), (3, 3), Slide((2, 2), SAME)),
            pool(f"{short}_one_value", op, (1, 1, 1, 1), (1, 1)),
            pool(f"{short}_one_value_large_window", op, (1, 1, 1, 1), (3, 3), Slide((1, 1), SAME)),
            pool(f"{short}_large", op, (1, 33, 31, 2), (33, 31)),
            *(pool(f"{short}_channels_{c}", op, (1, 5, 4, c), (3, 3), Slide((1, 1), SAME)) for c in (1, 2, 3, 4, 7, 8)),
            *(
                pool(f"{short}_zero_point_{z}", op, X, (3, 3), Slide((1, 1), SAME), zero_point=z)
                for z in (-128, 0, 127)
            ),
            *(
                pool(f"{short}_activation_{a}_{z}_{scale}", op, X, (2, 2), Slide((1, 1), SAME, activation=a), scale, z)
                for a in ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
                for z in (-128, 4, 127)
                for scale in (0.05, 2.0)
            ),
        )
    ),
    *(
        ties(f"average_ties_{h}x{w}", (h, w))
        for h, w in [(1, 2), (1, 3), (2, 2), (1, 5), (2, 3), (3, 3), (4, 4), (7, 1)]
    ),
    *(
        drawing(pool(f"{short}_all_{value}", op, X, (3, 3), Slide((1, 1), SAME)), np.full(X, value, np.int8))
        for op, short in zip(OPCODES, ("average", "max"), strict=True)
        for value in (-128, 127, -1)
    ),
    drawing(
        pool("average_all_lowest_large", "AVERAGE_POOL_2D", (1, 64, 64, 1), (64, 64)),
        np.full((1, 64, 64, 1), -128, np.int8),
    ),
    with_output(pool("average_scale_a_rounding_off", "AVERAGE_POOL_2D", X, (2, 2)), scales=(0.0500005,)),
    with_output(pool("max_scale_a_rounding_off", "MAX_POOL_2D", X, (2, 2)), scales=(0.0500005,)),
]
IDS = [case.id for case in CASES]


@pytest.fixture(scope="module")
def proven() -> Proven:
    """Every case, run three ways."""
    return prove(CASES)


@pytest.mark.parametrize("name", IDS)
def test_reference_engine_and_c_agree(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_no_memory_error(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_ties_go_away_from_zero(proven: Proven) -> None:
    found = proven.outcomes["average_ties_1x2"].golden[0][0].reshape(-1)
    sums = np.arange(-256, 255)
    assert found.tolist() == [int(np.sign(s)) * ((abs(int(s)) + 1) // 2) for s in sums]


def test_lower_states_the_window() -> None:
    layer = lowered(pool("p", "AVERAGE_POOL_2D", (1, 6, 8, 5), (3, 3), Slide((2, 2), SAME)))
    values = {p.name: p.value for p in layer.params}
    assert (values["pad_top"], values["pad_left"], values["out_h"], values["out_w"]) == (0, 0, 3, 4)
    assert layer.tables == () and layer.scratch == ()
    assert [(o.input, o.output, o.distance_bytes) for o in layer.overlaps] == [(0, 0, 0)]


AGAIN = "export the model again"


def _refused(case: Case, code: int, what: str, tensor: str, why: str, hint: str) -> None:
    place = f'op 0 {case.opcode} "layer/out0"' + (f", tensor {tensor}" if tensor else "")
    assert message(case) == f"{code}\nerror: {what}\n  at:    {place}\n  why:   {why}\n  try:   {hint}"


@pytest.mark.parametrize("opcode", OPCODES)
class TestRefusals:
    """What both pools refuse."""

    def test_change_of_scale(self, opcode: str) -> None:
        case = with_output(pool("layer", opcode, X, (2, 2)), scales=(0.051,))
        _refused(
            case, 2, f"{opcode} changes scale or zero point", '"layer/out0" int8[1,5,4,5]',
            "input and output must share them", AGAIN,
        )  # fmt: skip

    def test_change_of_zero_point(self, opcode: str) -> None:
        case = with_output(pool("layer", opcode, X, (2, 2)), zero_points=(4,))
        _refused(
            case, 2, f"{opcode} changes scale or zero point", '"layer/out0" int8[1,5,4,5]',
            "input and output must share them", AGAIN,
        )  # fmt: skip

    def test_input_that_is_no_image(self, opcode: str) -> None:
        case = with_input(pool("layer", opcode, X, (2, 2)), 0, shape=(6, 5, 5))
        _refused(
            case, 2, f"{opcode} has an input of shape [6, 5, 5]", '0 "layer/in0" int8[6,5,5]',
            "four dimensions NHWC are expected", "export again",
        )  # fmt: skip

    def test_window_that_does_not_fit(self, opcode: str) -> None:
        case = with_output(pool("layer", opcode, X, (6, 5)), shape=(1, 1, 1, 5))
        case = with_input(case, 0, shape=(1, 6, 4, 5))
        _refused(
            case, 2, f"{opcode} has a 6x5 window that does not fit its input", '"layer/in0" int8[1,6,4,5]',
            "the input is 6x4 with padding Padding(top=0, bottom=0, left=0, right=0)", AGAIN,
        )  # fmt: skip

    @pytest.mark.parametrize("field", ["filter_height", "filter_width", "stride_h", "stride_w"])
    @pytest.mark.parametrize("value", [0, -3, 65537])
    def test_size_out_of_range(self, opcode: str, field: str, value: int) -> None:
        case = pool("layer", opcode, X, (2, 2))
        case = replace(case, options=dict(case.options) | {field: value})
        _refused(
            case, 2, f"{opcode} has {field} = {value}", "", "an integer in [1, 65536] is expected",
            "the file is damaged or was written by a faulty converter: export the model again",
        )  # fmt: skip

    def test_window_too_large(self, opcode: str) -> None:
        case = pool("layer", opcode, (1, 1, 1, 1), (4096, 4096), Slide((1, 1), SAME))
        _refused(case, 2, f"{opcode} has a window that is too large", "", "8388608 elements is the limit", AGAIN)

    @pytest.mark.parametrize("dtype", ["int32"])
    def test_other_types(self, opcode: str, dtype: str) -> None:
        case = pool("layer", opcode, X, (2, 2), zero_point=0)
        case = with_output(with_input(case, 0, dtype=dtype), dtype=dtype)
        _refused(
            case, 1, f"{opcode} with element types ({dtype}, {dtype}) is not supported", f'"layer/out0" {dtype}[1,5,4,5]',
            "there is code for (float32, float32)", "quantize the model to int8 (full integer quantization)",
        )  # fmt: skip

    def test_tensor_without_scale(self, opcode: str) -> None:
        case = with_input(pool("layer", opcode, X, (2, 2)), 0, scales=(), zero_points=())
        _refused(
            case, 2, f"{opcode} needs quantized tensors", '"layer/in0" int8[1,6,5,5]', "this tensor has no scale",
            "quantize the model fully",
        )  # fmt: skip
