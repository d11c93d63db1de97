"""int16 operators without weights: reference, engine and C agree on every bit; refusals by name."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from emitc.kernels.normalization import softmax_tables
from tests.support.elementwise_cases import BROADCASTS, layer_of, message, single
from tests.support.single_op import Array, Case, OptionValue, Proven, TensorSpec, integers, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

ALL = (256, 256)
UNIT = single(2.0**-15)
POWERS = {name: single(2.0**power) for name, power in (("power_12", -12), ("power_11", -11), ("power_13", -13))}


def int16(shape: tuple[int, ...], scale: float = 0.001, data: Array | None = None) -> TensorSpec:
    """A symmetric int16 tensor."""
    return quantized(shape, single(scale), 0, "int16", data)


def every_value(_rng: np.random.Generator, _sample: int) -> Sequence[Array]:
    """Every int16 value."""
    return [np.arange(-(2**15), 2**15).astype(np.int16).reshape(ALL)]


def unary(name: str, opcode: str, x: float, y: float, options: dict[str, OptionValue] | None = None) -> Case:
    """An operator on every int16 value."""
    return Case(name, opcode, (int16(ALL, x),), (int16(ALL, y),), options or {}, draw=every_value)


def binary(
    name: str,
    opcode: str,
    scales: tuple[float, float, float],
    activation: str = "NONE",
    shape: tuple[int, ...] = (40, 50),
) -> Case:
    """An operator on two tensors."""
    a, b, y = (int16(shape, scale) for scale in scales)
    return Case(name, opcode, (a, b), (y,), {"fused_activation_function": activation})


def shaped(name: str, opcode: str, a: TensorSpec, b: TensorSpec) -> Case:
    """An operator on two tensors that broadcast, all at one scale times the operator's needs."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    options: dict[str, OptionValue] = {"fused_activation_function": "NONE"} if opcode in ("ADD", "SUB", "MUL") else {}
    return Case(name, opcode, (a, b), (int16(shape),), options)


def counted(shape: tuple[int, ...]) -> TensorSpec:
    """A constant operand."""
    values = (np.arange(int(np.prod(shape))) * 7919 % 65536 - 32768).reshape(shape)
    return int16(shape, data=values)


BINARY: list[Case] = [
    *(
        binary(f"{op}_{i}", op, scales)
        for op in ("ADD", "SUB")
        for i, scales in enumerate(
            ((1e-3, 1e-3, 2e-3), (1e-3, 1e-3, 1e-3), (1e-3, 3e-7, 1e-3), (0.017, 0.9, 0.31), (1.0, 1.0, 100.0), (2.0**-15,) * 3)
        )
    ),
    # Each of these changes when a ratio of scales is taken in float32 instead of double.
    *(binary(f"{op}_ratio_{i}", op, scales) for op in ("ADD", "SUB") for i, scales in enumerate(
        ((0.1445649266242981, 0.09637662023305893, 0.08622843027114868), (0.11497124284505844, 0.0696, 0.0481)))),
    *(binary(f"MUL_{i}", "MUL", scales) for i, scales in enumerate(
        ((1e-3, 1e-3, 1e-3), (0.01, 0.3, 0.1), (0.5, 0.5, 0.2501), (2.0**-15, 2.0**-15, 2.0**-15), (1e-5, 1e-5, 1.0)))),
    *(binary(f"{op}_{activation}", op, (1e-3, 2e-3, 1e-3), activation)
      for op in ("ADD", "SUB", "MUL") for activation in ("RELU", "RELU6", "RELU_N1_TO_1")),
    *(shaped(f"{op}_broadcast_{i}", op, int16(a), int16(b))
      for op in ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM") for i, (a, b) in enumerate(BROADCASTS)),
    *(shaped(f"{op}_constant", op, int16((3, 400)), counted((3, 400))) for op in ("ADD", "SUB", "MUL", "MINIMUM")),
    *(shaped(f"{op}_constant_first", op, counted((400,)), int16((3, 400))) for op in ("ADD", "SUB", "MUL", "MAXIMUM")),
    *(shaped(f"{op}_scalar", op, int16((3, 400)), int16((1,), data=np.array([-17]))) for op in ("ADD", "MUL", "MAXIMUM")),
]  # fmt: skip
SCALES = (0.0003, 1e-9, 1e-5, 2.0**-13 * 1.3, 0.000244, 0.01, 0.3, 2.6)
UNARY: list[Case] = [
    *(unary(f"{op}_{scale}", op, scale, 2.0**-15) for op in ("LOGISTIC", "TANH") for scale in SCALES),
    *(unary(f"{op}_{name}", op, scale, 2.0**-15) for op in ("LOGISTIC", "TANH") for name, scale in POWERS.items()),
    # Almost a power of two counts as one.
    *(unary(f"{op}_nearly", op, 2.0**-12 * 1.0006, 2.0**-15 * 0.9995) for op in ("LOGISTIC", "TANH")),
    *(unary(f"{op}_hardly", op, 2.0**-12 * 1.0008, 2.0**-15) for op in ("LOGISTIC", "TANH")),
    *(unary(f"RELU_{ratio}", "RELU", 0.01, 0.01 / ratio) for ratio in (0.5, 1e-10, 0.004, 0.3, 1.0, 1.5, 2.0, 1000.0)),
    *(unary(f"RELU6_{scale}", "RELU6", scale, scale) for scale in (0.0002, 0.001, 0.01, 0.7, 11.0)),
    *(unary(f"RELU6_rescaled_{scale}", "RELU6", scale, scale * 2.5) for scale in (0.0002, 0.01, 11.0)),
    *(unary(f"LEAKY_RELU_{ratio}", "LEAKY_RELU", 0.01, 0.01 / ratio, {"alpha": 0.1})
      for ratio in (0.5, 1e-10, 0.004, 0.3, 1.0, 1.5, 2.0, 1000.0)),
    *(unary(f"LEAKY_RELU_alpha_{alpha}", "LEAKY_RELU", 0.01, 0.012, {"alpha": alpha})
      for alpha in (0.0, 0.01, 0.5, 1.0, 2.5, -0.3, -1.0, 1e-12)),
    # Each of these changes when a ratio of scales is taken in float32 instead of double.
    unary("LEAKY_RELU_ratio_in_double", "LEAKY_RELU", 0.08622843027114868, 0.11497124284505844, {"alpha": 0.6666666865348816}),
    unary("RELU_ratio_in_double", "RELU", 0.1445649266242981, 0.09637662023305893),
]  # fmt: skip


def softmax(name: str, shape: tuple[int, ...], scale: float, beta: float = 1.0, x: str = "int16") -> Case:
    """SOFTMAX to int16."""
    output = int16(shape, UNIT) if x == "int16" else quantized(shape, single(2.0**-16), -32768, "int16")
    given = int16(shape, scale) if x == "int16" else quantized(shape, single(scale), 5)
    return Case(name, "SOFTMAX", (given,), (output,), {"beta": beta}, 2)


def _pairs_of_values(_rng: np.random.Generator, _sample: int) -> Sequence[Array]:
    """Rows of two values whose differences are all that there are up to 65535, and of rows with growing sums."""
    low = np.full(65536, -32768)
    return [np.stack([low, np.arange(-32768, 32768)], axis=1).astype(np.int16)]


SOFTMAX: list[Case] = [
    *(softmax(f"depth_{depth}", (3, depth), 3e-4) for depth in (10, 1, 2, 3, 100, 1000)),
    *(softmax(f"scale_{scale}", (7, 10), scale) for scale in (1e-8, 1e-5, 1e-4, 1e-3, 0.1, 2.4)),
    softmax("beta", (7, 10), 3e-4, 0.25),
    softmax("ranks", (2, 3, 2, 5), 3e-4),
    replace(softmax("every_difference", (65536, 2), 10.0 / 65535.0), draw=_pairs_of_values),
    *(softmax(f"from_int8_{depth}", (3, depth), 0.06, x="int8") for depth in (10, 1, 2, 3, 100, 1000)),
    *(softmax(f"from_int8_scale_{scale}", (5, 12), scale, x="int8") for scale in (1e-6, 0.004, 0.3, 8.0)),
]


def reduced(name: str, opcode: str, x: TensorSpec, axes: tuple[int, ...], y: float, *, keep: bool = False) -> Case:
    """MEAN or SUM."""
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes)
    return Case(name, opcode, (x, integers(*axes)), (int16(shape, y),), {"keep_dims": keep}, 2)


def requantized(name: str, x: TensorSpec, y: TensorSpec) -> Case:
    """QUANTIZE."""
    return Case(name, "QUANTIZE", (x,), (y,), {}, 2)


def int32(shape: tuple[int, ...], scale: float) -> TensorSpec:
    """A symmetric int32 tensor."""
    return quantized(shape, single(scale), 0, "int32")


S = (5, 60)
OTHERS: list[Case] = [
    *(reduced(f"{op}_{axes}_{keep}", op, int16((2, 5, 4, 3), 0.01), axes, 0.013, keep=keep)
      for op in ("MEAN", "SUM") for axes in ((1, 2), (0,), (3,), (0, 2), (0, 1, 2, 3)) for keep in (False, True)),
    *(reduced(f"{op}_scale_{y}", op, int16((4, 77), 0.01), (1,), y) for op in ("MEAN", "SUM") for y in (0.001, 0.01, 5.0)),
    reduced("MEAN_many", "MEAN", int16((1, 200, 300), 0.01), (1, 2), 0.01),
    *(requantized(f"to_int32_{ratio}", int16(S, 0.01), int32(S, 0.01 / ratio)) for ratio in (0.3, 1e-4, 1.0, 3.0, 30000.0)),
    *(requantized(f"from_int32_{ratio}", int32(S, 0.01), int16(S, 0.01 / ratio)) for ratio in (0.01, 1e-9, 1e-5, 0.5, 1.0, 2.0)),
    *(requantized(f"int32_to_int8_{ratio}", int32(S, 0.01), quantized(S, single(0.01 / ratio), 11))
      for ratio in (1e-8, 1e-5, 0.4, 1.0)),
    *(requantized(f"int8_to_int32_{ratio}", quantized(S, 0.01, 7), int32(S, 0.01 / ratio)) for ratio in (1e-4, 1.0, 1e5)),
    *(requantized(f"to_int16_{ratio}", int16(S, 0.01), int16(S, 0.01 / ratio)) for ratio in (1e-4, 0.3, 1.0, 3.0)),
    *(requantized(f"to_int8_{ratio}", int16(S, 0.01), quantized(S, single(0.01 / ratio), -9)) for ratio in (1e-4, 0.01, 1.0)),
    requantized("from_float", plain(S), int16(S, 0.01)),
    Case("to_float", "DEQUANTIZE", (int16(S, 0.01),), (plain(S),), {}, 3),
]  # fmt: skip
REAL = ("from_float",)
EVERY = (*BINARY, *(case for case in OTHERS if case.id not in REAL), *SOFTMAX)


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove([case for case in EVERY if case.id != "every_difference"], samples=4)


@pytest.fixture(scope="module")
def proven_on_all_values() -> Proven:
    # The sanitizers see the same kernels in the other cases and in test_shapes.
    return prove([*UNARY, *(case for case in SOFTMAX if case.id == "every_difference")], samples=1, sanitize=False)


@pytest.mark.parametrize("name", [case.id for case in EVERY if case.id != "every_difference"])
def test_case(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


@pytest.mark.parametrize("name", [*(case.id for case in UNARY), "every_difference"])
def test_every_value(proven_on_all_values: Proven, name: str) -> None:
    proven_on_all_values.outcomes[name].check()


def test_memory(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_from_float() -> None:
    """Values up to twice the type's range."""
    (case,) = (case for case in OTHERS if case.id in REAL)
    case = replace(case, draw=lambda rng, _: [rng.uniform(-700.0, 700.0, S).astype(np.float32)])
    for outcome in prove([case]).outcomes.values():
        outcome.check()


def test_shapes() -> None:
    """Any rank goes, and the result lies over the input."""
    found = [
        Case(f"{op}_{len(s)}", op, (int16(s, 0.0004),), (int16(s, y),), options)
        for s in ((1,), (3, 5), (1, 4, 4, 8), (2, 1, 3, 1, 2))
        for op, y, options in (
            ("TANH", 2.0**-15, {}), ("LOGISTIC", 2.0**-15, {}), ("RELU", 0.0003, {}), ("RELU6", 0.0004, {}),
            ("LEAKY_RELU", 0.0003, {"alpha": 0.3}),
        )
    ]  # fmt: skip
    result = prove(found)
    for outcome in result.outcomes.values():
        outcome.check()
    assert result.memory_errors == ()


def test_random_sweep() -> None:
    rng = np.random.default_rng(17)
    found: list[Case] = []
    for i in range(25):
        a, b, y = (single(2.0 ** rng.uniform(-14, 0)) for _ in range(3))
        for op in ("ADD", "SUB"):
            if 2 * max(a, b) / (y * 2**15) < 1:
                found.append(binary(f"{op}{i}", op, (a, b, y), shape=(30, 30)))
        if a * b / y < 1:
            found.append(binary(f"MUL{i}", "MUL", (a, b, y), shape=(30, 30)))
        found.append(replace(unary(f"LEAKY_RELU{i}", "LEAKY_RELU", a, y, {"alpha": single(rng.uniform(-0.5, 1.5))})))
        found.append(unary(f"RELU{i}", "RELU", a, y))
        found.append(unary(f"TANH{i}", "TANH", a, 2.0**-15))
        found.append(unary(f"LOGISTIC{i}", "LOGISTIC", a, 2.0**-15))
    for outcome in prove(found, samples=1, sanitize=False).outcomes.values():
        outcome.check()


def test_tables_of_softmax() -> None:
    """What they are, apart from the engine: monotonic, from next to nothing to one, and from one to one half."""
    assert softmax_tables.EXPONENTIAL[0] <= 2 and softmax_tables.EXPONENTIAL[-1] == 32767
    assert list(softmax_tables.EXPONENTIAL) == sorted(softmax_tables.EXPONENTIAL)
    assert (softmax_tables.RECIPROCAL[0], softmax_tables.RECIPROCAL[-1]) == (32767, 16384)


@pytest.mark.parametrize(
    ("case", "template"),
    [
        (binary("a", "ADD", (1e-3,) * 3), "rescaled_sum"),
        (shaped("a", "MUL", int16((2, 3)), int16((3,))), "product_broadcast"),
        (shaped("a", "MAXIMUM", int16((2, 3)), int16((2, 3))), "extremum"),
        (unary("a", "TANH", 1e-3, 2.0**-15), "sigmoid_s16"),
        (unary("a", "RELU6", 1e-3, 1e-3), "clip"),
        (softmax("a", (2, 3), 1e-3), "softmax_s16"),
        (softmax("a", (2, 3), 0.1, x="int8"), "softmax"),
    ],
)
def test_template(case: Case, template: str) -> None:
    assert layer_of(case).kernel_name == template


def _with(case: Case, output: bool, **changes: object) -> Case:
    tensor = case.outputs[0] if output else case.inputs[0]
    assert tensor is not None
    changed = replace(tensor, **changes)  # type: ignore[arg-type]
    return replace(case, outputs=(changed,)) if output else replace(case, inputs=(changed, *case.inputs[1:]))


def refusals() -> list[tuple[Case, int, str]]:
    """Cases, exit codes, and what the message has."""
    add, tanh, rows = binary("a", "ADD", (1e-3,) * 3), unary("a", "TANH", 1e-3, 2.0**-15), softmax("a", (2, 3), 1e-3)
    zero = {"zero_points": (1,)}
    return [
        (_with(add, False, **zero), 2, "ADD has an int16 tensor with the zero point 1"),
        (_with(tanh, True, **zero), 2, "TANH has an int16 tensor with the zero point 1"),
        (_with(rows, False, **zero), 2, "SOFTMAX has an int16 tensor with the zero point 1"),
        (_with(unary("a", "RELU", 1e-3, 1e-3), False, **zero), 2, "RELU has an int16 tensor with the zero point 1"),
        (_with(OTHERS[0], False, **zero), 2, "MEAN has an int16 tensor with the zero point 1"),
        (binary("a", "ADD", (1.0, 1.0, 2.0**-15)), 2, "ADD has scales that are out of proportion"),
        (binary("a", "MUL", (1.0, 1.0, 0.999)), 2, "MUL has scales that are out of proportion"),
        (unary("a", "TANH", 1e-3, 1e-3), 2, "TANH has another output scale than its int16 kernel writes"),
        (unary("a", "LOGISTIC", 2.7, 2.0**-15), 2, "LOGISTIC has scales that are out of proportion"),
        (unary("a", "HARD_SWISH", 1e-3, 1e-3), 1, "HARD_SWISH with element types (int16, int16) is not supported"),
        (
            unary("a", "LEAKY_RELU", 1.0, 2.0**-16, {"alpha": 0.1}),
            2,
            "LEAKY_RELU has scales that are out of proportion",
        ),
        (_with(rows, True, scales=(2.0**-16,)), 2, "SOFTMAX has another output scale than 1/32768"),
        (softmax("a", (2, 3), 3.0), 2, "SOFTMAX has an input scale that is out of proportion"),
        (softmax("a", (1, 65536), 0.1), 1, "SOFTMAX over 65536 elements"),
        (_with(softmax("a", (2, 3), 0.1, x="int8"), True, scales=(2.0**-8,)), 2, "another output scale than 1/65536"),
        (reduced("a", "MEAN", int16((1, 65536), 0.01), (1,), 0.01), 1, "MEAN over 65536 elements"),
        (
            _with(requantized("a", int32(S, 0.1), int16(S)), False, **zero),
            2,
            "QUANTIZE has an int32 tensor with a zero point",
        ),
        (_with(add, True, dtype="int8"), 2, "there is code for (int8, int8, int8) or (int16, int16, int16)"),
    ]


@pytest.mark.parametrize(("case", "code", "text"), refusals(), ids=itertools.count())
def test_refusal(case: Case, code: int, text: str) -> None:
    found = message(case)
    assert (found[0], text in "\n".join(str(part) for part in found[1:])) == (code, True), found
