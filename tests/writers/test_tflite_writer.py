"""emitc.writers.tflite: what is written is what a reader and the engines find in the file."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite

from emitc.writers.tflite import ModelSpec, OperatorSpec, OptionValue, SubgraphSpec, TensorSpec, write_tflite

HOSTILE = b'*/ "\\\x00\xff\n??/'


def conv_model() -> ModelSpec:
    """One per-channel int8 convolution, [1, 4, 4, 2] -> [1, 2, 2, 3], kernel 3x3, stride 2."""
    weights = np.arange(54, dtype=np.int8)
    return ModelSpec(
        tensors=(
            TensorSpec("x", "int8", (1, 4, 4, 2), scales=(0.5,), zero_points=(3,), shape_signature=(-1, 4, 4, 2)),
            TensorSpec(HOSTILE, "int8", (3, 3, 3, 2), weights.tobytes(), (0.1, 0.2, 0.3), (0, 0, 0), 0),
            TensorSpec("b", "int32", (3,), np.array([1, -2, 3], "<i4").tobytes(), (0.05, 0.1, 0.15)),
            TensorSpec("y", "int8", (1, 2, 2, 3), scales=(0.7,), zero_points=(-5,)),
        ),
        operators=(
            OperatorSpec(
                "CONV_2D",
                (0, 1, 2),
                (3,),
                {"padding": "SAME", "stride_w": 2, "stride_h": 2, "fused_activation_function": "RELU6"},
                version=3,
            ),
        ),
        inputs=(0,),
        outputs=(3,),
        description="one convolution",
    )


def one_operator(operator: OperatorSpec, tensors: tuple[TensorSpec, ...]) -> ModelSpec:
    """A model of one operator; its inputs without data are the model's inputs."""
    inputs = tuple(i for i in operator.inputs if i >= 0 and tensors[i].data is None)
    return ModelSpec(tensors, (operator,), inputs, operator.outputs)


def read(data: bytes) -> Any:
    return tflite.Model.GetRootAs(data, 0)


def read_options(data: bytes, table: str) -> Any:
    operator = read(data).Subgraphs(0).Operators(0)
    assert operator.BuiltinOptionsType() == getattr(tflite.BuiltinOptions, table)
    options = getattr(tflite, table)()
    options.Init(operator.BuiltinOptions().Bytes, operator.BuiltinOptions().Pos)
    return options


def test_header_and_buffers() -> None:
    model = read(write_tflite(conv_model()))
    assert write_tflite(conv_model())[4:8] == b"TFL3"
    assert (model.Version(), model.Description(), model.SubgraphsLength()) == (3, b"one convolution", 1)
    assert model.BuffersLength() == 3
    assert model.Buffers(0).DataLength() == 0
    assert model.Buffers(1).DataAsNumpy().tobytes() == np.arange(54, dtype=np.int8).tobytes()


def test_constants_are_aligned_to_16_bytes() -> None:
    for length in range(33, 50):
        patterns = [bytes([200 + k]) * (length + k) for k in range(3)]
        tensors = tuple(TensorSpec("c" * length, "uint8", (len(p),), p) for p in patterns)
        data = write_tflite(ModelSpec(tensors, (), (), ()))
        assert [data.index(pattern) % 16 for pattern in patterns] == [0, 0, 0]


def test_tensors() -> None:
    subgraph = read(write_tflite(conv_model())).Subgraphs(0)
    x, w, b, y = (subgraph.Tensors(i) for i in range(4))
    assert w.Name() == HOSTILE
    assert [tuple(t.ShapeAsNumpy()) for t in (x, w, b, y)] == [(1, 4, 4, 2), (3, 3, 3, 2), (3,), (1, 2, 2, 3)]
    assert [t.Type() for t in (x, w, b, y)] == [tflite.TensorType.INT8] * 2 + [tflite.TensorType.INT32, 9]
    assert [t.Buffer() for t in (x, w, b, y)] == [0, 1, 2, 0]
    assert tuple(x.ShapeSignatureAsNumpy()) == (-1, 4, 4, 2)
    assert w.ShapeSignatureIsNone()
    assert w.Quantization().ScaleAsNumpy().tolist() == np.array([0.1, 0.2, 0.3], np.float32).tolist()
    assert x.Quantization().ZeroPointAsNumpy().tolist() == [3]
    assert b.Quantization().ZeroPointAsNumpy().tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("tensor", "attribute", "expected"),
    [
        pytest.param(TensorSpec("s", "float32", ()), "HasRank", True, id="scalar_has_rank"),
        pytest.param(TensorSpec("s", "float32", ()), "ShapeLength", 0, id="scalar_shape"),
        pytest.param(TensorSpec("s", "float32", ()), "Quantization", None, id="no_quantization"),
        pytest.param(TensorSpec("s", "int8", (2,), is_variable=True), "IsVariable", True, id="variable"),
        pytest.param(TensorSpec("s", "int8", (2,)), "IsVariable", False, id="not_variable"),
        pytest.param(TensorSpec("s", "int4", (3,), b"\x21\x03"), "Type", 17, id="int4"),
        pytest.param(TensorSpec("s", "bfloat16", (3,)), "Type", 18, id="bfloat16"),
        pytest.param(TensorSpec("s", "resource", ()), "Type", 13, id="resource"),
        pytest.param(TensorSpec("\udcff\u00e9", "int8", ()), "Name", b"\xff\xc3\xa9", id="name_as_text"),
    ],
)
def test_tensor_attribute(tensor: TensorSpec, attribute: str, expected: object) -> None:
    written = read(write_tflite(ModelSpec((tensor,), (), (), ()))).Subgraphs(0).Tensors(0)
    assert getattr(written, attribute)() == expected


def test_quantized_dimension_is_written_as_given() -> None:
    tensor = TensorSpec("w", "int8", (1, 3, 3, 8), scales=(0.5,), zero_points=(1,), quantized_dimension=3)
    written = read(write_tflite(ModelSpec((tensor,), (), (), ()))).Subgraphs(0).Tensors(0).Quantization()
    assert (written.QuantizedDimension(), written.ScaleLength()) == (3, 1)


def test_operator_codes_are_stored_once() -> None:
    tensors = (TensorSpec("x", "float32", (1,)), TensorSpec("y", "float32", (1,)))
    operators = (
        OperatorSpec("RELU", (0,), (1,)),
        OperatorSpec("CUSTOM", (0,), (1,), custom_code="Mine", custom_options=b"\x01\x02"),
        OperatorSpec("RELU", (0,), (1,)),
        OperatorSpec("RELU", (0,), (1,), version=2),
        OperatorSpec("VAR_HANDLE", (), (1,)),
        OperatorSpec("CUSTOM", (0,), (1,), custom_code="Mine"),
    )
    model = read(write_tflite(ModelSpec(tensors, operators, (0,), (1,))))
    codes = [model.OperatorCodes(i) for i in range(model.OperatorCodesLength())]
    assert [(c.BuiltinCode(), c.DeprecatedBuiltinCode(), c.Version(), c.CustomCode()) for c in codes] == [
        (19, 19, 1, None),
        (32, 32, 1, b"Mine"),
        (19, 19, 2, None),
        (142, 127, 1, None),
    ]
    written = [model.Subgraphs(0).Operators(i) for i in range(6)]
    assert [operator.OpcodeIndex() for operator in written] == [0, 1, 0, 2, 3, 1]
    assert written[1].CustomOptionsAsNumpy().tolist() == [1, 2]


def test_optional_input_is_minus_one() -> None:
    spec = conv_model()
    operator = dataclasses.replace(spec.operators[0], inputs=(0, 1, -1))
    written = read(write_tflite(dataclasses.replace(spec, operators=(operator,)))).Subgraphs(0).Operators(0)
    assert written.InputsAsNumpy().tolist() == [0, 1, -1]


CONV: dict[str, OptionValue] = {"padding": 1, "stride_w": 2, "stride_h": 3, "fused_activation_function": 1}
DILATED: dict[str, OptionValue] = {**CONV, "dilation_w_factor": 4, "dilation_h_factor": 5}
RESIZE: dict[str, OptionValue] = {"align_corners": True, "half_pixel_centers": False}


@pytest.mark.parametrize(
    ("opcode", "table", "options"),
    [
        pytest.param(opcode, table, options, id=opcode)
        for opcode, table, options in [
            ("CONV_2D", "Conv2DOptions", DILATED),
            ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", {**DILATED, "depth_multiplier": 2}),
            ("TRANSPOSE_CONV", "TransposeConvOptions", CONV),
            ("AVERAGE_POOL_2D", "Pool2DOptions", {**CONV, "filter_width": 6, "filter_height": 7}),
            ("MAX_POOL_2D", "Pool2DOptions", {**CONV, "filter_width": 6, "filter_height": 7}),
            ("FULLY_CONNECTED", "FullyConnectedOptions", {"fused_activation_function": 3, "keep_num_dims": True}),
            ("ADD", "AddOptions", {"fused_activation_function": 1, "pot_scale_int16": False}),
            ("SUB", "SubOptions", {"fused_activation_function": 3, "pot_scale_int16": False}),
            ("MUL", "MulOptions", {"fused_activation_function": 3}),
            ("DIV", "DivOptions", {"fused_activation_function": 3}),
            ("PAD", "PadOptions", {}),
            ("PADV2", "PadV2Options", {}),
            ("MEAN", "ReducerOptions", {"keep_dims": True}),
            ("SUM", "ReducerOptions", {"keep_dims": True}),
            ("REDUCE_MAX", "ReducerOptions", {"keep_dims": False}),
            ("SOFTMAX", "SoftmaxOptions", {"beta": 0.5}),
            ("RESHAPE", "ReshapeOptions", {"new_shape": (1, -1)}),
            ("SQUEEZE", "SqueezeOptions", {"squeeze_dims": (0, 2)}),
            ("EXPAND_DIMS", "ExpandDimsOptions", {}),
            ("TRANSPOSE", "TransposeOptions", {}),
            ("STRIDED_SLICE", "StridedSliceOptions", {"begin_mask": 1, "end_mask": 2, "shrink_axis_mask": 4}),
            ("SLICE", "SliceOptions", {}),
            ("PACK", "PackOptions", {"values_count": 3, "axis": -1}),
            ("UNPACK", "UnpackOptions", {"num": 3, "axis": -1}),
            ("MAXIMUM", "MaximumMinimumOptions", {}),
            ("MINIMUM", "MaximumMinimumOptions", {}),
            ("QUANTIZE", "QuantizeOptions", {}),
            ("DEQUANTIZE", "DequantizeOptions", {}),
            ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions", RESIZE),
            ("RESIZE_BILINEAR", "ResizeBilinearOptions", RESIZE),
            ("ARG_MAX", "ArgMaxOptions", {"output_type": 2}),
            ("ARG_MIN", "ArgMinOptions", {"output_type": 2}),
            ("CONCATENATION", "ConcatenationOptions", {"axis": -1, "fused_activation_function": 1}),
            ("SPLIT", "SplitOptions", {"num_splits": 3}),
            ("SPLIT_V", "SplitVOptions", {"num_splits": 3}),
            ("LEAKY_RELU", "LeakyReluOptions", {"alpha": 0.25}),
            ("HARD_SWISH", "HardSwishOptions", {}),
            ("ABS", "AbsOptions", {}),
            ("CAST", "CastOptions", {"in_data_type": 0, "out_data_type": 9}),
            ("GATHER", "GatherOptions", {"axis": 2, "batch_dims": 1}),
            ("SHAPE", "ShapeOptions", {"out_type": 4}),
            ("SVDF", "SVDFOptions", {"rank": 2, "fused_activation_function": 1}),
            (
                "UNIDIRECTIONAL_SEQUENCE_LSTM",
                "UnidirectionalSequenceLSTMOptions",
                {"fused_activation_function": 4, "cell_clip": 10.0, "proj_clip": 0.5, "time_major": True},
            ),
            ("MIRROR_PAD", "MirrorPadOptions", {"mode": 1}),
            ("BATCH_MATMUL", "BatchMatMulOptions", {"adj_x": True, "adj_y": True}),
            ("DEPTH_TO_SPACE", "DepthToSpaceOptions", {"block_size": 2}),
            ("CALL_ONCE", "CallOnceOptions", {"init_subgraph_index": 1}),
            ("IF", "IfOptions", {"then_subgraph_index": 1, "else_subgraph_index": 2}),
            ("WHILE", "WhileOptions", {"cond_subgraph_index": 1, "body_subgraph_index": 2}),
            ("VAR_HANDLE", "VarHandleOptions", {"container": "c", "shared_name": "state"}),
        ]
    ],
)
def test_options_are_read_back(opcode: str, table: str, options: dict[str, OptionValue]) -> None:
    spec = ModelSpec((), (OperatorSpec(opcode, (), (), options),), (), ())
    written = read_options(write_tflite(spec), table)
    for name, value in options.items():
        camel = "".join(part.capitalize() for part in name.split("_"))
        if isinstance(value, tuple):
            assert tuple(getattr(written, f"{camel}AsNumpy")()) == value
        elif isinstance(value, str):
            assert getattr(written, camel)() == value.encode()
        else:
            assert getattr(written, camel)() == value


def test_every_option_table_of_the_writer_is_in_the_schema() -> None:
    """Each builtin operator can be written without options; those of the tables above with their own table."""
    opcodes = [name for name in vars(tflite.BuiltinOperator) if name.isupper() and not name.startswith("STABLEHLO")]
    assert len(opcodes) > 150
    for opcode in opcodes:
        operator = read(write_tflite(ModelSpec((), (OperatorSpec(opcode, (), ()),), (), ()))).Subgraphs(0).Operators(0)
        assert (operator.BuiltinOptions() is None) == (operator.BuiltinOptionsType() == 0)


@pytest.mark.parametrize("opcode", ["RELU", "RELU6", "LOGISTIC", "TANH", "PRELU", "FLOOR", "RSQRT", "BATCH_MATMUL"])
def test_only_operators_with_a_table_have_options(opcode: str) -> None:
    operator = read(write_tflite(ModelSpec((), (OperatorSpec(opcode, (), ()),), (), ()))).Subgraphs(0).Operators(0)
    assert (operator.BuiltinOptionsType() != 0) == (opcode == "BATCH_MATMUL")


def test_enumerations_by_name_equal_their_numbers() -> None:
    named: dict[str, OptionValue] = {
        "padding": "VALID",
        "stride_w": 2,
        "stride_h": 3,
        "fused_activation_function": "RELU",
    }
    spec = one_operator(OperatorSpec("CONV_2D", (), (), named), ())
    assert write_tflite(spec) == write_tflite(one_operator(OperatorSpec("CONV_2D", (), (), CONV), ()))


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        pytest.param(OperatorSpec("CONV", (), ()), "BuiltinOperator has no member 'CONV'", id="opcode"),
        pytest.param(OperatorSpec("__doc__", (), ()), "BuiltinOperator has no member '__doc__'", id="not_a_member"),
        pytest.param(
            OperatorSpec("CONV_2D", (), (), {"stride": 1}), "Conv2DOptions has no field stride", id="unknown_field"
        ),
        pytest.param(
            OperatorSpec("CONV_2D", (), (), {"padding": "FULL"}), "Padding has no member 'FULL'", id="enum_name"
        ),
        pytest.param(
            OperatorSpec("CONV_2D", (), (), {"stride_w": "2"}), "Conv2DOptions.stride_w cannot hold '2'", id="text"
        ),
        pytest.param(
            OperatorSpec("CONV_2D", (), (), {"stride_w": (2,)}), "Conv2DOptions.stride_w cannot hold (2,)", id="tuple"
        ),
        pytest.param(
            OperatorSpec("CONV_2D", (), (), {"stride_w": 1 << 31}),
            "Conv2DOptions: StrideW cannot hold 2147483648",
            id="int32",
        ),
        pytest.param(
            OperatorSpec("CONV_2D", (), (), {"stride_w": 1.5}), "Conv2DOptions: StrideW cannot hold 1.5", id="float"
        ),
        pytest.param(
            OperatorSpec("VAR_HANDLE", (), (), {"container": 3}), "VarHandleOptions.container cannot hold 3", id="name"
        ),
        pytest.param(
            OperatorSpec("RESHAPE", (), (), {"new_shape": 3}),
            "ReshapeOptions.new_shape is a vector, got 3",
            id="scalar",
        ),
        pytest.param(
            OperatorSpec("RELU", (), (), {"alpha": 1.0}), "RELU has no builtin options, got ['alpha']", id="no_table"
        ),
        pytest.param(OperatorSpec("RELU", (1 << 31,), ()), "(2147483648,) does not fit <i4", id="index"),
    ],
)
def test_what_the_format_cannot_express_is_refused(operator: OperatorSpec, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        write_tflite(ModelSpec((), (operator,), (), ()))


def test_unknown_dtype_is_refused() -> None:
    with pytest.raises(ValueError, match="TensorType has no member 'INT7'"):
        write_tflite(ModelSpec((TensorSpec("x", "int7", ()),), (), (), ()))


def test_subgraphs_follow_the_main_one() -> None:
    body = SubgraphSpec((TensorSpec("t", "float32", (1,), b"\0\0\x80\x3f"),), (), (), (0,), "body")
    spec = dataclasses.replace(conv_model(), subgraphs=(body,))
    model = read(write_tflite(spec))
    assert [model.Subgraphs(i).Name() for i in range(model.SubgraphsLength())] == [b"main", b"body"]
    assert model.Subgraphs(1).Tensors(0).Buffer() == 3
    assert model.Buffers(3).DataAsNumpy().tobytes() == b"\0\0\x80\x3f"


def test_bytes_do_not_depend_on_the_process_or_on_option_order() -> None:
    spec = conv_model()
    options = spec.operators[0].options
    turned = {name: options[name] for name in reversed(list(options))}
    operator = dataclasses.replace(spec.operators[0], options=turned)
    assert write_tflite(dataclasses.replace(spec, operators=(operator,))) == write_tflite(spec)

    script = (
        "import sys, test_tflite_writer as t; from emitc.writers.tflite import write_tflite as w;"
        "sys.stdout.buffer.write(w(t.conv_model()))"
    )
    outputs = set()
    for seed in ("0", "1"):
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path}
        run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
        outputs.add(run.stdout)
    assert outputs == {write_tflite(spec)}
