"""QUANTIZE and DEQUANTIZE: reference, engine and C agree on every bit, halves and the ends of the types included."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from emitc.errors import EmitcError
from emitc.ir import Array, DType
from tests.support.elementwise_cases import Operand, layer_of, message, single
from tests.support.single_op import Case, Draw, Proven, graph_of, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

ZERO_POINTS = {"int8": (-128, -1, 0, 127), "uint8": (0, 1, 128, 255), "int16": (0,)}
COUNT = 4000


def reals(scale: float, zero_point: int, dtype: str) -> Draw:
    """Multiples and halves of the scale over the type's range and beyond, and the floats next to them."""
    low, high = DType(dtype).range

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        steps = rng.integers(low - zero_point - 9, high - zero_point + 10, COUNT) + rng.choice(
            [0.0, 0.5, -0.5, 0.49999997], COUNT
        )
        values = (np.float32(scale) * steps.astype(np.float32)).astype(np.float32)
        if sample:
            values = np.nextafter(values, np.float32(np.inf if sample % 2 else -np.inf))
        values[:6] = (0.0, -0.0, 1e-40, -1e-40, scale * 60000, -scale * 60000)
        return [values]

    return draw


def from_real(name: str, dtype: str, y: Operand) -> Case:
    """QUANTIZE of float32."""
    return Case(name, "QUANTIZE", (plain((COUNT,)),), (quantized((COUNT,), *y, dtype),), draw=reals(*y, dtype))


def rescaled(name: str, types: tuple[str, str], x: Operand, y: Operand, count: int) -> Case:
    """QUANTIZE between integers."""
    return Case(name, "QUANTIZE", (quantized((count,), *x, types[0]),), (quantized((count,), *y, types[1]),))


def to_real(name: str, dtype: str, x: Operand) -> Case:
    """DEQUANTIZE of every value."""
    low, high = DType(dtype).range
    count = min(high - low + 1, 4096)
    return Case(name, "DEQUANTIZE", (quantized((count,), *x, dtype),), (plain((count,)),))


RESCALED = (
    ("int8", "int8"),
    ("int8", "uint8"),
    ("uint8", "int8"),
    ("int16", "int8"),
    ("int8", "int16"),
    ("int16", "int16"),
)
CASES = [
    *(
        from_real(f"float_{dtype}_{scale}_{zero}", dtype, (scale, zero))
        for dtype in ("int8", "int16")
        for scale, zero in itertools.product((1e-6, 0.0123, 0.5, 3.7, 1e6), ZERO_POINTS[dtype])
    ),
    *(
        rescaled(f"{a}_{b}_{ratio}_{x}_{y}_{count}", (a, b), (0.05, x), (single(0.05 / ratio), y), count)
        for (a, b), ratio, count in itertools.product(RESCALED, (1e-10, 0.3, 1.0, 1.7, 300.0), (33, 300))
        for x, y in itertools.product(ZERO_POINTS[a][::3], ZERO_POINTS[b][::3])
    ),
    # The same bytes with the top bit turned.
    rescaled("int8_uint8_shifted", ("int8", "uint8"), (0.05, -128), (0.05, 0), 300),
    rescaled("uint8_int8_shifted", ("uint8", "int8"), (0.05, 128), (0.05, 0), 1),
    *(
        to_real(f"real_{dtype}_{scale}_{zero}", dtype, (scale, zero))
        for dtype, zeros in ZERO_POINTS.items()
        for scale, zero in itertools.product((1e-30, 0.0123, 0.1, 1e6), zeros)
    ),
]
# TFLite Micro does not write uint8: LiteRT's reference kernel defines it.
LITERT_CASES = [
    from_real(f"float_uint8_{scale}_{zero}", "uint8", (scale, zero))
    for scale, zero in itertools.product((0.0123, 0.5, 3.7), ZERO_POINTS["uint8"])
]


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove(CASES)


@pytest.fixture(scope="module")
def proven_by_litert() -> Proven:
    pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    return prove(LITERT_CASES, engine="litert")


@pytest.mark.parametrize("name", [case.id for case in CASES])
def test_case(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


@pytest.mark.parametrize("name", [case.id for case in LITERT_CASES])
def test_unsigned(proven_by_litert: Proven, name: str) -> None:
    proven_by_litert.outcomes[name].check()


def test_memory(proven: Proven, proven_by_litert: Proven) -> None:
    assert proven.memory_errors + proven_by_litert.memory_errors == ()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_beyond_int32_the_result_is_the_nearer_end_and_of_nan_the_zero_point(dtype: str) -> None:
    """Where the engine leaves the result to the processor it runs on."""
    low, high = DType(dtype).range
    zero_point = ZERO_POINTS[dtype][-1]
    values = np.array([3e9, -3e9, 3e38, -3e38, np.inf, -np.inf, np.nan, -np.nan], np.float32)
    case = Case(
        "beyond",
        "QUANTIZE",
        (plain((8,)),),
        (quantized((8,), 0.01, zero_point, dtype),),
        draw=lambda _rng, _sample: [values],
    )
    proven = prove([case], engine=None)
    outcome = proven.outcomes["beyond"]
    outcome.check()
    assert outcome.compiled[0][0].tolist() == [high, low, high, low, high, low, zero_point, zero_point]
    assert proven.memory_errors == ()


@pytest.mark.parametrize(
    ("case", "template"),
    [
        (from_real("float", "int8", (0.1, 0)), "quantize"),
        (rescaled("bytes", ("int8", "uint8"), (0.1, 0), (0.1, 128), 256), "lookup"),
        (rescaled("few_bytes", ("int8", "uint8"), (0.1, 0), (0.1, 128), 255), "requantized"),
        (rescaled("wide", ("int16", "int8"), (0.1, 0), (0.1, 0), 300), "requantized"),
        (to_real("real", "int8", (0.1, 0)), "dequantize"),
    ],
    ids=lambda value: value.id if isinstance(value, Case) else value,
)
def test_template(case: Case, template: str) -> None:
    assert layer_of(case).kernel_name == template


@pytest.mark.parametrize(
    ("case", "arena"),
    [
        pytest.param(from_real("in_place", "int8", (0.1, 0)), 4 * COUNT, id="float_to_int8"),
        pytest.param(from_real("same_width", "int16", (0.1, 0)), 6 * COUNT, id="float_to_int16"),
        pytest.param(rescaled("bytes", ("int8", "int8"), (0.1, 0), (0.2, 3), 320), 320, id="int8_to_int8"),
        pytest.param(rescaled("few", ("int8", "uint8"), (0.1, 0), (0.2, 3), 32), 32, id="int8_to_uint8"),
        pytest.param(rescaled("narrower", ("int16", "int8"), (0.1, 0), (0.2, 3), 320), 640, id="int16_to_int8"),
        pytest.param(rescaled("wider", ("int8", "int16"), (0.1, 0), (0.2, 3), 320), 960, id="int8_to_int16"),
        # 255 * 3 bytes after the start of the output, rounded up to the alignment.
        pytest.param(to_real("behind", "int8", (0.1, 0)), 1024, id="int8_to_float"),
        pytest.param(to_real("apart", "int16", (0.1, 0)), 4096 * 6, id="int16_to_float"),
    ],
)
def test_arena(case: Case, arena: int) -> None:
    proven = prove([case])
    proven.outcomes[case.id].check()
    assert proven.compiled.program.plan.arena_bytes == arena
    assert proven.memory_errors == ()


def other_output(case: Case, dtype: str) -> Case:
    return replace(case, outputs=(replace(case.outputs[0], dtype=dtype),))


FLOATS = "(float32, int8) or (float32, uint8) or (float32, int16)"
INTEGERS = "(int8, int8) or (int8, uint8) or (int8, int16) or (uint8, int8) or (int16, int8) or (int16, int16)"
WIDE = "(int8, int32) or (int16, int32) or (int32, int8) or (int32, int16)"
CODE = f"there is code for {FLOATS} or {INTEGERS} or {WIDE}"
REFUSALS = [
    (
        other_output(from_real("int32", "int8", (0.1, 0)), "int32"),
        (1, "QUANTIZE with element types (float32, int32) is not supported", CODE),
    ),
    (
        replace(from_real("bool", "int8", (0.1, 0)), outputs=(plain((COUNT,), "bool"),)),
        (2, "QUANTIZE with element types (float32, bool) is not supported", CODE),
    ),
    (
        rescaled("uint8", ("uint8", "int16"), (0.1, 0), (0.1, 0), 4),
        (1, "QUANTIZE with element types (uint8, int16) is not supported", CODE),
    ),
    (
        replace(from_real("no_scale", "int8", (0.1, 0)), outputs=(plain((COUNT,), "int8"),)),
        (2, "QUANTIZE needs quantized tensors", "this tensor has no scale"),
    ),
    (
        rescaled("ratio", ("int16", "int16"), (1.0, 0), (2.0**-17, 0), 4),
        (
            2,
            "QUANTIZE has scales that are out of proportion",
            "values are multiplied by 131072.0, which the fixed-point arithmetic cannot hold",
        ),
    ),
    (
        other_output(to_real("to_int8", "int8", (0.1, 0)), "int8"),
        (
            1,
            "DEQUANTIZE with element types (int8, int8) is not supported",
            "there is code for (int8, float32) or (uint8, float32) or (int16, float32)",
        ),
    ),
    (
        replace(to_real("real_no_scale", "int8", (0.1, 0)), inputs=(plain((256,), "int8"),)),
        (2, "DEQUANTIZE needs quantized tensors", "this tensor has no scale"),
    ),
]


@pytest.mark.parametrize(("case", "expected"), [pytest.param(*each, id=each[0].id) for each in REFUSALS])
def test_refusal(case: Case, expected: tuple[int, str, str]) -> None:
    assert message(case) == expected


def test_extreme_scales_are_refused_or_exact() -> None:
    """No scale that a file can hold ends in another exception than a refusal."""
    rng = np.random.default_rng(60)
    tiny, huge = np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).max
    accepted = 0
    for i in range(200):
        x, y = (single(rng.choice([tiny, huge, 2.0 ** rng.uniform(-140, 127)])) for _ in range(2))
        case = rescaled(f"extreme{i}", RESCALED[i % 6], (x, 0), (y, 0), 4)
        try:
            graph_of(case)
        except EmitcError:
            continue
        accepted += 1
        assert all(-(2**31) <= param.value < 2**31 for param in layer_of(case).params)
    assert accepted > 50
