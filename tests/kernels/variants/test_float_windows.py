"""CONV_2D, DEPTHWISE_CONV_2D, AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D, MEAN and SUM of float32 in TFLite."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from emitc.boards import verify as prove_on_board
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.kernels import kernel_of
from emitc.target import load_board
from emitc.verify.tolerances import TOLERANT, rules
from emitc.writers.tflite import ModelSpec, OperatorSpec, write_tflite
from tests.kernels.variants.test_float_layers import dense
from tests.support.float_cases import FINITE, SPECIAL, check, constant, with_values
from tests.support.layer_cases import message, named_rng
from tests.support.single_op import (
    Case,
    Proven,
    graph_of,
    inputs_of,
    integers,
    model_of,
    plain,
    preferring,
    prove,
    quantized,
)

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
OPCODES = ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
MODEST = np.array([0.0, -0.0, 1.0, -1.0, 6.0, -3.5, 100.0, -100.0], np.float32)


def window(size: int, kernel: int, stride: int, dilation: int, padding: str) -> int:
    """Outputs along one dimension."""
    reach = (kernel - 1) * dilation + 1
    return -(-size // stride) if padding == "SAME" else (size - reach) // stride + 1


def convolution(
    name: str,
    x: tuple[int, int, int, int],
    weights: tuple[int, int, int, int],
    *,
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    padding: str = "VALID",
    activation: str = "NONE",
    bias: bool = True,
    depthwise: bool = False,
) -> Case:
    """weights: OHWI, or [1, KH, KW, C * multiplier] of a depthwise one."""
    rng = named_rng(name)
    out = weights[3] if depthwise else weights[0]
    rows = window(x[1], weights[1], stride[0], dilation[0], padding)
    columns = window(x[2], weights[2], stride[1], dilation[1], padding)
    inputs = [plain(x), constant(rng.normal(0.0, 1.0, weights))] + [constant(rng.normal(0.0, 1.0, out))] * bias
    options = {
        "padding": padding, "stride_h": stride[0], "stride_w": stride[1], "dilation_h_factor": dilation[0],
        "dilation_w_factor": dilation[1], "fused_activation_function": activation,
    }  # fmt: skip
    if depthwise:
        options["depth_multiplier"] = weights[3] // x[3]
    opcode = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    return with_values(Case(name, opcode, tuple(inputs), (plain((x[0], rows, columns, out)),), options, 1), MODEST)


def pool(
    name: str,
    opcode: str,
    x: tuple[int, int, int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    padding: str = "VALID",
    activation: str = "NONE",
) -> Case:
    """A pool over all special values."""
    rows = window(x[1], kernel[0], stride[0], 1, padding)
    columns = window(x[2], kernel[1], stride[1], 1, padding)
    options = {
        "padding": padding, "stride_h": stride[0], "stride_w": stride[1], "filter_height": kernel[0],
        "filter_width": kernel[1], "fused_activation_function": activation,
    }  # fmt: skip
    special = SPECIAL if opcode == "MAX_POOL_2D" else FINITE
    return with_values(Case(name, opcode, (plain(x),), (plain((x[0], rows, columns, x[3])),), options, 1), special)


def reduction(name: str, opcode: str, x: tuple[int, ...], axes: tuple[int, ...], *, keep: bool) -> Case:
    """A mean or a sum."""
    gone = {axis % len(x) for axis in axes}
    shape = tuple(1 if i in gone else d for i, d in enumerate(x) if keep or i not in gone)
    return with_values(Case(name, opcode, (plain(x), integers(*axes)), (plain(shape),), {"keep_dims": keep}, 1), MODEST)


SUMS = [
    *(convolution(f"conv_{a}", (1, 5, 6, 3), (4, 3, 2, 3), activation=a) for a in ACTIVATIONS),
    convolution("conv_1x1", (2, 3, 4, 5), (7, 1, 1, 5)),
    convolution("conv_same_strides", (1, 7, 8, 2), (3, 3, 3, 2), stride=(2, 3), padding="SAME"),
    convolution("conv_dilated", (1, 9, 8, 2), (3, 3, 2, 2), dilation=(2, 3), padding="SAME"),
    convolution("conv_without_bias", (1, 4, 4, 3), (2, 2, 2, 3), bias=False),
    convolution("conv_grouped", (1, 4, 4, 6), (4, 3, 3, 3), padding="SAME"),
    convolution("conv_one", (1, 1, 1, 1), (1, 1, 1, 1)),
    convolution("conv_fours", (2, 6, 5, 4), (8, 3, 3, 4), stride=(2, 1), padding="SAME", activation="RELU6"),
    convolution("conv_dilated_rows", (1, 9, 6, 3), (5, 3, 2, 3), dilation=(2, 1), padding="SAME"),
    convolution("conv_dilated_along_one_row", (1, 1, 11, 6), (5, 1, 3, 6), dilation=(1, 2), padding="SAME"),
    convolution("conv_wider_than_the_image", (1, 2, 3, 2), (6, 5, 7, 2), padding="SAME", activation="RELU"),
    *(convolution(f"depthwise_{a}", (1, 5, 6, 3), (1, 3, 2, 3), activation=a, depthwise=True) for a in ACTIVATIONS),
    convolution("depthwise_multiplier", (2, 5, 5, 2), (1, 3, 3, 6), stride=(2, 2), padding="SAME", depthwise=True),
    convolution("depthwise_dilated", (1, 9, 9, 3), (1, 3, 3, 3), dilation=(2, 2), padding="SAME", depthwise=True),
    convolution("depthwise_one_channel", (1, 6, 6, 1), (1, 3, 3, 8), depthwise=True, bias=False),
    convolution("depthwise_fours", (2, 6, 5, 8), (1, 3, 3, 8), stride=(1, 2), padding="SAME", depthwise=True),
    convolution("depthwise_dilated_fours", (1, 7, 9, 4), (1, 2, 3, 4), dilation=(2, 3), padding="SAME", depthwise=True),
    convolution("depthwise_single_four", (1, 3, 3, 4), (1, 3, 3, 4), activation="RELU6", depthwise=True),
    *(
        reduction(f"{op}_{keep}_{'_'.join(map(str, axes))}", op, (2, 3, 4, 5), axes, keep=keep)
        for op in ("MEAN", "SUM")
        for axes, keep in (
            ((1, 2), True),
            ((1, 2), False),
            ((0,), False),
            ((-1,), True),
            ((0, 2), False),
            ((0, 1, 2, 3), False),
        )
    ),
]
POOLS = [
    *(pool(f"{op}_{a}", op, (1, 6, 6, 4), (2, 3), activation=a) for op in OPCODES for a in ACTIVATIONS),
    *(pool(f"{op}_same", op, (2, 5, 7, 3), (3, 3), (2, 2), "SAME", activation="RELU6") for op in OPCODES),
    *(pool(f"{op}_whole", op, (1, 4, 5, 2), (4, 5)) for op in OPCODES),
    *(pool(f"{op}_one", op, (1, 8, 8, 1), (1, 1)) for op in OPCODES),
    *(pool(f"largest_of_fours_{a}", "MAX_POOL_2D", (2, 9, 7, 8), (3, 2), (2, 3), "SAME", a) for a in ACTIVATIONS),
    pool("largest_of_many_fours", "MAX_POOL_2D", (1, 31, 17, 12), (2, 2), (2, 2)),
]


@pytest.fixture(scope="module")
def proven() -> Proven:
    """Every case, run three ways over four inputs."""
    return prove([*SUMS, *POOLS], samples=4)


@pytest.mark.parametrize("name", [case.id for case in SUMS])
def test_within_the_tolerance_of_the_engine(proven: Proven, name: str) -> None:
    check(proven.outcomes[name], TOLERANT)


@pytest.mark.parametrize("name", [case.id for case in POOLS])
def test_reference_engine_and_c_are_equal(proven: Proven, name: str) -> None:
    check(proven.outcomes[name])


@pytest.mark.parametrize("name", [case.id for case in SUMS if case.opcode.endswith("CONV_2D")])
def test_convolutions_sum_in_the_order_of_the_engine(proven: Proven, name: str) -> None:
    outcome = proven.outcomes[name]
    for golden, found in zip(outcome.golden, outcome.compiled, strict=True):
        assert golden[0].reshape(-1).tolist() == found[0].reshape(-1).tolist()


def _fours() -> list[Case]:
    """Convolutions, and matrix products as convolutions of single pixels."""
    matrices = [
        dense("dense", (3, 9), 5, 9, "RELU"),
        dense("dense_fours", (2, 8), 12, 8, bias=False),
        dense("dense_few", (2, 11), 3, 11, "RELU6"),
    ]
    return [*(case for case in SUMS if case.opcode.endswith("CONV_2D")), *matrices]


@pytest.mark.parametrize(("target", "variant"), [("cortex-m4f", "fpu"), ("cortex-m55", "mve")])
def test_four_channels_at_a_time_are_summed_in_the_same_order(target: str, variant: str) -> None:
    with preferring(variant):
        proven = prove(_fours(), samples=4, target=target)
    for outcome in proven.outcomes.values():
        for golden, found in zip(outcome.golden, outcome.compiled, strict=True):
            assert golden[0].reshape(-1).tolist() == found[0].reshape(-1).tolist(), outcome.case.id
    assert proven.memory_errors == ()
    chosen = {case: outcome.step.kernel_name for case, outcome in proven.outcomes.items() if outcome.step}
    fours = {case for case, template in chosen.items() if template.endswith(f"_float_{variant}")}
    assert chosen["depthwise_fours"] == chosen["depthwise_single_four"] == f"depthwise_conv_2d_float_{variant}"
    convolutions = ("conv_fours", "conv_dilated_along_one_row", "depthwise_one_channel")
    assert {chosen[case] for case in convolutions} == {f"conv_2d_float_{variant}"}
    assert {chosen[case] for case in ("dense", "dense_fours", "dense_few")} == {f"fully_connected_float_{variant}"}
    portable = {"conv_dilated", "conv_grouped", "depthwise_multiplier"}
    assert len(fours) > len(chosen) / 2
    assert portable.isdisjoint(fours)


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.parametrize(
    ("target", "variant", "board"), [("cortex-m4f", "fpu", "qemu_m4"), ("cortex-m55", "mve", "qemu_m55")]
)
def test_four_channels_at_a_time_on_emulated_cores(target: str, variant: str, board: str, tmp_path: Path) -> None:
    """Within the tolerance of the references."""
    model = tmp_path / "cases.tflite"
    model.write_bytes(write_tflite(model_of(_fours())))
    with preferring(variant):
        compiled = compile_model(model, target=target, package="platformio")
        result = on_emulator(
            compiled, board, reference="numpy", samples=2, seed=1, layers=False, workdir=tmp_path / "run"
        )
    assert {step.variant for step in compiled.program.steps} == {"portable", variant}
    assert result.match


def _largest() -> list[Case]:
    return [case for case in POOLS if case.opcode == "MAX_POOL_2D" and case.inputs[0].shape[3] % 4 == 0]


@pytest.mark.parametrize(("target", "variant"), [("cortex-m4f", "fpu"), ("cortex-m55", "mve")])
def test_four_channels_at_a_time_are_compared_in_the_same_order(target: str, variant: str) -> None:
    with preferring(variant):
        proven = prove(_largest(), samples=4, target=target)
    for outcome in proven.outcomes.values():
        check(outcome)
        assert outcome.step is not None
        assert outcome.step.kernel_name == f"max_pool_2d_float_{variant}"
    assert proven.memory_errors == ()


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.parametrize(
    ("target", "variant", "board"), [("cortex-m4f", "fpu", "qemu_m4"), ("cortex-m55", "mve", "qemu_m55")]
)
def test_largest_values_on_emulated_cores(target: str, variant: str, board: str, tmp_path: Path) -> None:
    """Zeros of both signs, numbers that vectors take for 0, infinities and what is no number, in every lane."""
    cases = _largest()
    model = tmp_path / "cases.tflite"
    model.write_bytes(write_tflite(model_of(cases)))
    given = inputs_of(cases, 5, 1)
    with preferring(variant), patch.object(prove_on_board, "random_samples", lambda *_: given):
        compiled = compile_model(model, target=target, package="platformio")
        result = on_emulator(
            compiled, board, reference="numpy", samples=len(given), seed=1, layers=False, workdir=tmp_path / "run"
        )
    assert {step.variant for step in compiled.program.steps} == {variant}
    assert (result.match, result.tolerated) == (True, 0)


def test_no_memory_error(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_a_sum_of_floats_is_judged_by_a_tolerance_and_a_pool_is_not() -> None:
    for case, exact in ((SUMS[0], False), (POOLS[0], True)):
        graph = graph_of(case)
        assert rules(graph, "tflite")[graph.outputs[0]].exact == exact


@pytest.mark.parametrize("case", [SUMS[0], SUMS[5], SUMS[10], POOLS[0], POOLS[4]], ids=lambda case: case.id)
def test_can_be_made_row_by_row_and_in_place(case: Case) -> None:
    (bound,) = graph_of(case).bound()
    layer = kernel_of(bound).lower(bound)
    assert layer.by_rows is not None and layer.by_rows.window
    assert [(overlap.input, overlap.output) for overlap in layer.overlaps] == [(0, 0)]


REFUSED = [
    (
        replace(SUMS[0], inputs=(*SUMS[0].inputs[:2], constant(np.zeros(3)))),
        "2\nerror: CONV_2D has a bias of the wrong length\n",
    ),
    (
        replace(POOLS[0], inputs=(plain((1, 6, 6, 4), "int32"),), outputs=(plain((1, 5, 4, 4), "int32"),)),
        "1\nerror: AVERAGE_POOL_2D with element types (int32, int32) is not supported\n",
    ),
    (
        replace(
            POOLS[0],
            opcode="L2_POOL_2D",
            inputs=(quantized((1, 6, 6, 4)),),
            outputs=(quantized((1, 5, 4, 4)),),
        ),
        "1\nerror: L2_POOL_2D with element types (int8, int8) is not supported\n",
    ),
]


@pytest.mark.parametrize(("case", "start"), REFUSED, ids=lambda v: v.opcode if isinstance(v, Case) else "")
def test_refusal(case: Case, start: str) -> None:
    assert message(case).startswith(start)


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.parametrize("board", ["qemu_m4", "qemu_m55"])
def test_layers_that_hand_floats_to_each_other_on_emulated_cores(board: str, tmp_path: Path) -> None:
    """Compilers may not let vectors of floats, which they take for integers, and single floats change places."""
    rng = np.random.default_rng(5)
    widths = (1, 16, 16, 1)
    tensors, operators = [plain((1, widths[0]))], []
    for width, before in zip(widths[1:], widths, strict=False):
        x = len(tensors) - 1
        weights = (constant(rng.normal(0.0, 0.5, (width, before))), constant(rng.normal(0.0, 0.5, width)))
        tensors += [*weights, plain((1, width))]
        options = {"fused_activation_function": "RELU"}
        operators.append(OperatorSpec("FULLY_CONNECTED", (x, x + 1, x + 2), (x + 3,), options))
    tensors = [replace(tensor, name=f"t{i}") for i, tensor in enumerate(tensors)]
    model = tmp_path / "chain.tflite"
    model.write_bytes(write_tflite(ModelSpec(tuple(tensors), tuple(operators), (0,), (len(tensors) - 1,))))
    compiled = compile_model(model, target=load_board(board).target, package="platformio")
    result = on_emulator(compiled, board, reference="numpy", samples=6, seed=1, layers=False, workdir=tmp_path / "run")
    assert result.match
