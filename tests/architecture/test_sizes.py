"""How long functions and modules may be, and how many parameters a function may take.

The three tables list what is above the limits and still to be split, with its present size. A size in a table may only become
smaller, and what has come below the limit leaves the table.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES, MOST_PARAMETERS, MOST_LINES_OF_A_MODULE = 60, 7, 500

LONG = {
    "emitc/kernels/mac/dsp_int8.py:convolution": 69,
}
"""Functions by module and name, with their lines."""
WIDE = {
    "emitc/backends/cmsis_nn/mac.py:_convolution": 10,
    "emitc/boards/verify.py:on_silicon": 9,
    "emitc/cli/main.py:flash": 8,
    "emitc/cli/plan.py:plan": 9,
    "emitc/ethosu/execute.py:padded_input": 8,
    "emitc/frontends/onnx/subgraphs.py:_add_loop": 14,
    "emitc/kernels/mac/accumulation.py:float_layer": 8,
    "emitc/kernels/mac/dsp_int8.py:convolution": 8,
    "emitc/kernels/mac/dsp_int8.py:matrix": 9,
    "emitc/kernels/mac/mve_depthwise.py:_three_by_three": 8,
    "emitc/kernels/mac/scalar_int8.py:_matrix": 8,
    "emitc/kernels/mac/scalar_int8.py:_rows": 8,
    "emitc/verify/engines/run.py:run_isolated": 8,
    "emitc/verify/verification.py:verify": 8,
    "bench/random_graphs/onnx/net.py:add": 9,
}
"""Functions with their parameters, without self."""
MODULES = {}
"""Modules with their lines."""


def measured() -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Everything above a limit, as the tables have it: functions by lines, functions by parameters, modules by lines."""
    long: dict[str, int] = {}
    wide: dict[str, int] = {}
    modules: dict[str, int] = {}
    for path in sorted(path for top in ("emitc", "bench") for path in (ROOT / top).rglob("*.py")):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        if (count := text.count("\n")) > MOST_LINES_OF_A_MODULE:
            modules[name] = count
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                key, given = f"{name}:{node.name}", node.args
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                parameters = [
                    a for a in (*given.posonlyargs, *given.args, *given.kwonlyargs) if a.arg not in ("self", "cls")
                ]
                if lines > MOST_LINES:
                    long[key] = max(lines, long.get(key, 0))
                if len(parameters) > MOST_PARAMETERS:
                    wide[key] = max(len(parameters), wide.get(key, 0))
    return long, wide, modules


@pytest.mark.parametrize(
    ("position", "table"), [(0, LONG), (1, WIDE), (2, MODULES)], ids=["lines", "parameters", "modules"]
)
def test_nothing_grows_beyond_a_limit(position: int, table: Mapping[str, int]) -> None:
    found = measured()[position]
    assert {name: size for name, size in found.items() if size > table.get(name, 0)} == {}
    assert {name: size for name, size in table.items() if size != found.get(name)} == {}, (
        "it has shrunk: correct the table"
    )
