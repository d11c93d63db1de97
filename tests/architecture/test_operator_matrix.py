"""`emitc ops`: operator by element type by variant, from the registry and the backends."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emitc.backends import registry as backends
from emitc.backends.contract import BackendDef, Coverage
from emitc.ir import DType
from emitc.kernels import onnx_registry, registry, tflite_registry
from emitc.kernels.contract import Variant
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.costs import UNKNOWN_PAIRS
from emitc.kernels.elementwise.arithmetic import Add
from emitc.plugins import Plugins
from emitc.report import catalogue, inspection

LEAKY = Path(__file__).resolve().parents[2] / "examples" / "custom_operator" / "leaky_integrator.py"


def row(op: str, source_format: str = "tflite", plugins: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The operator's row."""
    (found,) = (
        o for o in inspection.operator_list(plugins)["operators"] if (o["op"], o["format"]) == (op, source_format)
    )
    return found


def cells(op: str, source_format: str = "tflite") -> dict[str, list[str]]:
    """Variants by element type."""
    return {cell["dtype"]: cell["variants"] for cell in row(op, source_format)["matrix"]}


def test_every_operator_of_the_registry_has_a_row() -> None:
    named = {o["op"] for o in inspection.operator_list()["operators"] if o["format"] == "tflite"}
    assert set(tflite_registry()) - named <= inspection.INTERNAL_KINDS | {"CUSTOM:ethos-u"}


def test_a_row_says_which_variant_has_code_for_which_type() -> None:
    found = cells("CONV_2D")
    assert {"portable", "cmsis-nn", "ethos-u"} <= set(found["int8"])
    assert "ethos-u" not in found["int16"]
    assert {"portable", "cmsis-nn"} <= set(found["int4"])
    assert found["float32"] == ["portable", "fpu", "mve"]
    assert "cmsis-nn" not in cells("Conv", "onnx")["int8"]
    assert row("RESHAPE")["variants"] == ["none"]
    assert row("VAR_HANDLE") == {**row("VAR_HANDLE"), "variants": ["none"], "matrix": []}
    assert "int4" not in cells("TRANSPOSE")


def test_the_text_is_the_matrix() -> None:
    content = inspection.operator_list()
    conv = next(o for o in content["operators"] if o["op"] == "CONV_2D")
    assert catalogue.types_of(conv, ["cmsis-nn"]) == "int8 int16 int4"
    assert catalogue.types_of(conv, ["ethos-u"]) == "int8"
    transpose = next(o for o in content["operators"] if o["op"] == "TRANSPOSE")
    assert catalogue.types_of(transpose, ["portable"]) == "any"
    assert catalogue.types_of(transpose, ["cmsis-nn"]) == "-"
    assert catalogue.types_of(conv, ["ethos-u", "cmsis-nn"]) == "int8 int16 int4"
    head = catalogue.ops_text(content).splitlines()[0].split()
    assert head == ["operator", "format", *(column["name"] for column in content["columns"]), "what"]


def test_variants_of_one_feature_share_a_column() -> None:
    content = inspection.operator_list()
    columns = {column["name"]: column["variants"] for column in content["columns"]}
    assert {"dsp", "dsp-2px"} <= set(columns["dsp"])
    assert sorted(name for of_it in columns.values() for name in of_it) == sorted(content["variants"])
    line = next(line for line in catalogue.ops_text(content).splitlines() if line.startswith("CONV_2D "))
    printed = re.split(r"  +", line)  # those that are too long go on in the next line
    assert printed[:2] == ["CONV_2D", "tflite"]
    assert [each.split()[0] for each in printed[3:5]] == ["int8", "float32"]


def test_another_backend_is_another_column(monkeypatch: pytest.MonkeyPatch) -> None:
    more = BackendDef("other", "for tests", lambda settings: None, True, lambda: (Coverage(Add, (DType.INT8,)),))
    monkeypatch.setattr(inspection, "backends", lambda: {**backends(), "other": more})
    assert cells("ADD")["int8"][-1] == "other"
    assert "other" not in cells("ADD")["int16"]
    assert inspection.operator_list()["variants"][-1] == "other"


def test_further_variants_of_a_kernel_are_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    made = (
        Variant("fast", "dsp", str, UNKNOWN_PAIRS),
        Variant("wide", "dsp", str, UNKNOWN_PAIRS),
        Variant("wide", "dsp", str, UNKNOWN_PAIRS, (DType.INT16,)),
    )
    known = {op: replace(k, variants=made if op is Conv2D else ()) for op, k in registry().items()}
    named = {name: known[kernel.op] for name, kernel in tflite_registry().items()}
    monkeypatch.setattr(inspection, "registry", lambda: known)
    monkeypatch.setattr(
        Plugins, "registry_of", lambda self, source_format: named if source_format == "tflite" else onnx_registry()
    )
    assert inspection.operator_list()["variants"] == ["portable", "fast", "wide", "cmsis-nn", "esp-nn", "ethos-u"]
    assert cells("CONV_2D")["int8"] == ["portable", "fast", "wide", "cmsis-nn", "esp-nn", "ethos-u"]
    assert cells("CONV_2D")["int16"] == ["portable", "wide", "cmsis-nn"]
    assert cells("ADD")["int8"] == ["portable", "cmsis-nn", "esp-nn", "ethos-u"]


def test_what_a_backend_covers_has_code_in_the_registry() -> None:
    ops = {kernel.op for kernel in tflite_registry().values()}
    covered = {coverage.op for backend in backends().values() for coverage in backend.covers()}
    assert covered
    assert covered <= ops


def test_a_plugin_has_a_row() -> None:
    found = row("CUSTOM:LeakyIntegrator", plugins=(LEAKY,))
    assert found["matrix"] == [{"dtype": "int8", "variants": ["portable"]}]
    with pytest.raises(ValueError, match="not enough values"):
        row("CUSTOM:LeakyIntegrator")
