"""Which CMSIS-NN lies at a path, and what its functions take: read from the tree, never assumed.

Releases state no version in the sources that firmware projects carry, so the revisions of two headers identify them. In
the library's history these change with every change of a buffer size, except for a few commits between releases, which are
refused. Everything else about the interface is read from the prototypes.

The trees are plain C without macro tricks at file scope, so a scan of comments, directives and braces is enough; it needs
no compiler, which a user of the library may have for the target only.
Source  the headers of the releases 4.0.0 to 7.0.0 and of the development up to July 2026.
"""

import ast
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType

from emitc.backends.cmsis_nn.definition import OPTION
from emitc.errors import EmitcError, Where
from emitc.records import dataclass, replace


class InstructionSet(Enum):
    """What the library is compiled for. DSP and MVE are chosen by the compiler's own feature macros."""

    PORTABLE = "portable"
    DSP = "dsp"
    MVE = "mve"

    @property
    def macros(self) -> Mapping[str, bool]:
        """The library's macros that select code: defined or not."""
        return {"ARM_MATH_DSP": self is not InstructionSet.PORTABLE, "ARM_MATH_MVEI": self is InstructionSet.MVE}


@dataclass(frozen=True, slots=True)
class Variable:
    """An argument or a member: its name, and its type as written without the name."""

    name: str
    c_type: str


@dataclass(frozen=True, slots=True)
class Definition:
    """A function or table with external or static linkage, and the identifiers that its body names."""

    name: str
    names: frozenset[str]


_STRING = re.compile(r"\"(?:\\.|[^\"\\\n])*\"")
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_PROTOTYPE = re.compile(r"\b(?:arm_cmsis_nn_status|int32_t|void)\s+(arm_\w+)\s*\(([^;{}()]*)\)\s*;")
_STRUCT = re.compile(r"\btypedef\s+struct\s*\w*\s*\{([^{}]*)\}\s*(\w+)\s*;")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_DIRECTIVE = re.compile(r"^\s*#\s*(\w+)\b(.*)$")
_DECLARATOR = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$")


def without_comments(text: str) -> str:
    """The text with comments blanked and strings kept."""
    return _COMMENT.sub(lambda m: m[0] if m[0].startswith('"') else " ", text.replace("\\\n", " "))


def _variable(text: str) -> Variable:
    match = _DECLARATOR.search(text.strip())
    assert match is not None, text
    return Variable(match[1], " ".join(text.strip()[: match.start()].split()))


def prototypes(header: str) -> dict[str, tuple[Variable, ...]]:
    """Arguments of every function that a header declares, by name."""
    plain = without_comments(header)
    return {
        m[1]: tuple(_variable(a) for a in m[2].split(",") if a.strip() != "void") for m in _PROTOTYPE.finditer(plain)
    }


def structures(header: str) -> dict[str, tuple[Variable, ...]]:
    """Members of every structure that a header defines, by its typedef."""
    plain = without_comments(header)
    return {
        m[2]: tuple(_variable(member) for member in m[1].split(";") if member.strip()) for m in _STRUCT.finditer(plain)
    }


def _holds(condition: str, macros: Mapping[str, bool]) -> bool | None:
    """Whether an #if condition holds; None where it depends on anything but `defined` of macros that are given."""
    text = re.sub(r"defined\s*\(\s*(\w+)\s*\)|defined\s+(\w+)", r" defined_\1\2 ", condition)
    tokens = re.findall(r"\|\||&&|!=?|\(|\)|[^\s()|&!]+|[|&]", text)
    try:
        return _truth(ast.parse(" ".join(map(_python, tokens)), mode="eval").body, macros)
    except SyntaxError:
        return None


def _python(token: str) -> str:
    """A token of a condition in Python. What is not known becomes one operator, which compares, or one name."""
    known = {"||": "or", "&&": "and", "!": "not", "(": "(", ")": ")"}
    return known.get(token) or (token if token.startswith("defined_") else "unknown" if token[-1].isalnum() else "<")


def _truth(node: ast.expr, macros: Mapping[str, bool]) -> bool | None:
    """The value in three-valued logic."""
    if isinstance(node, ast.Name):
        return macros.get(node.id.removeprefix("defined_"))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        value = _truth(node.operand, macros)
        return None if value is None else not value
    if isinstance(node, ast.BoolOp):
        values = [_truth(operand, macros) for operand in node.values]
        decisive = isinstance(node.op, ast.Or)
        return decisive if decisive in values else None if None in values else not decisive
    return None


def active_lines(text: str, macros: Mapping[str, bool]) -> Iterator[str]:
    """Lines without comments and directives that are compiled, or may be, where the macros are defined or not as given."""
    kept: list[tuple[bool, bool]] = []  # whether this branch may be active, whether an earlier one surely was
    for line in without_comments(text).splitlines():
        directive = _DIRECTIVE.match(line)
        if directive is None:
            if all(active for active, _ in kept):
                yield line
            continue
        word, rest = directive.groups()
        if word in ("if", "ifdef", "ifndef"):
            holds = _holds(rest, macros) if word == "if" else macros.get(rest.strip())
            if word == "ifndef" and holds is not None:
                holds = not holds
            kept.append((holds is not False, holds is True))
        elif word in ("elif", "else") and kept:
            _, done = kept.pop()
            holds = True if word == "else" else _holds(rest, macros)
            kept.append((not done and holds is not False, done or holds is True))
        elif word == "endif" and kept:
            kept.pop()


def definitions(text: str, macros: Mapping[str, bool]) -> tuple[Definition, ...]:
    """Functions and tables that a file defines, inline ones of headers among them."""
    result: list[Definition] = []
    plain = _STRING.sub('""', "\n".join(active_lines(text, macros)).replace('extern "C" {', ""))
    depth, head_start, body_start, head = 0, 0, 0, ""
    for match in re.finditer(r"[{};]", plain):
        mark = match[0]
        if mark == "{":
            if depth == 0:
                head, body_start = plain[head_start : match.start()], match.end()
            depth += 1
        elif mark == "}":
            depth -= 1
            if depth <= 0:
                depth = 0
                name = _defined(head)
                if name:
                    named = frozenset(_IDENTIFIER.findall(head + plain[body_start : match.start()])) - {name}
                    result.append(Definition(name, named))
                head_start, head = match.end(), ""
        elif depth == 0:
            head_start = match.end()
    return tuple(result)


def _defined(head: str) -> str:
    """The name that a declaration before a brace defines: of a function or of an initialised table; "" for a type."""
    if re.search(r"\b(?:typedef|struct|enum|union)\s*\w*\s*$", head):
        return ""
    table = re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*=\s*$", head)
    if table is not None:
        return table[1]
    function = re.search(r"(\w+)\s*\(", re.sub(r"__attribute__\s*\(\(.*?\)\)", " ", head))
    return "" if function is None else function[1]


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
