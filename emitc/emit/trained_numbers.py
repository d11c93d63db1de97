"""Kernels whose numbers of training come by a pointer of their own, so that all other parameters stay constants of the C.

A C compiler specialises a kernel for the constants of its only layer. It would know none of them where some members of the
structure come from a file of weights. So these members get a structure of their own, `trained`, which every function takes that
reads one of them. Arrays of one element are members of it too, and all arrays but the weights where a kernel runs one layer. So a
call passes fewer addresses, and one register serves several arrays.

This works on the C text of a kernel, whose functions have the parameters as their first argument `p`. Text of another form stays
as it is; nothing is wrong then, only slower.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from emitc.program import Step
from emitc.program.weights import ARGUMENT
from emitc.records import dataclass

_NUMBERS = "trained"
_BARE = re.compile(r"(?<![\w.>])p(?!\w)(?!->)")
"""The pointer to the parameters where no member of it is read."""
_ARRAY = re.compile(r"\s*const (\w+) \*(?:restrict )?(\w+)")
"""A parameter that is a constant array."""
_CALL = re.compile(r"(\w+)\((\s*)p(?=[,)])")

_LITTLE = 1000
"""Products and bytes of inputs and outputs of a layer with little work: a call has over one in a hundred of its instructions."""

_FILL = "emitc_weights_fill"
"""What fills a few bytes with a number that the compiler does not know, for which it would call memset."""


@dataclass(frozen=True, slots=True)
class _Function:
    """A function of a kernel. head: of its first parameter, start and end. end: of its body."""

    name: str
    head: tuple[int, int]
    end: int


def with_trained(
    text: str, kernel: str, types: Mapping[str, str], arrays: Mapping[int, str] = MappingProxyType({})
) -> str | None:
    """The text of a kernel that reads those members from `trained`, None where its form is another one.

    kernel: its C name. types: C type of each of the members, which the structure of parameters lacks already. arrays:
    those that it reads from there too, by their place among the arguments.
    """
    struct = f"struct emitc_{kernel}"
    start = re.compile(rf"(\w+)\(\s*(const {struct} \*(?:restrict )?p)(?=[,)])")
    functions = [
        _Function(head[1], head.span(2), text.find("\n}\n", head.end()) + 1 or len(text))
        for head in start.finditer(text)
    ]
    rest = start.sub("", text)
    declared = len(re.findall(rf"{struct}(?!\w)", rest))
    if not functions or declared != 1 or re.search(rf"(?<!\w){_NUMBERS}(?!\w)", text):
        return None
    bodies = {f.name: text[f.head[1] : f.end] for f in functions}
    inside = "".join(bodies.values())
    if _BARE.search(_CALL.sub("", inside)) or any(call[1] not in bodies for call in _CALL.finditer(inside)):
        return None
    stored = re.compile(rf"(?<![\w.>])p->({'|'.join(sorted(types))})(?!\w)")
    reads_numbers = _reaching(bodies, {name for name, body in bodies.items() if stored.search(body)})
    reads_params = _reaching(bodies, {name for name, body in bodies.items() if "p->" in stored.sub("", body)})
    entry = f"emitc_{kernel}"
    own = _without_arrays(bodies[entry], arrays) if entry in reads_numbers & reads_params else None
    if own is None:
        return None

    def arguments(name: str) -> str:
        return ", ".join(
            ["p"] * (name in reads_params) + [_NUMBERS] * (name in reads_numbers or name not in reads_params)
        )

    result, at = [], 0
    for f in functions:
        declarations = [text[slice(*f.head)]] * (f.name in reads_params)
        if f.name in reads_numbers or f.name not in reads_params:
            declarations.append(f"const {struct}_numbers *restrict {_NUMBERS}")
        body = _with_locals(own if f.name == entry else bodies[f.name], stored, types)
        body = _CALL.sub(lambda call: f"{call[1]}({call[2]}{arguments(call[1])}", body)
        result += [text[at : f.head[0]], ", ".join(declarations), body]
        at = f.end
    return "".join([*result, text[at:]])


def _with_locals(body: str, stored: re.Pattern[str], types: Mapping[str, str]) -> str:
    """The rest of a function's head and its body, which reads each number once, at its start.

    Otherwise it would read them again after each store. Where the preprocessor leaves out a part, a variable might have no use.
    """
    if re.search(r"^\s*#", body, re.MULTILINE):
        return stored.sub(rf"{_NUMBERS}->\1", body)
    names = dict.fromkeys(read[1] for read in stored.finditer(body))
    lines = "".join(f"    const {types[name]} {_NUMBERS}_{name} = {_NUMBERS}->{name};\n" for name in names)
    body = stored.sub(rf"{_NUMBERS}_\1", body).replace(f"memset(edge, {_NUMBERS}_", f"{_FILL}(edge, {_NUMBERS}_")
    return body.replace("\n{\n", "\n{\n" + lines, 1)


def _reaching(bodies: Mapping[str, str], first: set[str]) -> frozenset[str]:
    """Those functions, and all that call one of them with the parameters."""
    calls = {name: {call[1] for call in _CALL.finditer(body)} for name, body in bodies.items()}
    reached = set(first)
    while more := {name for name, called in calls.items() if called & reached} - reached:
        reached |= more
    return frozenset(reached)


def _listed(text: str, start: int) -> tuple[list[str], int]:
    """What commas separate from `start` to the parenthesis that closes there, and where that is."""
    pieces, depth, end = [""], 0, start
    while depth or text[end] != ")":
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if text[end] == "," and not depth:
            pieces.append("")
        else:
            pieces[-1] += text[end]
        end += 1
    return pieces, end


def _without_arrays(body: str, arrays: Mapping[int, str]) -> str | None:
    """The rest of the head and the body of a kernel that has pointers to those members as variables, not as parameters."""
    parameters, end = _listed(body, 0)
    lines = []
    for place, member in arrays.items():
        declared = _ARRAY.fullmatch(parameters[place]) if place < len(parameters) else None
        if declared is None:
            return None
        # Not a constant pointer: the kernel may move its parameter.
        lines.append(f"    const {declared[1]} *{declared[2]} = {_NUMBERS}->{member};\n")
    kept = ",".join(parameter for place, parameter in enumerate(parameters) if place not in arrays)
    return f"{kept}{body[end:]}".replace("\n{\n", "\n{\n" + "".join(lines), 1)


def with_little_work(text: str, steps: Sequence[Step]) -> str:
    """The text of the kernel of those layers, which is inlined where it has one layer with little work."""
    work = sum(step.macs + sum(o.size_bytes for o in (*step.inputs, *step.outputs)) for step in steps)
    if len(steps) > 1 or work > _LITTLE:
        return text
    return re.sub(rf"EMITC_NOINLINE(?= void emitc_{steps[0].kernel}\()", "EMITC_ALWAYS_INLINE", text)


def with_numbers(text: str, step: Step) -> tuple[str, dict[int, str]] | None:
    """The text of a layer's function that gives the kernel the numbers, None where it calls the kernel otherwise.

    The second result are members of the numbers that the call passed as arrays before, by their place among the arguments.
    """
    params = "p" if step.window else f"&{step.name}_params"
    calls = list(re.finditer(rf"emitc_{step.kernel}\(\s*{re.escape(params)}(?=[,)])", text))
    if len(calls) != 1:
        return None
    numbers = f"{ARGUMENT}->{step.numbers}"
    arguments, end = _listed(text, calls[0].end())
    inside = {
        place: member
        for place, argument in enumerate(arguments)
        if (member := argument.strip().removeprefix(f"{numbers}.")).isidentifier()
        if argument.strip() != member
    }
    kept = ",".join(argument for place, argument in enumerate(arguments) if place not in inside)
    return f"{text[: calls[0].end()]}, &{numbers}{kept}{text[end:]}", inside
