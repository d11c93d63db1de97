"""What a model contains and what emitc has code for: the content of `emitc inspect` and `ops`."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emitc.backends import registry as backends
from emitc.backends.contract import PORTABLE
from emitc.errors import EmitcError, unknown_choice
from emitc.frontends.build import survey
from emitc.frontends.labels import labels_of_model
from emitc.frontends.node_report import NodeReport
from emitc.frontends.onnx.quantization import INTERNAL_KINDS, QUANTIZED_OPERATORS
from emitc.frontends.read import read_file, read_source
from emitc.frontends.tflite.constants import DECODED
from emitc.frontends.tflite.npu import OPERATOR as NPU_OPERATOR
from emitc.frontends.tflite.state import FOLDED
from emitc.ir import DType, Shape
from emitc.kernels import registry
from emitc.kernels.contract import KernelDef
from emitc.plugins import load_plugins
from emitc.program.members import members
from emitc.source import SourceTensor
from emitc.target import FEATURES

_BYTES = (DType.INT8, DType.UINT8)
_INTEGERS = (*_BYTES, DType.INT16, DType.UINT16, DType.INT32)
_PLACE = re.compile(r'op (?P<index>\d+) (?P<type>.+?) "(?P<name>.*)"', re.DOTALL)
"""Where an error says an operator is, as `SourceNode.where` writes it; the name of a custom operator may have spaces."""


def _tensor(tensor: SourceTensor) -> dict[str, Any]:
    q = tensor.quantization
    stated = members(q, "scale zero_point") if q else {"scale": None, "zero_point": None}
    return members(tensor, "name dtype shape") | stated


def _place(error: EmitcError) -> tuple[int, str, str] | None:
    """Index, type and name of the operator that an error speaks of."""
    match = _PLACE.fullmatch(error.where.op)
    return None if match is None else (int(match["index"]), match["type"], match["name"])


def _inside(report: NodeReport) -> list[dict[str, Any]]:
    """What stands against operators in the graphs that an operator runs, as operators of their own."""
    refusals: dict[tuple[int, str, str], list[EmitcError]] = {}
    own = f'op {report.index} {report.op_type} "{report.name}"'
    for error in report.errors:
        place = _place(error)
        if place is not None and error.where.op != own:
            refusals.setdefault(place, []).append(error)
    return [_operator_row(NodeReport(*place, tuple(errors))) for place, errors in refusals.items()]


def _operator_row(report: NodeReport) -> dict[str, Any]:
    return {
        **members(report, "index op=op_type name supported"),
        "reason": "; ".join(f"{e.what}: {e.why}" for e in report.errors),
        "hint": "; ".join(e.hint for e in report.errors),
        "codes": sorted({e.code.number for e in report.errors}),
    }


def _rows(blockers: Sequence[EmitcError], reports: Sequence[NodeReport]) -> tuple[list[EmitcError], list[NodeReport]]:
    """What stands against the model as a whole, and its operators: one that could not even be typed among them."""
    known = {(report.index, report.op_type, report.name) for report in reports}  # what frontends insert has indices too
    rest: list[EmitcError] = []
    untyped: dict[tuple[int, str, str], NodeReport] = {}
    for error in blockers:
        place = _place(error)
        if place is None or place in known:
            rest.append(error)
            continue
        earlier = untyped[place].errors if place in untyped else ()
        untyped[place] = NodeReport(*place, (*earlier, error))
    return rest, sorted((*reports, *untyped.values()), key=lambda report: report.index)


def inspect_model(path: Path, shapes: dict[str, Shape], plugins: Sequence[Path] = ()) -> dict[str, Any]:
    """The model's interface and operators, each with every reason against compiling it.

    Raises EmitcError when the file itself is refused.
    """
    data = read_file(path)
    loaded = load_plugins(plugins)
    source = read_source(path, data, shapes, loaded.custom("onnx"))
    blockers, reports = _rows(*survey(source, loaded.registry_of(source.format)))
    operators = [{**_operator_row(report), "inside": _inside(report)} for report in reports]
    return {
        "model": path.name,
        "format": source.format,
        "producer": source.producer,
        "sha256": source.sha256,
        "inputs": [_tensor(source.tensors[i]) for i in source.inputs],
        "outputs": [_tensor(source.tensors[i]) for i in source.outputs],
        "labels": {name: len(lines) for name, lines in labels_of_model(data).items()},
        "operators": operators,
        "blockers": [f"{e.what}: {e.why}" for e in blockers],
        "blocker_hints": [e.hint for e in blockers],
        "blocker_codes": [e.code.number for e in blockers],
        "supported": sum(r.supported for r in reports),
        "unsupported": sum(not r.supported for r in reports),
        "coverage": sum(r.supported for r in reports) / len(reports) if reports else 1.0,
        "compiles": not blockers and all(r.supported for r in reports),
    }


def operator_list(plugins: Sequence[Path] = (), names: Sequence[str] = ()) -> dict[str, Any]:
    """Every operator of the two formats: for each element type the variants of code that there are, by registry and backends.

    An operator of ONNX that carries its scales with it is listed with the types that it quantizes to. names: only operators that
    have one of them in their own name, in any case, or are of the format of that name.

    Raises EmitcError for a name that no operator has.
    """
    loaded, known = load_plugins(plugins), variants()
    tflite, onnx = loaded.registry_of("tflite"), loaded.registry_of("onnx")
    rows = [
        _operator("tflite", name, kernel, kernel.tflite_dtypes or kernel.dtypes, known)
        for name, kernel in tflite.items()
        if name not in (NPU_OPERATOR, *INTERNAL_KINDS)  # what vela and frontends write, not what a model is made of
    ]
    rows += [
        {"op": name, "format": "tflite", "summary": summary, "dtypes": [], "variants": ["none"], "matrix": []}
        for name, summary in (FOLDED | DECODED).items()
    ]
    rows += [
        _operator("onnx", name, kernel, kernel.dtypes, known)
        for name, kernel in onnx.items()
        if name not in INTERNAL_KINDS
    ]
    for name, kind in QUANTIZED_OPERATORS.items():
        dtypes = _INTEGERS if name in ("QuantizeLinear", "DequantizeLinear") else _BYTES
        rows.append(_operator("onnx", name, onnx[kind], dtypes, known))
    for name in names:
        if not any(_is_called(row, name) for row in rows):
            names_known = sorted({str(row["op"]).lower() for row in rows})
            raise unknown_choice("NAME", name, names_known, "no operator with this in its name has code")
    if names:
        rows = [row for row in rows if any(_is_called(row, name) for name in names)]
    return {
        "variants": list(known),
        "columns": _columns(known),
        "operators": sorted(rows, key=lambda r: (r["format"] == "onnx", str(r["op"]))),
    }


def _is_called(row: dict[str, Any], name: str) -> bool:
    return name.lower() in str(row["op"]).lower() or name.lower() == row["format"]


def variants() -> tuple[str, ...]:
    """Names of the variants of code: those of emitc's kernels, then the backends'."""
    of_kernels = (variant for kernel in registry().values() for variant in kernel.variants)
    own = dict.fromkeys(v.name for v in sorted(of_kernels, key=lambda v: FEATURES.index(v.feature)))
    return (PORTABLE, *own, *(name for name, backend in backends().items() if backend.covers()))


def _columns(known: Sequence[str]) -> list[dict[str, Any]]:
    """The variants `known` as a table shows them: those of emitc's kernels by the feature of the target that they need."""
    feature = {variant.name: variant.feature for kernel in registry().values() for variant in kernel.variants}
    columns: dict[str, list[str]] = {}
    for name in known:
        columns.setdefault(feature.get(name, name), []).append(name)
    return [{"name": name, "variants": of_it} for name, of_it in columns.items()]


def _operator(
    source_format: str, name: str, kernel: KernelDef, dtypes: Sequence[DType], known: Sequence[str]
) -> dict[str, Any]:
    """One row. Packed elements are of weights alone: those of operators that take them. known: all variants."""
    supported = [d for d in DType if d in dtypes and not d.packed]
    supported += [d for d in DType if d.packed and kernel.packed_input >= 0 and source_format == "tflite"]
    code: dict[str, Sequence[DType]] = {} if kernel.view else {PORTABLE: supported}
    for variant in kernel.variants:
        code[variant.name] = (*code.get(variant.name, ()), *variant.dtypes)
    for backend in backends().values():
        for coverage in backend.covers():
            if coverage.op is kernel.op and source_format in coverage.formats:
                code[backend.name] = coverage.dtypes
    matrix = [{"dtype": d.value, "variants": [v for v in known if d in code.get(v, ())]} for d in supported]
    return {
        "op": name,
        "format": source_format,
        "summary": kernel.summary,
        "dtypes": [d.value for d in supported],
        "variants": [v for v in known if v in code] or ["none"],
        "matrix": matrix,
    }
