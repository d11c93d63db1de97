"""TRANSPOSE_CONV: reference, engine and C agree on every bit, floats within the tolerance; refusals by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emitc.verify.tolerances import TOLERANT, rules
from tests.support.float_cases import check, constant, with_values
from tests.support.layer_cases import Scales, _operands, lowered, message, named_rng, single, weights_of, with_input
from tests.support.single_op import Case, Proven, TensorSpec, graph_of, integers, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

Image = tuple[int, int, int, int]
DEFAULT = Scales()


def transposed(
    name: str,
    x: Image,
    channels: int,
    kernel: tuple[int, int],
    size: tuple[int, int],
    stride: tuple[int, int] = (2, 2),
    padding: str = "SAME",
    scales: Scales = DEFAULT,
    bias: str = "random",
    activation: str = "NONE",
) -> Case:
    """From an image to one of `size` rows and columns."""
    weights = weights_of(name, (channels, *kernel, x[3]))
    data = quantized(x, single(scales.input), scales.input_zero_point)
    operands = _operands(name, data, weights, 0, channels, scales, bias)
    output = (x[0], *size, channels)
    y = quantized(output, scales.output_scale(), scales.output_zero_point)
    options = {
        "stride_h": stride[0], "stride_w": stride[1], "padding": padding, "fused_activation_function": activation,
    }  # fmt: skip
    return Case(name, "TRANSPOSE_CONV", (integers(*output), operands[1], data, *operands[2:]), (y,), options, 3)


CHANNELS = Scales(weights=(0.01, 0.004, 0.02, 0.001, 0.013))
CASES = [
    transposed("twice", (1, 4, 5, 3), 4, (3, 3), (8, 10)),
    transposed("per_channel", (1, 4, 5, 3), 5, (3, 3), (8, 10), scales=CHANNELS),
    transposed("without_bias", (1, 4, 5, 3), 2, (2, 2), (8, 10), bias="none"),
    transposed("valid", (1, 3, 4, 2), 3, (3, 4), (7, 10), padding="VALID"),
    transposed("valid_wide_stride", (1, 3, 4, 2), 3, (2, 1), (8, 10), (3, 3), "VALID"),
    transposed("stride_one", (1, 5, 6, 4), 2, (3, 3), (5, 6), (1, 1)),
    transposed("uneven_stride", (1, 5, 3, 2), 3, (4, 3), (10, 3), (2, 1)),
    transposed("odd_size", (1, 4, 4, 2), 3, (3, 3), (7, 7)),
    transposed("one_pixel", (1, 1, 1, 6), 4, (3, 3), (2, 2)),
    transposed("two_images", (2, 3, 3, 2), 2, (3, 3), (6, 6)),
    transposed("one_channel", (1, 6, 5, 1), 1, (5, 5), (12, 10)),
    transposed("zero_points_at_the_ends", (1, 4, 4, 2), 2, (3, 3), (8, 8),
               scales=Scales(input_zero_point=-128, output_zero_point=127)),
    transposed("saturating", (1, 4, 4, 8), 2, (3, 3), (8, 8), scales=Scales(factor=0.5)),
    transposed("tiny_factor", (1, 4, 4, 2), 2, (3, 3), (8, 8), scales=Scales(factor=1e-5)),
]  # fmt: skip


def transposed_floats(
    name: str,
    x: Image,
    channels: int,
    kernel: tuple[int, int],
    size: tuple[int, int],
    stride: tuple[int, int] = (2, 2),
    *,
    padding: str = "SAME",
    bias: bool = True,
    activation: str = "NONE",
    computed: bool = False,
) -> Case:
    """The same in float32. computed: weights and bias are inputs."""
    rng, output = named_rng(name), (x[0], *size, channels)
    weights, offsets = rng.normal(0.0, 1.0, (channels, *kernel, x[3])), rng.normal(0.0, 1.0, channels)
    operands = [plain(weights.shape) if computed else constant(weights), plain(x)]
    operands += [plain((channels,)) if computed else constant(offsets)] * bias
    options = {
        "stride_h": stride[0], "stride_w": stride[1], "padding": padding, "fused_activation_function": activation,
    }  # fmt: skip
    case = Case(name, "TRANSPOSE_CONV", (integers(*output), *operands), (plain(output),), options, 3)
    return with_values(case, MODEST)


MODEST = np.array([0.0, -0.0, 1.0, -1.0, 6.0, -3.5, 100.0, -100.0], np.float32)
FLOATS = [
    *(
        transposed_floats(f"floats_{a}", (1, 4, 5, 3), 4, (3, 3), (8, 10), activation=a)
        for a in ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
    ),
    transposed_floats("floats_valid", (1, 3, 4, 2), 3, (3, 4), (7, 10), padding="VALID"),
    transposed_floats("floats_without_bias", (2, 3, 4, 2), 3, (2, 1), (8, 10), (3, 3), padding="VALID", bias=False),
    transposed_floats("floats_stride_one", (1, 5, 6, 4), 2, (4, 3), (5, 6), (1, 1)),
    transposed_floats("floats_computed", (1, 4, 3, 3), 4, (3, 2), (8, 6), computed=True),
    transposed_floats("floats_one", (1, 1, 1, 1), 1, (1, 1), (1, 1), (1, 1)),
]


def wide(name: str, bias: str) -> Case:
    """int16 activations; the bias int64 or int16."""
    case = transposed(
        name, (1, 4, 5, 3), 4, (3, 3), (8, 10), scales=Scales(input_zero_point=0, output_zero_point=0), bias="none"
    )
    values = named_rng(name).integers(-30000, 30000, 4).astype(bias)
    data, y = quantized((1, 4, 5, 3), single(0.05), 0, "int16"), quantized((1, 8, 10, 4), single(0.125), 0, "int16")
    last = TensorSpec("", bias, (4,), values.tobytes(), (single(0.0005),), (0,))
    return replace(case, inputs=(case.inputs[0], case.inputs[1], data, last), outputs=(y,))


WIDE = [wide("wide_bias", "int64"), wide("narrow_bias", "int16")]


def sweep() -> list[Case]:
    """Random geometry."""
    rng = np.random.default_rng(23)
    cases = []
    for i in range(40):
        height, width, depth, channels = (int(v) for v in rng.integers(1, 7, 4))
        kernel = int(rng.integers(1, 6)), int(rng.integers(1, 6))
        stride = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        same = bool(rng.integers(0, 2))
        size = tuple(
            (n - 1) * s + (int(rng.integers(1, s + 1)) if same else max(k, 1))
            for n, s, k in zip((height, width), stride, kernel, strict=True)
        )
        x = (int(rng.integers(1, 3)), height, width, depth)
        scales = Scales(input_zero_point=int(rng.integers(-128, 128)), output_zero_point=int(rng.integers(-128, 128)))
        cases.append(
            transposed(f"random_{i}", x, channels, kernel, size, stride, "SAME" if same else "VALID", scales)  # type: ignore[arg-type]
        )
    return cases


SWEEP = sweep()


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove([*CASES, *SWEEP, *FLOATS, *WIDE])


def test_no_memory_error(proven: Proven) -> None:
    assert not proven.memory_errors


@pytest.mark.parametrize("name", [case.id for case in (*CASES, *WIDE)])
def test_case(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_sweep(proven: Proven) -> None:
    for case in SWEEP:
        proven.outcomes[case.id].check()


@pytest.mark.parametrize("name", [case.id for case in FLOATS])
def test_floats_are_summed_in_the_order_of_the_engine(proven: Proven, name: str) -> None:
    outcome = proven.outcomes[name]
    check(outcome, TOLERANT)
    for golden, found in zip(outcome.golden, outcome.compiled, strict=True):
        assert golden[0].reshape(-1).tolist() == found[0].reshape(-1).tolist()


def test_floats_are_judged_by_a_tolerance() -> None:
    graph = graph_of(FLOATS[0])
    assert rules(graph, "tflite")[graph.outputs[0]] == TOLERANT


def test_float_data_with_bytes_for_weights_is_refused() -> None:
    assert "there is code for (float32, float32, float32, float32)" in message(
        with_input(FLOATS[0], 1, dtype="int8", data=bytes(4 * 9 * 3))
    )


def test_the_kernel_and_its_tables() -> None:
    layer = lowered(CASES[1])
    assert (layer.kernel_name, layer.spec.suffix) == ("conv_transpose", "_q31")
    assert [table.role for table in layer.tables] == ["weights", "bias", "multiplier", "shift"]
    assert [len(table.values) for table in layer.tables] == [5 * 9 * 3, 5, 5, 5]
    assert layer.macs == 4 * 5 * 3 * 5 * 9


def refused(**changes: object) -> str:
    """The message for the first case with other inputs or options."""
    return message(replace(CASES[0], **changes))  # type: ignore[arg-type]


def test_weights_with_a_zero_point_are_refused() -> None:
    inputs = list(CASES[0].inputs)
    assert inputs[1] is not None
    inputs[1] = replace(inputs[1], zero_points=(3,))
    assert "has weights with a zero point" in refused(inputs=tuple(inputs))


def test_a_size_that_is_no_image_is_refused() -> None:
    inputs = (integers(1, 8, 10), *CASES[0].inputs[1:])
    assert "has the output shape [1, 8, 10]" in refused(inputs=inputs)
    inputs = (integers(1, 0, 10, 4), *CASES[0].inputs[1:])
    assert "has the output shape [1, 0, 10, 4]" in refused(inputs=inputs)


def test_channels_that_do_not_fit_are_refused() -> None:
    inputs = list(CASES[0].inputs)
    inputs[2] = quantized((1, 4, 5, 7), 0.05, 3)
    assert "has channels that do not fit" in refused(inputs=tuple(inputs))


def test_int16_with_an_int32_bias_is_refused() -> None:
    """Both interpreters take two of its numbers for one."""
    inputs = list(CASES[0].inputs)
    inputs[2] = quantized((1, 4, 5, 3), 0.05, 0, "int16")
    text = refused(inputs=tuple(inputs), outputs=(replace(CASES[0].outputs[0], dtype="int16", zero_points=(0,)),))
    assert text.startswith("1\nerror: TRANSPOSE_CONV of int16 with a bias of int32 is not supported")


def test_another_type_is_refused() -> None:
    inputs = list(CASES[0].inputs)
    inputs[2] = quantized((1, 4, 5, 3), 0.05, 3, "uint16")
    text = refused(inputs=tuple(inputs))
    assert "there is code for (int8, int8, int32, int8) or (int16, int8, int64, int16)" in text
