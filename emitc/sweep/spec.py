"""The specification of a sweep: a TOML file, validated, and the files that its patterns find."""

import fnmatch
import itertools
import math
import os
import re
import tomllib
from pathlib import Path, PurePath

from emitc.backends import kernel_choices
from emitc.backends import options as backend_options
from emitc.errors import EmitcError, Where, unknown_choice
from emitc.options import Options, check_options
from emitc.records import dataclass
from emitc.target import load_board, load_target
from emitc.toml_table import TomlTable

MOST_JOBS = 100_000
_MOST_BYTES = 1 << 20
_MOST_CYCLES = 1 << 40
_MOST_MODELS = 10_000
_MOST_ENTRIES = 1_000_000
"""Paths, folders included, that all patterns may find."""
_BUDGET = re.compile(r"(?P<bytes>[0-9]{1,12})(?P<scale>[KM]?)", re.ASCII)
_SCALES = {"": 1, "K": 1 << 10, "M": 1 << 20}
_KEYS = (
    "models", "targets", "boards", "kernels", "ram_budgets", "options", "data", "verify", "samples", "measure", "stack",
)  # fmt: skip
_OPTION_KEYS = (
    "name", "optimize", "io", "flash_budget", "fallback", "without", "cpu_only", "shapes", "backends", "split_weights",
    "input_rows", "steps", "max_step_cycles",
)  # fmt: skip
_DATA_KEYS = ("path", "models", "metric", "scale", "mean", "layout", "output")
METRICS = ("top1", "top5", "mse", "auc")


@dataclass(frozen=True, slots=True)
class Data:
    """Labelled data for the models whose path matches one of the patterns; see `emitc.evaluate.dataset.Preparation`."""

    path: Path
    models: tuple[str, ...]
    metric: str = "top1"
    scale: float | None = None
    mean: float | None = None
    layout: str = "as-is"
    output: int = 0

    def serves(self, model: Path, root: Path) -> bool:
        relative = model.relative_to(root).as_posix()
        return any(fnmatch.fnmatchcase(relative, pattern) for pattern in self.models)


@dataclass(frozen=True, slots=True)
class Variant:
    """One set of options under a name."""

    name: str
    options: Options


@dataclass(frozen=True, slots=True)
class Spec:
    """What a sweep is made of. Every combination of models, places, kernels, budgets, variants and data is one job.

    root: the folder that all files lie in. places: (target, board) with "" for no board. budgets: as `Options.ram_budget`.
    verify: prove every package on this machine, with `samples` random inputs. measure: boot the emulated boards. stack: have
    the target's compiler find the stack.
    """

    root: Path
    models: tuple[Path, ...]
    places: tuple[tuple[str, str], ...]
    kernels: tuple[str, ...] = ("portable",)
    budgets: tuple[int | str | None, ...] = (None,)
    variants: tuple[Variant, ...] = (Variant("default", Options()),)
    data: tuple[Data, ...] = ()
    verify: bool = True
    samples: int = 3
    measure: bool = True
    stack: bool = False


@dataclass(slots=True)
class _Files:
    """Files below the root of a sweep. entries: directory entries that were looked at, over all patterns."""

    table: TomlTable
    root: Path
    entries: int = 0

    def inside(self, key: str, text: str) -> Path:
        """The path, which must exist below the root when links are followed."""
        path = self.root / self._relative(key, text)
        try:
            exists = path.is_file() or path.is_dir()
        except OSError as error:
            raise self.table.refusal(key, f"{path}: {error.strerror}", "correct the path") from error
        if not exists:
            raise self.table.refusal(key, f"{path} is no file and no folder", "correct the path")
        return self._kept(key, path)

    def matching(self, key: str, pattern: str) -> tuple[Path, ...]:
        """The regular files that a pattern finds, in the order of their names."""
        relative = self._relative(key, pattern)
        try:
            hits = itertools.islice(self.root.glob(str(relative)), _MOST_ENTRIES + 1)
            files: list[Path] = []
            for path in hits:
                self.entries += 1
                if self.entries > _MOST_ENTRIES or len(files) > _MOST_MODELS:
                    raise self.table.refusal(key, f"{pattern!r} finds more than {_MOST_MODELS} files", "narrow it")
                if path.is_file():
                    files.append(self._kept(key, path))
        except (OSError, ValueError, NotImplementedError, re.error) as error:
            hint = "use a pattern such as models/*.tflite"
            raise self.table.refusal(key, f"{pattern!r} is no pattern: {error}", hint) from error
        if not files:
            raise self.table.refusal(key, f"{pattern!r} finds no file below {self.root}", "correct the pattern")
        return tuple(sorted(files))

    def _relative(self, key: str, text: str) -> PurePath:
        pure = PurePath(text)
        if pure.is_absolute() or ".." in pure.parts or os.path.isabs(text):
            why = f"{text!r} leaves the folder {self.root}"
            raise self.table.refusal(key, why, "paths are relative to it; --root FOLDER names another one")
        return pure

    def _kept(self, key: str, path: Path) -> Path:
        real = path.resolve()
        if not real.is_relative_to(self.root.resolve()):
            why = f"{path} is a link to {real}, outside of {self.root}"
            raise self.table.refusal(key, why, "copy the file, or name another folder by --root FOLDER")
        return path


def read_spec(path: Path, root: Path | None = None) -> Spec:
    """The sweep that a TOML file describes. root: the folder of the files it names; None for the folder of the file itself.

    Raises EmitcError for a file that cannot be read, is no TOML, has an unknown key or value, or names a file outside of root.
    """
    content = _parsed(path)
    table = TomlTable(path.name, "", content, _KEYS, "the sweep", "see docs/sweep.md")
    files = _Files(table, (root or path.parent).absolute())
    patterns = table.texts("models")
    if not patterns:
        raise table.refusal("models", "no model is named", 'name some, such as models = ["*.tflite"]')
    models = tuple(dict.fromkeys(model for pattern in patterns for model in files.matching("models", pattern)))
    places = _places(table)
    spec = Spec(
        files.root,
        models,
        places,
        _chosen(table, "kernels", kernel_choices(), ("portable",)),
        _budgets(table),
        _variants(table),
        _data(table, files),
        table.truth("verify", True),
        table.whole("samples", 1, 1000, 3),
        table.truth("measure", True),
        table.truth("stack", False),
    )
    count = job_count(spec)
    if count > MOST_JOBS:
        factors = f"{len(models)} models, {len(places)} targets and boards, {len(spec.kernels)} kernels, "
        factors += f"{len(spec.budgets)} budgets, {len(spec.variants)} options and {len(spec.data)} data sets"
        where, hint = Where(option=path.name), "split the sweep into several files"
        raise EmitcError(f"the sweep has up to {count} jobs", where, f"it has {factors}; {MOST_JOBS} are allowed", hint)
    return spec


def job_count(spec: Spec) -> int:
    factors = (spec.models, spec.places, spec.kernels, spec.budgets, spec.variants)
    return math.prod(map(len, factors)) * max(1, len(spec.data))


def _parsed(path: Path) -> dict[str, object]:
    where = Where(option=str(path))
    try:
        if path.stat().st_size > _MOST_BYTES:
            why = f"it has {path.stat().st_size} bytes, and a sweep has at most {_MOST_BYTES}"
            raise EmitcError("the sweep is too large", where, why, "use patterns instead of lists")
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise EmitcError("the sweep cannot be read", where, error.strerror or str(error), "correct the path") from error
    except RecursionError as error:
        what = "this is no TOML file of a sweep"
        raise EmitcError(what, where, "it is nested too deeply", "see docs/sweep.md") from error
    except ValueError as error:
        raise EmitcError("this is no TOML file", where, str(error), "see docs/sweep.md for an example") from error


def _places(table: TomlTable) -> tuple[tuple[str, str], ...]:
    """Targets, then boards with their targets. Raises EmitcError for an unknown name, and where there are none."""
    targets, boards = table.texts("targets"), table.texts("boards")
    if not targets and not boards:
        targets = ("generic32",)
    places: list[tuple[str, str]] = []
    for key, names in (("targets", targets), ("boards", boards)):
        for name in names:
            try:
                places.append((load_target(name).name, "") if key == "targets" else (load_board(name).target, name))
            except EmitcError as error:
                raise table.refusal(key, f"{error.what}: {error.why}", error.hint) from error
    return tuple(places)


def _chosen(table: TomlTable, key: str, known: tuple[str, ...], default: tuple[str, ...]) -> tuple[str, ...]:
    values = table.texts(key, default)
    for value in values:
        _require_known(table, key, value, known)
    if not values:
        raise table.refusal(key, "the list is empty", f"name some of {', '.join(known)}")
    return values


def size_of(text: str) -> int | None:
    """Bytes that a text such as 20000 or 20K means; None for no such text.

    >>> size_of("20K"), size_of("x")
    (20480, None)
    """
    match = _BUDGET.fullmatch(text)
    return None if match is None else int(match["bytes"]) * _SCALES[match["scale"]]


def _budgets(table: TomlTable) -> tuple[int | str | None, ...]:
    budgets: list[int | str | None] = []
    for text in table.texts("ram_budgets", ("none",)):
        value = {"none": None, "min": "min"}.get(text, size_of(text))
        if value is None and text != "none":
            why = f"{text!r} is neither a number of bytes such as 20000 or 20K, nor none, nor min"
            raise table.refusal("ram_budgets", why)
        if value in budgets:
            raise table.refusal("ram_budgets", f"{text!r} stands there twice", "name it once")
        budgets.append(value)
    if not budgets:
        raise table.refusal("ram_budgets", "the list is empty", 'use "none" for no budget')
    return tuple(budgets)


def _variants(table: TomlTable) -> tuple[Variant, ...]:
    """The sets of options. Raises EmitcError where two have one name, or where a value is not valid."""
    variants: list[Variant] = []
    for entry in table.tables("options", _OPTION_KEYS):
        name = entry.text("name")
        if any(other.name == name for other in variants):
            raise entry.refusal("name", f"{name!r} stands there twice", "give each set of options a name of its own")
        flash = size_of(entry.text("flash_budget")) if entry.has("flash_budget") else None
        if entry.has("flash_budget") and flash is None:
            raise entry.refusal("flash_budget", 'it is no number of bytes such as "20000" or "20K"')
        options = Options(
            optimize=entry.text("optimize", "speed"),
            io=entry.text("io", "keep"),
            flash_budget=flash,
            fallback=entry.text("fallback", "cpu"),
            disabled=frozenset(entry.texts("without")),
            cpu_only=entry.texts("cpu_only"),
            shapes=entry.shapes("shapes"),
            backends=_backends(entry),
            split_weights=entry.truth("split_weights", False),
            input_rows=entry.truth("input_rows", False),
            steps=entry.truth("steps", False),
            max_step_cycles=entry.whole("max_step_cycles", 1, _MOST_CYCLES, 1)
            if entry.has("max_step_cycles")
            else None,
        )
        try:
            check_options(options)
        except EmitcError as error:
            raise entry.refusal(str(error.where), f"{error.what}: {error.why}", error.hint) from error
        variants.append(Variant(name, options))
    return tuple(variants) or (Variant("default", Options()),)


def _backends(table: TomlTable) -> dict[str, str]:
    known = {option.name: option for option in backend_options()}
    inner = table.inner(f"{table.name}.backends", dict(table.strings("backends")), tuple(known))
    for name in inner.content:
        if known[name].metavar == "PATH":
            raise inner.refusal(name, "an option that names a file is not taken from a sweep", "remove it")
    return table.strings("backends")


def _data(table: TomlTable, files: _Files) -> tuple[Data, ...]:
    data_sets = []
    for entry in table.tables("data", _DATA_KEYS):
        local = _Files(entry, files.root)
        metric = _require_known(entry, "metric", entry.text("metric", "top1"), METRICS)
        layout = _require_known(entry, "layout", entry.text("layout", "as-is"), ("as-is", "nhwc", "nchw"))
        path, patterns = local.inside("path", entry.text("path")), entry.texts("models", ("*",))
        output = entry.whole("output", 0, 1000, 0)
        data_sets.append(Data(path, patterns, metric, entry.number("scale"), entry.number("mean"), layout, output))
    return tuple(data_sets)


def _require_known(table: TomlTable, key: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        error = unknown_choice(key, value, known)
        raise table.refusal(key, f"{error.what}: {error.why}", error.hint)
    return value
