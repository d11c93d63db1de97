"""What a model file says, checked for form and without meaning: the common ground of all frontends.

Names are kept as the file has them and may be hostile text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from emitc.errors import DAMAGED, EXPORT_AGAIN, CannotCompile, EmitcError, Note, Where
from emitc.ir import Array, BoundNode, DType, Graph, Node, Op, Quantization, Shape, Tensor
from emitc.records import dataclass, field, replace

MAX_TENSOR_BYTES = 64 << 20
"""No microcontroller holds a larger tensor; a file that claims one is refused before anything is allocated."""
MAX_RANK = 8

Attribute = int | float | bool | str | tuple[int, ...] | tuple[float, ...]


DEFINED = ("Attention", "RMSNormalization", "RotaryEmbedding", "SwiGLU")
"""Operators of ONNX whose definition by others is compiled in their place, where all types that it depends on are known."""


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """A tensor of the file. shape has -1 where the file leaves a dimension open; data is set for a constant.

    is_variable: it holds its value between runs; initial is what it holds before the first, where the file says so, start what
    computes that.
    """

    index: int
    name: str
    dtype: str
    shape: Shape
    quantization: Quantization | None
    data: bytes | None
    is_variable: bool = False
    initial: bytes | None = None
    start: SourceSubgraph | None = None

    def describe(self) -> str:
        return f'tensor {self.index} "{self.name}" {self.dtype}[{",".join(map(str, self.shape))}]'

    def refusal(self, what: str, why: str, hint: str = EXPORT_AGAIN) -> EmitcError:
        """An error that says the file is wrong at this tensor."""
        return EmitcError(what, Where(tensor=self.describe()), why, hint)

    def unsupported(self, what: str, why: str, hint: str) -> CannotCompile:
        """An error that says the file is right, but emitc has no code for this tensor."""
        return CannotCompile(what, Where(tensor=self.describe()), why, hint)

    def default(self, shape: Shape) -> bytes:
        """What a variable holds when nothing has initialised it: the zero point in types of one byte, zeros in others.

        Source: measured in TFLite Micro.
        """
        if self.dtype not in {dtype.value for dtype in DType if not dtype.packed}:
            return bytes(math.prod(shape))
        zero = self.quantization.zero_point if self.quantization and self.dtype in ("int8", "uint8") else 0
        return np.full(shape, zero, self.dtype).tobytes()

    def as_int8(self) -> SourceTensor:
        """A quantized uint8 tensor as the int8 one of the same values, whose numbers are 128 lower."""
        q = self.quantization
        assert q is not None
        data = None if self.data is None else (self.array().view(np.int8) ^ np.int8(-128)).tobytes()
        zero_points = tuple(zero - 128 for zero in q.zero_points)
        return replace(self, dtype="int8", quantization=replace(q, zero_points=zero_points), data=data)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def array(self) -> Array:
        """The constant's value, read-only; its length was checked against shape and type."""
        assert self.data is not None
        return np.frombuffer(self.data, dtype=self.dtype).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class SourceNode:
    """An operator of the file with its tensors; None is an absent optional input.

    format: tflite or onnx. kind: what the operator is called among the kernels, where that is not op_type: the frontend
    has separated what a QLinearConv, say, carries beyond a convolution. blocker: what the frontend has found against
    compiling it. graphs: those of the subgraphs that it runs, when they are built.
    """

    index: int
    op_type: str
    name: str
    inputs: tuple[SourceTensor | None, ...]
    outputs: tuple[SourceTensor, ...]
    attributes: Mapping[str, Attribute]
    format: str = "tflite"
    kind: str = ""
    blocker: EmitcError | None = None
    graphs: tuple[Graph, ...] = ()

    def where(self, tensor: SourceTensor | None = None) -> Where:
        """The node, and one of its tensors, for an error."""
        op = f'op {self.index} {self.op_type} "{self.name}"'
        return Where(op=op, tensor=tensor.describe() if tensor else "")

    def refusal(self, does: str, why: str, hint: str = EXPORT_AGAIN, tensor: SourceTensor | None = None) -> EmitcError:
        """An error that says the file is wrong at this node. does: what is wrong, with the operator as its subject."""
        return EmitcError(f"{self.op_type} {does}", self.where(tensor), why, hint)

    def damaged(self, does: str, why: str, tensor: SourceTensor | None = None) -> EmitcError:
        """An error that says no exporter writes what the file has at this node. does: as of `refusal`."""
        return self.refusal(does, why, DAMAGED, tensor)

    def require_no_constant(self, variable: SourceTensor) -> None:
        """Refuses a variable tensor of the node that has a constant value."""
        if variable.data is not None:
            what = "has a variable tensor with a constant value"
            raise self.damaged(what, "a variable changes from run to run", variable)

    def unsupported(self, does: str, why: str, hint: str, tensor: SourceTensor | None = None) -> CannotCompile:
        """An error that says the file is right, but emitc has no code for it. does: as of `refusal`."""
        return CannotCompile(f"{self.op_type} {does}", self.where(tensor), why, hint)

    def bound(self, op: Op, operands: tuple[Tensor | None, ...], outputs: tuple[Tensor, ...]) -> BoundNode:
        """The node of the graph, with its typed operator and its tensors."""
        names = tuple("" if tensor is None else tensor.name for tensor in operands)
        node = Node(op, self.op_type, names, tuple(tensor.name for tensor in outputs), self.index, self.name)
        return BoundNode(node, operands, outputs)

    def attribute(self, name: str, default: Attribute | None = None) -> Attribute:
        """An attribute, or the default. Raises EmitcError when it is absent and there is no default."""
        if name in self.attributes:
            return self.attributes[name]
        if default is None:
            raise self.refusal(f"has no attribute {name}", "the operator's options are missing from the file")
        return default

    def integer(self, name: str, default: int | None = None, low: int = -(2**31), high: int = 2**31 - 1) -> int:
        """An integer attribute within [low, high]."""
        value = self.attribute(name, default)
        if not isinstance(value, int) or not low <= value <= high:
            hint = "the file is damaged or was written by a faulty converter: export the model again"
            raise self.refusal(f"has {name} = {value}", f"an integer in [{low}, {high}] is expected", hint)
        return int(value)

    def real(self, name: str, default: float | None = None) -> float:
        """A finite real attribute."""
        value = self.attribute(name, default)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise self.refusal(f"has {name} = {value}", "a finite number is expected")
        return float(value)

    def text(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """An enumeration attribute, or the default where it is left out; a value outside `choices` is legal but has no code.

        A fused activation outside them is refused as wrong: no engine of TFLite takes it for this operator.
        """
        value = self.attribute(name, default)
        if value not in choices and name == "fused_activation_function":
            hint = "export the model again, with the activation as a separate operator"
            raise self.refusal(f"with {name} {value} is not defined", f"this operator fuses {', '.join(choices)}", hint)
        if value not in choices:
            hint = "export the model with a supported setting, or as a separate operator"
            raise self.unsupported(f"with {name} {value} is not supported", f"supported: {', '.join(choices)}", hint)
        return str(value)

    @property
    def unfused_activation(self) -> str:
        """The activation that the file fuses and that no engine of TFLite computes inside another operator, or "".

        Source: TFLite Micro and LiteRT, whose kernels run such operators as if nothing was fused.
        """
        value = self.attributes.get("fused_activation_function")
        return value if value in ("TANH", "SIGN_BIT") else ""

    def fused_activation(self, choices: tuple[str, ...]) -> str:
        """One of `choices`, NONE among them: what of the fused activation the engines compute."""
        return "NONE" if self.unfused_activation else self.text("fused_activation_function", choices)

    def input(self, position: int) -> SourceTensor:
        """Input `position`, which the operator requires."""
        tensor = self.inputs[position] if position < len(self.inputs) else None
        if tensor is None:
            raise self.damaged(f"has no input {position}", f"the file lists {len(self.inputs)} inputs")
        return tensor

    def counts(self, inputs: tuple[int, int], outputs: tuple[int, int] = (1, 1)) -> None:
        """Refuses a number of inputs or outputs outside the closed ranges, and a required input that is left out."""
        for count, (low, high), what in ((len(self.inputs), inputs, "inputs"), (len(self.outputs), outputs, "outputs")):
            if not low <= count <= high:
                expected = str(low) if low == high else f"{low} to {high}"
                raise self.damaged(f"has {count} {what}", f"{expected} are expected")
        for position in range(inputs[0]):
            self.input(position)

    def constant(self, position: int, what: str) -> Array:
        """The value of input `position`, which must be a constant of integers; `what` names it in the error."""
        tensor = self.input(position)
        if tensor.dtype not in ("int32", "int64"):
            raise self.refusal(f"has {what} of type {tensor.dtype}", "int32 or int64 is expected", tensor=tensor)
        return self.value(position, what, "sizes and layouts must be known at compile time")

    def value(self, position: int, what: str, why: str = "it must be known at compile time") -> Array:
        """The value of input `position`, which must be a constant of any type; `what` names it in the error."""
        return self.known(self.input(position), what, why)

    def known(self, tensor: SourceTensor, what: str, why: str, hint: str = "") -> Array:
        """The value of a tensor, which must be a constant: the error says why. hint: "" for another export."""
        if tensor.data is None:
            hint = hint or f"export the model with a constant {what}"
            raise self.unsupported(f"takes its {what} from a computed tensor", why, hint, tensor)
        return tensor.array()

    def has_input(self, position: int) -> bool:
        return position < len(self.inputs) and self.inputs[position] is not None

    def constant_integers(self, position: int, what: str) -> tuple[int, ...]:
        """`constant`, flattened to Python integers; at most 64 of them."""
        array = self.constant(position, what)
        if self.format == "onnx" and array.ndim > 1:
            raise self.refusal(f"has {what} of rank {array.ndim}", "one dimension is expected")
        if array.size > 64:
            raise self.refusal(f"has {array.size} values of {what}", "64 is the limit")
        return tuple(int(value) for value in array.reshape(-1))


@dataclass(frozen=True, slots=True)
class SourceSubgraph:
    """A further graph of the file; its tensors count from 0. number: of the graph that it is made of, 0 where that is its own."""

    tensors: tuple[SourceTensor, ...]
    nodes: tuple[SourceNode, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    number: int = 0


@dataclass(frozen=True, slots=True)
class SourceModel:
    """A model file: tensors, nodes in execution order, interface.

    format: tflite or onnx. sha256: of the file, and of the constants in other files. blockers: what in the file stands
    against compiling it at all. file_bytes: size of the file. subgraphs: those after the first one. folded: operators
    that the frontend has done, so that no node is left of them. unread: operators after a blocker, of which nothing
    but the names is known. sizes_chosen: open dimensions of inputs have got sizes. whole: the model as one message,
    with the constants of other files in it; empty where the file itself is that.
    """

    format: str
    producer: str
    sha256: str
    tensors: tuple[SourceTensor, ...]
    nodes: tuple[SourceNode, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    notes: tuple[Note, ...] = ()
    blockers: tuple[EmitcError, ...] = ()
    file_bytes: int = 0
    subgraphs: tuple[SourceSubgraph, ...] = ()
    folded: tuple[SourceNode, ...] = ()
    unread: tuple[SourceNode, ...] = ()
    sizes_chosen: bool = False
    whole: bytes = field(default=b"", repr=False)


def given_shape(name: str, stated: Sequence[int], wanted: Shape) -> Shape:
    """The shape that the user gives an input, which may settle open dimensions (-1, 0) of the one that the file states alone."""
    if len(wanted) != len(stated) or any(s not in (-1, 0, g) for s, g in zip(stated, wanted, strict=True)):
        what, where = f"the shape {list(wanted)} does not fit", Where(tensor=name, option="--shape")
        raise EmitcError(what, where, f"the model says {list(stated)}", "change only open dimensions")
    return wanted


def check_shape(shape: Shape, dtype: str, where: Where) -> None:
    """Refuses a shape of more than MAX_RANK dimensions, of a dimension under -1, or of more than MAX_TENSOR_BYTES."""
    if len(shape) > MAX_RANK or any(dim < -1 or dim > 2**31 - 1 for dim in shape):
        why = f"at most {MAX_RANK} dimensions, each -1 (open) or 0 to 2147483647"
        raise EmitcError("a tensor has an impossible shape", where, why, DAMAGED)
    size = math.prod(max(dim, 1) for dim in shape) * (DType(dtype).bytes if dtype in {t.value for t in DType} else 1)
    if size > MAX_TENSOR_BYTES:
        why = f"the limit is {MAX_TENSOR_BYTES} bytes a tensor"
        hint = "the file is damaged, or the model is not meant for a microcontroller"
        raise EmitcError(f"a tensor of {size} bytes is too large", where, why, hint)


def unique_names(tensors: tuple[SourceTensor, ...]) -> tuple[str, ...]:
    """A name for each tensor: the file's where it is unique and not empty, otherwise with the index added."""
    count: dict[str, int] = {}
    for tensor in tensors:
        count[tensor.name] = count.get(tensor.name, 0) + 1
    taken = {name for name, n in count.items() if n == 1}
    names: list[str] = []
    for tensor in tensors:
        name = tensor.name
        if not name or count[name] > 1:
            name = f"{tensor.name}#{tensor.index}"
            while name in taken:
                name += "'"
            taken.add(name)
        names.append(name)
    return tuple(names)
