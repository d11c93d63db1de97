"""What `emitc compile` prints: where the package went, which kernels its layers have, and what it takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emitc.errors import Note, NoteCode, RefusalKind, shown
from emitc.report.tables import listed, number, ratio

if TYPE_CHECKING:
    from emitc.backends.partition import Assignment
    from emitc.compiled import Compiled
    from emitc.program import Program
    from emitc.program.stepping import SteppedStage


def _backend_lines(compiled: Compiled) -> list[str]:
    if set(compiled.partition.backends) == {"portable"}:
        return []
    rows = compiled.partition.to_json()["backends"]
    parts = [f"{b['backend']} {number(b['nodes'])} operators, {number(b['macs'])} MAC" for b in rows]
    return [f"  backends    {'; '.join(parts)} (partition.json)"]


def schedule_lines(program: Program) -> list[str]:
    """What makes the arena smaller in addition to planning: input rows, row streaming, staged weights, relocated tensors."""
    lines = []
    if (port := program.streamed_input) is not None:
        rows = f"{number(port.rows)} rows of {number(port.row_bytes)} bytes"
        lines.append(f"  input       {rows}, which the model asks for one by one")
    if program.segments:
        parts = [f"ops {s.calls[0].step.index} to {s.last.step.index}" for s in program.segments]
        lines.append(f"  streamed    {', '.join(parts)}, row by row")
    if program.staged:
        layers = f"{len(program.staged)} layer{'s' if len(program.staged) != 1 else ''}"
        where = f"weights of {layers} in {program.staged[0].region}"
        when = "while other layers run" if program.transfers else "per run"
        lines.append(f"  staged      {where}, {number(program.staged_bytes)} bytes copied {when}")
    if program.moves:
        total = number(sum(move.size_bytes for move in program.moves))
        moved = f"{len(program.moves)} tensors, {total} bytes copied per run"
        lines.append(f"  relocated   {moved}, so that the arena is smaller")
    return lines


_TEN = 10
"""From this factor on, decimal places say nothing."""
_USUAL = ("cortex-m4f", "cortex-m55", "cortex-m3", "cortex-m0plus", "rv32imac")
"""Targets that `emitc compile` names, each for all cores with its kernels."""


def _target_notes(target: str, faster: Sequence[dict[str, Any]]) -> list[Note]:
    """How much faster the kernels of the usual cores are estimated to be."""
    factors = {row["target"]: row["estimated_factor"] for row in faster}
    known = [(name, factors[name]) for name in _USUAL if name in factors]
    named = [f"{name} {factor:.{0 if factor >= _TEN else 1}f} times" for name, factor in known]
    if not named:
        return []
    what = f"{target}: portable C for any core; estimated speed of kernels for one core: {', '.join(named)} (--target NAME)"
    return [Note(NoteCode.FASTER_TARGET, what)]


_HEADS = {
    NoteCode.FASTER_TARGET: "target",
    NoteCode.SLOW_LAYER: "slow",
    NoteCode.LONG_STEP: "long step",
    NoteCode.SMALLER_ARENA: "smaller",
    NoteCode.UNCHECKED: "check",
}
"""What lines of notes begin with; the others with "note"."""


def compile_notes(compiled: Compiled, faster: Sequence[dict[str, Any]] = ()) -> tuple[Note, ...]:
    """What a reader should know of a compilation. faster: other targets and their estimated factors, as in the summary."""
    program = compiled.program
    slow = _slow_notes(compiled)
    return (*program.notes, *slow, *step_notes(program), *_target_notes(program.origin.target, faster))


def compile_text(compiled: Compiled, output: Path | None, notes: Sequence[Note] = ()) -> str:
    """What was compiled, where it went (None: nothing is written), its sizes, and what else to know."""
    program = compiled.program
    where = f"{shown(str(output))}/" if output is not None else "not written"
    lines = [
        f"{shown(program.origin.model_file)} -> {where} ({compiled.options.package}, {len(compiled.files)} files)"
        f" in {compiled.seconds:.2f} s",
        f"  layers      {len(program.steps)}, {number(program.macs)} multiply-accumulates",
        *_backend_lines(compiled),
        *_kernel_lines(compiled),
        f"  constants   {number(program.constant_bytes)} bytes of flash",
        *(
            f"  weights     {program.name}.weights.bin, {number(external.file_bytes)} bytes, structure {external.structure}"
            for external in filter(None, [program.external])
        ),
        *(f"  memory      {proof}" for proof in program.proofs),
        *schedule_lines(program),
        *step_lines(program),
    ]
    if compiled.stack:
        lines.append(f"  stack       {number(compiled.stack.size_bytes)} bytes, by {compiled.stack.compiler}")
    if program.self_test:
        cost = {name: number(value) for name, value in program.self_test.cost(program).items()}
        lines += [
            f"  self test   {cost['inputs']} stored inputs ({cost['input_bytes']} bytes), {cost['checks']} checked outputs,",
            f"              about {cost['flash_bytes_estimated']} bytes of flash more and"
            f" {cost['instructions_estimated']} instructions in addition to the inferences",
        ]
    if program.states:
        lines.append(f"  state       {number(program.state_bytes)} bytes, {len(program.states)} variables")
    return "\n".join([*lines, *(f"  {_HEADS.get(note.code, 'note'):<11} {note.line()}" for note in notes)])


_OWN = "portable"
"""emitc's own kernels, as a backend and as those that every core runs."""
_SLOW_SHARE = 0.01
"""Of the estimated cycles of emitc's own kernels: what layers take that are named as slow."""
_SHOWN = 6
"""Reasons why layers have no fast kernel, and such layers or stages, that are named one by one."""
_MORE = " and {} more"


def _kernel_lines(compiled: Compiled) -> list[str]:
    """How many of emitc's own layers have a kernel for this core, and what each costs."""
    own, chosen = _own_layers(compiled)
    counts = {name: chosen.count(name) for name in dict.fromkeys(chosen)}
    if set(counts) <= {_OWN} and not any(a.refused for a in own):
        return []
    kinds = ", ".join(f"{count} {name}" for name, count in counts.items())
    return [f"  kernels     {kinds}; estimated cycles per multiply-accumulate:", *_per_mac(own)]


def _own_layers(compiled: Compiled) -> tuple[list[Assignment], list[str]]:
    """The layers of emitc's own kernels, and of each which variant it has."""
    partition = compiled.partition
    own = [a for a in partition.assignments if a.backend == _OWN and a.index in partition.layers]
    return own, [partition.layers[a.index].variant for a in own]


def _slow_notes(compiled: Compiled) -> list[Note]:
    """Layers that take much of the time without a kernel for this core, and why they have none."""
    partition = compiled.partition
    own, chosen = _own_layers(compiled)
    whole = sum(a.cost for a in own) or 1.0
    slow: dict[str, list[Assignment]] = {}
    for a, variant in zip(own, chosen, strict=True):
        missing = [
            f"no {name} kernel, because {shown(reason)}" + (f" ({reason.hint} would have one)" if reason.hint else "")
            for name, reason in a.refused
            if variant == _OWN and name not in partition.backends and reason.kind is not RefusalKind.COST
        ]
        if missing:
            slow.setdefault(missing[0], []).append(a)
    named = []
    for what, layers in slow.items():
        share = sum(a.cost for a in layers) / whole
        if share >= _SLOW_SHARE:
            ops = listed([f"op {a.index} {shown(a.op_type)}" for a in layers], _SHOWN, _MORE)
            verb = "has" if len(layers) == 1 else "have"
            named.append(f"{ops} ({100 * share:.0f} % of the estimated cycles) {verb} {what}")
    rest = [f"and {len(named) - _SHOWN} more reasons: `emitc partition`"] if len(named) > _SHOWN else []
    return [Note(NoteCode.SLOW_LAYER, what) for what in (*named[:_SHOWN], *rest)]


def _per_mac(own: Sequence[Assignment]) -> list[str]:
    """Each of emitc's own layers that multiplies and accumulates, by kernel, with what it costs."""
    layers: dict[str, list[str]] = {}
    for a in own:
        if a.macs:
            layers.setdefault(a.kernel, []).append(f"op {a.index} {ratio(a.cost, a.macs)}")
    return [f"    {kernel}: {listed(costs, 2 * _SHOWN, _MORE)}" for kernel, costs in layers.items()]


def step_lines(program: Program) -> list[str]:
    """How many steps an inference takes, and which one is the longest."""
    stepping = program.stepping
    if stepping is None:
        return []
    line = f"  steps       {number(stepping.calls)} for one inference"
    if (longest := stepping.longest) is not None:
        line += f"; the longest takes about {number(longest.cycles)} cycles on {program.origin.target} ({shown(longest.label)})"
    return [line]


def step_notes(program: Program) -> list[Note]:
    """What takes longer than a step may, with the reason."""
    reasons: dict[str, list[SteppedStage]] = {}
    for stage in program.stepping.stages if program.stepping else ():
        if stage.whole:
            reasons.setdefault(stage.whole, []).append(stage)
    notes = []
    for why, stages in reasons.items():
        longest = number(max(stage.cycles for stage in stages))
        names = listed([shown(stage.label) for stage in stages], _SHOWN, _MORE)
        notes.append(Note(NoteCode.LONG_STEP, f"{names}: up to {longest} cycles in a step, because {why}"))
    return notes
