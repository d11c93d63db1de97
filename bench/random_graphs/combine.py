"""The C of many packages as one translation unit: what they share is compiled once.

Packages have file-scope names in common. A definition that another package has in the same words is left out, and one with other
words gets another name. Comments are left out too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"(?:struct |union )?[A-Za-z_]\w*")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_TAG = re.compile(r"^((?:struct|union) \w+)\s*\{", re.MULTILINE)
_FUNCTION = re.compile(r"^(?!_Static_assert|typedef|struct \w+ \{)[A-Za-z_][\w \t\*]*?\b(\w+)\(", re.MULTILINE)
_DATA = re.compile(r"^[A-Za-z_][\w \t\*]*?\b(\w+)(?:\[[^\]\n]*\])*\s*=", re.MULTILINE)
_TYPE = re.compile(r"\b(\w+);\s*\Z")
_MEMBER = re.compile(r"^[ \t]*(\w+)[ \t]*(?:=|,|$)", re.MULTILINE)
_GUARD = re.compile(r"\A\s*#ifndef (\w+)\n#define \1\n(.*)#endif\s*\Z", re.DOTALL)
_OF_CPP = re.compile(r"^#ifdef __cplusplus\n.*?^#endif\n", re.DOTALL | re.MULTILINE)
_ALIGNED = re.compile(r"^_Alignas\([^)]*\)[ \t]*", re.MULTILINE)


def chunks(text: str) -> Iterator[str]:
    """The definitions and directives of C source at file scope, comments removed; conditional parts are one chunk each."""
    lines: list[str] = []
    depth = conditional = 0
    continued = False
    plain = _OF_CPP.sub("", _COMMENT.sub(" ", text))
    for line in _GUARD.sub(r"\2", plain).splitlines():
        stripped = line.strip()
        if not stripped:
            continue
        lines.append(line.rstrip())
        directive = stripped.startswith("#") or continued
        if stripped.startswith("#if"):
            conditional += 1
        elif stripped.startswith("#endif"):
            conditional -= 1
        if not directive:
            depth += line.count("{") - line.count("}")
        continued = directive and stripped.endswith("\\")
        if depth == 0 and conditional == 0 and not continued and (directive or stripped[-1] in "};"):
            yield "\n".join(lines)
            lines = []
    if lines:
        yield "\n".join(lines)


def defined(chunk: str) -> list[str]:
    """The file-scope names that a chunk defines; a tag with its keyword, since tags have names of their own."""
    plain = _ALIGNED.sub("", chunk)
    names = [*_MACRO.findall(plain), *_TAG.findall(plain), *_DATA.findall(plain)]
    if "{" in plain:  # else it declares a function that is defined elsewhere
        names += _FUNCTION.findall(plain)
    if plain.startswith("enum"):
        names += _MEMBER.findall(plain.partition("{")[2].rpartition("}")[0])
    if plain.startswith("typedef"):
        names += _TYPE.findall(plain)
    return list(dict.fromkeys(names))


class Unit:
    """A translation unit under construction."""

    def __init__(self) -> None:
        self._includes: dict[str, None] = {}
        self._text: list[str] = []
        self._taken: set[str] = set()
        self._emitted: dict[str, Mapping[str, str]] = {}

    def add(self, sources: Iterable[str], own: frozenset[str]) -> None:
        """The sources of one package, in the order in which a compiler would read them. own: headers that are among them."""
        renamed: dict[str, str] = {}
        mine: set[str] = set()  # a macro may stand for a function of the same package
        macros: dict[str, None] = {}
        functions: set[str] = set()

        def replaced(text: str) -> str:
            return _WORD.sub(lambda word: renamed.get(word[0], word[0]), text) if renamed else text

        for source in sources:
            for chunk in chunks(source):
                if chunk.lstrip().startswith("#include"):
                    if not any(f'"{name}"' in chunk for name in own):
                        self._includes[chunk.strip()] = None
                    continue
                text = replaced(chunk)
                if text in self._emitted:
                    renamed |= self._emitted[text]
                    mine.update(defined(replaced(chunk)))
                    functions.update(_FUNCTION.findall(replaced(chunk)))
                    continue
                fresh = {}
                for name in defined(text):
                    if name in self._taken and name not in mine:
                        fresh[name] = f"{name}_{len(self._taken)}"
                    self._taken.add(fresh.get(name, name))
                self._emitted[text] = fresh
                renamed |= fresh
                self._text.append(replaced(chunk))
                mine.update(defined(self._text[-1]))
                macros |= dict.fromkeys(_MACRO.findall(self._text[-1]))
                functions.update(_FUNCTION.findall(self._text[-1]))
        # Another package may call the same function where it reports no layer: in the body of an operator.
        self._text += [f"#undef {name}" for name in macros if name in functions]

    def text(self) -> str:
        """The whole unit."""
        return "\n".join([*self._includes, *self._text]) + "\n"
