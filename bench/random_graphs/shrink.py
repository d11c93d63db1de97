"""Failing graphs cut down: fewer nodes, then fewer outputs, as long as the failure stays."""

from __future__ import annotations

from collections.abc import Callable

from bench.random_graphs.case import Case, Description
from bench.random_graphs.formats import rebuilt

ATTEMPTS = 200
"""Candidates that are tried at most."""


def shrink(case: Case, fails: Callable[[Case], bool], attempts: int = ATTEMPTS) -> Case:
    """The smallest case found that `fails` still says of that it fails; `case` itself where every cut mends it.

    Groups of neighbouring nodes are left out, halves first, then ever smaller ones, then single outputs. fails: gets cases that
    the engine may refuse, and must then answer False.
    """
    tries = [attempts]

    def still(candidate: Description) -> Case | None:
        if tries[0] == 0:
            return None
        tries[0] -= 1
        try:
            smaller = rebuilt(case.format, case.seed, case.index, candidate)
        except ValueError:
            return None
        return smaller if fails(smaller) else None

    case = _fewer_nodes(case, still)
    for name in case.description.outputs:
        if len(case.description.outputs) > 1:
            case = still(case.description.without_output(name)) or case
    return case


def _fewer_nodes(case: Case, still: Callable[[Description], Case | None]) -> Case:
    size = len(case.description.nodes)
    while size > 0:
        size = min(size, max(len(case.description.nodes) - 1, 1))
        start, cut = 0, False
        while len(case.description.nodes) > 1 and start < len(case.description.nodes):
            kept = [i for i in range(len(case.description.nodes)) if not start <= i < start + size]
            smaller = still(case.description.keeping(kept)) if kept else None
            if smaller is None:
                start += size
            else:
                case, cut = smaller, True
        if not cut or len(case.description.nodes) == 1:
            size //= 2
    return case
