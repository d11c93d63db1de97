"""A compiled model to a board: the cases that it has to prove, whether it fits, and the run itself."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from emitc.boards.flash import flash
from emitc.boards.measurement import Measurement, measurement
from emitc.boards.project import Case, Firmware, RunLayer, RunModel, RunTensor, write_flash_project
from emitc.boards.run import ZERO_WAIT, Simulation, run_on_board
from emitc.compiled import Compiled
from emitc.errors import CannotCompile, Code, EmitcError, Where, writing
from emitc.target import Board, load_board
from emitc.verify.engines.run import missing_engines
from emitc.verify.golden_run import golden_run, has_other_arithmetic, play_back
from emitc.verify.operator_checks import has_operator_checks, rounded_otherwise
from emitc.verify.reference import random_samples
from emitc.verify.tolerances import tolerances_of


def run_model(compiled: Compiled) -> RunModel:
    """What the board's side must know of the model; its outputs are judged by the rules of the host's proof."""
    program = compiled.program
    rule_of = tolerances_of(compiled)
    return RunModel(
        program.name,
        tuple(RunTensor(p.size_bytes, p.c_type) for p in program.inputs),
        tuple(
            RunTensor(p.size_bytes, p.c_type, rule_of[name])
            for p, name in zip(program.outputs, compiled.graph.outputs, strict=True)
        ),
        program.plan.arena_bytes,
        tuple(RunLayer(t.step.index, t.step.op_type, t.step.label, t.macs) for t in program.traced),
        program.state_bytes,
        tuple(region.name for region in program.regions if region.plan.arena_bytes),
        program.streamed_input is not None,
        program.self_test.name_bytes(program) if program.self_test else 0,
        program.external.file() if program.external else b"",
        any(region.name == program.weights and region.size_bytes for region in compiled.options.regions),
    )


def expected(compiled: Compiled, reference: str, samples: int, seed: int) -> tuple[str, list[Case]]:
    """The golden engine's name, and seeded random inputs with its outputs; one sequence of runs for a model with state.

    Of a QDQ model the numpy reference's outputs: an element that the engine rounds the other way
    (`emitc.verify.operator_checks`) is the host proof's business. The board has to give the bits that were proven there. So of
    a TFLite model that LiteRT alone runs, where it rounds otherwise than the C, and where no engine is installed.
    """
    own = (
        has_operator_checks(compiled.graph)
        or has_other_arithmetic(compiled.partition.graph)
        or missing_engines(compiled.source.format)
    )
    if reference == "auto" and own:
        reference = "numpy"
    inputs = random_samples(compiled.graph, samples, seed)
    golden = golden_run(compiled, reference, inputs, preserve=False)
    if reference == "auto" and rounded_otherwise(compiled.graph, golden.engine):
        golden = golden_run(compiled, "numpy", inputs, preserve=False)
    return golden.engine, [
        (tuple(value.tobytes() for value in sample), tuple(value.tobytes() for value in wanted))
        for sample, wanted in zip(inputs, golden.outputs, strict=True)
    ]


def require_fit(compiled: Compiled, board: str) -> None:
    """Refuses a model that is larger than the board's memories, naming the tensors at the arena's peak."""
    program = compiled.program
    slots = {p.name: s for p, s in zip(program.plan.placements, program.slots, strict=True)}
    peak = "; ".join(f"{slots[n].what}: {slots[n].size_bytes} bytes" for n in program.plan.peak_buffers)
    described = load_board(board)
    arenas = [plan.arena_bytes for _, plan in program.arenas]
    # In one RAM all arenas lie together; where there are more, the linker script says which holds what.
    together = sum(1 for region in described.memory if region.kind == "ram") == 1
    ram = (sum(arenas) if together else max(arenas)) + program.state_bytes
    check_fits(described, program.constant_bytes, ram, f"{program.peak_op} with {peak}")


def on_emulator(
    compiled: Compiled,
    board: str,
    *,
    reference: str,
    samples: int,
    seed: int,
    layers: bool,
    workdir: Path | None,
    simulation: Simulation = ZERO_WAIT,
) -> Measurement:
    """Builds, boots and proves the model on an emulated board; in `workdir`, or in a folder that is removed."""

    def run_in(folder: Path) -> Measurement:
        require_fit(compiled, board)
        package = folder / "package"
        compiled.write(package)
        engine, vectors = expected(compiled, reference, samples, seed)
        if compiled.host_hooks():
            play_back(compiled, package, random_samples(compiled.graph, samples, seed))
        return run_cases(compiled, board, package, (engine, vectors), layers=layers, simulation=simulation)

    if workdir is not None:
        return run_in(workdir)
    with tempfile.TemporaryDirectory(prefix="emitc-run-") as temporary:
        try:
            return run_in(Path(temporary))
        except EmitcError as error:
            if temporary not in error.hint:
                raise
            raise error.at(hint="--workdir DIR keeps the project and the whole output of its build") from error


def run_cases(
    compiled: Compiled,
    board: str,
    package: Path,
    expected: tuple[str, list[Case]],
    *,
    layers: bool = False,
    simulation: Simulation = ZERO_WAIT,
) -> Measurement:
    """Builds the written package for an emulated board, boots it, and compares and measures the expected cases.

    package: of --package platformio; the folder around it gets the build. Raises what `run_on_board` raises.
    """
    engine, vectors = expected
    target = load_board(board)
    firmware = Firmware(package, run_model(compiled), vectors, compiled.support(target.target))
    result = run_on_board(firmware, target, layers=layers, workdir=package.parent / "board", simulation=simulation)
    return measurement(compiled, result, engine)


def write_silicon_project(
    compiled: Compiled, board: str, project: Path, *, reference: str, samples: int, seed: int, layers: bool = False
) -> tuple[str, list[Case]]:
    """Writes the project for a real board. Returns what it has to prove, as `expected` does.

    layers: the board counts each layer too.
    """
    require_fit(compiled, board)
    engine, vectors = expected(compiled, reference, samples, seed)
    with tempfile.TemporaryDirectory(prefix="emitc-flash-") as folder:
        package = Path(folder) / compiled.program.name
        compiled.write(package)
        with writing(f"the project cannot be written to {project}", "-o"):
            write_flash_project(package, run_model(compiled), load_board(board), vectors, project, layers=layers)
    return engine, vectors


def on_silicon(
    compiled: Compiled,
    board: str,
    project: Path,
    expected: tuple[str, list[Case]],
    *,
    port: str | None,
    say: Callable[[str], None] = lambda line: None,
) -> Measurement:
    """Uploads a project of `write_silicon_project` and reads the proof that the board prints.

    say: called with every line of the build.
    """
    engine, vectors = expected
    result = flash(project, run_model(compiled), load_board(board), vectors, port=port, say=say)
    return measurement(compiled, result, engine)


STACK_BYTES = 1024
"""RAM that is kept for the stack; the linker scripts of the QEMU platform ask for the same."""


def check_fits(board: Board, flash_bytes: int, ram_bytes: int, peak: str) -> None:
    """Raises CannotCompile where the model alone is too much for the board's largest contiguous flash or RAM.

    flash_bytes: constants and code of the model. ram_bytes: arena and state. peak: text that names the tensors alive at
    the arena's peak. Necessary, not sufficient: what the board's framework needs comes on top and is not known here.
    """
    over_flash = flash_bytes - board.flash_bytes
    over_ram = ram_bytes + STACK_BYTES - board.ram_bytes
    if over_flash <= 0 and over_ram <= 0:
        return
    parts = []
    hints = []
    if over_ram > 0:
        parts.append(
            f"RAM is exceeded by {over_ram} bytes: {ram_bytes} for arena and state and {STACK_BYTES} kept for the "
            f"stack, of {board.ram_bytes}; at the peak: {peak}"
        )
        hints.append("shrink the tensors at the peak")
    if over_flash > 0:
        parts.append(f"flash is exceeded by {over_flash} bytes: {flash_bytes} of {board.flash_bytes}")
        hints.append("shrink the weights")
    why = "; ".join(parts)
    hint = f"{' and '.join(hints)}, or choose a larger board (`emitc boards`)"
    where = Where(option=f"--board {board.name}")
    raise CannotCompile(f"the model does not fit {board.title}", where, why, hint, Code.BOARD_MEMORY)
