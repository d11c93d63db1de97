"""The command line: arguments in, exit code out. It decides nothing and loads what a command needs only when it runs.

Exit codes: 0 done; 1 valid but cannot be compiled, or the proof failed; 2 input or usage refused.
"""

import gc
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from emitc._version import __version__
from emitc.cli import divergence
from emitc.cli import options as shared
from emitc.cli.check import UNCHECKED, check_line, check_option, checked, dump
from emitc.cli.cost import budget_json, budget_options, cost, diff, limits_of, of_compiled, of_measurement
from emitc.cli.evaluate import evaluate, quantize
from emitc.cli.plan import plan
from emitc.cli.profile import profile
from emitc.cli.report import report
from emitc.cli.sweep import sweep
from emitc.cli.weights import weights
from emitc.errors import Code, EmitcError, Where

_INTERRUPTED = 130
_ALLOCATIONS = 100_000
"""Objects between two searches for garbage. Nearly all that a compilation makes stays in use, so that they find nothing."""


@contextmanager
def _progress(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as shown
    from rich.console import Console

    columns = shown.BarColumn(), shown.MofNCompleteColumn(), shown.TaskProgressColumn(), shown.TimeRemainingColumn()
    with shown.Progress(
        shown.TextColumn("{task.description}"), *columns, console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="emitc")
def cli() -> None:
    """Compiles a quantized neural network into standalone C for a microcontroller, and proves it bit for bit."""


for command in (plan, profile, dump, cost, diff, evaluate, quantize, report, sweep, weights):
    cli.add_command(command)


@cli.command("compile", cls=shared.CompilingCommand)
@shared.compile_options
@shared.path_option("-o", "--output", required=True, help="Directory of the package.")
@shared.choice_option(
    "--package",
    "plain",
    "plain | cmake | platformio | arduino | zephyr | cmsis-pack | esphome | rust | zig | micropython | esp-idf",
)
@click.option(
    "--board",
    multiple=True,
    callback=shared.one_board,
    help="Refuse a model that does not fit this board; sets the target.",
)
@shared.flag("--stack", "State the stack in the header, as the target's compiler finds it.")
@shared.flag("--profile", "Add emitc_profile.h, which records when each layer ended (`emitc profile`).")
@shared.flag("--profile-layers", "With --profile: a record for each layer, however short it is.")
@budget_options
@check_option
@shared.json_option
def compile_command(
    output: Path, package: str, board: str | None, stack: bool, check: bool | None, as_json: bool, **values: Any
) -> None:
    """Compile MODEL to a C package."""
    with shared.reported(as_json):
        default_target = "generic32"
        if board:
            from emitc.target import load_board

            default_target = load_board(board).target
        compiled = shared.compiled_model(values, package, default_target)
        if board:
            from emitc.boards.verify import require_fit

            require_fit(compiled, board)
        validation = checked(compiled, check, as_json)
        if stack:
            from emitc.boards.stack import measured

            compiled = measured(compiled)
        rows = of_compiled(compiled, limits_of(values, compiled.program.name), board)
        over = any(row.over for row in rows)
        if not over:
            compiled.write(output)
        from emitc.report.compile import compile_notes, compile_text
        from emitc.report.run import budget_text

        stated = {"passes_checked": 0, "first_wrong_pass": None} if validation is None else validation.to_json()
        from emitc.explore.pareto import smaller_arena

        smaller = None if board else smaller_arena(compiled)
        summary = compiled.summary() | stated | {"smaller_arena": smaller and smaller.to_json()}
        summary |= budget_json(rows)
        faster = [] if values["target"] or board else summary["faster_targets"]
        notes = compile_notes(compiled, faster)
        notes += (smaller.note(),) if smaller else ()
        notes += (UNCHECKED,) if validation is None and check is None else ()
        summary["notes"] = [note.as_json() for note in notes]
        text = check_line(validation, check) + budget_text(rows)
        written = None if over else output
        shared.print_result(summary, as_json, lambda: compile_text(compiled, written, notes) + text)
    raise SystemExit(1 if over else 0)


@cli.command(cls=shared.CompilingCommand, short_help="Prove that the C of MODEL equals the interpreter.")
@shared.compile_options
@shared.reference_option
@shared.samples_options(0, 100000, 20)
@shared.path_option("--vectors", help="Cases of an .npz file: in{i}_{k}, out{j}_{k}.")
@shared.flag("--layers", "Compare every layer; name the first that differs.")
@shared.flag("--sanitize", "Run under AddressSanitizer and UndefinedBehaviorSanitizer too.")
@shared.json_option
def verify(as_json: bool, **values: Any) -> None:
    """Prove on this machine that the C of MODEL equals the framework's interpreter bit for bit."""
    with shared.reported(as_json):
        from emitc.compiler import for_host
        from emitc.report.verify import verify_notes, verify_text
        from emitc.validation import validate
        from emitc.verify import verification

        compiled = for_host(values["model"], shared.compiled_model(values))
        if values["samples"] == 0 and values["vectors"] is None:
            why = "a proof without a case proves nothing"
            raise EmitcError("there is nothing to run", Where(option="--samples 0"), why, "give --vectors or samples")
        with _progress("proving") as progress:
            options = shared.chosen(values, "reference samples seed vectors layers sanitize")
            proof = verification.verify(compiled, progress=progress, **options)
        validation = validate(compiled)
        match = proof.match and validation.right
        notes = [note.as_json() for note in verify_notes(proof)]
        content = proof.to_json() | validation.to_json() | {"match": match, "notes": notes}
        shared.print_result(content, as_json, lambda: verify_text(compiled, proof, validation))
    raise SystemExit(0 if match else 1)


@cli.command(short_help="Say what MODEL contains and what does not compile.")
@click.argument("model", type=click.Path(path_type=Path))
@shared.shape_option
@shared.plugin_option
@click.option(
    "--min-coverage",
    type=click.FloatRange(0, 1),
    help="Exit code 1 where a smaller share of the operators has code, or the model is blocked otherwise.",
)
@shared.json_option
def inspect(
    model: Path,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    plugins: tuple[Path, ...],
    min_coverage: float | None,
    as_json: bool,
) -> None:
    """Say what MODEL contains and everything that stands against compiling it."""
    with shared.reported(as_json):
        from emitc.report import catalogue
        from emitc.report.inspection import inspect_model

        inspection = inspect_model(model, dict(shapes), plugins)
        shared.print_result(inspection, as_json, lambda: catalogue.inspect_text(inspection))
    passed = min_coverage is None or (inspection["coverage"] >= min_coverage and not inspection["blockers"])
    raise SystemExit(0 if passed else 1)


@cli.command("partition", cls=shared.CompilingCommand, short_help="Show which backend runs which operator.")
@shared.compile_options
@shared.json_option
def partition_command(as_json: bool, **values: Any) -> None:
    """Show which backend runs which operator of MODEL, and why, without compiling."""
    with shared.reported(as_json):
        from emitc.compiler import partition_model
        from emitc.report.cost import partition_text

        partition = partition_model(values["model"], shared.options_of(values, "plain")).to_json()
        shared.print_result(partition, as_json, lambda: partition_text(partition))


@cli.command(cls=shared.CompilingCommand, short_help="Run MODEL on an emulated board and measure it.")
@shared.compile_options
@click.option(
    "--board",
    "boards",
    required=True,
    multiple=True,
    help="An emulated board (`emitc boards`); may be repeated: one after the other.",
)
@shared.reference_option
@shared.samples_options(1, 64, 3)
@shared.flag("--layers", "Instructions of every layer.")
@divergence.option
@shared.path_option("--workdir", help="Keep the project here; default: a temporary one.")
@click.option("--estimate-for", help="A real board with the same core: estimate cycles and time there.")
@click.option("--memory", default="zero-wait", show_default=True, help="Timing of flash on a simulated core's RTL.")
@shared.path_option("--rtl", help="Folder of a core's RTL that no package carries (rtl_hazard3).")
@budget_options
@shared.json_option
def run(
    boards: tuple[str, ...],
    workdir: Path | None,
    estimate_for: str | None,
    memory: str,
    rtl: Path | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Build MODEL with PlatformIO, boot it on an emulated board or a simulated core, prove it there and measure it."""
    if divergence.wanted(values, estimate_for):
        raise SystemExit(divergence.on_emulators(boards, workdir, as_json, values))
    with shared.reported(as_json):
        from emitc.boards import verify as prove
        from emitc.boards.result import check_estimate_for, with_estimate_for
        from emitc.boards.run import Simulation
        from emitc.report.run import budget_text, run_text
        from emitc.target import load_board

        targets = {board: load_board(board).target for board in boards}
        if estimate_for:
            for board in targets:
                check_estimate_for(estimate_for, board)
        runs = []
        for board, target in targets.items():
            compiled = shared.compiled_model(values, "platformio", target)
            folder = workdir / board if workdir and len(targets) > 1 else workdir
            options = shared.chosen(values, "reference samples seed layers")
            simulation = Simulation(memory, rtl)
            result = prove.on_emulator(compiled, board, workdir=folder, simulation=simulation, **options)
            runs.append((compiled, with_estimate_for(result, estimate_for) if estimate_for else result))
        match = all(result.match for _, result in runs)
        limits = limits_of(values, runs[0][0].program.name)
        rows = [of_measurement(result, limits) for _, result in runs]
        measurements = [result.as_json() | budget_json(own) for (_, result), own in zip(runs, rows, strict=True)]
        texts = [
            run_text(compiled, result) + budget_text(own) for (compiled, result), own in zip(runs, rows, strict=True)
        ]
        several = {"match": match, "runs": measurements}
        shared.print_result(several if len(runs) > 1 else measurements[0], as_json, lambda: "\n\n".join(texts))
        over = any(row.over for own in rows for row in own)
    raise SystemExit(0 if match and not over else 1)


@cli.command(cls=shared.CompilingCommand, short_help="Build MODEL for a real board and upload it.")
@shared.compile_options
@click.option("--board", required=True, multiple=True, callback=shared.one_board, help="A real board (`emitc boards`).")
@shared.reference_option
@shared.samples_options(1, 64, 3)
@shared.flag("--layers", "Count every layer, by the core's counter.")
@divergence.option
@click.option("--port", help="Serial port; default: the only one that is attached by USB.")
@shared.path_option("-o", "--output", help="Where the project goes; default: NAME-BOARD.")
@shared.flag("--dry-run", "Write the project, touch no board.")
@click.option("--mlperf-tiny", "benchmark", help="Write the project that answers MLPerf Tiny's runner, such as kws01.")
@shared.json_option
def flash(
    board: str,
    port: str | None,
    output: Path | None,
    dry_run: bool,
    benchmark: str | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Build MODEL for a real board with PlatformIO, upload it, and prove it there over the serial port.

    With --mlperf-tiny the project is written and nothing is uploaded.
    """
    if divergence.wanted(values):
        raise SystemExit(divergence.on_silicon(board, port, output, as_json, dry_run, values))
    with shared.reported(as_json):
        from emitc.boards import mlperf_tiny
        from emitc.boards import verify as prove
        from emitc.report.run import run_text
        from emitc.target import load_board

        compiled = shared.compiled_model(values, "platformio", load_board(board).target)
        project = output or Path(f"{compiled.program.name}-{board}")
        options = shared.chosen(values, "reference samples seed layers")
        if benchmark is not None:
            mlperf_tiny.write_mlperf_project(compiled, board, mlperf_tiny.benchmark_named(benchmark), project)
        else:
            expected = prove.write_silicon_project(compiled, board, project, **options)
        if dry_run or benchmark is not None:
            content = {"board": board, "project": str(project), "dry_run": True}
            content |= {"mlperf_tiny": benchmark} if benchmark is not None else {}
            by_hand = f"pio run -d {shlex.quote(str(project))} -t upload"
            shared.print_result(content, as_json, lambda: f"project for {board} written to {project}: {by_hand}")
            return
        result = prove.on_silicon(
            compiled, board, project, expected, port=port, say=lambda line: click.echo(line, err=True)
        )
        shared.print_result(result.as_json(), as_json, lambda: run_text(compiled, result))
    raise SystemExit(0 if result.match else 1)


@cli.command()
@shared.json_option
def boards(as_json: bool) -> None:
    """List the boards."""
    with shared.reported(as_json):
        from emitc.report import catalogue

        content = catalogue.board_list()
        shared.print_result(content, as_json, lambda: catalogue.boards_text(content))


@cli.command("npu-check", short_help="Run FILE, which vela has compiled, on this machine.")
@click.argument("file", type=click.Path(path_type=Path))
@shared.path_option("--original", help="The file that vela compiled: compare with it.")
@shared.samples_options(1, 100000, 20)
@shared.json_option
def npu_check(file: Path, original: Path | None, samples: int, seed: int, as_json: bool) -> None:
    """Run FILE, which vela has compiled for Ethos-U55 or U65, on the host model of the NPU."""
    with shared.reported(as_json):
        from emitc.report.verify import npu_check_text
        from emitc.verify.npu_check import check_vela_file

        with _progress("running") as progress:
            check = check_vela_file(file, original, samples, seed, progress)
        shared.print_result(check.as_json(), as_json, lambda: npu_check_text(file.name, check.as_json()))
    raise SystemExit(1 if check.match is False else 0)


@cli.command()
@shared.json_option
def targets(as_json: bool) -> None:
    """List the target cores."""
    with shared.reported(as_json):
        from emitc.report import catalogue

        content = catalogue.target_list()
        shared.print_result(content, as_json, lambda: catalogue.targets_text(content))


@cli.command(short_help="List the operators that have code.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@shared.plugin_option
@shared.json_option
def ops(names: tuple[str, ...], plugins: tuple[Path, ...], as_json: bool) -> None:
    """List the operators that have code: for each element type, which variants. NAME: only those with it in their name."""
    with shared.reported(as_json):
        from emitc.report import catalogue
        from emitc.report.inspection import operator_list

        operators = operator_list(plugins, names)
        shared.print_result(operators, as_json, lambda: catalogue.ops_text(operators))


def main() -> None:
    """The console script. A command line that is refused is an object on stdout too, where --json asks for one."""
    gc.set_threshold(_ALLOCATIONS)
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        if "--json" in sys.argv[1:]:
            where = Where(option="command line")
            refused = EmitcError(error.format_message(), where, "see its usage", "emitc --help", Code.COMMAND)
            click.echo(json.dumps(shared.error_json(refused)))
        raise SystemExit(error.exit_code) from None
    except click.Abort:
        raise SystemExit(_INTERRUPTED) from None
    finally:
        # The interpreter searches all objects for garbage twice as it ends. The system takes their memory back anyhow.
        gc.freeze()
    raise SystemExit(code if isinstance(code, int) else 0)
