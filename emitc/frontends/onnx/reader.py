"""A .onnx file to a SourceModel: parsed and checked by the package `onnx`, every tensor typed, shape arithmetic computed.

ONNX states types and shapes of its inputs and constants only; the rest is inferred here node by node, so that operators
outside the standard (com.microsoft) take part. Nothing that a file claims is allocated before its size is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.numpy_helper
import onnx.shape_inference

from emitc.errors import CannotCompile, Code, EmitcError, Note, NoteCode, Refusals, Where
from emitc.frontends.limits import MAX_OPERATORS, MAX_TENSORS
from emitc.frontends.onnx.custom import custom_types, no_kernel, require_defined
from emitc.frontends.onnx.external_data import brought_in
from emitc.frontends.onnx.file import (
    check,
    complete,
    dims_of,
    dtype_name,
    misfit,
    parsed,
    refused_as,
    require_inferable,
    sort_nodes,
)
from emitc.frontends.onnx.functions import inlined, without_known_branches
from emitc.frontends.onnx.numbers import AGAIN, WEIGHTED, faulty, require_weights
from emitc.frontends.onnx.storage_types import STORAGE, stored_bytes
from emitc.frontends.onnx.subgraphs import CONTROL_FLOW, Inside, Operator
from emitc.frontends.onnx.types import (
    CONTRIB,
    INFERRED_AS,
    SHAPE_OF_INPUT,
    correct_pool,
    evaluated,
    require_group,
    require_stated,
    require_types,
    shape_value,
)
from emitc.frontends.subgraphs import OTHER_SIZES
from emitc.ir import Array, Shape
from emitc.kernels.contract import KernelDef
from emitc.records import dataclass
from emitc.source import Attribute, SourceModel, SourceNode, SourceTensor, check_shape, given_shape

_MICROSOFT = "com.microsoft"
_STANDARD = ("", "ai.onnx")
MAX_FOLDED_ELEMENTS = 1 << 22
"""Elements of all tensors that are computed from constants while reading."""
_MAX_READ_ELEMENTS = 1 << 25
"""Elements of all constants that such operators read; a small model may read one large constant any number of times."""
_MAX_SHAPE_VALUES = 1 << 12
"""Elements of a constant that inference gets to see: what shapes follow from is shorter, and it copies what it gets."""

_FOLDED = frozenset((
    "Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Concat", "Constant", "ConstantOfShape", "Div", "Equal",
    "Expand", "Flatten", "Floor", "Gather", "Greater", "Identity", "Less", "Max", "Min", "Mod", "Mul", "Neg",
    "Not", "Or", "Pow", "Range", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Relu", "Reshape", "Shape", "Size",
    "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze", "Where",
))  # fmt: skip
"""Operators that are computed at once where all their inputs are constants: shape arithmetic and rearranged weights.

QuantizeLinear and DequantizeLinear of constants stay: they say how a weight is quantized."""


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of a tensor while reading."""

    index: int
    type: onnx.TypeProto
    constant: onnx.TensorProto | None


class Reader:
    """The model's values by name, in the order in which they are found."""

    def __init__(
        self,
        model: onnx.ModelProto,
        shapes: Mapping[str, Shape],
        custom: Mapping[str, KernelDef],
        outer: Reader | None = None,
    ) -> None:
        self.model = model
        self.inside = Inside(self, outer)
        self.custom = custom
        self.shapes = shapes
        self.tensors: list[SourceTensor] = []
        self.values: dict[str, Value] = {}
        self.nodes: list[SourceNode] = []
        self.notes: list[Note] = []
        self.blockers: list[EmitcError] = []
        self.unread: list[SourceNode] = []
        self.opsets = {opset.domain: opset.version for opset in model.opset_import}
        self.opset = next((self.opsets[d] for d in _STANDARD if d in self.opsets), 17)
        self.folded = self.read_elements = 0
        self.sizes_chosen = False  # of open dimensions, by emitc or the user
        self.sound: set[int] = set()

    # ---- values ----

    def add(self, name: str, dtype: str, shape: Shape, data: bytes | None, proto: onnx.TypeProto, constant: Any) -> int:
        if name in self.values:
            raise faulty(f'two values are called "{name}"', Where(tensor=name), "names are unique")
        if len(self.tensors) >= MAX_TENSORS:
            raise faulty("the model has too many tensors", Where(), f"the limit is {MAX_TENSORS}")
        index = len(self.tensors)
        self.tensors.append(SourceTensor(index, name, dtype, shape, None, data))
        self.values[name] = Value(index, proto, constant)
        return index

    def add_constant(self, proto: onnx.TensorProto, name: str) -> int:
        """A constant of the file, its bytes counted against its shape."""
        where = Where(tensor=name)
        shape = tuple(proto.dims)
        dtype = dtype_name(proto.data_type)
        if any(dim < 0 for dim in shape):
            raise faulty("a constant has a negative dimension", where, str(list(shape)))
        check_shape(shape, dtype, where)
        array = self.constant_array(proto, shape, where)
        if array.shape != shape:
            raise faulty("a constant has other data than its shape", where, f"{array.shape} for {shape}")
        array = stored_bytes(array, dtype)
        if array.dtype.name != STORAGE.get(dtype, dtype):  # text, or numbers that numpy does not have under this name
            what = f"constants of type {dtype} are not supported"
            raise CannotCompile(what, where, "numpy has no such numbers", "remove the operator")
        kind = onnx.helper.make_tensor_type_proto(proto.data_type, shape)
        return self.add(name, dtype, shape, np.ascontiguousarray(array).tobytes(), kind, proto)

    def constant_array(self, proto: onnx.TensorProto, shape: Shape, where: Where) -> Array:
        """The value of a constant, from the file or from a file of external data."""
        if not proto.raw_data and math.prod(shape) > 0:
            fields = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
            if not any(len(getattr(proto, name)) for name in fields):  # numpy would make zeros of what the shape claims
                raise faulty("a constant has no data", where, f"its shape is {list(shape)}")
        with refused_as("a constant cannot be read", where):
            return np.asarray(onnx.numpy_helper.to_array(proto))

    def add_typed(self, name: str, proto: onnx.TypeProto, where: Where) -> int:
        if not proto.HasField("tensor_type") or proto.tensor_type.elem_type == 0:
            what, why = "the type of a value is not known", "only tensors can be compiled"
            raise CannotCompile(what, where, why, "replace the operator")
        dtype = dtype_name(proto.tensor_type.elem_type)
        if not proto.tensor_type.HasField("shape"):
            what, why = "the shape of a value is not known", "it depends on values that inputs have"
            raise CannotCompile(what, where, why, "replace the operator")
        shape = dims_of(proto)
        if any(dim.dim_value < 0 for dim in proto.tensor_type.shape.dim):
            hint = OTHER_SIZES if self.sizes_chosen else AGAIN
            raise EmitcError(f"an output has sizes {list(shape)}", where, "a window is larger than its input", hint)
        if -1 in shape:
            why = "the sizes of the inputs are known, so it depends on their values"
            hint = "replace the operator: the arrays of the C have fixed sizes"
            raise CannotCompile(f"a shape is open: {list(shape)}", where, why, hint)
        check_shape(shape, dtype, where)
        return self.add(name, dtype, shape, None, proto, None)

    # ---- the graph ----

    def read(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Everything; returns inputs and outputs."""
        graph = self.model.graph
        if len(graph.node) > MAX_OPERATORS:
            raise faulty(f"the model has {len(graph.node)} operators", Where(), f"the limit is {MAX_OPERATORS}")
        self.initializers(graph)
        inputs = tuple(self.graph_inputs())
        self.operators(graph)
        outputs = []
        for value in graph.output:
            if value.name not in self.values:
                if self.blockers:
                    outputs += self.stated_output(value)
                    continue
                raise faulty("nothing writes a graph output", Where(tensor=value.name), "it is not computed")
            index = self.values[value.name].index
            if 0 in self.tensors[index].shape:
                where = Where(tensor=value.name)
                raise EmitcError("a graph output is empty", where, "a dimension is 0", "remove the output")
            outputs.append(index)
        return inputs, tuple(outputs)

    def initializers(self, graph: onnx.GraphProto) -> None:
        for initializer in graph.initializer:
            try:
                self.add_constant(initializer, initializer.name)
            except CannotCompile as error:
                self.blockers.append(error)

    def stated_output(self, value: onnx.ValueInfoProto) -> list[int]:
        """The tensor of a graph output that a blocked operator writes, if the file states its shape."""
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type") or tensor.elem_type == 0 or not tensor.HasField("shape"):
            return []
        shape = tuple(max(size, -1) for size in dims_of(value.type))
        return [self.add(value.name, dtype_name(tensor.elem_type), shape, None, value.type, None)]

    def operators(self, graph: onnx.GraphProto) -> None:
        for index, node in enumerate(without_known_branches(graph.node, self.constant_of, self.inside.unrolled)):
            self.node(index, node)
        require_stated(graph, {name: value.type for name, value in self.values.items()})

    def graph_inputs(self) -> Iterator[int]:
        """Every graph input that is no constant. Raises EmitcError for all open dimensions at once."""
        constants = set(self.values)
        still_open: list[EmitcError] = []
        for value in self.model.graph.input:
            if value.name not in constants:
                try:
                    yield self.graph_input(value)
                except CannotCompile as error:
                    self.blockers.append(error)
                except EmitcError as error:
                    if error.code is not Code.SHAPE:
                        raise
                    still_open.append(error)
        if still_open:
            raise Refusals(tuple(still_open)) if len(still_open) > 1 else still_open[0]

    def graph_input(self, value: onnx.ValueInfoProto) -> int:
        """A graph input under the shape that the file or the user gives; an open first dimension becomes 1."""
        where = Where(tensor=value.name)
        if not value.type.HasField("tensor_type"):
            what, why = "a graph input is not a tensor", "sequences and optionals have no code"
            raise CannotCompile(what, where, why, "export it again")
        tensor = value.type.tensor_type
        stated = [max(size, -1) for size in dims_of(value.type)]
        dims = self.shapes.get(value.name)
        self.sizes_chosen |= -1 in stated
        if dims is not None:
            stated = list(given_shape(value.name, stated, dims))
        if stated[:1] == [-1]:
            stated[0] = 1
            self.notes.append(Note(NoteCode.BATCH, f'input "{value.name}": open batch dimension made 1'))
        if -1 in stated:
            hint = f"give it: --shape {value.name}={','.join(str(d) if d > 0 else '?' for d in stated)}"
            raise EmitcError("a graph input has an open dimension", where, f"its shape is {stated}", hint, Code.SHAPE)
        if 0 in stated:
            given_sizes = ",".join(str(d or "?") for d in stated)
            hint = f"where 0 stands for an open dimension, give it: --shape {value.name}={given_sizes}"
            raise EmitcError("a graph input is empty", where, f"its shape is {stated}", hint)
        dtype = dtype_name(tensor.elem_type)
        check_shape(tuple(stated), dtype, where)
        proto = onnx.helper.make_tensor_type_proto(tensor.elem_type, stated)
        return self.add(value.name, dtype, tuple(stated), None, proto, None)

    def node(self, index: int, node: onnx.NodeProto) -> None:
        """Types, folds or records one operator. One that cannot be typed blocks the model, and what reads it goes unread."""
        name = node.name or next((o for o in node.output if o), "")
        domain = "" if node.domain in _STANDARD else node.domain
        op_type = f"{domain}.{node.op_type}" if domain not in ("", _MICROSOFT) else node.op_type
        where = Where(op=f'op {index} {op_type} "{name}"')
        own = f"{domain}.{node.op_type}" if domain else node.op_type
        unread = [i for i in node.input if i and not self.inside.knows(i)]
        if unread and self.inside.blocked:
            if node.op_type not in (*_FOLDED, *CONTRIB):
                self.unread.append(SourceNode(index, op_type, name, (), (), {}, "onnx", own))
            return
        if unread:
            raise faulty(f'nothing has written "{unread[0]}"', where, "operators come in execution order")
        try:
            if not domain and node.op_type in CONTROL_FLOW:
                self.inside.add(Operator(index, node, name, where))
                return
            attributes = self.attributes(node, where)
            inputs = [self.values[i] if i else None for i in node.input]
            kernel = self.custom.get(own) if domain else None
            if kernel is None:
                self.require_sound(node, inputs, where)
            types = (
                self.infer(node, domain, inputs, where)
                if kernel is None
                else self.infer_custom(kernel, index, node, op_type, name, inputs, attributes)
            )
            if self.fold(node, domain, inputs, types, where):
                return
            outputs = tuple(self.add_typed(o, types.get(o, onnx.TypeProto()), where) for o in node.output if o)
        except CannotCompile as error:
            self.blockers.append(error)
            return
        if not domain:
            attributes["opset"] = self.opset
        else:  # QLinearSoftmax has an attribute of that name: the version of the Softmax that it stands for
            attributes.setdefault("opset", self.opsets.get(domain, 1))
        attributes["outputs_present"] = tuple(i for i, o in enumerate(node.output) if o)
        tensors = tuple(None if v is None else self.tensors[v.index] for v in inputs)
        self.nodes.append(
            SourceNode(
                index, op_type, name, tensors, tuple(self.tensors[i] for i in outputs), attributes, "onnx",
                node.op_type if kernel is None else own,
            )
        )  # fmt: skip

    def require_sound(self, node: onnx.NodeProto, inputs: Sequence[Value | None], where: Where) -> None:
        """Refuses an operator whose operands contradict its attributes, or are constants that no sum takes."""
        require_group(node, [None if v is None else v.type for v in inputs], where)
        if node.op_type in WEIGHTED:  # once for each constant: any number of operators may read a large one
            constants = [(i, v) for i, v in enumerate(inputs) if v is not None and v.constant is not None]
            read = [(i, self.tensors[v.index]) for i, v in constants if v.index not in self.sound]
            require_weights(node.op_type, read, where)
            self.sound.update(tensor.index for _, tensor in read)

    def attributes(self, node: onnx.NodeProto, where: Where) -> dict[str, Attribute]:
        """The node's attributes as Python values, texts joined by commas. A tensor attribute is left to folding."""
        attributes: dict[str, Attribute] = {}
        for attribute in node.attribute:
            kind = attribute.type
            if kind in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
                what = f"{node.op_type} is not supported"
                raise CannotCompile(what, where, "it runs a graph", "replace the operator")
            if kind in (onnx.AttributeProto.TENSOR, onnx.AttributeProto.SPARSE_TENSOR, onnx.AttributeProto.TYPE_PROTO):
                continue
            with refused_as("an attribute cannot be read", where):
                value = onnx.helper.get_attribute_value(attribute)
                if isinstance(value, bytes):
                    attributes[attribute.name] = value.decode("utf-8", "replace")
                elif isinstance(value, int | float):
                    attributes[attribute.name] = value
                elif kind in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
                    attributes[attribute.name] = tuple(value)
                elif kind == onnx.AttributeProto.STRINGS:
                    attributes[attribute.name] = ",".join(text.decode("utf-8", "replace") for text in value)
        return attributes

    def infer(
        self, node: onnx.NodeProto, domain: str, inputs: Sequence[Value | None], where: Where
    ) -> dict[str, onnx.TypeProto]:
        if domain == _MICROSOFT:
            if node.op_type not in CONTRIB:
                raise no_kernel(node.op_type, where, domain)
            return self.infer_contrib(node, inputs, where)
        opset = max(self.opset, INFERRED_AS.get(node.op_type, 0))
        if domain:
            raise no_kernel(node.op_type, where, domain)
        require_defined(node.op_type, opset, where)
        require_types(node.op_type, opset, [None if v is None else v.type for v in inputs], where)
        types = self._infer(node, where, opset)
        if inputs and inputs[0] is not None and node.output:
            if node.op_type in SHAPE_OF_INPUT:
                types[node.output[0]] = inputs[0].type
            correct_pool(node, node.op_type, inputs[0].type, types)
        return types

    def infer_custom(
        self, kernel: KernelDef, index: int, node: onnx.NodeProto, op_type: str, name: str,
        inputs: Sequence[Value | None], attributes: dict[str, Attribute],
    ) -> dict[str, onnx.TypeProto]:  # fmt: skip
        """An operator of a plugin: element types are those that the file states, or that of the first input."""
        stated = {
            v.name: v.type.tensor_type.elem_type for v in (*self.model.graph.value_info, *self.model.graph.output)
        }
        tensors = tuple(None if v is None else self.tensors[v.index] for v in inputs)
        first = next((v.type.tensor_type.elem_type for v in inputs if v is not None), onnx.TensorProto.FLOAT)
        source = SourceNode(index, op_type, name, tensors, (), attributes, "onnx")
        return custom_types(kernel, source, {o: stated.get(o) or first for o in node.output if o})

    def _infer(self, node: onnx.NodeProto, where: Where, opset: int) -> dict[str, onnx.TypeProto]:
        require_inferable(node, where)
        with misfit(node.op_type, where, self.sizes_chosen):
            schema = onnx.defs.get_schema(node.op_type, opset, "")
            names = {name for name in node.input if name}
            types = {name: self.values[name].type for name in names}
            data = {name: c for name in names if (c := self.short_constant(name)) is not None}
            return dict(
                onnx.shape_inference.infer_node_outputs(
                    schema, node, types, data, opset_imports=[onnx.helper.make_opsetid("", opset)]
                )
            )

    def constant_of(self, name: str) -> onnx.TensorProto | None:
        return self.values[name].constant if self.inside.knows(name) else None

    def short_constant(self, name: str) -> onnx.TensorProto | None:
        """A constant that shapes may follow from."""
        return self.constant_of(name) if self.tensors[self.values[name].index].elements <= _MAX_SHAPE_VALUES else None

    def infer_contrib(
        self, node: onnx.NodeProto, inputs: Sequence[Value | None], where: Where
    ) -> dict[str, onnx.TypeProto]:
        """An operator of com.microsoft has the shapes of the standard operator that it quantizes."""
        rule = CONTRIB[node.op_type]
        positions = rule.operands(len(inputs))
        type_of = inputs[rule.type_of] if rule.type_of < len(inputs) else None
        operands = [inputs[p] for p in positions if p < len(inputs)]
        if not operands or any(value is None for value in operands) or not node.output:
            raise faulty(f"{node.op_type} misses an input", where, f"it has {len(inputs)}")
        proxy = onnx.NodeProto()
        proxy.op_type = rule.standard
        proxy.output.extend(node.output[: rule.outputs])
        names = [f"in{i}" for i in range(len(operands))]
        proxy.input.extend(names)
        proxy.attribute.extend(a for a in node.attribute if a.name in rule.attributes)
        floats = {}
        for name, value in zip(names, operands, strict=True):
            assert value is not None
            kind = onnx.TypeProto()
            kind.CopyFrom(value.type)
            kind.tensor_type.elem_type = onnx.TensorProto.FLOAT
            floats[name] = kind
        with misfit(node.op_type, where, self.sizes_chosen):
            schema = onnx.defs.get_schema(rule.standard, 17, "")
            types = onnx.shape_inference.infer_node_outputs(
                schema, proxy, floats, opset_imports=[onnx.helper.make_opsetid("", 17)]
            )
        correct_pool(node, rule.standard, floats[names[0]], types)
        absent = onnx.TensorProto.UINT8 if rule.unsigned else onnx.TensorProto.FLOAT
        for result in types.values():
            result.tensor_type.elem_type = absent if type_of is None else type_of.type.tensor_type.elem_type
        return dict(types)

    def fold(
        self,
        node: onnx.NodeProto,
        domain: str,
        inputs: Sequence[Value | None],
        types: Mapping[str, onnx.TypeProto],
        where: Where,
    ) -> bool:
        """Computes an operator of constants, or of a shape; True when its outputs are constants now."""
        if domain or node.op_type not in _FOLDED:
            return False
        if node.op_type in ("Shape", "Size"):
            values: list[Array] = [shape_value(node, inputs[0].type if inputs[0] else None, where)]
        else:
            if any(value is not None and value.constant is None for value in inputs):
                return False
            self.read_elements += sum(self.tensors[value.index].elements for value in inputs if value is not None)
            for name in node.output:
                kind = types.get(name, onnx.TypeProto()).tensor_type
                dims = dims_of(types.get(name))
                self.folded += max(1, math.prod(dims))
                if kind.elem_type == onnx.TensorProto.STRING:
                    return False
                known = kind.HasField("shape") and min(dims, default=0) >= 0
                if not known or self.folded > MAX_FOLDED_ELEMENTS or self.read_elements > _MAX_READ_ELEMENTS:
                    what = f"{node.op_type} of constants is too large to be computed while compiling"
                    why = f"the limit is {MAX_FOLDED_ELEMENTS} elements made, and {_MAX_READ_ELEMENTS} read, in all"
                    raise CannotCompile(what, where, why, "fold the constants before the export")
            with refused_as(f"{node.op_type} of constants cannot be computed", where), np.errstate(all="ignore"):
                values = evaluated(
                    node, [v.constant for v in inputs if v is not None and v.constant is not None], self.opset
                )
        for name, value in zip(node.output, values, strict=True):
            if name:
                with refused_as(f"{node.op_type} of constants cannot be computed", where):
                    proto = onnx.numpy_helper.from_array(np.asarray(value), name)
                self.add_constant(proto, name)
        return True


def read_onnx(
    data: bytes,
    shapes: Mapping[str, Shape] | None = None,
    folder: Path | None = None,
    custom: Mapping[str, KernelDef] = MappingProxyType({}),
) -> SourceModel:
    """The model in `data`, the bytes of a .onnx file, as its file states it, with types and shapes inferred.

    shapes: open dimensions by input name. folder: where external data may lie. custom: operators of other domains, under
    domain.name, that type themselves. Raises EmitcError when the file is not ONNX, is damaged, or contradicts itself.
    Operators without code are reported as blockers.
    """
    model = parsed(data)
    whole, digest = brought_in(model, data, folder)
    model = inlined(model)
    sort_nodes(model)
    complete(model, shapes or {})
    reader = Reader(model, shapes or {}, custom)
    reader.blockers += check(model)
    inputs, outputs = reader.read()
    known = {reader.tensors[i].name for i in inputs}
    for name in shapes or {}:
        if name not in known:
            what, why = f"no input is called {name}", f"the model's inputs: {', '.join(sorted(known))}"
            raise EmitcError(what, Where(option="--shape"), why, "name one of these")
    producer = " ".join(part for part in (model.producer_name, model.producer_version) if part)
    return SourceModel(
        "onnx", producer, digest, tuple(reader.tensors), tuple(reader.nodes), inputs, outputs, tuple(reader.notes),
        tuple(reader.blockers), len(data), tuple(reader.inside.subgraphs), (), tuple(reader.unread), reader.sizes_chosen, whole,
    )  # fmt: skip
