"""PRELU: reference, engine and C agree on every bit, with slopes of every shape."""

from __future__ import annotations

import numpy as np
import pytest

from emitc.writers.tflite import TensorSpec
from tests.support.elementwise_cases import message, single
from tests.support.float_cases import check, constant, with_values
from tests.support.single_op import Case, Proven, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

Scaled = tuple[float, int]
SHAPES = {
    "channels": ((1, 4, 5, 3), (1, 1, 3)),
    "same": ((2, 3, 4), (2, 3, 4)),
    "scalar": ((3, 100), (1,)),
    "rank_0": ((3, 100), ()),
    "middle": ((2, 3, 2, 5), (3, 1, 1)),
    "one": ((1,), (1,)),
}
SCALES: dict[str, tuple[Scaled, Scaled, Scaled]] = {
    "plain": ((0.05, -3), (0.01, 0), (0.04, 5)),
    "low_zeros": ((0.05, -128), (0.01, -128), (0.05, -128)),
    "high_zeros": ((0.05, 127), (0.5, 127), (0.2, 127)),
    "growing": ((0.9, 3), (0.3, -7), (0.01, 0)),
    "shrinking": ((single(1e-4), 3), (single(1e-3), 9), (single(0.5), 1)),
}


def slopes(shape: tuple[int, ...], scaled: Scaled, *, computed: bool = False) -> TensorSpec:
    """Slopes at the ends of the type and between."""
    values = (np.arange(int(np.prod(shape))) * 97 % 256 - 128).reshape(shape)
    return quantized(shape, *scaled, data=None if computed else values)


def case(name: str, shape: str, scales: str = "plain", dtype: str = "int8", *, computed: bool = False) -> Case:
    (x, slope), (a, b, y) = SHAPES[shape], SCALES[scales]
    if dtype == "int16":
        a, y = (a[0] / 128, 0), (y[0] / 128, 0)
    inputs = (quantized(x, *a, dtype=dtype), slopes(slope, b, computed=computed))
    return Case(f"{name}_{dtype}", "PRELU", inputs, (quantized(x, *y, dtype=dtype),))


def real(name: str, shape: str, *, computed: bool = False) -> Case:
    x, slope = SHAPES[shape]
    values = np.linspace(-2, 2, int(np.prod(slope))).astype(np.float32).reshape(slope)
    inputs = (plain(x), plain(slope) if computed else constant(values))
    return with_values(Case(name, "PRELU", inputs, (plain(x),)))


INTEGERS = [
    *(case(shape, shape, dtype=t) for shape in SHAPES for t in ("int8", "int16")),
    *(case(scales, "channels", scales, t) for scales in SCALES for t in ("int8", "int16")),
    *(case(f"{scales}_scalar", "scalar", scales) for scales in SCALES),
    *(case(f"{shape}_computed", shape, computed=True) for shape in ("channels", "same", "scalar")),
]
REALS = [
    *(real(f"{shape}_real", shape) for shape in SHAPES),
    *(real(f"{shape}_real_computed", shape, computed=True) for shape in SHAPES),
]


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove([*INTEGERS, *REALS])


@pytest.mark.parametrize("name", [case.id for case in INTEGERS])
def test_integers(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


@pytest.mark.parametrize("name", [case.id for case in REALS])
def test_reals(proven: Proven, name: str) -> None:
    check(proven.outcomes[name])


def test_memory_and_templates(proven: Proven) -> None:
    assert proven.memory_errors == ()
    steps = {name: outcome.step for name, outcome in proven.outcomes.items()}
    assert {name: step.kernel_name for name, step in steps.items() if step and name.startswith("scalar")} == {
        "scalar_int8": "lookup", "scalar_int16": "prelu_fixed", "scalar_computed_int8": "prelu_fixed",
        "scalar_real": "leaky_relu", "scalar_real_computed": "prelu",
    }  # fmt: skip


def test_random_sweep() -> None:
    rng = np.random.default_rng(5)
    cases = []
    for i in range(24):
        shape = tuple(int(n) for n in rng.integers(1, 6, int(rng.integers(1, 5))))
        slope = tuple(1 if rng.random() < 0.4 else n for n in shape)[int(rng.integers(0, len(shape))) :]
        a, b, y = (single(2.0 ** rng.uniform(-9, 0)) for _ in range(3))
        zeros = [int(z) for z in rng.integers(-128, 128, 3)]
        inputs = (quantized(shape, a, zeros[0]), slopes(slope, (b, zeros[1]), computed=bool(i % 2)))
        cases.append(Case(f"random{i}", "PRELU", inputs, (quantized(shape, y, zeros[2]),)))
    for outcome in prove(cases, seed=6).outcomes.values():
        outcome.check()


def refused(x: TensorSpec, slope: TensorSpec, y: TensorSpec) -> Case:
    return Case("refused", "PRELU", (x, slope), (y,))


INT16 = quantized((4,), 0.01, 0, "int16")
REFUSED = [
    (refused(quantized((4,)), quantized((2, 4)), quantized((2, 4))), 2, "PRELU has inputs whose shapes do not fit each other"),
    (refused(INT16, INT16, INT16), 1, "PRELU with element types (int16, int16, int16) is not supported"),
    (
        refused(quantized((4,), 0.01, 1, "int16"), quantized((4,)), INT16),
        2,
        "PRELU has an int16 tensor with the zero point 1",
    ),
    (refused(quantized((4,), 1.0), quantized((4,)), quantized((4,), 1e-9)), 2, "PRELU has scales that are out of proportion"),
    (refused(plain((4,), "int8"), quantized((4,)), quantized((4,))), 2, "PRELU needs quantized tensors"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "code", "what"), REFUSED)
def test_refusals(wrong: Case, code: int, what: str) -> None:
    assert message(wrong)[:2] == (code, what)
