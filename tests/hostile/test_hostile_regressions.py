"""What the campaign found once, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.compiler import compile_model
from emitc.emit.literals import elements
from emitc.errors import EmitcError
from emitc.verify.verification import verify
from emitc.writers.tflite import write_tflite
from tests.support.hostile.models import int8, int32, model


@pytest.mark.parametrize("scale", [7.9, 15.99999, 16.0, 20.0, 31.9, 32.0, 1e6, 3e38])
def test_softmax_of_a_scale_without_a_multiplier(scale: float, tmp_path: Path) -> None:
    """The factor has no Q31 multiplier from scale 16 on; TFLite takes the largest one, and so does the C."""
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    out = int8(1, 10, scale=1 / 256, zero_point=-128)
    spec = model((int8(1, 10, scale=scale),), [("SOFTMAX", (0,), (out,), {"beta": 1.0})])
    (tmp_path / "m.tflite").write_bytes(write_tflite(spec))
    assert verify(compile_model(tmp_path / "m.tflite"), reference="tflm", samples=10).match


@pytest.mark.parametrize("c_type", ["int8_t", "int32_t", "float"])
def test_long_tables_keep_their_lines(c_type: str) -> None:
    lines = elements(tuple(range(-50, 51)), c_type).splitlines()
    assert [float(v.rstrip("f")) for line in lines for v in line.strip().rstrip(",").split(", ")] == list(
        range(-50, 51)
    )
    assert all(line.startswith("    ") and line.endswith(",") for line in lines)


def test_a_small_file_cannot_ask_for_any_amount_of_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each resize prints a table of row and column indices; four thousand of them took over a gigabyte."""
    resize = ("RESIZE_NEAREST_NEIGHBOR", (0, int32(1, 2048)), (int8(1, 1, 2048, 1),), {})
    spec = model((int8(1, 1, 1, 1),), [resize])
    (tmp_path / "m.tflite").write_bytes(write_tflite(spec))
    compile_model(tmp_path / "m.tflite")
    monkeypatch.setattr("emitc.lower.layers.MAX_ADDED_BYTES", 4000)
    with pytest.raises(EmitcError, match="tables of the model's operators are too large") as refused:
        compile_model(tmp_path / "m.tflite")
    assert refused.value.exit_code == 2
    assert "op 0 RESIZE_NEAREST_NEIGHBOR" in str(refused.value)
