"""`emitc report`: one page about a model, a package or a sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from emitc.cli import options as shared
from emitc.errors import EmitcError, Where, shown

if TYPE_CHECKING:
    from emitc.target import Board

_MOST_BYTES = 64 << 20
_MANIFEST, _TABLE = "manifest.json", "results.jsonl"


@click.command("report", cls=shared.CompilingCommand, short_help="Write one page about a model, a package or a sweep.")
@click.argument("what", metavar="MODEL|PACKAGE|SWEEP", type=click.Path(path_type=Path))
@shared.model_options
@shared.path_option("-o", "--output", required=True, help="The page, a file of HTML that loads nothing from elsewhere.")
@click.option(
    "--board", help="Show what its memories have left. An emulated board is booted and measured; sets the target."
)
@shared.samples_options(0, 1000, 3)
@shared.force_option
@shared.json_option
def report(what: Path, output: Path, board: str | None, samples: int, as_json: bool, **values: Any) -> None:
    """Write one page about a model file, the folder of a package, or the folder of a sweep."""
    with shared.reported(as_json):
        from emitc.emit.output_file import OutputFile
        from emitc.report.page import PAGE_MARK

        read = _file_of(what)
        file = OutputFile(output, "-o", PAGE_MARK.encode("ascii"), (*shared.input_files(values), read), values["force"])
        file.check()
        kind, text, name = _page(read, board, samples, values)
        file.write(text.encode("utf-8"))
        content = {"kind": kind, "name": name, "output": str(output), "bytes": len(text.encode("utf-8"))}
        shared.print_result(content, as_json, lambda: f"{kind} {shown(name)} -> {shown(str(output))}")


def _file_of(what: Path) -> Path:
    """The file that the page is made of: a folder is a package or a sweep by what it holds."""
    if not what.is_dir():
        return what
    for name in (_MANIFEST, _TABLE):
        if (what / name).is_file():
            return what / name
    why, hint = (
        f"it has neither {_MANIFEST} nor {_TABLE}",
        "name a model, a package of emitc compile or a sweep's folder",
    )
    raise EmitcError("there is nothing to report", Where(option=str(what)), why, hint)


def _page(path: Path, board: str | None, samples: int, values: dict[str, Any]) -> tuple[str, str, str]:
    """What kind of report it is, the page, and a name for it."""
    if path.suffix == ".jsonl":
        from emitc.report.sweep import sweep_page
        from emitc.sweep.sweep import read_rows

        rows = list(read_rows(path))
        if not rows:
            why, hint = "none of its lines is a row of a sweep", "name the folder of emitc sweep -o"
            raise EmitcError("there is nothing to report", Where(option=str(path)), why, hint)
        name = path.absolute().parent.name
        return "sweep", sweep_page(name, rows), name
    from emitc.report.page.model import Findings, model_page
    from emitc.report.page.view import view_of
    from emitc.target import load_board

    described = load_board(board) if board else None
    if path.name == _MANIFEST:
        view = view_of(_manifest(path), str(path))
        skipped = "A package has no proof of its own: emitc verify proves the model."
        return "package", model_page(view, Findings(described, skipped=skipped)), view.name
    from emitc.report.page.compiled import compiled_page

    compiled = shared.compiled_model({**values, "model": path}, *_compiled_for(described))
    return "model", compiled_page(compiled, described, samples), compiled.program.name


def _compiled_for(board: Board | None) -> tuple[str, str]:
    """The package and the target that a board asks for."""
    if board is None:
        return "plain", "generic32"
    return ("platformio" if board.kind == "qemu" else "plain"), board.target


def _manifest(path: Path) -> Any:
    where, hint = Where(option=str(path)), "compile the model again"
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise EmitcError("this is no manifest of emitc", where, f"it has more than {_MOST_BYTES} bytes", hint)
        return json.loads(path.read_bytes())
    except OSError as error:
        raise EmitcError("the package cannot be read", where, error.strerror or str(error), hint) from error
    except (ValueError, RecursionError) as error:
        raise EmitcError("this is no manifest of emitc", where, f"it is no JSON: {error}"[:200], hint) from error
