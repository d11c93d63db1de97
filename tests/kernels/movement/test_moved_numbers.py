"""Operators that move numbers to a tensor of another scale: the numbers stay, in reference, TFLite Micro and C."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.ir import Array
from emitc.verify.verification import verify
from emitc.writers.tflite import OptionValue, write_tflite
from tests.support.layer_cases import Slide, message, pool, single, with_output
from tests.support.models.tiny import Net
from tests.support.single_op import Case, Proven, TensorSpec, graph_of, integers, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

IMAGE = (1, 4, 4, 4)


def given(*shape: int) -> TensorSpec:
    return quantized(shape, 0.05, 3)


def other(*shape: int) -> TensorSpec:
    return quantized(shape, 0.1, -4)


def pairs(*values: int) -> TensorSpec:
    """Two numbers for each dimension."""
    return TensorSpec("", "int32", (len(values) // 2, 2), np.array(values, "<i4").tobytes())


def scalar(value: int) -> TensorSpec:
    return TensorSpec("", "int32", (), np.int32(value).tobytes())


def case(
    opcode: str,
    *tensors: TensorSpec,
    name: str = "",
    outputs: int = 1,
    options: Mapping[str, OptionValue] | None = None,
) -> Case:
    """tensors: inputs, then outputs."""
    return Case(name or opcode, opcode, tensors[:-outputs], tensors[-outputs:], options or {})


def chosen(rng: np.random.Generator, _sample: int) -> list[Array]:
    """Truth values, and bytes to choose from."""
    return [rng.random((3, 4)) < 0.5, *rng.integers(-128, 128, (2, 3, 4)).astype(np.int8)]


def looked_up(rng: np.random.Generator, _sample: int) -> list[Array]:
    """Rows to find, and those to find them in where they are computed."""
    return [rng.integers(0, 5, 4, dtype=np.int32), rng.integers(-128, 128, (5, 3)).astype(np.int8)]


def rows(rng: np.random.Generator, sample: int) -> list[Array]:
    """Rows to find in a table."""
    return looked_up(rng, sample)[:1]


TABLE = quantized((5, 3), 0.05, 3, data=np.arange(-60, 60, 8))
CASES = [
    case("RESHAPE", given(*IMAGE), integers(4, 16), other(4, 16), options={"new_shape": (4, 16)}),
    case("SQUEEZE", given(1, 3, 5), other(3, 5), options={"squeeze_dims": (0,)}),
    case("EXPAND_DIMS", given(3, 5), integers(0), other(1, 3, 5)),
    case("TRANSPOSE", given(*IMAGE), integers(0, 2, 1, 3), other(*IMAGE)),
    case("PAD", given(2, 3), pairs(1, 0, 0, 2), other(3, 5)),
    case("SLICE", given(*IMAGE), integers(0, 1, 0, 0), integers(1, 2, 2, 2), other(1, 2, 2, 2)),
    case("STRIDED_SLICE", given(4, 6), integers(0, 1), integers(4, 6), integers(2, 1), other(2, 5)),
    case("SPLIT", scalar(1), given(3, 4), other(3, 2), given(3, 2), outputs=2, options={"num_splits": 2}),
    case("SPLIT_V", given(3, 4), integers(1, 3), scalar(1), given(3, 1), other(3, 3), outputs=2, options={"num_splits": 2}),
    case("UNPACK", given(2, 3), other(3), other(3), outputs=2, options={"axis": 0, "num": 2}),
    case("PACK", given(3), other(3), quantized((3,), 0.3, 9), other(3, 3), options={"axis": 0, "values_count": 3}),
    case("GATHER", given(*IMAGE), integers(1, 2), other(1, 2, 4, 4), options={"axis": 1}),
    case("GATHER_ND", given(3, 4), pairs(0, 1, 2, 3), other(2)),
    case("DEPTH_TO_SPACE", given(*IMAGE), other(1, 8, 8, 1), options={"block_size": 2}),
    case("SPACE_TO_DEPTH", given(*IMAGE), other(1, 2, 2, 16), options={"block_size": 2}),
    case("RESIZE_NEAREST_NEIGHBOR", given(*IMAGE), integers(5, 5), other(1, 5, 5, 4)),
    case("RESIZE_BILINEAR", given(*IMAGE), integers(5, 5), other(1, 5, 5, 4)),
    case("MAXIMUM", given(3, 4), other(3, 4), given(3, 4)),
    case("MINIMUM", given(3, 4), given(3, 4), other(3, 4)),
    case("BATCH_TO_SPACE_ND", given(4, 2, 2, 2), integers(2, 2), pairs(0, 0, 0, 0), other(1, 4, 4, 2)),
    case("SPACE_TO_BATCH_ND", given(1, 4, 4, 2), integers(2, 2), pairs(0, 0, 0, 0), other(4, 2, 2, 2)),
    case("REVERSE_V2", given(3, 4), integers(1), other(3, 4)),
    case("BROADCAST_TO", given(1, 4), integers(3, 4), other(3, 4)),
    case("MIRROR_PAD", given(3, 4), pairs(1, 1, 0, 2), other(5, 6), options={"mode": 1}),
    case("DYNAMIC_UPDATE_SLICE", given(4, 4), other(2, 2), integers(1, 1), given(4, 4)),
    case("FILL", integers(2, 3), given(), other(2, 3)),
    case("FILL", integers(2, 3), quantized((), 0.05, 3, data=np.array(-7)), other(2, 3), name="fill_of_a_constant"),
    replace(case("EMBEDDING_LOOKUP", plain((4,), "int32"), given(5, 3), other(4, 3)), draw=looked_up),
    replace(case("EMBEDDING_LOOKUP", plain((4,), "int32"), TABLE, other(4, 3), name="of_a_table"), draw=rows),
    replace(case("SELECT_V2", plain((3, 4), "bool"), given(3, 4), given(3, 4), other(3, 4)), draw=chosen),
    case("PAD", quantized((2, 3), 0.001, 0, "int16"), pairs(1, 0, 0, 2), quantized((3, 5), 0.002, 0, "int16"), name="short"),
    case("MAXIMUM", given(3), quantized((3,), 0.3, 0, data=np.arange(-3, 3, 2)), other(3), name="of_a_constant"),
    *(
        with_output(pool(opcode, opcode, (1, 6, 5, 5), (2, 2), Slide(activation="RELU6"), 0.1, 3), scales=(single(0.1000009),))
        for opcode in ("AVERAGE_POOL_2D", "MAX_POOL_2D")
    ),
]  # fmt: skip


COMPUTING = [
    case("TANH", quantized((16, 16), 0.03, 3), other(16, 16)),
    case("LOGISTIC", quantized((16, 16), 0.05, -9), quantized((16, 16), 0.01, -128)),
    case("L2_NORMALIZATION", given(5, 7), other(5, 7), options={"fused_activation_function": "NONE"}),
]
"""Operators that compute for a scale of their own."""


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove([*CASES, *COMPUTING])


@pytest.mark.parametrize("name", [each.id for each in (*CASES, *COMPUTING)])
def test_case(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_no_memory_error(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_notes_say_so_but_for_scales_that_almost_agree() -> None:
    assert graph_of(CASES[3]).notes == (
        'op 0 TRANSPOSE "TRANSPOSE/out0": the numbers stay under another scale, as in TFLite Micro',
    )
    assert graph_of(CASES[-1]).notes == ()
    assert graph_of(case("TRANSPOSE", given(2, 3), integers(1, 0), given(3, 2))).notes == ()


@pytest.mark.parametrize(
    ("computing", "numbers"),
    [
        (COMPUTING[0], "0.0078125 and zero point 0"),
        (COMPUTING[1], "0.00390625 and zero point -128"),
        (COMPUTING[2], "0.0078125 and zero point 0"),
    ],
    ids=[each.id for each in COMPUTING],
)
def test_a_note_says_whose_numbers_a_computed_output_has(computing: Case, numbers: str) -> None:
    said = "whatever its output says, as in TFLite Micro"
    assert graph_of(computing).notes == (
        f'op 0 {computing.id} "{computing.id}/out0": its numbers are those of scale {numbers}, {said}',
    )


@pytest.mark.parametrize(
    "wrong",
    [
        case("CONCATENATION", given(2, 3), given(2, 3), other(4, 3), options={"axis": 0}),
        case("RESHAPE", quantized((2, 3), 0.1, 3, "uint8"), integers(6), quantized((6,), 0.2, 3, "uint8")),
        with_output(pool("layer", "MAX_POOL_2D", (1, 6, 5, 5), (2, 2), Slide(), 0.1, 3), scales=(single(0.100003),)),
    ],
    ids=lambda each: each.opcode,
)
def test_refuses_what_the_engine_does_not_run(wrong: Case) -> None:
    assert f"{wrong.opcode} changes scale or zero point" in message(wrong)


def test_passes_do_not_look_through_another_scale(tmp_path: Path) -> None:
    """An activation after the new scale is no other one's, nor is padding; Transposes still cancel."""
    net = Net(7)
    x = net.activation("x", (1, 5, 5, 2), 0.05, 4)
    w, b = net.weights("w", (3, 3, 3, 2), (0.02,)), net.bias("b", 3, (0.001,))
    y = net.activation("y", (1, 5, 5, 3), 0.3, 10)
    net.op("CONV_2D", (x, w, b), (y,), padding="SAME", stride_w=1, stride_h=1, dilation_w_factor=1, dilation_h_factor=1,
           fused_activation_function="NONE")  # fmt: skip
    turned, flat = net.activation("turned", (1, 3, 5, 5), 0.1, -7), net.activation("flat", (1, 75), 0.2, 2)
    net.op("TRANSPOSE", (y, net.integers("order", (0, 3, 1, 2))), (turned,))
    net.op("RESHAPE", (turned, net.integers("shape", (1, 75))), (flat,), new_shape=(1, 75))
    limited = net.activation("limited", (1, 75), 0.2, 2)
    net.op("RELU6", (flat,), (limited,))
    padded, pooled = net.activation("padded", (1, 7, 7, 3), 0.15, 20), net.activation("pooled", (1, 6, 6, 3), 0.15, 20)
    net.op("PAD", (y, net.integers("ends", (0, 0, 1, 1, 1, 1, 0, 0), (4, 2))), (padded,))
    net.op("AVERAGE_POOL_2D", (padded,), (pooled,), padding="VALID", stride_w=1, stride_h=1, filter_width=2,
           filter_height=2)  # fmt: skip
    path = tmp_path / "model.tflite"
    path.write_bytes(write_tflite(net.spec((x,), (limited, pooled))))
    proof = verify(compile_model(path), samples=5, layers=True, sanitize=True)
    assert proof.match and proof.reference == "tflm" and proof.layers_checked
