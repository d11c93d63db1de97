"""FULLY_CONNECTED, SOFTMAX and UNIDIRECTIONAL_SEQUENCE_LSTM of float32 TFLite models: within the tolerance of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from emitc.verify.tolerances import TOLERANT, compared
from emitc.writers.tflite import TensorSpec
from tests.support.layer_cases import message, named_rng, with_input
from tests.support.recurrent_cases import lstm_float
from tests.support.single_op import Array, Case, Proven, plain, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def constant(values: Array) -> TensorSpec:
    """A float32 constant."""
    return TensorSpec("", "float32", values.shape, values.astype("<f4").tobytes())


def with_values(case: Case, spread: float = 1.0) -> Case:
    """The case with inputs drawn from a normal distribution; the second sample is larger than any activation's bounds."""
    shapes = [
        tensor.shape for tensor in case.inputs if tensor is not None and tensor.data is None and not tensor.is_variable
    ]

    def draw(rng: np.random.Generator, sample: int) -> Sequence[Array]:
        scale = spread * (20.0 if sample == 1 else 1.0)
        return [rng.normal(0.0, scale, shape).astype(np.float32) for shape in shapes]

    return replace(case, draw=draw)


def dense(
    name: str,
    x: tuple[int, ...],
    out: int,
    depth: int,
    activation: str = "NONE",
    *,
    bias: bool = True,
    keep: bool = False,
) -> Case:
    """FULLY_CONNECTED."""
    rng = named_rng(name)
    inputs = [plain(x), constant(rng.normal(0.0, 1.0, (out, depth)))] + [constant(rng.normal(0.0, 1.0, out))] * bias
    shape = (*x[:-1], out) if keep else (int(np.prod(x)) // depth, out)
    options = {"fused_activation_function": activation, "keep_num_dims": keep}
    return with_values(Case(name, "FULLY_CONNECTED", tuple(inputs), (plain(shape),), options, 1))


def dense_computed(
    name: str, x: tuple[int, ...], out: int, depth: int, computed: set[int], activation: str = "NONE", *,
    bias: bool = True, keep: bool = False, x_is_constant: bool = False,
) -> Case:  # fmt: skip
    """FULLY_CONNECTED whose inputs at the positions `computed` are no constants."""
    case = dense(name, x, out, depth, activation, bias=bias, keep=keep)
    inputs = [
        replace(tensor, data=None) if i in computed and tensor else tensor for i, tensor in enumerate(case.inputs)
    ]
    if x_is_constant:
        inputs[0] = constant(named_rng(name).normal(0.0, 1.0, x))
    return with_values(replace(case, inputs=tuple(inputs)))


CASES = [
    *(dense(f"dense_{a}", (3, 9), 5, 9, a) for a in ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")),
    dense("dense_one", (1, 1), 1, 1),
    dense("dense_without_bias", (2, 8), 3, 8, bias=False),
    dense("dense_keep", (2, 3, 4), 5, 4, keep=True),
    dense("dense_rows_span_dimensions", (2, 3, 4), 5, 12),
    *(
        with_values(Case(f"softmax_{len(shape)}", "SOFTMAX", (plain(shape),), (plain(shape),), {"beta": 1.0}, 1))
        for shape in ((7,), (3, 10), (2, 2, 5))
    ),
    *(
        with_values(Case(f"softmax_of_{beta}", "SOFTMAX", (plain((3, 10)),), (plain((3, 10)),), {"beta": beta}, 1))
        for beta in (0.5, 0.0, 2.0, -0.1)
    ),
    dense_computed("computed_weights", (3, 9), 5, 9, {1}),
    dense_computed("computed_bias", (3, 9), 5, 9, {2}, "RELU"),
    dense_computed("all_computed", (2, 3, 4), 5, 4, {1, 2}, "RELU_N1_TO_1", keep=True),
    dense_computed("computed_weights_without_bias", (2, 8), 3, 8, {1}, bias=False),
    dense_computed("weights_alone_computed", (2, 8), 3, 8, {0, 1}, x_is_constant=True),
    with_values(lstm_float("lstm", 1, 5, 6, 4)),
    with_values(lstm_float("lstm_batches", 3, 4, 5, 3)),
    with_values(lstm_float("lstm_time_major", 2, 4, 5, 3, time_major=True)),
    with_values(lstm_float("lstm_clip", 1, 9, 5, 4, clip=0.4)),
    with_values(lstm_float("lstm_saturated", 1, 6, 5, 4, spread=8.0)),
    with_values(lstm_float("lstm_one", 1, 1, 1, 1)),
]


@pytest.fixture(scope="module")
def proven() -> Proven:
    """Every case, run three ways over six inputs."""
    return prove(CASES, samples=6)


@pytest.mark.parametrize("name", [case.id for case in CASES])
def test_reference_and_c_are_within_the_tolerance_of_the_engine(proven: Proven, name: str) -> None:
    outcome = proven.outcomes[name]
    for golden, reference, found in zip(outcome.golden, outcome.reference, outcome.compiled, strict=True):
        expected = golden[0].reshape(found[0].shape)
        assert compared(found[0], expected, TOLERANT).differing == 0
        assert compared(reference[0], expected, TOLERANT).differing == 0


def test_no_memory_error(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_the_cell_state_is_clipped(proven: Proven) -> None:
    values = np.concatenate([outputs[0].reshape(-1) for outputs in proven.outcomes["lstm_clip"].compiled])
    assert np.abs(values).max() <= np.tanh(np.float32(0.4)) * 1.000001


def test_refuses_a_bias_of_another_length() -> None:
    case = dense("layer", (2, 8), 3, 8)
    wrong = replace(case, inputs=(*case.inputs[:2], constant(np.zeros(4))))
    assert message(wrong).startswith("2\nerror: FULLY_CONNECTED has a bias of the wrong length\n")


def test_refuses_computed_weights_that_do_not_fit() -> None:
    case = dense_computed("layer", (2, 8), 3, 8, {1})
    assert message(with_input(case, 1, shape=(3, 7))).startswith(
        "2\nerror: FULLY_CONNECTED has an input that does not fit its weights\n"
    )
    wrong = replace(case, inputs=(*case.inputs[:2], constant(np.zeros(4))))
    assert message(wrong).startswith("2\nerror: FULLY_CONNECTED has a bias of the wrong length\n")
