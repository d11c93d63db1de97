"""DynamicQuantizeLSTM against onnxruntime.

Both have the same bits except for peepholes, which the engine adds before the bias. There a state that differs in its last bits
may be quantized to a neighbouring step, and from then on the two sequences differ by more than the tolerance; the cases here are
too few to meet it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.ir import Array
from emitc.verify.verification import verify
from tests.support.onnx_op import MICROSOFT, Computed, OnnxCase, computed, model_of, prove_onnx

MODELS = Path(__file__).resolve().parents[4] / "shared" / "models" / "onnx"
OUTPUTS = ("y", "y_h", "y_c")
TOLERANCE = 1e-5
"""Of the reference, which has exp and tanh in double, and of a few sums in float32."""
STEPS, BATCHES, INPUTS, UNITS = 5, 3, 7, 6


def dynamic_lstm(
    name: str,
    dtype: str = "int8",
    *,
    zeros: tuple[int, int] = (0, 0),
    per_row: str = "",
    optional: str = "b",
    is_computed: str = "",
    outputs: tuple[str, ...] = OUTPUTS,
    sizes: tuple[int, int, int, int] = (STEPS, BATCHES, INPUTS, UNITS),
    changed: dict[str, Array | Computed | None] | None = None,
    **attributes: object,
) -> OnnxCase:
    """per_row: which weights (w, r) have a scale for each row. optional: of b, h, c, p. is_computed: of these. zeros: of w, r.

    changed: inputs that are other than that.
    """
    steps, batches, inputs, units = sizes
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    rng = np.random.default_rng(list(name.encode()))
    info = np.iinfo(dtype)
    shapes = {
        "b": (directions, 8 * units),
        "h": (directions, batches, units),
        "c": (directions, batches, units),
        "p": (directions, 3 * units),
    }
    reals: dict[str, Array | Computed | None] = {
        role: None if role not in optional
        else computed(shape, low=-1.0, high=1.0) if role in is_computed
        else rng.normal(0, 0.5, shape).astype(np.float32)
        for role, shape in shapes.items()
    }  # fmt: skip
    given: dict[str, Array | Computed | None] = {"x": computed((steps, batches, inputs))}
    for role, depth in (("w", inputs), ("r", units)):
        given[role] = rng.integers(info.min, info.max, (directions, depth, 4 * units), dtype, endpoint=True)
    given |= {"b": reals["b"], "lengths": None, **{role: reals[role] for role in "hcp"}}
    for role, zero in zip("wr", zeros, strict=True):
        shape = (directions, 4 * units) if role in per_row else (directions,)
        given[f"{role}_scale"] = rng.uniform(0.003, 0.008, shape).astype(np.float32)
        given[f"{role}_zero"] = np.full(shape, zero, dtype)
    given |= changed or {}
    return OnnxCase(
        name, "DynamicQuantizeLSTM", given, {"hidden_size": units, **attributes}, domain=MICROSOFT, outputs=outputs
    )


CASES = [
    dynamic_lstm("int8"),
    dynamic_lstm("uint8", "uint8", zeros=(131, 120)),
    dynamic_lstm("per_row", per_row="wr"),
    dynamic_lstm("per_row_uint8", "uint8", zeros=(128, 3), per_row="wr"),
    dynamic_lstm("per_row_of_w", per_row="w"),
    dynamic_lstm("zero_points", zeros=(5, -9)),
    dynamic_lstm("reverse", direction="reverse"),
    dynamic_lstm("bidirectional", direction="bidirectional", optional="bhc"),
    dynamic_lstm("bidirectional_rows", "uint8", zeros=(90, 91), per_row="wr", direction="bidirectional"),
    dynamic_lstm(
        "zeros_by_direction", direction="bidirectional",
        changed={"w_zero": np.array([4, -3], np.int8), "r_zero": np.array([-20, 7], np.int8)},
    ),
    dynamic_lstm("weights_alone", optional=""),
    dynamic_lstm("peepholes", optional="bhcp", direction="bidirectional"),
    dynamic_lstm("computed", optional="bhcp", is_computed="bhcp"),
    dynamic_lstm("only_y", outputs=("y",)),
    dynamic_lstm("only_states", outputs=("", "y_h", "y_c"), direction="bidirectional"),
    dynamic_lstm("one_step", sizes=(1, 1, 1, 1)),
    dynamic_lstm("long", sizes=(20, 1, 3, 17)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("target", "variant"), [("generic32", "portable"), ("cortex-m4f", "dsp"), ("cortex-m55", "mve")]
)
def test_against_the_engine(target: str, variant: str) -> None:
    proven = prove_onnx(CASES, target=target)
    steps = [step for compiled in proven.compiled.values() for step in compiled.program.steps]
    assert {step.variant for step in steps if step.op_type == "DynamicQuantizeLSTM"} == {variant}
    proven.check(TOLERANCE, TOLERANCE)
    for name, outcome in proven.outcomes.items():
        if outcome.case.inputs["p"] is None:
            for golden, found in zip(outcome.golden, outcome.compiled, strict=True):
                assert [y.tolist() for y in golden] == [y.tolist() for y in found], name


def test_weights_are_bytes_in_rows() -> None:
    (compiled,) = prove_onnx([dynamic_lstm("bytes", "uint8", zeros=(128, 128))], samples=1).compiled.values()
    tables = {constant.name.split("lstm_", 1)[1]: constant.table for constant in compiled.program.steps[0].constants}
    assert (tables["w"].c_type, len(tables["w"].values)) == ("int8_t", 4 * UNITS * INPUTS)
    assert tables["zeros"].values == (0, 0)
    assert len(tables["bias"].values) == 4 * UNITS


def test_model() -> None:
    path = MODELS / "digits_lstm_dyn_u8.onnx"
    if not path.is_file():
        pytest.skip("the sibling folder of models is absent")
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    proof = verify(compile_model(path), samples=5)
    assert (proof.match, proof.tolerated) == (True, 0), proof.to_json()


ROWS = (1, 4 * UNITS)
WEIGHTS = (1, INPUTS, 4 * UNITS)


@pytest.mark.parametrize(
    ("changed", "code", "what"),
    [
        ({"w": computed(WEIGHTS, "int8")}, 1, "DynamicQuantizeLSTM with computed weights is not supported"),
        ({"r_scale": computed((1,))}, 1, "DynamicQuantizeLSTM with computed weights is not supported"),
        ({"r_zero": np.arange(4 * UNITS, dtype=np.int8).reshape(ROWS)}, 1,
         "DynamicQuantizeLSTM with zero points that differ within a direction is not supported"),
        ({"lengths": np.array([5, 4, 5], np.int32)}, 1,
         "DynamicQuantizeLSTM with sequences of different lengths is not supported"),
        ({"w": np.ones((1, 6, 4 * UNITS), np.int8)}, 2, f"DynamicQuantizeLSTM has an input {[1, 6, 4 * UNITS]}"),
        ({"w_scale": np.ones((2,), np.float32)}, 2, "DynamicQuantizeLSTM has an input [2]"),
        ({"w_zero": np.zeros((1,), np.uint8)}, 2, "DynamicQuantizeLSTM has an input of type uint8"),
        ({"r": np.ones((1, UNITS, 4 * UNITS), np.int16), "r_zero": np.zeros((1,), np.int16)}, 2,
         "DynamicQuantizeLSTM has an input of type int16"),
        ({"r_scale": None, "r_zero": None}, 2, "DynamicQuantizeLSTM has no input 10"),
    ],
)  # fmt: skip
def test_refused(changed: dict[str, Array | Computed | None], code: int, what: str, tmp_path: Path) -> None:
    model = model_of([dynamic_lstm("refused", changed=changed)], engine=False)
    for output in model.graph.output:  # typed by hand, where nothing infers them
        output.CopyFrom(helper.make_tensor_value_info(output.name, onnx.TensorProto.FLOAT, None))
    path = tmp_path / "refused.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(EmitcError) as error:
        compile_model(path)
    assert (error.value.exit_code, error.value.what) == (code, what)
