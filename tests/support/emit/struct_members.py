"""Which members of the parameter structs of a generated source its code reads."""

from __future__ import annotations

import re

_STRUCT = re.compile(r"^struct (emitc_\w+) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
_MEMBER = re.compile(r"\b(\w+)(?:\[\w+\])*\s*[,;]")
_INITIALISER = re.compile(r"^static const struct (emitc_\w+) (\w+) = \{$", re.MULTILINE)
_FUNCTION = re.compile(r"^(?!struct|typedef|enum)[A-Za-z_][^;={}]*\([^;{}]*\)\n\{\n.*?^\}", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def _reads(function: str, variable: str) -> set[str]:
    """Members of a struct variable or of what a pointer points to, without those that the function only assigns to."""
    return set(re.findall(rf"\b{variable}(?:->|\.)(\w+)\b(?! = )", function))


def parameter_members(source: str) -> dict[str, tuple[set[str], set[str]]]:
    """The members of each parameter struct that has a constant of its type, and those that functions read.

    source: text of a model's C file.
    """
    text = _COMMENT.sub("", source)
    declared = {name: set(_MEMBER.findall(body)) for name, body in _STRUCT.findall(text)}
    constants = {variable: struct for struct, variable in _INITIALISER.findall(text)}
    members = {struct: (declared[struct], set[str]()) for struct in constants.values()}
    for function in _FUNCTION.findall(text):
        for struct, variable in re.findall(r"\bstruct (emitc_\w+)[ *]*(?:const |restrict )*(\w+)\b", function):
            if struct in members:
                members[struct][1].update(_reads(function, variable))
        for variable in set(re.findall(r"\b\w+_params\b(?=\.)", function)) & constants.keys():
            members[constants[variable]][1].update(_reads(function, variable))
    return members
