"""What `emitc verify` prints: the verdict, and every number that it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emitc.errors import Note, NoteCode, shown
from emitc.report.compile import schedule_lines
from emitc.report.tables import listed, number

if TYPE_CHECKING:
    from emitc.compiled import Compiled
    from emitc.validation import Validation
    from emitc.verify.proof import Proof


_ROUNDING = "the NPU's own, allowed by --allow-npu-rounding; proven by the numpy reference of that"
_COMMANDS = (
    "no engine runs a file that vela has compiled: the host model of the NPU is the reference too; compare with the model"
    " before vela by `emitc npu-check --original`"
)
_HEADS = {
    NoteCode.NO_ENGINE: "reference",
    NoteCode.DISPUTED: "disputed",
    NoteCode.UNJUDGED: "unjudged",
    NoteCode.ROUNDING: "rounding",
}
"""What their lines begin with."""


def verify_text(compiled: Compiled, proof: Proof, validation: Validation | None = None) -> str:
    """The proof's verdict and numbers. validation: of the passes, where they were checked too."""
    program = compiled.program
    right = proof.match and (validation is None or validation.right)
    lines = [
        f"{shown(program.origin.model_file)}: {'MATCH' if right else 'MISMATCH'}",
        *_output_lines(proof),
        *([f"  passes      {validation.text()}"] if validation is not None else []),
        *_given_lines(proof),
        *(f"  {_HEADS[note.code]:<11} {note.line()}" for note in verify_notes(proof)),
        *_layer_lines(proof),
        *_operator_lines(proof),
        *_memory_lines(compiled, proof),
    ]
    return "\n".join(lines)


def _output_lines(proof: Proof) -> list[str]:
    largest = "" if proof.given_differing else f", largest difference {proof.max_abs_diff:g}"
    return [
        f"  outputs     {number(proof.differing - proof.given_differing)} of {number(proof.elements - proof.given_elements)}"
        f" elements differ from {proof.reference} ({proof.samples} inputs{largest})",
        f"  numpy       {number(proof.numpy_differing)} elements differ from the numpy reference ({proof.numpy_samples} inputs)",
    ]


def _given_lines(proof: Proof) -> list[str]:
    """How many elements differ from the outputs that the user has given, and how many floats a tolerance has let pass."""
    lines = []
    if proof.given_elements:
        cases = listed(list(map(str, proof.given_cases)))
        where = f" (case {cases}, largest difference {proof.max_abs_diff:g})" if cases else ""
        lines.append(
            f"  given       {number(proof.given_differing)} of {number(proof.given_elements)} elements differ from the outputs"
            f" of --vectors{where}"
        )
    if proof.tolerated:
        lines.append(
            f"  tolerance   {number(proof.tolerated)} float elements of the outputs have other bits, within"
            f" {proof.tolerance:g} + {proof.tolerance:g} of the tensor's largest magnitude"
        )
    return lines


def verify_notes(proof: Proof) -> list[Note]:
    """What the verdict rests on where it is not the outputs of one engine."""
    reference = [_COMMANDS] if proof.rule == "npu-commands" else []
    if proof.no_engine:
        *operators, why = proof.no_engine
        reference.append(
            f"no engine runs this model for {shown(', '.join(operators))} of a plugin ({shown(why)}): the"
            " numpy references of all operators decide, and that of the plugin is as right as its author has made it"
            if operators
            else f"{shown(why)}, so emitc's own numpy references decide"
        )
    if proof.reference == "mixed":
        decides = "TFLite Micro decides, or LiteRT where TFLite Micro lacks it"
        reference.append(f"each operator by itself: {decides}")
    notes = [Note(NoteCode.ROUNDING, _ROUNDING)] if proof.rule == "npu" else []
    notes += [Note(NoteCode.NO_ENGINE, what) for what in reference]
    notes += [Note(NoteCode.DISPUTED, f"LiteRT differs from TFLite Micro in {dispute}") for dispute in proof.disputes]
    if proof.rounding:
        notes.append(Note(NoteCode.ROUNDING, f"{proof.rounding}: operators decide one by one, on LiteRT's own inputs"))
    if proof.unjudged:
        what = f"{proof.unjudged} operators have no values of the engine: the outputs decide too"
        notes.append(Note(NoteCode.UNJUDGED, what))
    return notes


def _layer_lines(proof: Proof) -> list[str]:
    lines = []
    if proof.layers_checked:
        lines.append(f"  layers      {number(proof.layers_checked)} layer outputs compared")
    if proof.first_divergence:
        d = proof.first_divergence
        lines.append(
            f"  first       op {d.index} {d.op}: {d.differing} elements of {shown(d.tensor)},"
            f" largest difference {d.max_abs_diff:g}"
        )
    return lines


def _operator_lines(proof: Proof) -> list[str]:
    """What the operators give on the engine's own inputs, where they decide one by one."""
    lines = [
        f"  group       {shown(g.op_type)}: {number(g.differing)} of {number(g.elements)} elements of {g.operators} operators"
        f" differ on the engine's own inputs (largest difference {g.largest:g}){'' if g.holds else ', against the rule'}"
        for g in proof.groups
        if not g.holds or (g.differing and not (g.kind == "float" and proof.reference == "litert"))
    ]
    if proof.groups:
        elements, count = sum(g.elements for g in proof.groups), sum(g.operators for g in proof.groups)
        verdict = "within their rules" if all(g.holds for g in proof.groups) else "not within their rules"
        lines.append(f"  groups      {count} operators by themselves, {number(elements)} elements: {verdict}")
    return lines + [
        f"  rate        {shown(g.op_type)}: with 99 % confidence, fewer than {_rounded(g.at_most * 1e5)} of 100 000 elements"
        " differ"
        for g in proof.groups
        if g.at_most is not None and g.largest <= 1
    ]


def _memory_lines(compiled: Compiled, proof: Proof) -> list[str]:
    program, lines = compiled.program, []
    if proof.sanitized:
        lines.append(f"  sanitizers  address, undefined behaviour: {'see below' if proof.memory_errors else 'silent'}")
    return [
        *lines,
        f"  arena       {number(proof.arena_planned)} bytes planned, {number(proof.arena_observed)} observed",
        *(
            f"    {use.region:<9} {number(use.planned)} bytes planned, {number(use.observed)} observed"
            for use in proof.arenas
        ),
        *(f"  memory      {region_proof}" for region_proof in program.proofs),
        *schedule_lines(program),
        f"  model       {len(program.steps)} layers, {number(program.macs)} multiply-accumulates,"
        f" {number(program.constant_bytes)} bytes of constants",
        *(f"  error       {shown(error)}" for error in proof.memory_errors),
    ]


def _rounded(value: float) -> str:
    """Two digits, and no exponent."""
    return f"{value:.2g}" if value < 10 else number(round(value))


def npu_check_text(file: str, check: dict[str, Any]) -> str:
    """The verdict on a file that vela has compiled, and what the file asks of the hardware."""
    verdict = {True: "MATCH", False: "MISMATCH", None: "runs"}[check["match"]]
    lines = [
        f"{shown(file)}: {verdict} on the host model of {check['accelerator']} (no hardware)",
        f"  npu         {check['operators']} operators, {number(check['commands'])} commands",
        f"  memory      {number(check['constant_bytes'])} bytes of constants, {number(check['scratch_bytes'])} scratch,"
        f" {number(check['fast_bytes'])} fast scratch",
        f"  samples     {number(check['samples'])} inputs gave {number(check['distinct'])} different outputs",
    ]
    if check["on_cpu"]:
        lines.append(f"  cpu         {shown(', '.join(check['on_cpu']))}, by the numpy references")
    if check["match"] is None:
        lines.append("  outputs     not compared: give --original")
    else:
        largest = "not finite" if check["max_abs_diff"] is None else f"{check['max_abs_diff']:g}"
        lines.append(
            f"  outputs     {number(check['differing'])} of {number(check['elements'])} elements differ from"
            f" {check['reference']} (largest difference {largest})"
        )
    return "\n".join(lines)
