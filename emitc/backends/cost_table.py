"""What the functions of a kernel library cost: an estimate with the coefficients of its costs.toml."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from emitc.ir import BoundNode
from emitc.kernels import kernel_of
from emitc.kernels.costs import Cost, case_names

OTHER = "other"
"""What a table does not have."""


@cache
def _table(file: Path) -> Mapping[str, Mapping[str, Cost]]:
    """The coefficients by operator and case, then by instruction set or chip."""
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    return {case: {core: Cost(**row) for core, row in rows.items()} for case, rows in content.items()}


def cost_of(file: Path, bound: BoundNode, core: str) -> float:
    """Estimated cycles of one run of the node. file: the library's table. core: instruction set or chip, as the table has it."""
    table, kernel, op = _table(file), kernel_of(bound), type(bound.node.op).__name__
    keys = (f"{op} {name}".strip() for name in case_names(bound, kernel.cases(bound)))
    key = next((key for key in keys if key in table), OTHER)
    return table[key][core].cycles(bound, kernel.work(bound))
