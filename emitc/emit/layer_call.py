"""The C function of a layer whose kernel is called once: what it takes, and what the kernel is called with."""

import re

from emitc.program import Step
from emitc.records import dataclass

_SCALING = ("multiplier", "left_shift", "right", "shift")
"""Roles of the tables that requantize sums, in the order in which kernels take them."""
_ARGUMENT = re.compile(r"(?P<restrict>restrict )?(?P<cast>(?:\([^()]*\))*)(?P<name>\w+)")


@dataclass(frozen=True, slots=True)
class LayerCall:
    """parameters: of the layer's function. arguments: of the kernel, after its parameter struct. start: white space before
    the first argument.
    """

    parameters: str
    arguments: str
    start: str


def usual_arguments(step: Step) -> str:
    """What a kernel takes whose template does not state it: operands, the layer's other tables, y, working memory.

    A single operand is x; several are a, b and c. Those that are constants are tables of these names.
    """
    constants = [role for role in step.tables if role in ("x", "a", "b", "c")]
    count = len(step.inputs) + len(constants)
    operands = "x" if count == 1 else "abc"[:count]
    others = [role for role in step.tables if role not in constants]
    return ", ".join([*operands, *others, "y", *(memory.tensor for memory in step.scratch)])


def layer_call(step: Step, arguments: str) -> LayerCall:
    """The call that a template describes by the kernel's arguments, such as `x, weights, restrict y, (int16_t *)work`.

    An argument with the name of one of the layer's tables is that table. The others are pointers that the layer's function
    takes: inputs, outputs and working memory, in this order. A word `restrict` qualifies such a pointer. A cast applies
    inside the call, where KERNEL is the kernel's C name. Where the text has line breaks, so has the call, and its arguments
    start on a line of their own; so do the parameters after two line breaks. The word `scaling` stands for the layer's tables
    that requantize sums. `role?` is a table or working memory that a layer may have or not, and `role|other` the first of
    two tables that it has.
    """
    arguments = re.sub(r"(\w+)\|(\w+)", lambda either: either[1 if either[1] in step.tables else 2], arguments)
    stated = {*step.tables, *(memory.tensor for memory in step.scratch)}
    arguments = re.sub(r"(, [^,]*?(\w+))\?", lambda optional: optional[1] if optional[2] in stated else "", arguments)
    arguments = re.sub(r"\bscaling\b", ", ".join(role for role in _SCALING if role in step.tables), arguments)
    types = [f"const {x.c_type}" for x in step.inputs] + [y.c_type for y in (*step.outputs, *step.scratch)]
    pointers = [match for match in _ARGUMENT.finditer(arguments) if match["name"] not in step.tables]
    assert len(pointers) == len(types), f"{step.template} takes {len(types)} operands, not {arguments}"
    parameters = "\n    " * arguments.startswith("\n\n") + ", ".join(
        f"{c_type} *{pointer['restrict'] or ''}{pointer['name']}"
        for c_type, pointer in zip(types, pointers, strict=True)
    )

    def passed(match: re.Match[str]) -> str:
        return match["cast"].replace("KERNEL", step.kernel) + step.tables.get(match["name"], match["name"])

    indent = "\n        "
    call = _ARGUMENT.sub(passed, arguments.lstrip("\n")).replace("\n", indent)
    return LayerCall(parameters, call, indent if "\n" in arguments else "")
