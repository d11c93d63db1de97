"""What the commands share: options of compilation, how errors and results are printed."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from emitc.errors import Code, EmitcError, Refusals, Where, writing

if TYPE_CHECKING:
    from emitc.backends import BackendOption
    from emitc.compiled import Compiled
    from emitc.options import Options
    from emitc.planner.region_assignment import Region

Function = TypeVar("Function", bound=Callable[..., Any])
_REGION = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z0-9_]*)=(?P<bytes>[0-9]{1,12})(?P<scale>[KM]?)"
    r"(?::(?P<cost>[0-9]{1,6}(?:\.[0-9]{1,6})?)(?::(?P<cache>[0-9]{1,12})(?P<unit>[KM]?))?)?",
    re.ASCII,
)
_BUDGET = re.compile(r"(?P<bytes>[0-9]{1,12})(?P<scale>[KM]?)", re.ASCII)
_SCALES = {"": 1, "K": 1 << 10, "M": 1 << 20}
_MOST_COST = 1e6
_LOAD_AHEAD = "A DMA of the application copies these weights while other layers run, a byte in CYCLES."
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    """NAME=1,49,10,1; the name may itself contain an equals sign. Sizes are positive."""
    name, _, dims = text.rpartition("=")
    try:
        shape = tuple(int(d) for d in dims.split(","))
    except ValueError:
        shape = ()
    if not name or not shape or any(not 1 <= d < 2**31 for d in shape) or len(shape) > 8:
        raise click.BadParameter(f"{text!r} is not NAME=DIMS, for example input_1=1,49,10,1")
    return name, shape


def _budget(text: str) -> int | str:
    """A number of bytes with the suffixes K and M as in --regions, or `min`."""
    return text if text == "min" else size_in_bytes(text, " nor min")


def size_in_bytes(text: str, other: str = "") -> int:
    """A number of bytes with the suffixes K and M as in --regions. other: what the text may be as well, for the message."""
    match = _BUDGET.fullmatch(text)
    if match is None:
        neither = "neither" if other else "not"
        raise click.BadParameter(f"{text!r} is {neither} a number of bytes such as 20000 or 20K{other}")
    return int(match["bytes"]) * _SCALES[match["scale"]]


def _regions(text: str) -> tuple[Region, ...] | str:
    """DTCM=64K,SRAM=256K:4: names, bytes, and the cost of a byte, which doubles from one to the next.

    A third number, as in FLASH=0:5:16K, has the bytes of the cache through which constants are read.
    Without an equals sign it is the name of a board, which is looked up later.
    """
    from emitc.planner.region_assignment import Region

    if "=" not in text:
        return text
    regions: list[Region] = []
    for part in text.split(","):
        match = _REGION.fullmatch(part)
        cost = float(match["cost"] or (2 * regions[-1].cost if regions else 1)) if match else 0.0
        if match is None or not 0 < cost < _MOST_COST:
            kinds = "NAME=BYTES, NAME=BYTES:COST or NAME=BYTES:COST:CACHE"
            raise click.BadParameter(f"{part!r} is not {kinds}, for example DTCM=64K,SRAM=256K:4,FLASH=0:5:16K")
        cache = int(match["cache"] or 0) * _SCALES[match["unit"] or ""]
        regions.append(Region(match["name"], int(match["bytes"]) * _SCALES[match["scale"]], cost, cache))
    return tuple(regions)


def _place(text: str) -> tuple[str, str]:
    """TENSOR=REGION; the tensor's name may itself contain an equals sign."""
    what, _, region = text.rpartition("=")
    if not what or not region:
        raise click.BadParameter(f"{text!r} is not TENSOR=REGION, for example AT_OP3=DTCM or weights=FLASH")
    return what, region


def _variant(text: str) -> tuple[int, str]:
    """opN=VARIANT."""
    operator, _, variant = text.partition("=")
    number = operator.removeprefix("op")
    if not variant or operator == number or not number.isdecimal() or len(number) > 6:
        raise click.BadParameter(f"{text!r} is not opN=VARIANT, for example op3=dsp or op3=portable")
    return int(number), variant


def error_json(error: EmitcError) -> dict[str, Any]:
    errors = error.errors if isinstance(error, Refusals) else (error,)
    stated = (
        {"what": e.what, "where": str(e.where), "why": e.why, "hint": e.hint, "code": e.code.number} for e in errors
    )
    return {"error": list(stated)}


@contextmanager
def reported(as_json: bool) -> Iterator[None]:
    """Prints an EmitcError and leaves with its exit code; under --json the object on stdout says it too.

    A disk that is full, under the temporary folder mostly, is one; whatever else the operating system says is a bug.
    """
    try:
        try:
            yield
        except OSError as error:
            if error.errno not in _FULL:
                raise
            place = Where(option=str(error.filename or tempfile.gettempdir()))
            hint = f"make room; temporary files are in {tempfile.gettempdir()}, or where TMPDIR says"
            why = error.strerror or str(error)
            raise EmitcError("there is no room for a file", place, why, hint, Code.UNWRITABLE) from error
    except EmitcError as error:
        click.echo(error.message(), err=True)
        if as_json:
            click.echo(json.dumps(error_json(error)))
        raise SystemExit(error.exit_code) from None


def print_result(content: dict[str, Any], as_json: bool, text: Callable[[], str]) -> None:
    """The result: one JSON object, or text for a person. A reader that has closed the pipe changes nothing."""
    shown = json.dumps(content, allow_nan=False) if as_json else text()
    with writing("the result cannot be written", "standard output"):
        try:
            click.echo(shown)
        except OSError as error:  # what is left in the buffer would fail again at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if not isinstance(error, BrokenPipeError):
                raise


def flag(name: str, help: str, *variable: str) -> Callable[[Function], Function]:
    """An option without a value."""
    return click.option(name, *variable, is_flag=True, help=help)


def together(options: Sequence[Callable[[Any], Any]]) -> Callable[[Function], Function]:
    """Several options as one, in the order of the help."""

    def decorated(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorated


json_option = flag("--json", "One JSON object on stdout.", "as_json")
"""--json on every command."""
_FORCE = "Replace a file that emitc did not write; never the input, and never what is no regular file."
force_option = flag("--force", _FORCE)
"""--force on every command that writes a single file."""


def one_board(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> str | None:
    """The board of a command that takes one; click by itself would take the last of several without a word."""
    if len(value) > 1:
        raise click.BadParameter(f"one board at a time, not {' and '.join(value)}", ctx, param)
    return value[0] if value else None


_OUTPUTS = ("output", "svg", "html")


def input_files(values: dict[str, Any]) -> tuple[Path, ...]:
    """The files that a command line names and that are no outputs: no output may be one of them."""
    paths = [value for name, value in values.items() if name not in _OUTPUTS]
    several = [value if isinstance(value, tuple) else (value,) for value in paths]
    return tuple(path for group in several for path in group if isinstance(path, Path))


def path_option(*names: str, help: str, **settings: Any) -> Callable[[Function], Function]:
    """An option that names a file or a directory."""
    return click.option(*names, type=click.Path(path_type=Path), help=help, **settings)


def choice_option(name: str, default: str, help: str) -> Callable[[Function], Function]:
    """An option whose default stands in its help."""
    return click.option(name, default=default, help=help, show_default=True)


shape_option = click.option(
    "--shape",
    "shapes",
    type=_shape,
    metavar="NAME=DIMS",
    multiple=True,
    help="Size of an open dimension: NAME=1,49,10,1.",
)
plugin_option = path_option(
    "--plugin",
    "plugins",
    multiple=True,
    help="A Python file with operators of your own (docs/custom-operators.md); may be repeated.",
)


def samples_options(least: int, most: int, default: int) -> Callable[[Function], Function]:
    """--samples and --seed of the commands that draw inputs."""
    seed = click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
    samples = click.option(
        "--samples", type=click.IntRange(least, most), default=default, show_default=True, help="Random inputs."
    )
    return lambda function: samples(seed(function))


reference_option = choice_option("--reference", "auto", "auto | tflm | litert | onnxruntime | mixed | numpy")


def chosen(values: dict[str, Any], names: str) -> dict[str, Any]:
    """Some of a command's values, by name."""
    return {name: values[name] for name in names.split()}


_HEADINGS = {
    f"--{name}": heading
    for heading, names in (
        ("Kernels", "target kernels kernel optimize cmsis-nn esp-nn without"),
        ("Memory", "ram-budget flash-budget regions place stage-weights load-ahead input-rows"),
        (
            "Output",
            "output package split-weights weights self-test self-test-vectors profile profile-layers labels cpp",
        ),
        ("Output", "model-licence steps max-step-cycles svg html force workdir json"),
        ("Budget", "max-arena max-flash max-stack max-instructions max-ms budget"),
        ("Model", "name io shape plugin"),
        ("NPU", "npu fallback cpu-only expect-partition allow-npu-rounding"),
    )
    for name in names.split()
}
"""Headings of the help, by option; what is not here is the command's own."""


class CompilingCommand(click.Command):
    """A command that compiles: it has the options of the backends too, which are loaded when they are needed only."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own options, then those of the backends, then --help."""
        from emitc.backends import options

        *own, last = super().get_params(ctx)
        return [*own, *(_backend_option(option) for option in options()), last]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options under headings, those of the command itself first."""
        groups: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                flag = param.opts[-1]
                heading = "NPU" if flag.startswith(("--npu-", "--ethosu-")) else _HEADINGS.get(flag, "Options")
                groups.setdefault(heading, []).append(record)
        for heading in ("Options", *dict.fromkeys(_HEADINGS.values()), *groups):
            records = groups.pop(heading, [])
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def _backend_option(option: BackendOption) -> click.Option:
    flags = f"--{option.name}"
    if not option.metavar:
        return click.Option([_key(option), flags], is_flag=True, flag_value="yes", default="", help=option.help)
    described = f"{' | '.join(option.choices)}: {option.help}" if option.choices else option.help
    return click.Option([_key(option), flags], metavar=option.metavar, default=option.default or None, help=described)


def _key(option: BackendOption) -> str:
    return f"backend_{option.name.replace('-', '_')}"


_MODEL_OPTIONS = (
    click.option("--name", default="", help="C name of the model; default: from the file name."),
    click.option("--target", help="Target core (`emitc targets`); default: generic32, or the board's."),
    choice_option(
        "--kernels", "portable", "portable | cmsis-nn | esp-nn | auto: the cheapest of them, layer by layer."
    ),
    click.option(
        "--kernel",
        "variants",
        type=_variant,
        multiple=True,
        metavar="OPN=VARIANT",
        help="The kernel of one operator, such as op3=dsp; `emitc partition` lists what there is. May be repeated.",
    ),
    choice_option("--optimize", "speed", "speed | size"),
    choice_option("--io", "keep", "keep | int8: drop the float ends of the model."),
    click.option(
        "--ram-budget",
        type=_budget,
        metavar="BYTES|MIN",
        help="Largest arena in bytes, or min for the smallest one; layers may then run row by row.",
    ),
    click.option(
        "--flash-budget",
        type=size_in_bytes,
        metavar="BYTES",
        help="Most bytes of constants; faster kernels take what the model leaves. Default: 5 % more than the model's.",
    ),
    flag(
        "--input-rows",
        "The model asks the application for the rows of its input while it runs; it is never whole in memory.",
    ),
    click.option(
        "--regions",
        type=_regions,
        metavar="NAME=BYTES[:COST],...|BOARD",
        help="Memories that get an arena each, such as DTCM=64K,SRAM=256K:4, or those of a board. COST is that of reading or"
        " writing one byte.",
    ),
    click.option(
        "--place",
        "places",
        type=_place,
        multiple=True,
        metavar="TENSOR=REGION",
        help="The region of a tensor (by its name, or as `emitc plan` calls its buffer), or of all `weights`.",
    ),
    click.option(
        "--stage-weights",
        metavar="REGION",
        default="",
        help="A fast region. Weights that a layer loads often are copied there before the layer runs.",
    ),
    click.option("--load-ahead", type=float, default=0.0, metavar="CYCLES", help=_LOAD_AHEAD),
    flag("--split-weights", "Write the constants of the layers to a file of their own, NAME_weights.c."),
    click.option(
        "--self-test",
        type=int,
        default=0,
        metavar="N",
        help="Write NAME_self_test() too, which checks the constants and runs N stored inputs on the device.",
    ),
    path_option("--self-test-vectors", help="The .npz file of these inputs, in{i}_{k}; default: random ones."),
    click.option(
        "--labels",
        default="",
        metavar="FILE|model|numbers",
        help="Functions for the best classes of an output, with names: those of a text file, or those in the model file.",
    ),
    flag("--cpp", "Write NAME.hpp too, a C++11 class that holds the arena."),
    click.option(
        "--model-licence", default="", metavar="SPDX-ID", help="Licence of the model, for the package to state."
    ),
    flag("--steps", "Functions that run one inference in steps: NAME_begin, _step and _cancel."),
    click.option(
        "--max-step-cycles",
        type=click.IntRange(min=1),
        metavar="N",
        help="As --steps, with long layers in parts: the cycles that a step is to take at most, by the estimate.",
    ),
    choice_option("--weights", "built-in", "built-in | external: weights in NAME.weights.bin, which init() checks."),
    choice_option("--fallback", "cpu", "fail | cpu: what an accelerator cannot run."),
    shape_option,
    click.option(
        "--cpu-only",
        multiple=True,
        metavar="OP",
        help="An operator, by its type or index, that no accelerator gets; may be repeated.",
    ),
    path_option(
        "--expect-partition", help="Fail unless every operator runs where this map of `emitc partition --json` says."
    ),
    plugin_option,
    click.option(
        "--without",
        "disabled",
        multiple=True,
        help="Switch off a pass, or one of the memory techniques order, views, overlap, moves and streaming."
        " May be repeated.",
    ),
)
"""The options of `emitc compile`, in the order of its help."""


model_options = together(_MODEL_OPTIONS)
"""The options of `emitc compile` without its argument."""


def compile_options(function: Function) -> Function:
    """The model and the options of `emitc compile`, shared by every command that compiles one model."""
    return click.argument("model", type=click.Path(path_type=Path))(model_options(function))


def backends_of(values: dict[str, Any]) -> dict[str, str]:
    """The options of the backends that a command line gives, by name."""
    from emitc.backends import options

    stated = {option.name: values.get(_key(option)) for option in options()}
    default = {option.name: option.default or None for option in options()}
    return {name: value for name, value in stated.items() if value and value != default[name]}


def read_small(path: Path, most: int, option: str) -> bytes:
    """The content of a file of at most `most` bytes. Raises EmitcError for a longer one, and for one that cannot be read."""
    where = Where(option=f"{option} {path}")
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except (OSError, ValueError) as error:
        what = f"{path} cannot be read"
        raise EmitcError(what, where, str(error), "name a readable file", Code.UNREADABLE) from error
    if len(data) > most:
        why = f"it may have {most} bytes"
        raise EmitcError(f"{path} is too long", where, why, "choose another file", Code.TOO_LARGE)
    return data


def options_of(values: dict[str, Any], package: str, default_target: str = "generic32") -> Options:
    from emitc.backends import options
    from emitc.options import Options

    backends = {option.name: values.get(_key(option)) for option in options()}
    same = {field.name: values[field.name] for field in fields(Options) if field.name in values}
    return Options(
        **same
        | {
            "target": values["target"] or default_target,
            "package": package,
            "shapes": dict(values["shapes"]),
            "disabled": frozenset(values["disabled"]),
            "backends": {name: value for name, value in backends.items() if value},
            "regions": known_regions(values["regions"]),
        }
    )


def known_regions(wanted: tuple[Region, ...] | str | None) -> tuple[Region, ...]:
    """The regions, looked up where a board is named. Raises EmitcError for an unknown board, and one with a single RAM."""
    from emitc.errors import unknown_choice
    from emitc.planner.region_assignment import Region
    from emitc.target import MemoryRegion, boards, load_board

    if not isinstance(wanted, str):
        return wanted or ()
    if wanted not in boards():
        why = f"it is neither NAME=BYTES,... nor a board; the boards are {', '.join(boards())}"
        raise unknown_choice("--regions", wanted, boards(), why)
    board = load_board(wanted)
    slow = (
        MemoryRegion(r.name, r.start, 0, r.kind, r.cost, r.cache_bytes)
        for r in board.memory
        if r.kind == "flash" and r.cost > 1
    )
    regions = tuple(Region(r.name.upper(), r.size_bytes, r.cost, r.cache_bytes) for r in (*board.arena_regions, *slow))
    if len(regions) < 2:
        why = "with one region there is one arena"
        hint = "leave --regions out, or name regions as in DTCM=64K,SRAM=256K"
        raise EmitcError(f"{board.name} has one RAM", Where(option=f"--regions {wanted}"), why, hint)
    return regions


def compiled_model(values: dict[str, Any], package: str = "plain", default_target: str = "generic32") -> Compiled:
    from emitc.compiler import compile_model

    return compile_model(values["model"], options_of(values, package, default_target))
