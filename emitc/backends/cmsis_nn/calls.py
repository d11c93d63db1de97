"""A call of CMSIS-NN in its own terms: dims, params, quantization, context, and arguments in the order of the tree's headers.

The order of a function's arguments and the members of its structures come from the tree; here they are given by name.
Offsets are zero points, negative at inputs; a shift is positive to the left.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from emitc.backends.cmsis_nn.buffer_sizes import BUFFER_SIZES, Call, Dims, workspace_bytes
from emitc.backends.cmsis_nn.known_bugs import Remedy, Use, faults_of
from emitc.backends.cmsis_nn.versions import InstructionSet, Tree
from emitc.backends.kernel_library import number
from emitc.ir import BoundNode
from emitc.kernels.shared.windows import Window
from emitc.layer import Expression, Layer, LibraryCall, Scratch, Structure, Table
from emitc.numerics.requantize import Clamp, Multiplier, activation_clamp
from emitc.records import dataclass, field, replace

VARIANT = "cmsis-nn"
NULL = Expression("NULL")
_SIZE = "_get_buffer_size"
GENERAL = {
    "arm_convolve_wrapper_s8": "arm_convolve_s8",
    "arm_depthwise_conv_wrapper_s8": "arm_depthwise_conv_s8",
    "arm_convolve_wrapper_s4": "arm_convolve_s4",
}
"""What to call where a wrapper's special kernel is wrong."""
_TAKEN_BY: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "params": (
        "conv_params", "dw_conv_params", "transpose_conv_params", "fc_params", "pool_params", "svdf_params",
    ),
    "quantization": ("quant_params",),
    "input_quantization": ("input_quant_params",),
    "output_quantization": ("output_quant_params",),
    "context": ("ctx",),
    "input_context": ("input_ctx",),
    "output_context": ("output_ctx",),
    "second_context": ("output_ctx", "reverse_conv_ctx"),
    "typed_bias": ("bias", "bias_data"),
    "lookups": ("softmax_params",),
})  # fmt: skip
"""Names of the parameters that take a structure, by its role. Any other role is such a name itself."""
_OPERANDS: Mapping[str, Expression] = MappingProxyType(
    dict.fromkeys(("input", "input_data", "src"), Expression("x0"))
    | dict.fromkeys(("output", "output_data", "dst"), Expression("y"))
    | dict.fromkeys(("filter", "filter_data", "kernel"), Expression(table="weights"))
    | dict.fromkeys(("bias", "bias_data"), Expression(table="bias"))
)
"""Tensors and constants, by the names that the parameters have in one function or another."""


@dataclass(frozen=True, slots=True)
class Library:
    """The tree, the instruction set that it is compiled for, and what its sources define for that."""

    tree: Tree
    instructions: InstructionSet
    defined: frozenset[str]

    def bytes_of(self, function: str, call: Call) -> int:
        """Bytes of working memory that a function needs, 0 where the library has no size for it."""
        name = function + _SIZE
        return workspace_bytes(name, self.tree.version, self.instructions, call) if name in BUFFER_SIZES else 0

    def structure(
        self, role: str, c_type: str, members: Mapping[str, Expression], *, constant: bool = True
    ) -> Structure:
        """The members that this version of the structure has."""
        known = [member.name for member in self.tree.structures[c_type]]
        return Structure(role, c_type, tuple((name, members[name]) for name in known if name in members), constant)

    def dims(self, shapes: Mapping[str, Dims]) -> tuple[Structure, ...]:
        return tuple(
            self.structure(role, "cmsis_nn_dims", {name: number(getattr(shape, name)) for name in "nhwc"})
            for role, shape in shapes.items()
        )

    def context(self, size: int, buffer: Expression, role: str = "context") -> Structure:
        """A buffer of `size` bytes; none where that is 0."""
        members = {"buf": buffer if size else NULL, "size": number(size)}
        return self.structure(role, "cmsis_nn_context", members, constant=False)

    def quantization(self, factor: Multiplier, role: str = "quantization") -> Structure:
        """One multiplier for all outputs."""
        return self.structure(role, "cmsis_nn_per_tensor_quant_params", scaled("multiplier", "shift", factor))

    def remedies(self, function: str, call: Call) -> set[Remedy]:
        """What the known faults of a call ask for."""
        return {fault.remedy for fault in faults_of(self.tree, self.instructions, Use(function, call))}

    def fault(self, function: str, call: Call) -> str:
        """Why a call cannot be made: the version computes it wrongly. "" where this or another function can make it."""
        for fault in faults_of(self.tree, self.instructions, Use(function, call)):
            if fault.remedy is Remedy.GENERAL_KERNEL and GENERAL[function] in self.defined:
                continue
            if fault.remedy is not Remedy.ZERO_BIAS:  # there always is a bias
                return f"CMSIS-NN {self.tree.version}: {fault.reason}"
        return ""

    def _ordered(self, function: str, values: Mapping[str, Expression]) -> tuple[Expression, ...]:
        return tuple(values[parameter.name] for parameter in self.tree.functions[function])

    def called(
        self,
        function: str,
        arguments: Arguments,
        tables: tuple[Table, ...] = (),
        scratch: tuple[Scratch, ...] = (),
        macs: int = 0,
        operands: tuple[int, ...] = (0,),
    ) -> Layer:
        """The layer of a function that returns a status. operands: positions of the inputs that it gets."""
        call = LibraryCall(function, self._ordered(function, arguments.named()), arguments.structures)
        used = tuple(buffer for buffer in scratch if buffer.size_bytes)
        return Layer("cmsis_nn/call", VARIANT, operands, tables, scratch=used, macs=macs, fallible=True, call=call)

    def called_with_buffer(
        self, function: str, arguments: Arguments, tables: tuple[Table, ...], size: int, macs: int = 0
    ) -> Layer:
        """The layer of a function with a context, whose buffer is the step's scratch.

        A debug build checks the buffer's size where the library tells it.
        """
        context = self.context(size, Expression("scratch"))
        arguments = replace(arguments, structures=(*arguments.structures, context))
        layer = self.called(function, arguments, tables, (Scratch("scratch", size),), macs)
        check, values = function + _SIZE, arguments.named()
        taken = self.tree.functions.get(check)
        if taken is None or layer.call is None or any(parameter.name not in values for parameter in taken):
            return layer
        return replace(layer, call=replace(layer.call, check=(check, self._ordered(check, values), size)))


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a function is called with: structures, and other arguments by the names of their parameters."""

    structures: tuple[Structure, ...] = ()
    others: Mapping[str, Expression] = field(default_factory=dict)

    def named(self) -> dict[str, Expression]:
        named = dict(_OPERANDS)
        for structure in self.structures:
            named |= dict.fromkeys(_TAKEN_BY.get(structure.role, (structure.role,)), reference(structure))
        return {**named, **self.others}


def scaled(multiplier: str, shift: str, factor: Multiplier) -> dict[str, Expression]:
    """A fixed-point factor under the names of its two parts."""
    return {multiplier: number(factor.q31), shift: number(factor.shift)}


def reference(structure: Structure) -> Expression:
    """Its address: of a constant of the file, whose name begins with the layer's, or of a local variable."""
    return Expression("&", structure=structure.role) if structure.constant else Expression(f"&{structure.role}")


def limits(clamp: Clamp) -> Expression:
    return Expression(f"{{{clamp.low}, {clamp.high}}}")


def tile(vertical: int, horizontal: int) -> Expression:
    return Expression(f"{{.w = {horizontal}, .h = {vertical}}}")


def members_of(bound: BoundNode, activation: str, window: Window | None = None) -> dict[str, Expression]:
    """The members that parameter structures have in common: zero points, limits, and how a window moves."""
    members = {
        "input_offset": number(-bound.input(0).zero_point),
        "output_offset": number(bound.output.zero_point),
        "activation": limits(activation_clamp(activation, bound.output)),
    }
    if window is not None:
        members["stride"] = tile(window.stride_h, window.stride_w)
        members["padding"] = tile(window.padding.top, window.padding.left)
        members["dilation"] = tile(window.dilation_h, window.dilation_w)
    return members


def call_of(bound: BoundNode, window: Window, filters: Dims) -> Call:
    """A windowed operator as buffer sizes and faults see it."""
    return Call(
        Dims(*bound.input(0).shape), filters, Dims(*bound.output.shape), window.stride_h, window.stride_w,
        window.padding.top, window.padding.left, window.dilation_h, window.dilation_w,
    )  # fmt: skip
