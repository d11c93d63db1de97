"""Rendered text to a directory in the layout of one kind of package, written all at once or not at all."""

import json
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from emitc.emit.external_weights import file_name
from emitc.emit.facts import StackBound
from emitc.emit.licence import LICENSE, stated, with_model
from emitc.emit.manifest import manifest
from emitc.emit.output_file import option_of, staging
from emitc.emit.package_kinds import KINDS, Content
from emitc.emit.render import render_sources, uses_math
from emitc.errors import EmitcError, Where, writing
from emitc.program import PassReport, Program
from emitc.program.extras import ExampleRun

PACKAGES = tuple(KINDS)
"""The words of `--package`."""
_MARK = "manifest.json"
_OF_BUILDS = {"Cargo.toml": ("Cargo.lock", "target"), "build.zig": (".zig-cache", "zig-out")}
"""What a tool leaves in a package that has the file: its example was built there."""


@cache
def runtime_dir() -> Path:
    """Where c_runtime lies: inside an installed wheel, or next to the package in a checkout."""
    here = Path(__file__).resolve().parent.parent
    installed = here / "_data" / "c_runtime"
    return installed if installed.is_dir() else here.parent / "c_runtime"


@cache
def runtime_files() -> Mapping[str, Path]:
    """The files of c_runtime by name. They lie in a folder for each instruction set; a package has them in one."""
    paths = sorted(path for path in runtime_dir().rglob("emitc_*") if path.is_file())
    return MappingProxyType({path.name: path for path in paths})


def runtime_texts(program: Program) -> dict[str, str]:
    """The files of the runtime that a package holds, by name."""
    names = ("emitc_runtime.h", "emitc_runtime.c", *program.headers)
    return {name: runtime_files()[name].read_text(encoding="ascii") for name in names}


def profile_files(wanted: bool) -> dict[str, str]:
    """The header that records when each layer ended, by its name; nothing where it is not wanted."""
    return {name: runtime_files()[name].read_text(encoding="ascii") for name in ["emitc_profile.h"] * wanted}


def package_files(
    program: Program,
    package: str,
    passes: tuple[PassReport, ...],
    options: Mapping[str, Any],
    *,
    more: Mapping[str, str] = MappingProxyType({}),
    stack: StackBound | None = None,
    example: tuple[ExampleRun, ...] = (),
) -> dict[str, bytes]:
    """Every file of the package by its path inside it, the manifest included.

    options: as the manifest shows them. more: further files, by path. stack: what a compiler found, where it was asked.
    example: the runs for kinds that have an example.
    """
    sources = render_sources(program, stack) | runtime_texts(program)
    extra = sorted(name for name in more if name.endswith((".c", ".h")))
    sources |= {name: more[name] for name in extra}
    kind = KINDS[package]
    paths = {name: kind.path(name, program.name) for name in sorted(sources)}
    texts = {paths[name]: text for name, text in sources.items()}
    texts |= {name: text for name, text in more.items() if name not in extra}
    units = tuple(name.removesuffix(".c") for name in extra if name.endswith(".c"))
    optimize = {"speed": "-O2", "size": "-Os"}[options["optimize"]]
    compiled, headers = (tuple(path for path in paths.values() if path.endswith(end)) for end in (".c", ".h"))
    texts |= kind.files(Content(program, optimize, units, uses_math(program), example, compiled, headers))
    of_model = {f"{program.name}.c", f"{program.name}_weights.c"}
    licence_of = {name: with_model(program.extras.model_licence) for name in texts if Path(name).name in of_model}
    files = {name: stated(name, text, licence_of.get(name, LICENSE)).encode("ascii") for name, text in texts.items()}
    if program.external is not None:
        files[file_name(program)] = program.external.file()
    files[_MARK] = (json.dumps(manifest(program, passes, options, files, stack), indent=2) + "\n").encode("ascii")
    return files


def _written_by_emitc(target: Path) -> set[str]:
    """Paths that the manifest in `target` says emitc wrote; empty where there is none, or it is not emitc's."""
    try:
        content = json.loads((target / _MARK).read_text(encoding="utf-8"))
        if "emitc_version" not in content or "schema_version" not in content:
            return set()
        return {_MARK, *content["files"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return set()


def _content(folder: Path, prefix: str = "") -> Iterator[str]:
    """Paths of everything below a folder that is not itself a folder, links to folders included."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            yield from _content(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}"


def _require_replaceable(target: Path) -> None:
    """Refuses to replace what emitc did not write: a file, or a directory with content that no manifest of emitc lists."""
    if "\0" in str(target):
        raise EmitcError("the output path has a zero byte", Where(option="-o"), "no file has", "choose another one")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        what = f"{target} is not a directory"
        raise EmitcError(what, Where(option="-o"), "the package is a directory", "choose another one")
    if not target.is_dir():
        return
    ours = _written_by_emitc(target)
    built = {name for file, names in _OF_BUILDS.items() if file in ours for name in names}
    rest = (name for name in _content(target) if name.partition("/")[0] not in built)
    not_ours = next((name for name in rest if name not in ours), None)
    if not_ours is not None:
        why = f"the whole directory would be replaced, and {not_ours} is not of an emitc package"
        hint = "choose an empty or new directory, or move the file out of it"
        raise EmitcError(f"{target} has content that emitc did not write", Where(option="-o"), why, hint)


def write_package(files: Mapping[str, bytes], target: Path) -> tuple[str, ...]:
    """Writes the files as directory `target`, replacing an earlier package in one step; returns their paths, sorted.

    A failure or an interruption leaves what was there. Raises EmitcError when the place cannot be written or holds
    something else.
    """
    if str(target) == "-":
        what = "a package does not go to standard output"
        raise EmitcError(what, Where(option="-o -"), "it is a directory of several files", "name a directory")
    with writing(f"the package cannot be written to {target}", option_of(target, "-o")):
        place = Path(os.path.abspath(target))
        _require_replaceable(place)
        if place.is_dir() and Path.cwd().is_relative_to(os.path.realpath(place)):
            why = "the directory is replaced as a whole, and the shell would stay in the removed one"
            hint = "name another directory, or start emitc in the parent of this one"
            raise EmitcError(f"{target} is the working directory, or holds it", Where(option="-o"), why, hint)
        with staging(place) as folder:
            fresh, old = folder / "new", folder / "old"
            for name, data in sorted(files.items()):
                path = fresh / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            try:
                if place.exists():
                    os.replace(place, old)
                os.replace(fresh, place)
            except BaseException:  # an interruption here must not lose the old package either
                if old.exists() and not place.exists():
                    os.replace(old, place)
                raise
    return tuple(sorted(files))
