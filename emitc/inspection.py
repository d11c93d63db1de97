"""What a model contains and what emitc has: the content of `emitc inspect`, `boards`, `targets` and `ops`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emitc.compiler import read_file, read_source
from emitc.frontends.build import survey
from emitc.frontends.source import SourceTensor
from emitc.ir import Shape
from emitc.kernels import registry, tflite_registry
from emitc.target import boards, load_board, load_target, targets


def _tensor(tensor: SourceTensor) -> dict[str, Any]:
    quantization = tensor.quantization
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "scale": quantization.scale if quantization else None,
        "zero_point": quantization.zero_point if quantization else None,
    }


def inspect_model(path: Path, shapes: dict[str, Shape]) -> dict[str, Any]:
    """The model's interface and operators, each with every reason against compiling it.

    Raises EmitcError when the file itself is refused.
    """
    data = read_file(path)
    source = read_source(path, data, shapes)
    reports = survey(source, tflite_registry())
    operators = [
        {
            "index": r.index,
            "op": r.op_type,
            "name": r.name,
            "supported": r.supported,
            "reason": "; ".join(f"{e.what}: {e.why}" for e in r.errors),
            "hint": "; ".join(e.hint for e in r.errors),
        }
        for r in reports
    ]
    return {
        "model": path.name,
        "format": source.format,
        "producer": source.producer,
        "sha256": source.sha256,
        "inputs": [_tensor(source.tensors[i]) for i in source.inputs],
        "outputs": [_tensor(source.tensors[i]) for i in source.outputs],
        "operators": operators,
        "blockers": [f"{e.what}: {e.why}" for e in source.blockers],
        "supported": sum(r.supported for r in reports),
        "unsupported": sum(not r.supported for r in reports),
        "compiles": not source.blockers and all(r.supported for r in reports),
    }


def board_list() -> dict[str, Any]:
    """Every board with its target and memories."""
    return {
        "boards": [
            {
                "name": board.name,
                "title": board.title,
                "kind": board.kind,
                "target": board.target,
                "flash_bytes": board.flash_bytes,
                "ram_bytes": board.ram_bytes,
            }
            for board in map(load_board, boards())
        ]
    }


def target_list() -> dict[str, Any]:
    """Every target with its features."""
    return {
        "targets": [
            {"name": name, "title": target.title, "features": sorted(target.features)}
            for name, target in ((n, load_target(n)) for n in targets())
        ]
    }


def operator_list() -> dict[str, Any]:
    """Every operator with its element types and kernel variants."""
    rows = [
        {
            "op": name,
            "summary": kernel.summary,
            "dtypes": [d.value for d in kernel.dtypes],
            "variants": ["none" if kernel.view else "portable"],
        }
        for kernel in registry().values()
        for name in kernel.tflite
    ]
    return {"operators": sorted(rows, key=lambda row: str(row["op"]))}
