"""The boards and the target cores: the content of `emitc boards` and `targets`.

It imports nothing that knows models, so that these commands start at once.
"""

from typing import Any

from emitc.target import boards, load_board, load_target, targets


def board_list() -> dict[str, Any]:
    """Every board with its target and memories."""
    names = ("name", "title", "kind", "target", "flash_bytes", "ram_bytes")
    return {"boards": [{name: getattr(board, name) for name in names} for board in map(load_board, boards())]}


def target_list() -> dict[str, Any]:
    """Every target with its features."""
    known = {name: load_target(name) for name in targets()}
    return {"targets": [{"name": n, "title": t.title, "features": sorted(t.features)} for n, t in known.items()]}
