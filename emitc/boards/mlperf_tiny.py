"""MLPerf Tiny's benchmarks as an application: a model answers the benchmark's runner over a board's serial port.

The protocol is that of the firmware of github.com/mlcommons/tiny (benchmark/api), version 2.2 of its monitor.
"""

import shutil
import tempfile
from pathlib import Path
from types import MappingProxyType

from emitc.boards.project import begin_flash_project, copy_package
from emitc.boards.verify import require_fit
from emitc.compiled import Compiled
from emitc.emit.render import environment
from emitc.errors import EmitcError, Where, unknown_choice, writing
from emitc.records import asdict, dataclass
from emitc.target import boards_dir, load_board


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What a benchmark's data files hold, and what it asks for.

    floats: the runner sends float32, little-endian, which the board quantizes; else one byte for each element.
    unsigned_bytes: these bytes are 0 to 255, and the int8 element is the byte minus 128; else they are the int8 elements.
    reconstruction: the result is the mean squared difference between output and input; else every output as a number.
    """

    name: str
    floats: bool = False
    unsigned_bytes: bool = False
    reconstruction: bool = False


_ROWS = (
    Benchmark("ad01", floats=True, reconstruction=True),
    Benchmark("ic01", unsigned_bytes=True),
    Benchmark("kws01"),
    Benchmark("vww01", unsigned_bytes=True),
)
BENCHMARKS = MappingProxyType({row.name: row for row in _ROWS})
"""The benchmarks by the names that the runner knows them by."""


def benchmark_named(name: str) -> Benchmark:
    """The benchmark of that name. Raises EmitcError with the names that exist."""
    if name not in BENCHMARKS:
        raise unknown_choice("--mlperf-tiny", name, tuple(BENCHMARKS))
    return BENCHMARKS[name]


def _check(compiled: Compiled, benchmark: Benchmark) -> None:
    """Raises EmitcError for a model that the benchmark's data does not fit."""
    program = compiled.program
    ports = (*program.inputs, *program.outputs)
    why = ""
    if len(program.inputs) != 1 or len(program.outputs) != 1:
        why = f"the model has {len(program.inputs)} inputs and {len(program.outputs)} outputs"
    elif any(port.dtype != "int8" or port.scale is None for port in ports):
        why = f"they are {' and '.join(port.dtype for port in ports)}"
    elif program.regions or program.state_bytes or program.streamed_input is not None:
        why = "the model has several arenas, a state, or an input that is read row by row"
    elif benchmark.reconstruction and program.inputs[0].elements != program.outputs[0].elements:
        why = "the result compares output and input, which have different numbers of elements"
    if why:
        what = f"the model cannot be {benchmark.name} of MLPerf Tiny"
        hint = "the benchmarks take models with one int8 input, one int8 output and one arena"
        raise EmitcError(what, Where(option="--mlperf-tiny"), why, hint)


def application(compiled: Compiled, benchmark: Benchmark, board: str) -> str:
    """The C text of the application for a compiled model. board: the name that it tells the runner."""
    _check(compiled, benchmark)
    program = compiled.program
    values = {"model": program.name, "upper": program.upper, "board": board, "version": program.origin.version}
    return environment().get_template("board/mlperf_tiny.c.j2").render(values | asdict(benchmark))


def write_mlperf_project(compiled: Compiled, board: str, benchmark: Benchmark, project: Path) -> None:
    """Writes the PlatformIO project of a benchmark for a real board to `project`.

    Raises EmitcError where the model is not one of the benchmark's kind, or is larger than the board. It does so too where the
    folder holds what emitc did not write.
    """
    require_fit(compiled, board)
    text = application(compiled, benchmark, board)
    with tempfile.TemporaryDirectory(prefix="emitc-mlperf-") as folder:
        package = Path(folder) / compiled.program.name
        compiled.write(package)
        with writing(f"the project cannot be written to {project}", "-o"):
            begin_flash_project(compiled.program.name, load_board(board), project, mlperf=True)
            copy_package(package, project)
            (project / "src" / "mlperf_tiny.c").write_text(text, encoding="ascii", newline="\n")
            shutil.copyfile(boards_dir() / "proof" / "mlperf_tiny.h", project / "src" / "mlperf_tiny.h")
