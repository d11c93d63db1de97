"""Which CMSIS-NN lies at a path, and what its functions take: read from the tree, never assumed.

Releases state no version in the sources that firmware projects carry, so the revisions of two headers identify them. In
the library's history these change with every change of a buffer size, except for a few commits between releases, which are
refused. Everything else about the interface is read from the prototypes.
Source  the headers of the releases 4.0.0 to 7.0.0 and of the development up to July 2026.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import MappingProxyType

from emitc.backends.cmsis_nn.definition import OPTION
from emitc.backends.cmsis_nn.headers import Variable, prototypes, structures
from emitc.errors import EmitcError, Where

Revision = tuple[int, int, int]
_HEADER = "arm_nnfunctions.h"
_HEADERS = ("arm_nnfunctions.h", "arm_nn_types.h", "arm_nnsupportfunctions.h")
_DEPTH = 6
"""Folders below the given path in which the header is looked for."""
_SKIPPED = frozenset([".git", ".pio", "Tests", "Documentation", "Examples", "node_modules", "__pycache__"])
_REVISION = re.compile(r"\$Revision:\s*V\.?\s*(\d+)\.(\d+)\.(\d+)")
_FIRST_BYTES = 4096
_LARGEST_HEADER = 1 << 22


class KernelSums(Enum):
    """What MVE kernels of fully connected layers take from their buffer: a constant table, one int32 for each output."""

    NONE = "no buffer"
    WEIGHTS = "sum of the weights"
    BIAS_AND_OFFSET = (
        "bias + input_offset * (sum of the weights + depth * filter_offset); the bias argument is not read"
    )


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """Revisions of arm_nnfunctions.h and arm_nnsupportfunctions.h, in the order of the library's history.

    name: the release, or the release that it follows with a plus sign and the revisions.
    """

    functions: Revision
    support: Revision
    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def sums(self) -> KernelSums:
        """What kernels of fully connected layers find in their buffer."""
        if self.functions < (12, 0, 0):
            return KernelSums.NONE
        return KernelSums.WEIGHTS if self.functions < (17, 0, 0) else KernelSums.BIAS_AND_OFFSET


def _version(functions: str, support: str, name: str) -> Version:
    return Version(_revision(functions.split(".")), _revision(support.split(".")), name)


def _revision(parts: Iterable[str]) -> Revision:
    major, minor, patch = map(int, parts)
    return major, minor, patch


RELEASES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "4.0.0": ("11.2.0", "14.0.0"),
        "23.02": ("11.3.0", "15.0.0"),
        "4.1.0": ("11.3.0", "16.0.0"),
        "23.08": ("11.3.0", "17.0.0"),
        "5.0.0": ("12.4.0", "17.6.0"),
        "24.02": ("13.0.0", "18.1.0"),
        "6.0.0": ("16.0.0", "22.0.0"),
        "7.0.0": ("18.0.0", "22.7.0"),
    }
)
"""Revisions of arm_nnfunctions.h and arm_nnsupportfunctions.h in the releases, oldest first."""

BETWEEN = (
    ("11.3.0", "14.3.0"), ("11.3.0", "15.0.1"), ("12.0.0", "17.0.0"), ("12.1.0", "17.3.0"), ("12.2.0", "17.4.0"),
    ("12.3.0", "17.5.0"), ("12.4.1", "17.6.2"), ("12.5.0", "17.6.2"), ("12.5.1", "17.6.3"), ("12.6.0", "17.7.0"),
    ("13.0.0", "18.0.0"), ("13.0.1", "18.1.0"), ("13.0.1", "19.0.0"), ("15.0.0", "20.0.0"), ("15.1.0", "20.1.0"),
    ("15.1.0", "20.2.0"), ("15.2.0", "20.3.0"), ("16.0.0", "21.0.0"), ("16.0.0", "21.1.0"), ("16.1.0", "22.1.0"),
    ("16.2.0", "22.2.0"), ("16.3.0", "22.3.0"), ("17.0.0", "22.3.0"), ("17.1.0", "22.4.0"), ("17.2.0", "22.4.0"),
    ("17.3.0", "22.4.0"), ("17.3.0", "22.5.0"), ("17.3.0", "22.6.1"), ("18.0.0", "22.8.0"), ("18.0.0", "22.8.1"),
    ("19.0.0", "22.9.0"), ("19.0.0", "22.9.1"), ("19.1.0", "22.11.0"),
)  # fmt: skip
"""Those of states between releases, and after the last, whose buffer sizes were compared as well."""


def _versions() -> tuple[Version, ...]:
    released = [_version(*revisions, name) for name, revisions in RELEASES.items()]
    versions = list(released)
    for functions, support in BETWEEN:
        state = _version(functions, support, "")
        before = [version for version in released if version < state][-1]
        versions.append(replace(state, name=f"{before.name}+ ({functions}, {support})"))
    return tuple(sorted(versions))


VERSIONS: tuple[Version, ...] = _versions()
"""Every version that is supported, oldest first."""


def named(name: str) -> Version:
    return next(version for version in VERSIONS if version.name == name)


@dataclass(frozen=True, slots=True)
class Tree:
    """A CMSIS-NN on this machine.

    include: the folder of the headers. root: the folder above, below which the sources lie. functions: what the public
    header declares, with its arguments in order; structures: members by type name.
    """

    root: Path
    include: Path
    version: Version
    functions: Mapping[str, tuple[Variable, ...]]
    structures: Mapping[str, tuple[Variable, ...]]

    def takes(self, function: str, argument: str) -> bool:
        return any(signature.name == argument for signature in self.functions.get(function, ()))

    def has_member(self, structure: str, member: str) -> bool:
        return any(layout.name == member for layout in self.structures.get(structure, ()))


def refused(what: str, path: Path, why: str, hint: str) -> EmitcError:
    """An error that says what is wrong with the CMSIS-NN at a path."""
    return EmitcError(what, Where(option=f"{OPTION} {path}"), why, hint)


def _headers_below(path: Path) -> list[Path]:
    """Folders with the public header, those nearest to the path only."""
    level = [path]
    for _ in range(_DEPTH + 1):
        folders = [folder for folder in level if (folder / _HEADER).is_file()]
        if folders:
            return folders
        below: list[Path] = []
        for folder in level:
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError:
                continue
            below += [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False) and e.name not in _SKIPPED]
        level = below
    return []


def _read_header(path: Path, user_path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST_HEADER:
            what = f"{path.name} is too large to be a header of CMSIS-NN"
            hint = "give the path of an unmodified CMSIS-NN"
            raise refused(what, user_path, f"it has {path.stat().st_size} bytes", hint)
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        why = f"{path} cannot be read: {error.strerror or error}"
        hint = "give the path of a complete CMSIS-NN: all files of Include and Source"
        raise refused(f"CMSIS-NN lacks {path.name}", user_path, why, hint) from error


def revision_of(text: str) -> Revision | None:
    """The revision in the head of a file of the library; None where the text has no revision."""
    match = _REVISION.search(text[:_FIRST_BYTES])
    return None if match is None else _revision(match.groups())


def _identified(functions: Revision, support: Revision, user_path: Path) -> Version:
    for version in VERSIONS:
        if (version.functions, version.support) == (functions, support):
            return version
    shown = ".".join(map(str, functions)) + " and " + ".".join(map(str, support))
    newest, oldest = VERSIONS[-1], VERSIONS[0]
    if functions > newest.functions:
        why = f"it is newer than {newest}, the newest whose interface and buffer sizes are known"
    elif functions < oldest.functions:
        why = f"it is older than {oldest}, the oldest that is supported"
    else:
        why = "it lies between two releases, or is modified: the sizes of its buffers are not known"
    what = f"this version of CMSIS-NN is not known: revisions {shown} of {_HEADERS[0]} and {_HEADERS[2]}"
    raise refused(what, user_path, why, f"use one of the releases {', '.join(RELEASES)}")


def read_tree(path: Path | str) -> Tree:
    """The CMSIS-NN at a path: a checkout, a CMSIS pack, a PlatformIO library, or a folder that holds one of them.

    Raises EmitcError where there is none or more than one, where a header is missing, and where the version is not known.
    """
    user_path = Path(path)
    start = user_path.parent if (user_path / _HEADER).is_file() and user_path.name.lower() == "include" else user_path
    folders = _headers_below(start) if user_path.is_dir() else []
    if not folders:
        why = "it is a file" if user_path.exists() else "the folder does not exist"
        if user_path.is_dir():
            why = f"no folder down to {_DEPTH} levels below it has {_HEADER}"
        hint = "give the folder that has CMSIS-NN's Include and Source"
        raise refused("there is no CMSIS-NN at this path", user_path, why, hint)
    if len(folders) > 1:
        what, why = f"there are {len(folders)} copies of CMSIS-NN at this path", ", ".join(map(str, folders[:4]))
        raise refused(what, user_path, why, "give the path of one of them")
    include = folders[0].resolve()
    texts = [_read_header(include / name, user_path) for name in _HEADERS]
    functions, _, support = (revision_of(text) for text in texts)
    if functions is None or support is None:
        why = f"{_HEADERS[0 if functions is None else 2]} has no line $Revision"
        hint = "use an unmodified release of CMSIS-NN"
        raise refused("the version of this CMSIS-NN cannot be read", user_path, why, hint)
    version = _identified(functions, support, user_path)
    root = include.parent if include.name.lower() in ("include", "inc", "src") else include
    return Tree(root, include, version, prototypes(texts[0]), structures(texts[1]))
