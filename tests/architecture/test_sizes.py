"""How long functions and modules may be, and how many parameters a function may take.

The three tables list what is above the limits, with its size and the reason why it stays so. A size in a table may only become
smaller, and what has come below the limit leaves the table.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES, MOST_PARAMETERS, MOST_LINES_OF_A_MODULE = 60, 7, 500

Table = Mapping[str, tuple[int, str]]

LONG: Table = {
    "emitc/kernels/mac/dsp_int8.py:convolution": (
        69,
        "the choice among five layouts of one kernel stands in one place, in the order in which each is refused",
    ),
}
"""Functions by module and name, with their lines."""
_QUANTIZED_PRODUCT = (
    "a quantized product is its rows, filters, bias, scale, clamp and kernel, which three kernels take alike"
)
_COMMAND = "click passes each option of a command as one parameter"
_KEYWORDS = "a public function whose settings are keywords with defaults, as the command line has them"
WIDE: Table = {
    "emitc/backends/cmsis_nn/mac.py:_convolution": (
        10,
        "the arguments of CMSIS-NN's function, which differ by operator",
    ),
    "emitc/boards/verify.py:on_silicon": (9, _KEYWORDS),
    "emitc/cli/main.py:flash": (8, _COMMAND),
    "emitc/cli/plan.py:plan": (9, _COMMAND),
    "emitc/ethosu/execute.py:padded_input": (8, "the fields of one NPU command that say how an input is read"),
    "emitc/frontends/onnx/subgraphs.py:_add_loop": (
        14,
        "what Loop and Scan state about a loop, each by its own attributes",
    ),
    "emitc/kernels/mac/accumulation.py:float_layer": (8, "settings of one layer in float32, keywords with defaults"),
    "emitc/kernels/mac/dsp_int8.py:convolution": (8, "the settings by which the rows of variants differ"),
    "emitc/kernels/mac/dsp_int8.py:matrix": (9, _QUANTIZED_PRODUCT),
    "emitc/kernels/mac/mve_depthwise.py:_three_by_three": (8, _QUANTIZED_PRODUCT),
    "emitc/kernels/mac/scalar_int8.py:_matrix": (8, _QUANTIZED_PRODUCT),
    "emitc/kernels/mac/scalar_int8.py:_rows": (8, _QUANTIZED_PRODUCT),
    "emitc/verify/engines/run.py:run_isolated": (8, _KEYWORDS),
    "emitc/verify/verification.py:verify": (8, _KEYWORDS),
    "bench/random_graphs/onnx/net.py:add": (9, "a builder for tests whose settings are keywords with defaults"),
}
"""Functions with their parameters, without self."""
MODULES: Table = {}
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
def test_nothing_grows_beyond_a_limit(position: int, table: Table) -> None:
    found = measured()[position]
    assert {name: size for name, size in found.items() if name not in table or size > table[name][0]} == {}
    assert {name: size for name, (size, _) in table.items() if size != found.get(name)} == {}, (
        "it has shrunk: correct the table"
    )


@pytest.mark.parametrize("table", [LONG, WIDE, MODULES], ids=["lines", "parameters", "modules"])
def test_whatever_is_above_a_limit_has_a_reason(table: Table) -> None:
    assert [name for name, (_, reason) in table.items() if len(reason.split()) < 5] == []
