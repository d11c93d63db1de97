"""C text of a CMSIS-NN tree as data: prototypes, members of structures, what a file defines and names.

The trees are plain C without macro tricks at file scope, so a scan of comments, directives and braces is enough; it needs
no compiler, which a user of the library may have for the target only.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum


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
