"""A campaign's sum as text."""

from __future__ import annotations

from collections import Counter

from bench.random_graphs.records import Tally
from emitc.report.tables import table


def text(tally: Tally) -> str:
    """Verdicts, coverage of operators by type, and refusals by reason."""
    parts = [f"{tally.graphs} graphs, {tally.seconds:.0f} s of work, {tally.failures()} failures", verdicts(tally)]
    parts.append(operators(tally))
    noted = (
        ("refusals of emitc", tally.refusals),
        ("refusals of every engine", tally.engine_refusals),
        ("operators that LiteRT computes otherwise than TFLite Micro", tally.engine_faults),
    )
    for title, entries in noted:
        rows = [
            [
                str(sum(entry["count"].values())),
                " ".join(f"{k}:{v}" for k, v in sorted(entry["count"].items())),
                entry["example"],
                reason[:150],
            ]
            for reason, entry in sorted(entries.items(), key=lambda pair: -sum(pair[1]["count"].values()))[:40]
        ]
        if rows:
            parts.append(f"{title}\n" + table(["graphs", "by", "example", "reason"], rows))
    return "\n\n".join(parts)


def verdicts(tally: Tally) -> str:
    """One row for each format and verdict."""
    return table(["verdict", "graphs"], [[name, str(count)] for name, count in sorted(tally.verdicts.items())])


def operators(tally: Tally) -> str:
    """One row for each operator: how often it occurred with each type."""
    by_operator: dict[tuple[str, str], Counter[str]] = {}
    for name, count in tally.operators.items():
        source_format, op, dtype = name.split(" ", 2)
        by_operator.setdefault((source_format, op), Counter())[dtype] += count
    rows = [
        [op, source_format, str(sum(types.values())), " ".join(f"{t}:{n}" for t, n in types.most_common())]
        for (source_format, op), types in sorted(by_operator.items())
    ]
    return table(["operator", "format", "nodes", "by type"], rows)
