"""The constants that a package's self test reads: where each is in the C, and the CRC32 of those of every layer."""

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from emitc.emit.literals import packed
from emitc.errors import EmitcError, Where
from emitc.layer import Param
from emitc.program import Constant, Program, Step
from emitc.program.self_test import OTHER_PARTS
from emitc.records import dataclass

_NO_INDEX = 0xFFFFFFFF
_PARAMS = re.compile(r"^static const struct (\w+) (\w+)_params = \{$", re.MULTILINE)
_STRUCT = r"^struct {} \{{\n(.*?)^\}};"
_MEMBER = re.compile(r"^    (\w+) (\w+);(?: /\*.*\*/)?$")


@dataclass(frozen=True, slots=True)
class Checked:
    """Constants that are checked together. name: of the layer's C function, or what else they are. index: of the layer's
    operator. end: number of the arrays up to here. crc: CRC32 of their bytes, one array after another.
    """

    name: str
    index: int
    end: int
    crc: int


@dataclass(frozen=True, slots=True)
class CheckedConstants:
    """arrays: the C expression of each array or struct, and how many bytes it has. layers: in the order of the program's steps,
    then what belongs to no layer.
    """

    arrays: tuple[tuple[str, int], ...]
    layers: tuple[Checked, ...]


def checked_constants(program: Program, kernels: str, functions: str) -> CheckedConstants:
    """Every constant array and parameter struct of the program.

    kernels, functions: of the layers, as C, which says what a struct holds.
    """
    types = {match[2]: match[1] for match in _PARAMS.finditer(functions)}
    members = {name: _members(kernels, c_type) for name, c_type in types.items()}
    others: tuple[Iterable[Constant], ...] = (
        (slot.initial for slot in program.states if slot.initial),
        program.output_constants,
        program.self_test.constants if program.self_test else (),
    )
    groups: list[tuple[str, int, Iterable[tuple[str, bytes]]]] = [
        *((step.name, step.index, _of_step(step, members)) for step in program.steps),
        *((name, _NO_INDEX, _arrays(constants)) for name, constants in zip(OTHER_PARTS, others, strict=True)),
    ]
    arrays: list[tuple[str, int]] = []
    layers: list[Checked] = []
    for name, index, group in groups:
        crc = 0
        for expression, data in group:
            arrays.append((expression, len(data)))
            crc = zlib.crc32(data, crc)
        layers.append(Checked(name, index, len(arrays), crc))
    return CheckedConstants(tuple(arrays), tuple(layers))


def _members(kernels: str, c_type: str) -> tuple[tuple[str, str], ...]:
    """C type and name of the members of a struct. Raises EmitcError where a plugin prints it in another form."""
    definition = re.search(_STRUCT.format(c_type), kernels, re.MULTILINE | re.DOTALL)
    matches = [_MEMBER.match(line) for line in definition[1].splitlines() if line.strip()] if definition else [None]
    if not all(matches):
        where, hint = (
            Where(option="--self-test"),
            "give each member a line such as int32_t count;, or leave --self-test out",
        )
        raise EmitcError(f"the bytes of struct {c_type} are not known", where, "a plugin's template prints it", hint)
    return tuple((match[1], match[2]) for match in matches if match)


def _of_step(step: Step, members: Mapping[str, tuple[tuple[str, str], ...]]) -> Iterator[tuple[str, bytes]]:
    """The constants of a layer, with those of the programs that it runs."""
    for part in step.parts:
        for inner in part.steps:
            yield from _of_step(inner, members)
        yield from _arrays(part.output_constants)
    yield from _arrays(step.constants)
    if step.name in members:
        yield f"&{step.name}_params", _struct(step.params, members[step.name])


def _arrays(constants: Iterable[Constant]) -> list[tuple[str, bytes]]:
    return [(constant.name, packed(constant.table.values, constant.table.c_type)) for constant in constants]


def _struct(params: Sequence[Param], members: Sequence[tuple[str, str]]) -> bytes:
    """The bytes of a parameter struct: each member at a multiple of its size, so is the end at one of the widest.

    A member that is no parameter is zero.
    """
    values = {param.name: param.value for param in params}
    data, widest = b"", 1
    for c_type, name in members:
        member = packed((values.get(name, 0),), c_type)
        data += bytes(-len(data) % len(member)) + member
        widest = max(widest, len(member))
    return data + bytes(-len(data) % widest)
