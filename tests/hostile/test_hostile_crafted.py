"""Files made to ask for endless work or memory: refused at once, or compiled within the limits.

Each case runs in a child with 1 GiB of address space and 10 seconds of processor time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import flatbuffers
import pytest
import tflite

from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.frontends.limits import MAX_OPERATORS, MAX_TENSORS
from emitc.writers.tflite import ModelSpec, OperatorSpec, write_tflite
from tests.support.hostile.branches import beyond, fans, large_variable, ring, two_types
from tests.support.hostile.models import OptionValue, TensorSpec, int8, int32, model, weights

HERE = Path(__file__).resolve().parent
_CHILD = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
    "resource.setrlimit(resource.RLIMIT_CPU, (10, 10))\n"
    "from emitc.compiler import compile_model; from emitc.errors import EmitcError\n"
    "try: print('ok', sum(map(len, compile_model(sys.argv[1], name='m').files.values())))\n"
    "except EmitcError as error: print(error); sys.exit(error.exit_code)\n"
)
ONE: dict[str, OptionValue] = {"padding": "SAME", "stride_w": 1, "stride_h": 1}


def compiled(data: bytes, folder: Path) -> tuple[int, str]:
    """(exit code, what was printed) of compiling under the limits; a negative code is a signal."""
    (folder / "m.tflite").write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(folder / "m.tflite")],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(HERE.parents[1]), "OPENBLAS_NUM_THREADS": "1"},
    )
    return done.returncode, done.stdout + done.stderr


def aliased(tensors: int, operators: int, name_bytes: int = 4, vector: int = 1) -> bytes:
    """A small file whose lists name one tensor and one operator again and again."""
    builder = flatbuffers.Builder(1024)

    def repeated(offset: int, count: int) -> int:
        builder.StartVector(4, count, 4)
        for _ in range(count):
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())

    def numbers(count: int) -> int:
        builder.StartVector(4, count, 4)
        for _ in range(count):
            builder.PrependInt32(0)
        return int(builder.EndVector())

    tflite.BufferStart(builder)
    buffers = repeated(tflite.BufferEnd(builder), 1)
    name = builder.CreateString("n" * name_bytes)
    shape = numbers(0)
    tflite.TensorStart(builder)
    tflite.TensorAddType(builder, tflite.TensorType.INT8)
    tflite.TensorAddName(builder, name)
    tflite.TensorAddShape(builder, shape)
    tensor_list = repeated(tflite.TensorEnd(builder), tensors)
    many = numbers(vector)
    tflite.OperatorStart(builder)
    tflite.OperatorAddInputs(builder, many)
    tflite.OperatorAddOutputs(builder, many)
    operator_list = repeated(tflite.OperatorEnd(builder), operators)
    tflite.OperatorCodeStart(builder)
    tflite.OperatorCodeAddBuiltinCode(builder, tflite.BuiltinOperator.RELU)
    tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, tflite.BuiltinOperator.RELU)
    codes = repeated(tflite.OperatorCodeEnd(builder), 1)
    tflite.SubGraphStart(builder)
    tflite.SubGraphAddTensors(builder, tensor_list)
    tflite.SubGraphAddOperators(builder, operator_list)
    tflite.SubGraphAddInputs(builder, many)
    subgraphs = repeated(tflite.SubGraphEnd(builder), 1)
    tflite.ModelStart(builder)
    tflite.ModelAddVersion(builder, 3)
    tflite.ModelAddOperatorCodes(builder, codes)
    tflite.ModelAddSubgraphs(builder, subgraphs)
    tflite.ModelAddBuffers(builder, buffers)
    builder.Finish(tflite.ModelEnd(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def constant(*shape: int) -> TensorSpec:
    """A constant int8 tensor of zeros."""
    size = 1
    for dim in shape:
        size *= dim
    return replace(int8(*shape), data=bytes(size))


def many(opcode: str, count: int, *extra: TensorSpec) -> bytes:
    """`count` operators on the input, every result an output."""
    return write_tflite(model((int8(1, 4),), [(opcode, (0, *extra), (int8(1, 4),), {}) for _ in range(count)]))


def shared_weights() -> bytes:
    """Two hundred matrix products over one megabyte of weights."""
    tensors = [int8(1, 1024), weights(1024, 1024)]
    operators = []
    for _ in range(200):
        tensors.append(int8(1, 1024))
        operators.append(OperatorSpec("FULLY_CONNECTED", (0, 1), (len(tensors) - 1,)))
    named = tuple(replace(tensor, name=str(i)) for i, tensor in enumerate(tensors))
    return write_tflite(ModelSpec(named, tuple(operators), (0,), (len(tensors) - 1,)))


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "65000_tensors_in_one": (lambda: aliased(65_000, 1), "the file claims 65000 tensors"),
    "aliased_tensors": (lambda: aliased(16_000, 1, name_bytes=5000), "its parts overlap"),
    "aliased_operators": (lambda: aliased(1, 4000, vector=10_000), "its parts overlap"),
    "too_many_operators": (lambda: many("RELU", MAX_OPERATORS + 1), f"the file claims {MAX_OPERATORS + 1} operators"),
    "too_many_tensors": (
        lambda: write_tflite(ModelSpec((int8(1),) * (MAX_TENSORS + 1), (), (0,), (0,))),
        f"the file claims {MAX_TENSORS + 1} tensors",
    ),
    "all_alive_at_once": (lambda: many("RELU", 4000), "1449 tensors are alive at once"),
    "a_constant_padded": (
        lambda: write_tflite(
            model((int8(1, 4),), [("PAD", (constant(1, 4), int32(0, 0, 0, 60_000_000)), (int8(1, 60_000_004),), {})])
        ),
        "the constants of the layers take more room than the file explains",
    ),
    "a_constant_padded_in_two_steps": (
        lambda: write_tflite(
            model(
                (int8(1, 4),),
                [
                    ("PAD", (constant(1, 4), int32(0, 0, 0, 4_000_000)), (int8(1, 4_000_004),), {}),
                    ("PAD", (1, int32(0, 0, 0, 4_000_000)), (int8(1, 8_000_004),), {}),
                ],
            )
        ),
        "the constants of the layers take more room than the file explains",
    ),
    "a_constant_pooled": (
        lambda: write_tflite(
            model(
                (int8(1, 4),),
                [("AVERAGE_POOL_2D", (constant(1, 512, 512, 1),), (int8(1, 512, 512, 1),),
                  ONE | {"filter_width": 512, "filter_height": 512})],
            )
        ),
        "AVERAGE_POOL_2D of constants is too large to be computed while compiling",
    ),
    "a_constant_convolved": (
        lambda: write_tflite(
            model((int8(1, 4),), [("CONV_2D", (constant(1, 512, 512, 1), weights(1, 300, 300, 1)), (int8(1, 512, 512, 1),), ONE)])
        ),
        "CONV_2D of constants is too large to be computed while compiling",
    ),
    "weights_of_many_layers": (shared_weights, "the constants of the layers take more room than the file explains"),
    "a_window_over_the_edge_of_int32": (
        lambda: write_tflite(
            model(
                (int8(1, 1, 1, 1),),
                [("CONV_2D", (0, weights(1, 40_000, 1, 1)), (int8(1, 1, 1, 1),), ONE | {"dilation_h_factor": 60_000})],
            )
        ),
        "a window that reaches over",
    ),
    "a_shape_that_overflows": (
        lambda: write_tflite(model((int8(1, 65536, 65536, 65536),), [("RELU", (0,), (int8(1, 65536, 65536, 65536),), {})])),
        "a tensor of 281474976710656 bytes is too large",
    ),
    "branches_of_branches": (lambda: write_tflite(fans(0)), "IF runs too many operators"),
    "branches_of_branches_with_state": (lambda: write_tflite(fans(9)), "IF runs too many operators"),
    "branches_in_a_ring": (lambda: write_tflite(ring(0)), "IF runs subgraph 1"),
    "branches_in_a_ring_with_state": (lambda: write_tflite(ring(9)), "IF runs subgraph 1"),
    "a_branch_that_is_not_there": (lambda: write_tflite(beyond(9)), "IF runs subgraph 9"),
    "a_branch_that_is_the_model": (lambda: write_tflite(beyond(0)), "IF runs subgraph 0"),
    "a_branch_of_a_negative_number": (lambda: write_tflite(beyond(-3)), "IF runs subgraph -3"),
    "branches_of_two_types": (lambda: write_tflite(two_types()), "IF runs a subgraph that gives another type"),
    "a_variable_of_gigabytes_in_branches": (
        lambda: write_tflite(large_variable(4, 1 << 31 - 1)), "a tensor of 1073741824 bytes is too large",
    ),
    "a_variable_that_the_file_does_not_explain": (
        lambda: write_tflite(large_variable(4, 9 << 20)), "take more room than the file explains",
    ),
}  # fmt: skip

COMPILED: dict[str, Callable[[], bytes]] = {
    "a_large_variable_in_many_branches": lambda: write_tflite(large_variable()),
    "a_long_chain": lambda: write_tflite(model((int8(1, 4),), [("RELU", (i,), (int8(1, 4),), {}) for i in range(1500)])),
    "a_long_chain_of_views": lambda: write_tflite(
        model((int8(1, 4),), [("RESHAPE", (i, int32(1, 4)), (int8(1, 4),), {}) for i in range(4000)])
    ),
    "many_alive": lambda: many("RELU", 700),
    "padded_pools": lambda: write_tflite(
        model(
            (int8(1, 4, 4, 1),),
            [
                step
                for i in range(0, 600, 2)
                for step in (
                    ("PAD", (i, int32(0, 0, 1, 1, 1, 1, 0, 0)), (int8(1, 6, 6, 1),), {}),
                    ("MAX_POOL_2D", (i + 1,), (int8(1, 4, 4, 1),),
                     ONE | {"padding": "VALID", "filter_width": 3, "filter_height": 3}),
                )
            ],
        )
    ),
    "a_huge_activation": lambda: write_tflite(
        model((int8(1, 8000, 8000, 1),), [("RELU", (0,), (int8(1, 8000, 8000, 1),), {})])
    ),
    "four_megabytes_of_weights": lambda: write_tflite(
        model((int8(1, 2048),), [("FULLY_CONNECTED", (0, weights(2048, 2048)), (int8(1, 2048),), {})])
    ),
}  # fmt: skip


@pytest.mark.sweep(keep=10)
@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_asks_for_too_much_is_refused(case: str, tmp_path: Path) -> None:
    make, expected = REFUSED[case]
    code, text = compiled(make(), tmp_path)
    assert code == 2, text
    assert expected in text
    assert "Traceback" not in text


@pytest.mark.sweep(keep=4)
@pytest.mark.parametrize("case", COMPILED)
def test_an_unusual_file_compiles_within_the_limits(case: str, tmp_path: Path) -> None:
    code, text = compiled(COMPILED[case](), tmp_path)
    assert code == 0, text
    assert text.startswith("ok")


def test_thousands_of_refusals_are_reported_in_short(tmp_path: Path) -> None:
    spec = model((int8(1, 4),), [("RELU", (i,), (int8(1, 4),), {}) for i in range(3000)])
    custom = tuple(replace(o, opcode="CUSTOM", custom_code="x" * 5000) for o in spec.operators)
    (tmp_path / "m.tflite").write_bytes(write_tflite(replace(spec, operators=custom)))
    with pytest.raises(EmitcError) as refused:
        compile_model(tmp_path / "m.tflite")
    assert refused.value.exit_code == 1
    assert str(refused.value).endswith("and 2995 more errors of this model; `emitc inspect` shows them")
