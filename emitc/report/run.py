"""What `emitc run` prints: the proof on a board, and what was measured there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emitc.errors import first_name, shown
from emitc.report.tables import ratio, table

if TYPE_CHECKING:
    from emitc.boards.result import RunResult
    from emitc.compiled import Compiled


def run_text(compiled: Compiled, result: RunResult) -> str:
    macs = compiled.program.macs
    rows: list[tuple[str, object]] = [("cases", result.cases)]
    if result.reference:
        rows.append(("expected outputs of", result.reference))
    rows.append(("differing bytes", result.differing_bytes))
    if not result.bound.exact:
        rows += [
            (f"floats beyond {result.bound}", result.differing),
            ("floats of other bits within it", result.tolerated),
            ("largest difference", f"{result.max_abs_diff:g}"),
        ]
    rows += [
        (f"{result.unit} ({result.counter})", result.count),
        *_simulation_rows(result),
        *_estimate_rows(result),
        ("per multiply-accumulate", ratio(result.count, macs)),
        ("stack bytes", result.stack_bytes),
        ("flash bytes of the model", result.model_flash_bytes),
        ("  code", result.code_bytes),
        ("  constants", result.constant_bytes),
        ("flash bytes of the image", result.flash_bytes),
        ("arena bytes", result.arena_bytes),
        *_self_test_rows(result),
    ]
    lines = [
        f"{shown(compiled.program.origin.model_file)} on {result.board}: {'MATCH' if result.match else 'MISMATCH'}",
        table(("", "value>"), [(what, "-" if value is None else value) for what, value in rows]),
    ]
    if compiled.host_hooks():
        lines.append(
            "the board has no such accelerator: its results are played back from the host model, its time is not counted"
        )
    if result.layers:
        layers = [
            (layer.index, layer.op, first_name(layer.name), layer.count, layer.macs, ratio(layer.count, layer.macs))
            for layer in result.layers
        ]
        lines += ["", table(("op>", "type", "name", f"{result.unit}>", "MACs>", "per MAC>"), layers)]
        lines += _function_lines(result)
    return "\n".join(lines)


def _self_test_rows(result: RunResult) -> list[tuple[str, object]]:
    """What the model's own test said and costs."""
    test = result.self_test
    if test is None:
        return []
    return [
        ("self test", "passed" if test.passed else f"status {test.status}, op {test.index}"),
        (f"  {result.unit}", test.count),
        ("  stack bytes", test.stack_bytes),
        ("  flash bytes", test.flash_bytes),
        ("  flash bytes of its inputs", test.input_bytes),
    ]


def _simulation_rows(result: RunResult) -> list[tuple[str, object]]:
    """What a core's RTL says in addition to its cycles."""
    simulation = result.simulation
    if simulation is None:
        return []
    return [
        ("  memory", simulation.memory),
        ("  instructions", simulation.instructions),
        ("  cycles per instruction", f"{simulation.cycles_per_instruction:.3f}"),
        *((f"  stalled: {name}", cycles) for name, cycles in simulation.stalls),
        *((f"  {name}", count) for name, count in simulation.events),
        *([("  lines read from slow memory", simulation.misses)] if simulation.misses else []),
    ]


def _estimate_rows(result: RunResult) -> list[tuple[str, object]]:
    """Cycles by the model of the core."""
    estimate = result.estimate
    if estimate is None:
        return []
    rows: list[tuple[str, object]] = []
    for cycle_estimate in filter(None, (estimate, result.estimate_for)):
        band = f"+-{cycle_estimate.error_percent} %" if cycle_estimate.error_percent else "not known"
        if cycle_estimate is estimate:
            rows += [
                ("cycles, estimated", round(cycle_estimate.cycles)),
                ("  error band", band),
                ("  constant bytes read", cycle_estimate.zero_wait.constant_bytes),
            ]
        else:
            rows += [
                (f"cycles, estimated for {cycle_estimate.board}", round(cycle_estimate.cycles)),
                ("  error band", band),
                ("  memory", cycle_estimate.memory),
            ]
        rows += [
            (
                "  cycles per instruction",
                f"{cycle_estimate.cycles / max(1, cycle_estimate.zero_wait.instructions):.2f}",
            ),
            (f"  ms at {cycle_estimate.clock_hz / 1e6:g} MHz", f"{cycle_estimate.milliseconds:.2f}"),
        ]
        if cycle_estimate.energy_nj_per_cycle:
            rows.append(
                (f"  uJ at {cycle_estimate.energy_nj_per_cycle:g} nJ a cycle", f"{cycle_estimate.microjoules:.0f}")
            )
    return rows


def _function_lines(result: RunResult) -> list[str]:
    """The functions that took at least a hundredth of the cycles."""
    simulation = result.simulation
    if simulation is None:
        return []
    rows = [
        (
            function.name,
            function.cycles,
            f"{function.cycles / simulation.cycles:.1%}",
            f"{function.cycles / max(1, function.instructions):.2f}",
        )
        for function in simulation.functions
        if function.cycles * 100 >= simulation.cycles
    ]
    return ["", table(("function", "cycles>", "share>", "per instruction>"), rows)]
