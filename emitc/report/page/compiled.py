"""The page of a compiled model, with what a board and this machine find about it."""

import json
from dataclasses import replace
from pathlib import Path

from emitc.boards import verify as prove
from emitc.compiled import Compiled
from emitc.compiler import for_host
from emitc.errors import EmitcError
from emitc.report.page.model import Findings, findings_of, model_page
from emitc.report.page.view import view_of
from emitc.target import Board
from emitc.verify import verification

_MANIFEST = "manifest.json"


def compiled_page(compiled: Compiled, board: Board | None, samples: int) -> str:
    """The HTML page of a model.

    board: whose memories it is held against, None for none. An emulated one is booted, for which the package has to be
    that of PlatformIO and the target the board's. samples: random inputs of the proof on this machine, 0 for no proof.
    """
    view = view_of(json.loads(compiled.files[_MANIFEST]), _MANIFEST)
    return model_page(view, _findings(compiled, board, samples))


def _findings(compiled: Compiled, board: Board | None, samples: int) -> Findings:
    """The run on an emulated board, and the proof. A proof that cannot be made is a line of the page."""
    findings = replace(findings_of(compiled), board=board)
    if board is not None and board.kind == "qemu":
        run = prove.on_emulator(
            compiled, board.name, reference="auto", samples=max(1, samples), seed=0, layers=True, workdir=None
        )
        findings = replace(findings, run=run.as_json())
    if samples == 0:
        return replace(findings, skipped="It was left out by --samples 0.")
    path = Path(compiled.program.origin.model_file)
    try:
        proof = verification.verify(for_host(path, compiled), samples=samples)
    except EmitcError as error:
        return replace(findings, skipped=f"There is no proof: {error.what}, because {error.why}.")
    return replace(findings, proof=proof.to_json())
