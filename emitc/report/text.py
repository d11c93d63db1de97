"""Results as text for a person: tables by rich, plain ASCII borders, no color codes in a pipe."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emitc.errors import Reason, RefusalKind, first_name, shown

if TYPE_CHECKING:
    from emitc.backends.choice import Assignment
    from emitc.boards.result import RunResult
    from emitc.compiled import Compiled
    from emitc.program import Program
    from emitc.validation import Validation
    from emitc.verify.proof import Proof

LISTED = 8
"""Operators and cases that a line names."""


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], width: int = 118) -> str:
    """A table of at most `width` characters; columns whose name ends in > (to the right) or < (to the left) are never broken."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    lines = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
    view = Table(box=lines, pad_edge=False, show_edge=False)
    for column in columns:
        whole = column.endswith((">", "<"))
        view.add_column(
            column.rstrip("<>"),
            justify="right" if column.endswith(">") else "left",
            no_wrap=whole,
            min_width=None if whole else 12,
            overflow="fold",
        )
    for row in rows:
        view.add_row(
            *(Text(shown(f"{cell:,}".replace(",", " ") if isinstance(cell, int) else str(cell), 160)) for cell in row)
        )
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, legacy_windows=False).print(view)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _number(value: int) -> str:
    return f"{value:,}".replace(",", " ")


def _backend_lines(compiled: Compiled) -> list[str]:
    """Who runs how much, where it is not the portable kernels alone."""
    found = compiled.partition.to_json()
    if set(compiled.partition.backends) == {"portable"}:
        return []
    parts = [f"{b['backend']} {_number(b['nodes'])} operators, {_number(b['macs'])} MAC" for b in found["backends"]]
    return [f"  backends    {'; '.join(parts)} (partition.json)"]


def _schedule_lines(program: Program) -> list[str]:
    """What is done for the arena's sake besides planning: layers row by row, tensors moved."""
    lines = []
    if (port := program.pulled) is not None:
        lines.append(
            f"  input       {_number(port.rows)} rows of {_number(port.row_bytes)} bytes, asked for one by one"
        )
    if program.segments:
        parts = [f"ops {s.calls[0].step.index} to {s.last.step.index}" for s in program.segments]
        lines.append(f"  by rows     {', '.join(parts)}")
    if program.staged:
        total = _number(program.staged_bytes)
        lines.append(
            f"  copied      weights of {len(program.staged)} layers to {program.staged[0].region}, {total} bytes in a run"
        )
    if program.moves:
        total = _number(sum(move.size_bytes for move in program.moves))
        lines.append(
            f"  moved       {len(program.moves)} tensors, {total} bytes, to make room for their readers' outputs"
        )
    return lines


_TEN = 10
"""From this factor on, digits behind the point say nothing."""
_USUAL = ("cortex-m4f", "cortex-m55", "cortex-m3", "cortex-m0plus", "rv32imac")
"""Targets that `emitc compile` names, each for all cores with its kernels."""


def _target_lines(target: str, faster: Sequence[dict[str, Any]]) -> list[str]:
    """What the kernels of the usual cores would bring."""
    factors = {each["target"]: each["estimated_factor"] for each in faster}
    named = [
        f"{name} {factors[name]:.{0 if factors[name] >= _TEN else 1}f} times" for name in _USUAL if name in factors
    ]
    if not named:
        return []
    return [
        f"  target      {target}: portable C for any core; a core's own kernels take fewer instructions there, by estimate",
        f"              {', '.join(named)} (--target NAME)",
    ]


def compile_text(compiled: Compiled, output: Path, faster: Sequence[dict[str, Any]] = ()) -> str:
    """What was compiled, where it went, and its sizes. faster: what the kernels of other cores would bring, as in the summary."""
    program = compiled.program
    lines = [
        f"{shown(program.origin.model_file)} -> {shown(str(output))}/ ({compiled.options.package}, {len(compiled.files)} files)"
        f" in {compiled.seconds:.2f} s",
        *_target_lines(program.origin.target, faster),
        f"  layers      {len(program.steps)}, {_number(program.macs)} multiply-accumulates",
        *_backend_lines(compiled),
        *_kernel_lines(compiled),
        f"  constants   {_number(program.constant_bytes)} bytes of flash",
        *(f"  memory      {proof}" for proof in program.proofs),
        *_schedule_lines(program),
    ]
    if compiled.stack:
        lines.append(f"  stack       {_number(compiled.stack.size_bytes)} bytes, by {compiled.stack.compiler}")
    if program.states:
        lines.append(f"  state       {_number(program.state_bytes)} bytes, {len(program.states)} variables")
    lines += [f"  note        {shown(note)}" for note in program.notes]
    return "\n".join(lines)


_OWN = "portable"
"""emitc's own kernels, as a backend and as those that every core runs."""
_SLOW_SHARE = 0.01
"""Of the estimated instructions of emitc's own kernels: what layers take that are named as slow."""
_SHOWN = 6
"""Reasons why layers have no fast kernel, and such layers, that are named one by one."""


def _kernel_lines(compiled: Compiled) -> list[str]:
    """How many of emitc's own layers have a kernel for this core, what each costs, and why others have none."""
    partition = compiled.partition
    own = [a for a in partition.assignments if a.backend == _OWN and a.index in partition.layers]
    chosen = [partition.layers[a.index].variant for a in own]
    counts = {name: chosen.count(name) for name in dict.fromkeys(chosen)}
    if set(counts) <= {_OWN} and not any(a.refused for a in own):
        return []
    whole = sum(a.cost for a in own) or 1.0
    slow: dict[str, list[Assignment]] = {}
    for a, variant in zip(own, chosen, strict=True):
        missing = [
            f"no {name} kernel: {shown(reason)}{_hint(reason)}"
            for name, reason in a.refused
            if variant == _OWN and name not in partition.backends and reason.kind is not RefusalKind.COST
        ]
        if missing:
            slow.setdefault(missing[0], []).append(a)
    named = [
        f"  slow        {_ops(each)} ({100 * share:.0f} % of the estimated cycles): {what}"
        for what, each in slow.items()
        if (share := sum(a.cost for a in each) / whole) >= _SLOW_SHARE
    ]
    rest = [f"  slow        and {len(named) - _SHOWN} more reasons: `emitc partition`"] if len(named) > _SHOWN else []
    kinds = ", ".join(f"{count} {name}" for name, count in counts.items())
    return [
        f"  kernels     {kinds}; estimated instructions per multiply-accumulate:",
        *_per_mac(own),
        *named[:_SHOWN],
        *rest,
    ]


def _ops(assignments: Sequence[Assignment]) -> str:
    """The first operators by index and type, and how many more."""
    first = ", ".join(f"op {a.index} {shown(a.op_type)}" for a in assignments[:_SHOWN])
    return f"{first} and {len(assignments) - _SHOWN} more" if len(assignments) > _SHOWN else first


def _per_mac(own: Sequence[Assignment]) -> list[str]:
    """Each of emitc's own layers that multiplies and accumulates, by kernel, with what it costs."""
    found: dict[str, list[str]] = {}
    for a in own:
        if a.macs:
            found.setdefault(a.kernel, []).append(f"op {a.index} {a.cost / a.macs:.2f}")
    lines = []
    for kernel, costs in found.items():
        more = f" and {len(costs) - 2 * _SHOWN} more" if len(costs) > 2 * _SHOWN else ""
        lines.append(f"    {kernel}: {', '.join(costs[: 2 * _SHOWN])}{more}")
    return lines


def _hint(reason: str) -> str:
    return f" ({reason.hint} would have one)" if isinstance(reason, Reason) and reason.hint else ""


def plan_text(compiled: Compiled) -> str:
    """The arena: proof, peak, and every buffer by offset; the variables of the state block."""
    from emitc.planner.proof_text import arena_map

    program = compiled.program
    lines: list[str] = []
    for (region, plan), proof in zip(program.arenas, program.proofs, strict=True):
        rows = [
            (slot.name, slot.size_bytes, slot.offset_bytes, f"[{slot.first}, {slot.end})", first_name(slot.what))
            for slot in sorted(program.slots, key=lambda s: (s.offset_bytes, s.first))
            if slot.region == region
        ]
        lines += [
            *([""] if lines else []),
            proof,
            *_region_lines(program, region),
            "",
            table(("buffer", "bytes>", "offset>", "live", "what"), rows),
            "",
            arena_map(plan).rstrip(),
        ]
    if program.states:
        kept = [(slot.name, slot.size_bytes, slot.offset_bytes, slot.what) for slot in program.states]
        lines += ["", f"state {program.state_bytes} B", "", table(("variable", "bytes>", "offset>", "what"), kept)]
    return "\n".join(lines)


def pareto_text(points: list[dict[str, int]]) -> str:
    """Arena against cycles, the largest arena first, each against that."""
    base = points[0]["estimated_cycles"]
    rows = [
        (
            point["arena_bytes"],
            point["estimated_cycles"],
            f"{100 * (point['estimated_cycles'] / base - 1):+.1f} %" if base else "-",
            point["segments"],
            point["layers_by_rows"],
            point["moved_bytes"],
        )
        for point in points
    ]
    return table(("arena>", "estimated cycles>", "cost>", "segments>", "layers by rows>", "moved bytes>"), rows)


def _region_lines(program: Program, region: str) -> list[str]:
    """What a region has, and how much of a run's traffic is there."""
    total = sum(each.traffic_bytes for each in program.regions) or 1
    return [
        f"{each.name}: {_number(each.limit_bytes)} bytes, {_number(each.traffic_bytes)} read or written in a run (estimated), "
        f"{100 * each.traffic_bytes / total:.0f} %"
        for each in program.regions
        if each.name == region
    ]


def together_text(content: dict[str, Any]) -> str:
    """Several models in one arena: which kind, how large, and where each one's part is."""
    how = "side by side, they may run at the same time" if content["concurrent"] else "in turns, never two at a time"
    rows = [
        (m["name"], shown(m["file"]), m["arena_bytes"], m["arena_offset"], m["state_bytes"], m["state_offset"])
        for m in content["models"]
    ]
    lines = [
        f"{len(rows)} models in one arena of {_number(content['arena_bytes'])} bytes, {how}"
        f" (apart: {_number(content['separate_bytes'])} bytes)",
        "",
        table(("model", "file", "arena>", "offset>", "state>", "offset>"), rows),
    ]
    if "file" in content:
        lines += ["", f"header      {content['file']}"]
    return "\n".join(lines)


def verify_text(compiled: Compiled, proof: Proof, validation: Validation | None = None) -> str:
    """The proof's verdict and numbers."""
    program = compiled.program
    verdict = "MATCH" if proof.match and (validation is None or validation.right) else "MISMATCH"
    largest = f", largest difference {proof.max_abs_diff:g}"
    lines = [
        f"{shown(program.origin.model_file)}: {verdict}",
        f"  outputs     {_number(proof.differing - proof.given_differing)} of {_number(proof.elements - proof.given_elements)}"
        f" elements differ from {proof.reference} ({proof.samples} inputs{'' if proof.given_differing else largest})",
        f"  numpy       {_number(proof.numpy_differing)} elements differ from the numpy reference ({proof.numpy_samples} inputs)",
    ]
    if validation is not None:
        lines.append(f"  passes      {validation.text()}")
    if proof.given_elements:
        cases = ", ".join(map(str, proof.given_cases[:LISTED])) + (", ..." if len(proof.given_cases) > LISTED else "")
        lines.append(
            f"  given       {_number(proof.given_differing)} of {_number(proof.given_elements)} elements differ from the outputs"
            f" of --vectors{f' (case {cases}{largest})' if cases else ''}"
        )
    if proof.tolerated:
        lines.append(
            f"  tolerance   {_number(proof.tolerated)} float elements of the outputs have other bits, within"
            f" {proof.tolerance:g} + {proof.tolerance:g} of the tensor's largest magnitude"
        )
    if proof.rule == "npu":
        lines.append(
            "  rounding    the NPU's own, allowed by --allow-npu-rounding; proven by the numpy reference of that"
        )
    if proof.rule == "npu-commands":
        lines.append(
            "  reference   no engine runs a file that vela has compiled: the host model of the NPU is the reference too;"
            " compare with the model before vela by `emitc npu-check --original`"
        )
    if proof.no_engine:
        *operators, why = proof.no_engine
        lines.append(
            f"  reference   no engine runs this model for {shown(', '.join(operators))} of a plugin ({shown(why)}): the"
            " numpy references of all operators decide, and that of the plugin is as right as its author has made it"
            if operators
            else f"  reference   {shown(why)}, so emitc's own numpy references decide"
        )
    if proof.reference == "mixed":
        lines.append(
            "  reference   each operator by itself: TFLite Micro decides, or LiteRT where TFLite Micro lacks it"
        )
    lines += [f"  disputed    LiteRT differs from TFLite Micro in {shown(each)}" for each in proof.disputes]
    if proof.layers_checked:
        lines.append(f"  layers      {_number(proof.layers_checked)} layer outputs compared")
    if proof.first_divergence:
        d = proof.first_divergence
        lines.append(
            f"  first       op {d.index} {d.op}: {d.differing} elements of {shown(d.tensor)},"
            f" largest difference {d.max_abs_diff:g}"
        )
    lines += [
        f"  group       {shown(g.op_type)}: {_number(g.differing)} of {_number(g.elements)} elements of {g.operators} operators"
        f" differ on the engine's own inputs (largest difference {g.largest:g}){'' if g.holds else ', against the rule'}"
        for g in proof.groups
        if not g.holds or (g.differing and not (g.kind == "float" and proof.reference == "litert"))
    ]
    if proof.rounding:
        lines.append(f"  rounding    {proof.rounding}: operators decide one by one, on LiteRT's own inputs")
    if proof.groups:
        elements, count = sum(g.elements for g in proof.groups), sum(g.operators for g in proof.groups)
        verdict = "within their rules" if all(g.holds for g in proof.groups) else "not within their rules"
        lines.append(f"  groups      {count} operators by themselves, {_number(elements)} elements: {verdict}")
    lines += [
        f"  rate        {shown(g.op_type)}: with 99 % confidence, fewer than {_share(g.at_most * 1e5)} of 100 000 elements differ"
        for g in proof.groups
        if g.at_most is not None and g.largest <= 1
    ]
    if proof.unjudged:
        lines.append(f"  unjudged    {proof.unjudged} operators have no values of the engine: the outputs decide too")
    if proof.sanitized:
        lines.append(f"  sanitizers  address, undefined behaviour: {'see below' if proof.memory_errors else 'silent'}")
    lines += [
        f"  arena       {_number(proof.arena_planned)} bytes planned, {_number(proof.arena_observed)} observed",
        *(
            f"    {use.region:<9} {_number(use.planned)} bytes planned, {_number(use.observed)} observed"
            for use in proof.arenas
        ),
        *(f"  memory      {proof}" for proof in program.proofs),
        *_schedule_lines(program),
        f"  model       {len(program.steps)} layers, {_number(program.macs)} multiply-accumulates,"
        f" {_number(program.constant_bytes)} bytes of constants",
    ]
    lines += [f"  error       {shown(error)}" for error in proof.memory_errors]
    return "\n".join(lines)


def _share(value: float) -> str:
    """Two digits, and no exponent."""
    return f"{value:.2g}" if value < 10 else _number(round(value))


def run_text(compiled: Compiled, result: RunResult) -> str:
    """A proof on a board and its numbers."""
    lines = [
        f"{shown(compiled.program.origin.model_file)} on {result.board}: {'MATCH' if result.match else 'MISMATCH'}"
    ]
    rows: list[tuple[str, object]] = [
        ("cases", result.cases),
        *([("expected outputs of", result.reference)] if result.reference else []),
        ("differing bytes", result.differing_bytes),
        *(
            [
                (f"floats beyond {result.bound}", result.differing),
                ("floats of other bits within it", result.tolerated),
                ("largest difference", f"{result.max_abs_diff:g}"),
            ]
            if not result.bound.exact
            else []
        ),
        (f"{result.unit} ({result.counter})", result.count),
        ("per multiply-accumulate", f"{result.count / compiled.program.macs:.2f}" if compiled.program.macs else "-"),
        ("stack bytes", "-" if result.stack_bytes is None else result.stack_bytes),
        ("flash bytes of the model", "-" if result.model_flash_bytes is None else result.model_flash_bytes),
        ("  code", "-" if result.code_bytes is None else result.code_bytes),
        ("  constants", "-" if result.constant_bytes is None else result.constant_bytes),
        ("flash bytes of the image", result.flash_bytes),
        ("arena bytes", result.arena_bytes),
    ]
    lines.append(table(("", "value>"), rows))
    if compiled.host_hooks():
        lines.append(
            "the board has no such accelerator: its results are played back from the host model, its time is not counted"
        )
    if result.layers:
        layers = [
            (
                layer.index,
                layer.op,
                first_name(layer.name),
                layer.count,
                layer.macs,
                f"{layer.count / layer.macs:.2f}" if layer.macs else "-",
            )
            for layer in result.layers
        ]
        lines += ["", table(("op>", "type", "name", f"{result.unit}>", "MACs>", "per MAC>"), layers)]
    return "\n".join(lines)


def quantize_text(made: dict[str, Any]) -> str:
    """What `emitc quantize` prints."""
    output = shown(str(made["output"]), 200)
    return (
        f"{output}: int8, quantized on {_number(made['samples'])} samples, {_number(made['bytes_before'])} bytes before, "
        f"{_number(made['bytes_after'])} after\n  next      emitc verify {output}"
    )


def partition_text(found: dict[str, Any]) -> str:
    """Who runs what, and why no other."""
    share = (
        f"{100 * found['fallback_share']:.1f} % of the multiply-accumulates fell back"
        if found["fallback_share"]
        else ""
    )
    lines = [
        f"{b['backend']:<12} {_number(b['nodes'])} operators, {_number(b['macs'])} multiply-accumulates,"
        f" {_number(b['estimated_cycles'])} cycles estimated"
        for b in found["backends"]
    ]
    lines += [
        f"  region at op {p['index']} on {p['backend']}: {len(p['nodes'])} operators, {_number(p['edge_bytes'])} bytes cross,"
        f" {p['waits']} waits, {p['cache_operations']} cache operations"
        for p in found["partitions"]
    ]
    lines += [share] if share else []
    told = any(n["reason"] != "asked for" for n in found["nodes"])
    rows = [
        (
            str(n["index"]),
            shown(n["op"]),
            n["backend"],
            n["kernel"],
            _number(n["estimated_cycles"]),
            f"{n['estimated_cycles'] / n['macs']:.2f}" if n["macs"] else "-",
            *([shown(n["reason"], 60)] if told else []),
        )
        for n in found["nodes"]
    ]
    columns = ("op", "type", "backend", "kernel", "cycles>", "per MAC>", *(["why"] if told else []))
    lines += ["", table(columns, rows)]
    refused: dict[tuple[str, str], list[int]] = {}
    for node in found["nodes"]:
        for refusal in node["refused"]:
            refused.setdefault((refusal["backend"], refusal["reason"]), []).append(node["index"])
    if refused:
        lines += ["", "not taken:"]
    for (backend, reason), indices in refused.items():
        where = ", ".join(map(str, indices[:8])) + (", ..." if len(indices) > 8 else "")
        lines.append(f"  {backend}: op {where}: {shown(reason, 160)}")
    return "\n".join(lines)


def npu_check_text(file: str, check: dict[str, Any]) -> str:
    """What `emitc npu-check` prints."""
    verdict = {True: "MATCH", False: "MISMATCH", None: "runs"}[check["match"]]
    lines = [
        f"{shown(file)}: {verdict} on the host model of {check['accelerator']} (no hardware)",
        f"  npu         {check['operators']} operators, {_number(check['commands'])} commands",
        f"  memory      {_number(check['constant_bytes'])} bytes of constants, {_number(check['scratch_bytes'])} scratch,"
        f" {_number(check['fast_bytes'])} fast scratch",
        f"  samples     {_number(check['samples'])} inputs gave {_number(check['distinct'])} different outputs",
    ]
    if check["on_cpu"]:
        lines.append(f"  cpu         {shown(', '.join(check['on_cpu']))}, by the numpy references")
    if check["match"] is None:
        lines.append("  outputs     not compared: give --original")
    else:
        largest = "not finite" if check["max_abs_diff"] is None else f"{check['max_abs_diff']:g}"
        lines.append(
            f"  outputs     {_number(check['differing'])} of {_number(check['elements'])} elements differ from"
            f" {check['reference']} (largest difference {largest})"
        )
    return "\n".join(lines)
