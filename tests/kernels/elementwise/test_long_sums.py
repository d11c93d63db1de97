"""ADD_N and CUMSUM: reference, engine and C agree on every bit, also where a sum of int8 values leaves its 32 bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.elementwise_cases import message, single
from tests.support.float_cases import SPECIAL, check, constant, with_values
from tests.support.single_op import Case, Proven, integers, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

ZEROS = {"low": (0.05, -128), "middle": (0.05, -3), "high": (0.05, 127)}


def add_n(name: str, count: int, shape: tuple[int, ...] = (3, 40), zero: str = "middle", scale: float = 0.2) -> Case:
    inputs = tuple(quantized(shape, *ZEROS[zero]) for _ in range(count))
    return Case(name, "ADD_N", inputs, (quantized(shape, scale, 5),))


def cumsum(
    name: str,
    shape: tuple[int, ...],
    axis: int,
    flags: str = "",
    zero: str = "middle",
    scale: float = 0.2,
    *,
    real: bool = False,
) -> Case:
    x = plain(shape) if real else quantized(shape, *ZEROS[zero])
    y = plain(shape) if real else quantized(shape, scale, 5)
    options = {"exclusive": "e" in flags, "reverse": "r" in flags}
    case = Case(f"{name}{'_real' * real}", "CUMSUM", (x, integers(axis)), (y,), options)
    return with_values(case) if real else case


TWICE = quantized((7,), 0.05, -3)
RUNS = [
    ("last", (3, 11), 1), ("first", (6, 4), 0), ("middle", (2, 5, 3), -2), ("one", (1,), 0), ("vector", (9,), -1),
]  # fmt: skip
INTEGERS = [
    *(add_n(f"add_{count}", count) for count in (2, 3, 7)),
    *(add_n(f"add_{zero}_zero", 3, zero=zero) for zero in ZEROS),
    add_n("add_coarse", 2, scale=2.0),
    add_n("add_wrapping", 20, (300,), "low", 1.5),
    add_n("add_odd", 5, (1, 3, 1, 5)),
    Case("add_constant", "ADD_N", (TWICE, quantized((7,), 0.05, -3, data=np.arange(7) * 9), TWICE), (quantized((7,), 0.1),)),
    *(cumsum(f"sum_{name}_{flags}", shape, axis, flags) for name, shape, axis in RUNS for flags in ("", "e", "r", "er")),
    *(cumsum(f"sum_{zero}_zero", (2, 9), 1, zero=zero) for zero in ZEROS),
    cumsum("sum_wrapping", (3, 90), 1, "", "low", 1.5),
    cumsum("sum_wrapping_high", (3, 90), 1, "r", "high", 1.5),
]  # fmt: skip
REALS = [
    *(
        with_values(Case(f"add_{count}_real", "ADD_N", tuple(plain((4, 9)) for _ in range(count)), (plain((4, 9)),)))
        for count in (2, 5)
    ),
    with_values(
        Case("add_constant_real", "ADD_N", (constant(SPECIAL), plain(SPECIAL.shape)), (plain(SPECIAL.shape),)),
    ),
    *(
        cumsum(f"sum_{name}_{flags}", shape, axis, flags, real=True)
        for name, shape, axis in RUNS
        for flags in ("", "er")
    ),
]


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove([*INTEGERS, *REALS], samples=6)


@pytest.mark.parametrize("name", [case.id for case in INTEGERS])
def test_integers(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


@pytest.mark.parametrize("name", [case.id for case in REALS])
def test_reals(proven: Proven, name: str) -> None:
    check(proven.outcomes[name])


def test_memory(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_random_sweep() -> None:
    rng = np.random.default_rng(11)
    cases = []
    for i in range(24):
        shape = tuple(int(n) for n in rng.integers(1, 9, int(rng.integers(1, 5))))
        x, y = (single(2.0 ** rng.uniform(-6, 0)) for _ in range(2))
        zeros = [int(z) for z in rng.integers(-128, 128, 2)]
        inputs = tuple(quantized(shape, x, zeros[0]) for _ in range(int(rng.integers(2, 6))))
        output = (quantized(shape, y, zeros[1]),)
        if i % 2:
            options = {"exclusive": bool(rng.integers(0, 2)), "reverse": bool(rng.integers(0, 2))}
            axis = integers(int(rng.integers(-len(shape), len(shape))))
            cases.append(Case(f"sum{i}", "CUMSUM", (inputs[0], axis), output, options))
        else:
            cases.append(Case(f"add{i}", "ADD_N", inputs, output))
    for outcome in prove(cases, seed=12).outcomes.values():
        outcome.check()


Q = quantized((4,), 0.05, 3)
REFUSED = [
    (Case("a", "ADD_N", (Q, quantized((2, 2), 0.05, 3)), (Q,)), 2, "ADD_N has operands of different shapes"),
    (Case("b", "ADD_N", (Q, quantized((4,), 0.04, 3)), (Q,)), 2, "ADD_N changes scale or zero point"),
    (Case("c", "ADD_N", (Q,), (Q,)), 2, "ADD_N has 1 inputs"),
    (Case("d", "ADD_N", (Q, Q), (quantized((4,), 1e-9),)), 2, "ADD_N has scales that are out of proportion"),
    (
        Case("e", "ADD_N", (plain((4,), "int32"), plain((4,), "int32")), (plain((4,), "int32"),)),
        1,
        "ADD_N with element types (int32, int32, int32) is not supported",
    ),
    (cumsum("f", (2, 3), 2), 2, "CUMSUM has the axes [2]"),
    (Case("g", "CUMSUM", (Q, plain((1,), "int32")), (Q,)), 1, "CUMSUM takes its axis from a computed tensor"),
    (cumsum("h", (2, 3), 1, scale=1e-9), 2, "CUMSUM has scales that are out of proportion"),
]


@pytest.mark.parametrize(("wrong", "code", "what"), REFUSED, ids=[case.id for case, *_ in REFUSED])
def test_refusals(wrong: Case, code: int, what: str) -> None:
    assert message(wrong)[:2] == (code, what)
