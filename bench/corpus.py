"""What emitc makes of every model of the corpus: verified, or exactly what is missing.

    python -m bench.corpus                      all models; rewrites bench/corpus_verdicts.json and .md
    python -m bench.corpus --format onnx        the models of one format; rewrites their rows
    python -m bench.corpus --sample 12 --seed 3 some of them; writes nothing
    python -m bench.corpus --check              all models; fails when a verdict differs from the committed file

A model is `verified` when its C equals the golden engine in every element: on the corpus' own vectors and on 20 random
inputs, every layer compared, under the sanitizers, with the arena used as planned. For a float tensor that an ONNX graph
computes from floats, equal means within the tolerance of `emitc.verify.tolerances`; the row then says `tolerance` and how
many elements make use of it. Of a QDQ model every operator is judged by itself
(`emitc.verify.operator_checks`); the row says `groups`
and how many elements of the outputs differ in the end. Otherwise a model `differs`. `unsupported`
lists every operator without code and why; `refused` says what is wrong with the file; `no engine` names a model that
compiles, but that no golden engine runs. The corpus lies next to the checkout (../shared/models); without it there is
nothing to do, and the command says so.
It is no `emitc sweep`, whose proofs have neither sanitizers nor vectors and do not say what each operator gives.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError, Refusals
from emitc.report.tables import table
from emitc.verify.engines.contract import EngineRefused
from emitc.verify.proof import Proof
from emitc.verify.verification import verify

HERE = Path(__file__).resolve().parent
CORPUS = HERE.parents[1] / "shared" / "models"
JSON_FILE, TEXT_FILE = HERE / "corpus_verdicts.json", HERE / "corpus_verdicts.md"
SAMPLES = 20
FORMATS = ("tflite", "onnx")
"""Folders of the corpus, and the suffixes of the files in them."""
VERDICTS = ("verified", "differs", "no engine", "unsupported", "refused")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One model.

    model: its file, below tflite/ or onnx/ in the corpus. reasons: what is missing, differs or is wrong; empty when
    verified. reference: the golden engine. samples: inputs compared, the vectors' cases among them. layers: layer outputs
    compared. rule: exact, tolerance or groups, "" where nothing was compared. tolerated: elements whose bits differ within
    the tolerance. differing: others of the outputs that differ from the engine's.
    """

    model: str
    verdict: str
    reasons: tuple[str, ...] = ()
    reference: str = ""
    samples: int = 0
    elements: int = 0
    layers: int = 0
    arena_bytes: int = 0
    rule: str = ""
    tolerated: int = 0
    differing: int = 0

    def to_json(self) -> dict[str, Any]:
        """A row of the file."""
        return asdict(self) | {"reasons": list(self.reasons)}

    @property
    def claim(self) -> tuple[str, tuple[str, ...], str, int, int, str, int]:
        """What has to stay true until the file is written again; sizes may become better meanwhile."""
        return self.verdict, self.reasons, self.reference, self.samples, self.elements, self.rule, self.differing


def from_json(row: dict[str, Any]) -> Verdict:
    """A row of the file."""
    return Verdict(**(row | {"reasons": tuple(row["reasons"])}))


def models(corpus: Path) -> list[str]:
    """The models of the corpus, as paths below `corpus`/tflite and `corpus`/onnx: those of TFLite first, each sorted."""
    paths: list[str] = []
    for kind in FORMATS:
        folder = corpus / kind
        paths += sorted(path.relative_to(folder).as_posix() for path in folder.rglob(f"*.{kind}"))
    return paths


def format_of(model: str) -> str:
    """The format of a model of the corpus: its suffix, and the folder it is in."""
    return model.rpartition(".")[2]


def missing(error: EmitcError) -> tuple[str, ...]:
    """Every refusal as one line with the number of operators that it speaks of."""
    errors = error.errors if isinstance(error, Refusals) else (error,)
    lines = Counter(f"{e.what}: {e.why}" for e in errors)
    return tuple(f"{text} ({count} times)" if count > 1 else text for text, count in lines.items())


def _found(proof: Proof) -> tuple[str, ...]:
    """What a proof that failed has found; nothing of one that holds."""
    if proof.match:
        return ()
    lines = list(proof.memory_errors)
    for group in proof.groups:
        if not group.holds:
            off = f"{group.differing} of {group.elements} elements differ, by {group.largest:g} at most"
            lines.append(f"{group.op_type} on the engine's own inputs: {off}")
    if proof.differing:
        lines.append(f"{proof.differing} of {proof.elements} elements differ, by {proof.max_abs_diff:g} at most")
    if proof.numpy_differing:
        lines.append(f"{proof.numpy_differing} elements differ from the numpy reference")
    if proof.first_divergence:
        lines.append(f"first at op {proof.first_divergence.index} {proof.first_divergence.op}")
    if proof.arena_planned != proof.arena_observed:
        lines.append(f"arena of {proof.arena_planned} bytes planned, {proof.arena_observed} observed")
    return tuple(lines)


def _proven(compiled: Compiled, vectors: Path | None, reference: str) -> Proof:
    return verify(compiled, reference=reference, samples=SAMPLES, vectors=vectors, layers=True, sanitize=True)


def judged(corpus: Path, model: str) -> Verdict:
    """The verdict on one model. Nothing that emitc refuses is an exception here; anything else is a bug and escapes."""
    kind = format_of(model)
    vectors = (corpus / "vectors" / kind / model).with_suffix(".npz")
    vector_file = vectors if vectors.is_file() else None
    try:
        compiled = compile_model(corpus / kind / model)
    except CannotCompile as error:
        return Verdict(model, "unsupported", missing(error))
    except EmitcError as error:
        verdict = "unsupported" if error.exit_code == CannotCompile.exit_code else "refused"
        return Verdict(model, verdict, missing(error))
    without_engine: tuple[str, ...] = ()
    try:
        proof = _proven(compiled, vector_file, "auto")
    except EngineRefused as error:
        without_engine = (f"{error.what}: {error.why}",)
        proof = _proven(compiled, vector_file, "numpy")
    verdict = "differs" if not proof.match else "no engine" if without_engine else "verified"
    return Verdict(
        model,
        verdict,
        _found(proof) + without_engine,
        proof.reference,
        proof.samples,
        proof.elements,
        proof.layers_checked,
        compiled.program.plan.arena_bytes,
        proof.rule,
        proof.tolerated,
        proof.differing,
    )


def chosen(names: Sequence[str], count: int | None, seed: int) -> list[str]:
    """`count` of the names, the same ones for the same seed, in order; all of them for None."""
    if count is None or count >= len(names):
        return list(names)
    return sorted(random.Random(seed).sample(list(names), count))


def read_verdicts(path: Path) -> list[Verdict]:
    """The committed verdicts."""
    return [from_json(row) for row in json.loads(path.read_text(encoding="utf-8"))["models"]]


def json_text(verdicts: Iterable[Verdict]) -> str:
    """The file for programs: one model a line."""
    rows = ",\n".join("  " + json.dumps(v.to_json()) for v in verdicts)
    return f'{{"samples": {SAMPLES}, "models": [\n{rows}\n]}}\n'


def _counts(verdicts: Sequence[Verdict]) -> str:
    count = Counter(v.verdict for v in verdicts)
    return ", ".join(f"{count[name]} {name}" for name in VERDICTS if count[name])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def markdown_text(verdicts: Sequence[Verdict]) -> str:
    """The file for people."""
    lines = [
        "# What emitc makes of the model corpus",
        "",
        "Written by `python -m bench.corpus`. A verified model equals its golden engine in every element, on the corpus'",
        f"vectors and {SAMPLES} random inputs, layer by layer, under AddressSanitizer and UndefinedBehaviorSanitizer, with the",
        "arena used exactly as planned. Rule `tolerance`: a float output that a graph computes from floats may be off by",
        "1e-5 + 1e-5 of the largest magnitude in its tensor; the number after it counts elements whose bits differ within that.",
        "Rule `groups`: every operator of a QDQ model is judged by itself, on the engine's own inputs; the number after it",
        "counts elements of the outputs that differ in the end.",
        "",
        f"{len(verdicts)} models: {_counts(verdicts)}.",
        "",
        "| model | verdict | engine | rule | inputs | elements | layers | arena bytes | what is missing or differs |",
        "|---|---|---|---|---:|---:|---:|---:|---|",
    ]
    for v in verdicts:
        numbers = (v.samples, v.elements, v.layers, v.arena_bytes) if v.samples else ("", "", "", "")
        rule = {"tolerance": f"tolerance {v.tolerated}", "groups": f"groups {v.differing}"}.get(v.rule, v.rule)
        cells = (v.model, v.verdict, v.reference, rule, *map(str, numbers), "; ".join(v.reasons))
        lines.append(f"| {' | '.join(_cell(c) for c in cells)} |")
    return "\n".join(lines) + "\n"


def _shown(verdicts: Sequence[Verdict]) -> str:
    rows = [(v.model, v.verdict, v.samples or "", v.arena_bytes or "", "; ".join(v.reasons)) for v in verdicts]
    return table(("model", "verdict", "inputs>", "arena>", "missing or different"), rows)


def _changes(verdicts: Sequence[Verdict], committed: Sequence[Verdict]) -> list[str]:
    """What is no longer as the committed file says, one line each."""
    old = {v.model: v for v in committed}
    lines = [f"{name}: in the file, but not in the corpus" for name in sorted(set(old) - {v.model for v in verdicts})]
    for verdict in verdicts:
        before = old.get(verdict.model)
        if before is None:
            lines.append(f"{verdict.model}: {verdict.verdict}, but not in the file")
        elif before.claim != verdict.claim:
            lines.append(f"{verdict.model}: {before.claim} in the file, {verdict.claim} now")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 when --check finds a change or a model differs."""
    parser = argparse.ArgumentParser(prog="python -m bench.corpus", description="Verdicts on the model corpus.")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder with tflite/, onnx/ and vectors/")
    parser.add_argument("--format", choices=FORMATS, default=None, help="only models of this format")
    parser.add_argument("--sample", type=int, default=None, metavar="N", help="only N models; writes no file")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--check", action="store_true", help="compare with the committed file instead of writing it")
    parser.add_argument("--jobs", type=int, default=1, help="models at once")
    options = parser.parse_args(arguments)
    if not any((options.corpus / kind).is_dir() for kind in FORMATS):
        print(f"skipped: there is no corpus of models in {options.corpus}", file=sys.stderr)
        return 0
    candidates = [name for name in models(options.corpus) if options.format in (None, format_of(name))]
    names = chosen(candidates, options.sample, options.seed)
    verdicts: list[Verdict] = []
    with ProcessPoolExecutor(max_workers=max(options.jobs, 1)) as pool:
        for verdict in pool.map(judged, [options.corpus] * len(names), names):
            verdicts.append(verdict)
            print(f"{len(verdicts)}/{len(names)} {verdict.model}: {verdict.verdict}", file=sys.stderr)
    print(_shown(verdicts))
    print(f"\n{len(verdicts)} models: {_counts(verdicts)}")
    failed = any(v.verdict == "differs" for v in verdicts)
    if options.check:
        committed = read_verdicts(JSON_FILE)
        if options.sample is not None or options.format is not None:
            committed = [v for v in committed if v.model in names]
        changes = _changes(verdicts, committed)
        print("\n".join(changes) or "as in the committed file")
        return 1 if changes or failed else 0
    if options.sample is None:
        if options.format is not None and JSON_FILE.is_file():
            others = [v for v in read_verdicts(JSON_FILE) if format_of(v.model) != options.format]
            verdicts = sorted([*others, *verdicts], key=lambda v: (FORMATS.index(format_of(v.model)), v.model))
        JSON_FILE.write_text(json_text(verdicts), encoding="utf-8", newline="\n")
        TEXT_FILE.write_text(markdown_text(verdicts), encoding="utf-8", newline="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
