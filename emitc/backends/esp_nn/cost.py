"""What ESP-NN's functions cost, by chip: an estimate with the coefficients of costs.toml."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from emitc.backends.esp_nn.tree import Chip
from emitc.ir import BoundNode
from emitc.kernels import kernel_of
from emitc.kernels.costs import Cost, case_names

OTHER = "other"
"""What a table does not have."""


@cache
def _table() -> Mapping[str, Mapping[str, Cost]]:
    """The coefficients by operator and case, then by chip."""
    content = tomllib.loads(Path(__file__).with_name("costs.toml").read_text(encoding="utf-8"))
    return {case: {chip: Cost(**row) for chip, row in rows.items()} for case, rows in content.items()}


def cost_of(bound: BoundNode, chip: Chip) -> float:
    """Estimated cycles of one run of the node."""
    table, kernel, op = _table(), kernel_of(bound), type(bound.node.op).__name__
    keys = (f"{op} {name}".strip() for name in case_names(bound, kernel.cases(bound)))
    key = next((key for key in keys if key in table), OTHER)
    return table[key][chip.value].cycles(bound, kernel.work(bound))
