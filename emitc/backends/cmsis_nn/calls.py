"""A call of CMSIS-NN in its own terms: dims, params, quantization, context, and arguments in the order of the tree's headers.

The order of a function's arguments and the members of its structures come from the tree; here they are given by name.
Offsets are zero points, negative at inputs; a shift is positive to the left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emitc.backends.cmsis_nn.buffer_sizes import Call, Dims
from emitc.backends.cmsis_nn.headers import InstructionSet
from emitc.backends.cmsis_nn.known_bugs import Remedy, Use, faults_of
from emitc.backends.cmsis_nn.versions import Tree
from emitc.ir import BoundNode
from emitc.kernels.shared.windows import Window
from emitc.layer import Expression, Layer, LibraryCall, Scratch, Structure, Table
from emitc.numerics.requantize import Clamp

VARIANT = "cmsis-nn"
POINTER = "(void *)(uintptr_t)"
"""The library's structures point to constants through pointers that could write; they never do."""


@dataclass(frozen=True, slots=True)
class Library:
    """The tree, the instruction set that it is compiled for, and what its sources define for that."""

    tree: Tree
    instructions: InstructionSet
    defined: frozenset[str]


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a function is called with, by the names of its parameters, and the structures among it."""

    values: Mapping[str, Expression]
    structures: tuple[Structure, ...]


def number(value: int) -> Expression:
    return Expression(f"({value})" if value < 0 else str(value))


def _braced(*values: int) -> Expression:
    return Expression("{" + ", ".join(map(str, values)) + "}")


def structure(
    library: Library, role: str, c_type: str, members: Mapping[str, Expression], *, constant: bool = True
) -> Structure:
    """The members that this version of the structure has."""
    known = [member.name for member in library.tree.structures[c_type]]
    return Structure(role, c_type, tuple((name, members[name]) for name in known if name in members), constant)


def dims(library: Library, role: str, dims: Dims) -> Structure:
    parts = {"n": dims.n, "h": dims.h, "w": dims.w, "c": dims.c}
    return structure(library, role, "cmsis_nn_dims", {name: number(value) for name, value in parts.items()})


def reference(structure: Structure) -> Expression:
    """Its address: of a constant of the file, whose name begins with the layer's, or of a local variable."""
    return Expression("&", structure=structure.role) if structure.constant else Expression(f"&{structure.role}")


def context_of(library: Library, size: int, buffer: Expression, role: str = "context") -> Structure:
    """A buffer and its bytes."""
    return structure(library, role, "cmsis_nn_context", {"buf": buffer, "size": number(size)}, constant=False)


def ordered(library: Library, function: str, values: Mapping[str, Expression]) -> tuple[Expression, ...]:
    return tuple(values[parameter.name] for parameter in library.tree.functions[function])


def missing(library: Library, function: str, values: Mapping[str, Expression]) -> str:
    """Why the function cannot be called with these values; "" when it can."""
    parameters = library.tree.functions.get(function)
    if parameters is None:
        return f"CMSIS-NN {library.tree.version} has no {function}"
    unknown = [parameter.name for parameter in parameters if parameter.name not in values]
    return f"{function} of CMSIS-NN {library.tree.version} takes {', '.join(unknown)}" if unknown else ""


def limits(clamp: Clamp) -> Expression:
    return _braced(clamp.low, clamp.high)


def tile(vertical: int, horizontal: int) -> Expression:
    return Expression(f"{{.w = {horizontal}, .h = {vertical}}}")


GENERAL = {
    "arm_convolve_wrapper_s8": "arm_convolve_s8",
    "arm_depthwise_conv_wrapper_s8": "arm_depthwise_conv_s8",
    "arm_convolve_wrapper_s4": "arm_convolve_s4",
}
"""What to call where a wrapper's special kernel is wrong."""


def remedies(library: Library, function: str, call: Call) -> set[Remedy]:
    """What the known faults of a call ask for."""
    return {fault.remedy for fault in faults_of(library.tree, library.instructions, Use(function, call))}


def fault(library: Library, function: str, call: Call) -> str:
    """Why a call cannot be made, since the version computes it wrongly; "" where it can, be it by another function."""
    for fault in faults_of(library.tree, library.instructions, Use(function, call)):
        if fault.remedy is Remedy.GENERAL_KERNEL and GENERAL[function] in library.defined:
            continue
        if fault.remedy is not Remedy.ZERO_BIAS:  # there always is a bias
            return f"CMSIS-NN {library.tree.version}: {fault.reason}"
    return ""


def zero_points(bound: BoundNode) -> tuple[int, int]:
    x, y = bound.input(0), bound.output
    return x.zero_point, y.zero_point


def window_members(window: Window) -> dict[str, Expression]:
    return {
        "stride": tile(window.stride_h, window.stride_w),
        "padding": tile(window.padding.top, window.padding.left),
        "dilation": tile(window.dilation_h, window.dilation_w),
    }


def called(
    library: Library,
    function: str,
    bound: BoundNode,
    arguments: Arguments,
    tables: tuple[Table, ...],
    size: int,
    macs: int,
) -> Layer:
    """The layer of a function with a context, whose buffer is the step's scratch."""
    context = context_of(library, size, Expression("scratch" if size else "NULL"))
    values = {**arguments.values, "ctx": reference(context)}
    check = f"{function}_get_buffer_size"
    checked = None
    if check in library.tree.functions and not missing(library, check, values):
        checked = (check, ordered(library, check, values), size)
    call = LibraryCall(function, ordered(library, function, values), (*arguments.structures, context), checked)
    scratch = (Scratch("scratch", size),) if size else ()
    return Layer("cmsis_nn/call", VARIANT, (0,), tables, scratch=scratch, macs=macs, fallible=True, call=call)
