"""Which refusals say that the file is wrong (2), and which that emitc has no code for a right one (1)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tflite

from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError
from emitc.frontends.tflite.reader import read_tflite
from emitc.frontends.tflite.schema_rules import expected_options, impossible_operands
from emitc.report.inspection import inspect_model
from emitc.writers.tflite import ModelSpec, OperatorSpec, SubgraphSpec, TensorSpec, write_tflite

X = TensorSpec("x", "int8", (1, 4, 4, 2), None, (0.5,), (0,))
Y = TensorSpec("y", "int8", (1, 4, 4, 2), None, (0.5,), (0,))
W = TensorSpec("w", "int8", (2, 1, 1, 2), bytes(4), (0.5,), (0,))
B = TensorSpec("b", "int32", (2,), bytes(8), (0.25,), (0,))
CONV: dict[str, Any] = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
SOFTMAX_OUT = replace(Y, scales=(1 / 256,), zero_points=(-128,))


def one(opcode: str, inputs: tuple[TensorSpec, ...], output: TensorSpec, **fields: Any) -> ModelSpec:
    """One operator; tensors without data are the model's inputs."""
    operator = OperatorSpec(opcode, tuple(range(len(inputs))), (len(inputs),), **fields)
    computed = tuple(i for i, tensor in enumerate(inputs) if tensor.data is None)
    return ModelSpec((*inputs, output), (operator,), computed, (len(inputs),))


def conv(**changes: Any) -> ModelSpec:
    """A convolution with its tensors x, w, b, y or its options changed."""
    tensors = {"x": X, "w": W, "b": B, "y": Y} | {k: v for k, v in changes.items() if k in ("x", "w", "b", "y")}
    options = CONV | {k: v for k, v in changes.items() if k not in tensors}
    return one("CONV_2D", (tensors["x"], tensors["w"], tensors["b"]), tensors["y"], options=options)


def refusal(spec: ModelSpec | bytes, folder: Path) -> EmitcError:
    """The error that compiling ends in; inspecting must come to the same verdict, and never to exit code 1."""
    path = folder / "m.tflite"
    path.write_bytes(spec if isinstance(spec, bytes) else write_tflite(spec))
    with pytest.raises(EmitcError) as caught:
        compile_model(path)
    assert not inspected(path)
    return caught.value


def inspected(path: Path) -> bool:
    """Whether `emitc inspect` says that the model compiles; False where it refuses the file (exit code 2)."""
    try:
        return bool(inspect_model(path, {})["compiles"])
    except CannotCompile as error:
        raise AssertionError("inspecting ends in exit code 1") from error
    except EmitcError:
        return False


WRONG: dict[str, tuple[ModelSpec, str]] = {
    "weights_with_a_zero_point": (conv(w=replace(W, zero_points=(1,))), "CONV_2D has weights with a zero point"),
    "weights_along_another_dimension": (
        conv(w=replace(W, scales=(0.5, 0.25), zero_points=(0, 0), quantized_dimension=3)),
        "CONV_2D has weights quantized along dimension 3",
    ),
    "accumulator_over_int32": (
        conv(b=replace(B, data=b"\xff\xff\xff\x7f" * 2), w=replace(W, data=b"\x7f" * 4)),
        "can overflow an accumulator of 32 bits",
    ),
    "bias_of_int8": (conv(b=TensorSpec("b", "int8", (2,), bytes(2), (0.25,), (0,))), "CONV_2D has a bias of type int8"),
    "float16_output": (conv(y=replace(Y, dtype="float16")), "CONV_2D has operands that it cannot have"),
    "string_output": (
        conv(y=TensorSpec("y", "string", (1, 4, 4, 2))),
        "CONV_2D has operands that it cannot have",
    ),
    "string_with_a_scale": (conv(y=replace(Y, dtype="string")), "a tensor of type string has a scale"),
    "int4_weights_of_the_wrong_size": (conv(w=replace(W, dtype="int4")), "a constant's size does not fit its shape"),
    "int32_output": (conv(y=replace(Y, dtype="int32")), "CONV_2D with element types (int8, int8, int32, int32)"),
    "fused_tanh": (
        one("CONCATENATION", (X, X), Y, options={"axis": 0, "fused_activation_function": "TANH"}),
        "CONCATENATION with fused_activation_function TANH is not defined",
    ),
    "fused_nothing_known": (conv(fused_activation_function=77), "fused_activation_function has the value 77"),
    "padding_not_in_the_schema": (conv(padding=7), "padding has the value 7"),
    "scale_nan": (conv(x=replace(X, scales=(float("nan"),))), "a quantization scale is not a positive number"),
    "scale_infinite": (conv(x=replace(X, scales=(float("inf"),))), "a quantization scale is not a positive number"),
    "scale_zero": (conv(x=replace(X, scales=(0.0,))), "a quantization scale is not a positive number"),
    "scale_negative": (conv(x=replace(X, scales=(-0.5,))), "a quantization scale is not a positive number"),
    "version_that_does_not_exist": (one("RELU", (X,), Y, version=99), "operator code 0 is RELU of version 99"),
    "version_zero": (one("RELU", (X,), Y, version=0), "operator code 0 is RELU of version 0"),
    "custom_without_a_name": (one("CUSTOM", (X,), Y), "operator code 0 is CUSTOM with the custom name ''"),
    "builtin_with_a_custom_name": (
        one("RELU", (X,), Y, custom_code="mine"),
        "operator code 0 is RELU with the custom name",
    ),
    "floor_of_int8": (one("FLOOR", (X,), Y), "FLOOR has operands that it cannot have"),
    "prelu_without_slopes": (one("PRELU", (X,), Y), "PRELU has operands that it cannot have"),
    "axis_from_an_int8_tensor": (one("SPLIT", (X, X), Y, options={"num_splits": 1}), "SPLIT has axis of type int8"),
    "open_dimension": (
        one("RELU", (replace(X, shape_signature=(1, -1, 4, 2)),), replace(Y, shape_signature=(1, -1, 4, 2))),
        "a graph input has an open dimension",
    ),
    "softmax_scale_out_of_proportion": (
        one("SOFTMAX", (replace(X, scales=(1e-9,)),), SOFTMAX_OUT, options={"beta": 1.0}),
        "SOFTMAX has an input scale that is out of proportion",
    ),
    "shape_and_signature": (
        conv(x=replace(X, shape_signature=(1, 5, 4, 2))),
        "a tensor's shape contradicts its signature",
    ),
}

RIGHT: dict[str, tuple[ModelSpec, str]] = {
    "rnn": (
        one("UNIDIRECTIONAL_SEQUENCE_RNN", (X,), Y, options={"time_major": True}),
        "UNIDIRECTIONAL_SEQUENCE_RNN is not supported",
    ),
    "custom": (one("CUSTOM", (X,), Y, custom_code="Mine"), "CUSTOM:Mine is not supported"),
    "negation": (one("NEG", (X,), Y), "NEG with element types (int8, int8) is not supported"),
    "int4_that_is_dequantized": (
        one("DEQUANTIZE", (replace(W, dtype="int4", data=bytes(2)),), TensorSpec("f", "float32", W.shape)),
        "element type int4 is not supported",
    ),
    "string_input": (
        one("RESHAPE", (TensorSpec("s", "string", (4,)),), TensorSpec("t", "string", (2, 2)), options={"new_shape": (2, 2)}),
        "a graph input of type string is not supported",
    ),
    "elu_of_uint8": (
        one("ELU", (replace(X, dtype="uint8", zero_points=(0,)),), replace(Y, dtype="uint8", zero_points=(0,))),
        "ELU with element types (uint8, uint8) is not supported",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_exit_code_2(case: str, tmp_path: Path) -> None:
    spec, expected = WRONG[case]
    error = refusal(spec, tmp_path)
    assert error.exit_code == 2
    assert expected in str(error)


@pytest.mark.parametrize("case", RIGHT)
def test_a_right_file_without_code_is_exit_code_1(case: str, tmp_path: Path) -> None:
    spec, expected = RIGHT[case]
    error = refusal(spec, tmp_path)
    assert error.exit_code == 1
    assert expected in str(error)


def test_a_type_without_code_in_the_middle_does_not_make_its_readers_wrong(tmp_path: Path) -> None:
    half = TensorSpec("h", "float16", (1, 4))
    spec = ModelSpec(
        (TensorSpec("x", "float32", (1, 4)), half, TensorSpec("y", "float32", (1, 4))),
        (OperatorSpec("CAST", (0,), (1,)), OperatorSpec("DEQUANTIZE", (1,), (2,))),
        (0,),
        (2,),
    )
    assert refusal(spec, tmp_path).exit_code == 1


def test_a_required_operand_that_is_left_out_is_exit_code_2(tmp_path: Path) -> None:
    for opcode, options in (("SOFTMAX", {"beta": 1.0}), ("RELU", {}), ("MAXIMUM", {}), ("ADD", {}), ("RESHAPE", {})):
        operator = OperatorSpec(opcode, (-1, 0), (1,), options)
        error = refusal(ModelSpec((X, Y), (operator,), (0,), (1,)), tmp_path)
        assert error.exit_code == 2


def test_options_without_their_kind_are_exit_code_2(tmp_path: Path) -> None:
    """The kind's byte zeroed: defaults must not silently take the place of what the table says."""
    data = bytearray(write_tflite(one("CONCATENATION", (X, X), replace(Y, shape=(1, 4, 4, 4)), options={"axis": 3})))
    table = tflite.Model.GetRootAs(bytes(data), 0).Subgraphs(0).Operators(0)._tab
    data[table.Pos + table.Offset(10)] = 0
    error = refusal(bytes(data), tmp_path)
    assert error.exit_code == 2
    assert "CONCATENATION carries NONE" in str(error)


@pytest.mark.parametrize(("old", "new"), [(14, 30), (19, 85), (19, 127), (19, -1), (0, 19), (127, 19)])
def test_operator_codes_that_contradict_each_other_are_exit_code_2(old: int, new: int, tmp_path: Path) -> None:
    """RELU (19) in one field and something else in the other: neither may win silently."""
    data = bytearray(write_tflite(one("RELU", (X,), Y)))
    table = tflite.Model.GetRootAs(bytes(data), 0).OperatorCodes(0)._tab
    data[table.Pos + table.Offset(4)] = old % 256
    data[table.Pos + table.Offset(10) : table.Pos + table.Offset(10) + 4] = (new % 2**32).to_bytes(4, "little")
    error = refusal(bytes(data), tmp_path)
    assert error.exit_code == 2
    assert "operator code 0" in str(error)


def test_two_subgraphs_at_one_place_are_exit_code_2(tmp_path: Path) -> None:
    spec = ModelSpec((X, Y), (OperatorSpec("RELU", (0,), (1,)),), (0,), (1,))
    two = replace(spec, subgraphs=(SubgraphSpec(spec.tensors, spec.operators, (0,), (1,), "again"),))
    data = bytearray(write_tflite(two))
    assert len(read_tflite(bytes(data)).subgraphs) == 1
    table = tflite.Model.GetRootAs(bytes(data), 0)._tab
    first = table.Vector(table.Offset(8))
    target = first + int.from_bytes(data[first : first + 4], "little")
    data[first + 4 : first + 8] = (target - first - 4).to_bytes(4, "little")
    error = refusal(bytes(data), tmp_path)
    assert error.exit_code == 2
    assert "two subgraphs lie at one place" in str(error)


def test_every_operator_of_the_schema_is_paired_with_its_options() -> None:
    def names(cls: type) -> list[str]:
        return [name for name, value in vars(cls).items() if isinstance(value, int)]

    tables = names(tflite.BuiltinOptions)
    unpaired = [op for op in names(tflite.BuiltinOperator) if not expected_options(op, tables)]
    assert unpaired == ["PLACEHOLDER_FOR_GREATER_OP_CODES"]


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "possible"),
    [
        ("RESHAPE", ("string", "int32"), ("string",), True),
        ("RESHAPE", ("string", "int32"), ("int8",), False),
        ("DEQUANTIZE", ("float16",), ("float32",), True),
        ("DEQUANTIZE", ("complex64",), ("float32",), False),
        ("ADD", ("int8", "resource"), ("int8",), False),
        ("CAST", ("int8",), ("complex64",), True),
        ("CALL_ONCE", (), (), True),
        ("LOGISTIC", ("int8",), (), False),
    ],
)
def test_impossible_operands(op_type: str, inputs: tuple[str, ...], outputs: tuple[str, ...], possible: bool) -> None:
    found = impossible_operands(op_type, tuple((dtype, False) for dtype in inputs), outputs)
    assert (found == "") == possible


def test_both_kinds_together_are_exit_code_2(tmp_path: Path) -> None:
    """An operator without code and a wrong one in one model: both are reported, the wrong one decides."""
    wrong = conv(w=replace(W, zero_points=(1,)))
    custom = OperatorSpec("CUSTOM", (0,), (4,), custom_code="Mine")
    spec = replace(wrong, tensors=(*wrong.tensors, Y), operators=(custom, *wrong.operators))
    error = refusal(replace(spec, outputs=(3, 4)), tmp_path)
    assert error.exit_code == 2
    assert "CUSTOM:Mine is not supported" in str(error)
    assert "CONV_2D has weights with a zero point" in str(error)
