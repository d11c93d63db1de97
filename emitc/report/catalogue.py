"""What the tool knows, and what a model contains: the lists of boards and targets, and these and operators as text.

It imports nothing that knows models, so that these commands start at once.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from emitc.errors import first_name, shown
from emitc.report.tables import listed, table
from emitc.target import boards, load_board, load_target, targets

_ALL_TYPES = 11
"""Element types that tensors in memory can have."""


def boards_text(content: dict[str, Any]) -> str:
    rows = [
        [b[key] for key in ("name", "kind", "target", "flash_bytes", "ram_bytes", "title")] for b in content["boards"]
    ]
    return table(("board", "kind", "target", "flash>", "RAM>", "what"), rows)


def targets_text(content: dict[str, Any]) -> str:
    rows = [(t["name"], " ".join(t["features"]), t["title"]) for t in content["targets"]]
    return table(("target", "features", "what"), rows)


def ops_text(content: dict[str, Any]) -> str:
    """The operators, with the types that the variants of each column have code for."""
    columns = content["columns"]
    rows = [
        (o["op"], o["format"], *(types_of(o, column["variants"]) for column in columns), o["summary"])
        for o in content["operators"]
    ]
    titles = ("operator<", "format<", *(column["name"] for column in columns), "what")
    return table(titles, rows, width=136 + 9 * len(columns))


def types_of(operator: dict[str, Any], variants: Sequence[str]) -> str:
    """The types that one of the variants has code for; "-" for none, and for an operator that needs no code."""
    dtypes = [cell["dtype"] for cell in operator["matrix"] if not set(variants).isdisjoint(cell["variants"])]
    return ("any" if len(dtypes) >= _ALL_TYPES else " ".join(dtypes)) or "-"


def inspect_text(model: dict[str, Any]) -> str:
    lines = [f"{shown(model['model'])}: {model['format']}, {shown(model['producer']) or 'producer not named'}"]
    for kind in ("inputs", "outputs"):
        for tensor in model[kind]:
            shape = ",".join(map(str, tensor["shape"]))
            quantized = tensor["scale"] is not None
            scale = f" scale {tensor['scale']} zero point {tensor['zero_point']}" if quantized else ""
            lines.append(f"  {kind[:-1]:<7} {shown(tensor['name'])} {tensor['dtype']}[{shape}]{scale}")
    lines += [f"  labels  {shown(name)}: {count} lines" for name, count in model["labels"].items()]
    operators = [row for o in model["operators"] for row in (o, *o["inside"])]
    reasons = [
        "operators inside, as follows" if o.get("inside") else " ".join(filter(None, (*o["codes"], o["reason"])))
        for o in operators
    ]
    has_code = ["yes" if o["supported"] else "NO" for o in operators]
    rows = [
        (o["index"], o["op"], first_name(o["name"]), *more)
        for o, *more in zip(operators, has_code, reasons, strict=True)
    ]
    lines += ["", table(("op>", "type", "name", "code", "reason"), rows), ""]
    blockers = Counter(zip(model["blocker_codes"], model["blockers"], model["blocker_hints"], strict=True))
    for (code, text, hint), count in blockers.items():
        times = f" ({count} times)" if count > 1 else ""
        lines += [f"  blocker {code}: {shown(text, 400)}{times}", f"    try:   {shown(hint, 400)}"]
    hints: dict[str, list[str]] = {}
    for operator in operators:
        if not operator["supported"] and not operator.get("inside"):
            hints.setdefault(operator["hint"], []).append(f"{operator['index']} {operator['op']}")
    for hint, ops in hints.items():
        named = listed(ops, more=" and {} more")
        lines += [f"  {'op' if len(ops) == 1 else 'ops'} {shown(named, 400)}", f"    try:   {shown(hint, 400)}"]
    verdict = "compiles" if model["compiles"] else "does not compile"
    lines.append(f"{model['supported']} of {len(model['operators'])} operators have code: {verdict}")
    return "\n".join(lines)


def board_list() -> dict[str, Any]:
    names = ("name", "title", "kind", "target", "flash_bytes", "ram_bytes")
    return {"boards": [{name: getattr(board, name) for name in names} for board in map(load_board, boards())]}


def target_list() -> dict[str, Any]:
    known = {name: load_target(name) for name in targets()}
    return {"targets": [{"name": n, "title": t.title, "features": sorted(t.features)} for n, t in known.items()]}
