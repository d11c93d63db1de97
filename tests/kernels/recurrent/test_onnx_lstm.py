"""LSTM against onnxruntime: directions, optional inputs and outputs, layouts, refusals, and a whole model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.ir import Array
from emitc.verify.verification import verify
from tests.support.onnx_frozen import frozen
from tests.support.onnx_node_cases import check_node_tests, node_tests
from tests.support.onnx_op import Computed, Draw, OnnxCase, computed, prove_onnx, refusal

MODELS = Path(__file__).resolve().parents[4] / "shared" / "models" / "onnx"
OUTPUTS = ("y", "y_h", "y_c")
TOLERANCE = 1e-5
"""Of sums, exp and tanh in float32; the steps feed on each other, but no gate magnifies what it gets by much."""
STEPS, BATCHES, INPUTS, UNITS = 5, 3, 7, 6


def weights(name: str, shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(list(name.encode())).normal(0, 0.5, shape).astype(np.float32)


def lstm(
    name: str,
    *,
    optional: str = "b",
    outputs: tuple[str, ...] = OUTPUTS,
    sizes: tuple[int, int, int, int] = (STEPS, BATCHES, INPUTS, UNITS),
    is_computed: str = "",
    lengths: Array | Computed | None = None,
    **attributes: object,
) -> OnnxCase:
    """optional: those that are there, of b (bias), h and c (initial states), p (peepholes). is_computed: of these and w, r."""
    steps, batches, inputs, units = sizes
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    batch_first = attributes.get("layout") == 1
    state = (batches, directions, units) if batch_first else (directions, batches, units)
    shapes = {
        "w": (directions, 4 * units, inputs),
        "r": (directions, 4 * units, units),
        "b": (directions, 8 * units),
        "h": state,
        "c": state,
        "p": (directions, 3 * units),
    }
    given: dict[str, Array | Computed | None] = {
        role: None if role not in "wr" + optional
        else computed(shape, low=-1.0, high=1.0) if role in is_computed
        else weights(name + role, shape)
        for role, shape in shapes.items()
    }  # fmt: skip
    x = computed((batches, steps, inputs) if batch_first else (steps, batches, inputs))
    ordered = {
        "x": x,
        **{role: given[role] for role in "wrb"},
        "lengths": lengths,
        **{role: given[role] for role in "hcp"},
    }
    return OnnxCase(name, "LSTM", ordered, {"hidden_size": units, **attributes}, outputs=outputs)


def drawing(values: Mapping[str, Array]) -> Draw:
    return lambda rng, sample: values


CASES = [
    lstm("forward"),
    lstm("reverse", direction="reverse"),
    lstm("bidirectional", direction="bidirectional"),
    lstm("weights_alone", optional=""),
    lstm("initial_states", optional="bhc"),
    lstm("initial_h", optional="h"),
    lstm("initial_c", optional="c", direction="reverse"),
    lstm("peepholes", optional="bp"),
    lstm("everything", optional="bhcp", direction="bidirectional"),
    lstm("everything_computed", optional="bhcp", is_computed="wrbhcp", direction="bidirectional"),
    lstm("computed_states", optional="bhc", is_computed="hc"),
    lstm("computed_bias", is_computed="b"),
    lstm("only_y", outputs=("y",)),
    lstm("only_y_h", outputs=("", "y_h")),
    lstm("only_y_c", outputs=("", "", "y_c"), direction="bidirectional"),
    lstm("without_y_h", outputs=("y", "", "y_c")),
    lstm("one_step", sizes=(1, 1, 1, 1)),
    lstm("long", sizes=(40, 1, 3, 17)),
    lstm("full_lengths", lengths=np.full(BATCHES, STEPS, np.int32)),
    lstm("named_activations", direction="bidirectional", activations=["sigmoid", "Tanh", "TANH"] * 2),
]
BATCH_FIRST = [
    lstm("batch_first", layout=1),
    lstm("batch_first_everything", optional="bhcp", layout=1, direction="bidirectional"),
    lstm("batch_first_reverse", optional="bhc", is_computed="hc", layout=1, direction="reverse"),
]


def test_against_the_engine() -> None:
    proven = prove_onnx(CASES)
    proven.check(TOLERANCE, TOLERANCE)


def test_batch_first_is_the_other_layout_turned() -> None:
    """onnxruntime has no code for this layout, so that the other one is the measure."""
    for outcome in (proven := prove_onnx(BATCH_FIRST, engine=False)).outcomes.values():
        outcome.check(TOLERANCE, TOLERANCE)
        case = outcome.case
        turned: dict[str, Array | Computed | None] = {}
        for role, value in case.inputs.items():
            if role in "xhc" and isinstance(value, Computed):
                turned[role] = computed((value.shape[1], value.shape[0], value.shape[2]))
            elif role in "hc" and isinstance(value, np.ndarray):
                turned[role] = value.swapaxes(0, 1)
            else:
                turned[role] = value
        sample = {name: value.swapaxes(0, 1) for name, value in outcome.inputs[0].items()}
        attributes = {name: value for name, value in case.attributes.items() if name != "layout"}
        other = OnnxCase(case.id, "LSTM", turned, attributes, outputs=case.outputs, draw=drawing(sample))
        (expected,) = prove_onnx([other], samples=1, sanitize=False).outcomes[case.id].golden
        order = {"y": (2, 0, 1, 3), "y_h": (1, 0, 2), "y_c": (1, 0, 2)}
        for name, found, value in zip(case.outputs, outcome.compiled[0], expected, strict=True):
            np.testing.assert_allclose(found, value.transpose(order[name]), TOLERANCE, TOLERANCE)
    assert proven.memory_errors == ()


def test_constant_biases_are_added_up_and_states_of_zeros_left_out() -> None:
    zeros = np.zeros((1, BATCHES, UNITS), np.float32)
    case = lstm("small", optional="bhc")
    case = OnnxCase("small", "LSTM", {**case.inputs, "h": zeros, "c": zeros}, case.attributes, outputs=OUTPUTS)
    proven = prove_onnx([case])
    proven.check(TOLERANCE, TOLERANCE)
    (compiled,) = proven.compiled.values()
    tables = {constant.name.rsplit("_", 1)[1]: constant.table for constant in compiled.program.steps[0].constants}
    assert {name: len(table.values) for name, table in tables.items()} == {
        "w": 4 * UNITS * INPUTS,
        "r": 4 * UNITS * UNITS,
        "bias": 4 * UNITS,
    }


def test_saturated_gates() -> None:
    """Sums beyond what exp takes end in 0 and 1."""
    case = lstm("saturated", sizes=(4, 2, 3, 4))
    big = {role: np.asarray(value) * np.float32(200) for role, value in case.inputs.items() if role in "wrb"}
    prove_onnx([OnnxCase("saturated", "LSTM", {**case.inputs, **big}, case.attributes, outputs=OUTPUTS)]).check(
        TOLERANCE, TOLERANCE
    )


def test_node_tests() -> None:
    tests = node_tests("LSTM")
    assert len(tests) == 6
    check_node_tests(frozen(tests))
    check_node_tests([test for test in tests if "sequence_lens" not in test.case.inputs])


@pytest.mark.parametrize("name", ["digits_lstm_qdq_s8s8_pc", "float/digits_lstm"])
def test_model(name: str) -> None:
    path = MODELS / f"{name}.onnx"
    if not path.is_file():
        pytest.skip("the sibling folder of models is absent")
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    proof = verify(compile_model(path), samples=5)
    assert proof.match, proof.to_json()


# ---- refusals ----


@pytest.mark.parametrize(
    ("case", "code", "what"),
    [
        (lstm("relu", activations=["Sigmoid", "Relu", "Tanh"]), 1,
         "LSTM with activations sigmoid, relu, tanh is not supported"),
        (lstm("clipped", clip=3.0), 1, "LSTM with a clip is not supported"),
        (lstm("coupled", input_forget=1), 1, "LSTM with coupled input and forget gates is not supported"),
        (lstm("short", lengths=np.array([5, 4, 5], np.int32)), 1,
         "LSTM with sequences of different lengths is not supported"),
        (lstm("lengths", lengths=computed((3,), "int32", 1, 5)), 1,
         "LSTM takes its sequence lengths from a computed tensor"),
        (lstm("units", hidden_size=9), 2, "LSTM has hidden_size 9"),
    ],
    ids=lambda value: value.id if isinstance(value, OnnxCase) else "",
)  # fmt: skip
def test_refused_settings(case: OnnxCase, code: int, what: str) -> None:
    error = refusal(case)
    assert (error.exit_code, error.what) == (code, what)


@pytest.mark.parametrize(
    ("role", "shape"),
    [("w", (1, 24, 6)), ("r", (1, 23, 6)), ("b", (1, 24)), ("h", (1, 2, 6)), ("c", (3, 1, 6)), ("p", (1, 24))],
)
def test_refused_shapes(role: str, shape: tuple[int, ...]) -> None:
    case = lstm("shapes", optional="bhcp")
    wrong = OnnxCase(
        "shapes", "LSTM", {**case.inputs, role: np.ones(shape, np.float32)}, case.attributes, outputs=OUTPUTS
    )
    error = refusal(wrong)
    assert (error.exit_code, error.what) == (2, f"LSTM has an input {list(shape)}")


def test_refused_types() -> None:
    case = lstm("double", is_computed="wr", optional="")
    doubles = {
        role: computed(spec.shape, "float64") if isinstance(spec, Computed) else spec
        for role, spec in case.inputs.items()
    }
    error = refusal(OnnxCase("double", "LSTM", doubles, case.attributes, outputs=OUTPUTS))
    assert error.exit_code == 1
    assert error.what.startswith("LSTM with element types (float64, float64")
