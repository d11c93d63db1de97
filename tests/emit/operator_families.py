"""One model per family of operators: the cases of tests/kernels, reduced to one per operator, template and element type.

A new operator comes with its cases in tests/kernels/test_<family>.py, and is then compiled by every compiler too.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from single_op import Case, graph_of, model_of

from emitc.compiler import Compiled, compile_model
from emitc.lower import lower_nodes
from emitc.passes import run_passes
from emitc.writers.tflite import write_tflite

KERNEL_TESTS = Path(__file__).resolve().parents[1] / "kernels"


def _module(path: Path) -> ModuleType | None:
    """A test file of the kernels as a module; None where it skips itself, since the engine is not installed."""
    name = f"cases_of_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except pytest.skip.Exception:
        del sys.modules[name]
        return None
    return module


def cases_of(path: Path) -> list[Case]:
    """The cases of all tables of a test file, each id once."""
    module = _module(path)
    found: dict[str, Case] = {}
    for value in vars(module).values() if module else ():
        if isinstance(value, list | tuple) and value and all(isinstance(v, Case) for v in value):
            found.update((case.id, case) for case in value)
    return list(found.values())


def representatives(cases: Sequence[Case]) -> list[Case]:
    """The first case of each (operator, template, output type, roles of tables, operands)."""
    graph, _ = run_passes(graph_of(*cases))
    nodes = {node.bound.node.index: node for node in lower_nodes(graph)}
    chosen: dict[object, Case] = {}
    for index, case in enumerate(cases):
        key: tuple[object, ...] = (case.opcode,)
        if index in nodes:
            layer = nodes[index].layer
            roles = tuple(sorted(table.role for table in layer.tables))
            key = (case.opcode, layer.template, nodes[index].bound.output.dtype, roles, len(layer.operands) > 0)
        chosen.setdefault(key, case)
    return list(chosen.values())


def families(folder: Path) -> Iterator[Compiled]:
    """One compiled model per test file of the kernels."""
    for path in sorted(KERNEL_TESTS.glob("test_*.py")):
        cases = cases_of(path)
        if cases:
            file = folder / f"family_{path.stem.removeprefix('test_')}.tflite"
            file.write_bytes(write_tflite(model_of(representatives(cases))))
            yield compile_model(file)
