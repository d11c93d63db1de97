"""GRU against onnxruntime: both places of the reset gate, directions, optional inputs and outputs, layouts, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from emitc.ir import Array
from tests.support.onnx_frozen import frozen
from tests.support.onnx_node_cases import check_node_tests, node_tests
from tests.support.onnx_op import Computed, OnnxCase, computed, prove_onnx, refusal

OUTPUTS = ("y", "y_h")
TOLERANCE = 1e-5
"""Of sums, exp and tanh in float32."""
STEPS, BATCHES, INPUTS, UNITS = 5, 3, 7, 6


def weights(name: str, shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(list(name.encode())).normal(0, 0.5, shape).astype(np.float32)


def gru(
    name: str,
    *,
    optional: str = "b",
    outputs: tuple[str, ...] = OUTPUTS,
    sizes: tuple[int, int, int, int] = (STEPS, BATCHES, INPUTS, UNITS),
    is_computed: str = "",
    lengths: Array | Computed | None = None,
    **attributes: object,
) -> OnnxCase:
    """optional: those that are there, of b (bias) and h (initial state). is_computed: of these and w, r."""
    steps, batches, inputs, units = sizes
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    batch_first = attributes.get("layout") == 1
    shapes = {
        "w": (directions, 3 * units, inputs),
        "r": (directions, 3 * units, units),
        "b": (directions, 6 * units),
        "h": (batches, directions, units) if batch_first else (directions, batches, units),
    }
    given: dict[str, Array | Computed | None] = {
        role: None if role not in "wr" + optional
        else computed(shape, low=-1.0, high=1.0) if role in is_computed
        else weights(name + role, shape)
        for role, shape in shapes.items()
    }  # fmt: skip
    x = computed((batches, steps, inputs) if batch_first else (steps, batches, inputs))
    ordered = {"x": x, **{role: given[role] for role in "wrb"}, "lengths": lengths, "h": given["h"]}
    return OnnxCase(name, "GRU", ordered, {"hidden_size": units, **attributes}, outputs=outputs)


CASES = [
    case
    for reset in (0, 1)
    for case in (
        gru(f"forward{reset}", linear_before_reset=reset),
        gru(f"reverse{reset}", linear_before_reset=reset, direction="reverse", optional="bh"),
        gru(f"bidirectional{reset}", linear_before_reset=reset, direction="bidirectional", optional="bh"),
        gru(f"weights_alone{reset}", linear_before_reset=reset, optional=""),
        gru(f"state{reset}", linear_before_reset=reset, optional="h"),
        gru(
            f"computed{reset}", linear_before_reset=reset, optional="bh", is_computed="wrbh", direction="bidirectional"
        ),
        gru(f"only_y{reset}", linear_before_reset=reset, outputs=("y",)),
        gru(f"only_y_h{reset}", linear_before_reset=reset, outputs=("", "y_h")),
        gru(f"one_step{reset}", linear_before_reset=reset, sizes=(1, 1, 1, 1)),
        gru(f"full_lengths{reset}", linear_before_reset=reset, lengths=np.full(BATCHES, STEPS, np.int32)),
        gru(f"named{reset}", linear_before_reset=reset, activations=["Sigmoid", "Tanh"]),
    )
]
BATCH_FIRST = [
    gru("batch_first", layout=1),
    gru("batch_first_both", optional="bh", layout=1, direction="bidirectional"),
]


def test_against_the_engine() -> None:
    prove_onnx(CASES).check(TOLERANCE, TOLERANCE)


def test_batch_first() -> None:
    """onnxruntime has no code for this layout; a node test has, of one direction."""
    prove_onnx(BATCH_FIRST, engine=False).check(TOLERANCE, TOLERANCE)


def test_biases_are_added_up_where_they_may_be() -> None:
    for reset, count in ((0, 3 * UNITS), (1, 4 * UNITS)):
        (compiled,) = prove_onnx([gru("bias", linear_before_reset=reset)], samples=1, sanitize=False).compiled.values()
        (bias,) = (c.table for c in compiled.program.steps[0].constants if c.name.endswith("_bias"))
        assert len(bias.values) == count


def test_node_tests() -> None:
    tests = node_tests("GRU")
    assert len(tests) == 6
    check_node_tests(tests)
    check_node_tests(frozen(tests))


@pytest.mark.parametrize(
    ("case", "code", "what"),
    [
        (gru("relu", activations=["Sigmoid", "Relu"]), 1, "GRU with activations sigmoid, relu is not supported"),
        (gru("clipped", clip=3.0), 1, "GRU with a clip is not supported"),
        (
            gru("short", lengths=np.array([5, 4, 5], np.int32)),
            1,
            "GRU with sequences of different lengths is not supported",
        ),
        (
            gru("lengths", lengths=computed((3,), "int32", 1, 5)),
            1,
            "GRU takes its sequence lengths from a computed tensor",
        ),
        (gru("units", hidden_size=9), 2, "GRU has hidden_size 9"),
    ],
    ids=lambda value: value.id if isinstance(value, OnnxCase) else "",
)
def test_refused_settings(case: OnnxCase, code: int, what: str) -> None:
    error = refusal(case)
    assert (error.exit_code, error.what) == (code, what)


@pytest.mark.parametrize(("role", "shape"), [("w", (1, 24, 7)), ("r", (1, 17, 6)), ("b", (1, 18)), ("h", (1, 2, 6))])
def test_refused_shapes(role: str, shape: tuple[int, ...]) -> None:
    case = gru("shapes", optional="bh")
    wrong = OnnxCase(
        "shapes", "GRU", {**case.inputs, role: np.ones(shape, np.float32)}, case.attributes, outputs=OUTPUTS
    )
    error = refusal(wrong)
    assert (error.exit_code, error.what) == (2, f"GRU has an input {list(shape)}")
