"""Packages whose weights are a file of their own that the model gets when it starts (`--weights external`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.options import WEIGHTS
from emitc.planner.region_assignment import Region
from emitc.program.weights import ExternalWeights, Member
from emitc.verify.verification import verify
from emitc.writers.tflite import TensorSpec, write_tflite
from tests.support.models import control_flow
from tests.support.models.tiny import Net

STAGED = {
    "regions": (Region("DTCM", 24 << 10, 1.0), Region("SRAM", 64 << 10, 3.0), Region("QSPI", 0, 9.0)),
    "places": (("weights", "QSPI"),),
    "stage_weights": "DTCM",
}
TYPES = {"multiplier": "int32_t", "right": "int8_t"}
MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"


def external(model: str, **options: object) -> Compiled:
    """A shipped model with external weights."""
    return compile_model(MODELS / model, weights="external", **options)


@pytest.mark.parametrize("target", ["generic32", "cortex-m0", "cortex-m4f", "cortex-m55", "rv32imac"])
def test_the_kernels_of_each_core_read_the_weights_from_the_file(target: str) -> None:
    assert verify(external("kws_ref_int8.tflite", target=target), samples=2).match


@pytest.mark.parametrize(
    ("model", "target"), [("digits_qdq.onnx", "cortex-m4f"), ("mww_hey_jarvis_v2.tflite", "cortex-m55")]
)
def test_onnx_and_models_with_state_match_under_the_sanitizers(model: str, target: str) -> None:
    made = external(model, target=target)
    assert verify(made, samples=2, sanitize=True).match
    assert made.program.constant_bytes < len(made.files[f"{made.program.name}.weights.bin"]) / 10


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("kws_ref_int8.tflite", {"target": "rv32imac", "max_step_cycles": 20_000}),
        ("mww_hey_jarvis_v2.tflite", {"target": "cortex-m55", "max_step_cycles": 2_000}),
        ("kws_ref_int8.tflite", {"target": "cortex-m7", "max_step_cycles": 20_000, **STAGED}),
    ],
    ids=["parts", "state", "staged"],
)
def test_an_inference_in_steps_reads_them_too(model: str, more: dict[str, Any]) -> None:
    """The host runs each case in steps and whole, and refuses a difference."""
    made = external(model, **more)
    assert made.program.stepping is not None
    assert verify(made, samples=2).match


@pytest.mark.parametrize("name", ["layers", "loop_if"])
def test_graphs_inside_of_operators_read_them_too(name: str, tmp_path: Path) -> None:
    made = control_flow.compiled(getattr(control_flow, name)(), tmp_path, weights="external")
    assert verify(made, samples=2).match


def test_a_model_without_weights_has_a_file_too(tmp_path: Path) -> None:
    net = Net()
    x, y = (net.tensor(TensorSpec(name, "float32", (1, 4))) for name in "xy")
    net.op("RELU", (x,), (y,))
    (tmp_path / "relu.tflite").write_bytes(write_tflite(net.spec((x,), (y,))))
    made = compile_model(tmp_path / "relu.tflite", weights="external")
    assert made.program.external is not None
    assert [member.name for member in made.program.external.members] == ["nothing"]
    assert verify(made, samples=2).match


def test_a_structure_of_numbers_begins_and_ends_at_its_widest_member() -> None:
    """As C lays it out: an array of bytes after it does not lie in its last word."""
    numbers = [Member(f"op_numbers.{name}", c_type, (1,), 1, "", struct="numbers") for name, c_type in TYPES.items()]
    members = (Member("bytes", "int8_t", (1,), 1, ""), *numbers, Member("more", "int8_t", (1,), 1, ""))
    assert ExternalWeights("w", members).offsets == (0, 4, 8, 12)


def test_a_self_test_without_a_constant_in_the_code(tmp_path: Path) -> None:
    net = Net()
    x, y = net.activation("x", (1, 64), 0.05, 3), net.activation("y", (1, 64), 0.07, 1)
    net.op("QUANTIZE", (x,), (y,))
    (tmp_path / "quantize.tflite").write_bytes(write_tflite(net.spec((x,), (y,))))
    made = compile_model(tmp_path / "quantize.tflite", weights="external", self_test=1)
    assert b"SELF_TEST_CHECKS" in made.files["quantize.c"]
    assert b"self_test_constants" not in made.files["quantize.c"]
    assert verify(made, samples=1).match


def test_without_the_option_nothing_of_it_is_in_the_package() -> None:
    files = compile_model(MODELS / "kws_ref_int8.tflite").files
    assert not any("weights" in name for name in files)
    assert b"blob" not in files["kws_ref_int8.c"]
    assert b"emitc_weights" not in files["kws_ref_int8.h"]


@pytest.mark.parametrize(
    "more",
    [
        {"split_weights": True},
        {"package": "zig"},
    ],
    ids=lambda more: next(iter(more)),
)
def test_it_excludes_what_needs_the_weights_in_the_source(more: dict[str, Any]) -> None:
    with pytest.raises(EmitcError, match="exclude each other"):
        compile_model(MODELS / "digits_int8.tflite", weights="external", **more)


def test_a_package_with_an_example_has_none_of_external_weights() -> None:
    made = {
        name: compile_model(MODELS / "digits_int8.tflite", package="platformio", weights=name).files for name in WEIGHTS
    }
    assert any(path.startswith("examples/") for path in made["built-in"])
    assert not any(path.startswith("examples/") for path in made["external"])
