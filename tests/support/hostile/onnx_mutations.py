"""Seeded damage to the message of a .onnx file: well-formed protobuf, and wrong. One case always gives the same bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import onnx
from google.protobuf.message import Error
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.support.hostile.onnx_grafts import bloated, constant_nodes, graft, scales_of_one, too_deep, twins
from tests.support.hostile.onnx_models import DATA_FILE

_INTEGERS = (
    0, 1, -1, 2, 3, 7, -2, -128, 64, 255, 256, 65535, 65536, 2**24, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1,
    -(2**63),
)  # fmt: skip
_REALS = (
    0.0, -0.1, -1.0, 1e-45, 1e-38, 1e-10, 0.5, 1.0, 255.0, 1e20, 1e38, 3.4e38, float("inf"), -float("inf"), float("nan"),
)  # fmt: skip
_NAMES = (
    "", "*/", '"', "\n#error x\n", "x" * 10_000, "вход\u202e\U0001f600", "while", "_Generic", "__FILE__", "??/", "\\", "%s%n",
    "a\x00b", "\x1b[31m", "scale0", "x0", "v0", "v0_nhwc", "same", "../../etc/passwd", "{{ 1 }}",
)  # fmt: skip
_OPS = (
    "If", "Loop", "Scan", "LSTM", "NonZero", "Unique", "StringNormalizer", "SequenceAt", "SequenceConstruct", "Optional", "TopK",
    "Compress", "RandomNormal", "Einsum", "Shape", "Constant", "Identity", "Reshape", "Transpose", "QuantizeLinear", "Gemm",
    "DequantizeLinear", "Conv", "MatMul", "Concat", "Split", "Resize", "Pad", "Gather", "Cast", "Relu", "Nonsense", "",
    "BatchNormalization", "QLinearConv", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger", "Dropout", "Softmax",
    "CastLike",
)  # fmt: skip
_OPSETS = (0, 1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 18, 19, 21, 23, 99, -1, 2**62)


def _tensors(model: onnx.ModelProto) -> list[TensorProto]:
    """Every constant: initializers and those in attributes."""
    inside = [a.t for node in model.graph.node for a in node.attribute if a.type == AttributeProto.TENSOR]
    return [*model.graph.initializer, *inside]


def _values(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    return [*model.graph.input, *model.graph.output, *model.graph.value_info]


def _names(model: onnx.ModelProto) -> list[str]:
    """Every name of a value, in order."""
    names = [v.name for v in model.graph.input] + [t.name for t in model.graph.initializer]
    return list(dict.fromkeys(names + [name for node in model.graph.node for name in (*node.input, *node.output)]))


def _node(model: onnx.ModelProto, rng: random.Random) -> onnx.NodeProto:
    return rng.choice(model.graph.node)


def _dims(model: onnx.ModelProto, rng: random.Random) -> None:
    if rng.random() < 0.5:
        shape = rng.choice(_values(model)).type.tensor_type.shape
        kind = rng.randrange(4)
        if kind == 0 or not shape.dim:
            for _ in range(rng.choice((1, 1, 9, 1000))):
                shape.dim.add(dim_value=rng.choice(_INTEGERS))
        elif kind == 1:
            del shape.dim[rng.randrange(len(shape.dim))]
        elif kind == 2:
            rng.choice(shape.dim).dim_param = rng.choice(_NAMES)
        else:
            rng.choice(shape.dim).dim_value = rng.choice(_INTEGERS)
        return
    tensor = rng.choice(_tensors(model))
    if not tensor.dims or rng.random() < 0.2:
        tensor.dims.append(rng.choice(_INTEGERS))
    elif rng.random() < 0.2:
        del tensor.dims[rng.randrange(len(tensor.dims))]
    else:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(_INTEGERS)


def _dtype(model: onnx.ModelProto, rng: random.Random) -> None:
    new = rng.choice((*range(27), 999, -1, 2**31 - 1))
    if rng.random() < 0.5:
        rng.choice(_values(model)).type.tensor_type.elem_type = new
    else:
        rng.choice(_tensors(model)).data_type = new


def _value_type(model: onnx.ModelProto, rng: random.Random) -> None:
    """A graph input or output that is no dense tensor, or of no type."""
    value = rng.choice(_values(model)).type
    kept = value.tensor_type.elem_type
    value.Clear()
    kind = rng.randrange(5)
    if kind == 0:
        value.sequence_type.elem_type.tensor_type.elem_type = kept
    elif kind == 1:
        value.optional_type.elem_type.tensor_type.elem_type = kept
    elif kind == 2:
        value.sparse_tensor_type.elem_type = kept
        value.sparse_tensor_type.shape.dim.add(dim_value=4)
    elif kind == 3:
        value.tensor_type.elem_type = kept


def _attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    """Another value of the attribute's own kind."""
    attributes = [a for node in model.graph.node for a in node.attribute]
    if not attributes:
        return _attribute_added(model, rng)
    attribute = rng.choice(attributes)
    kind = attribute.type
    if kind == AttributeProto.INT:
        attribute.i = rng.choice(_INTEGERS)
    elif kind == AttributeProto.FLOAT:
        attribute.f = rng.choice(_REALS)
    elif kind == AttributeProto.STRING:
        attribute.s = rng.choice(
            (*(name.encode() for name in _NAMES), b"\xff\xfe", b"SAME_UPPER", b"VALID", b"linear", b"cubic")
        )
    elif kind == AttributeProto.INTS:
        action = rng.randrange(4)
        if action == 0 and attribute.ints:
            del attribute.ints[rng.randrange(len(attribute.ints))]
        elif action == 1:
            attribute.ints.extend([rng.choice(_INTEGERS)] * rng.choice((1, 1, 100, 100_000)))
        elif attribute.ints:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(_INTEGERS)
    elif kind == AttributeProto.TENSOR:
        attribute.t.dims.append(rng.choice(_INTEGERS))
    return None


def _attribute_kind(model: onnx.ModelProto, rng: random.Random) -> None:
    """Another kind under the same name: as a whole, or the tag alone."""
    node = _node(model, rng)
    if not node.attribute:
        return
    attribute = rng.choice(node.attribute)
    if rng.random() < 0.3:
        attribute.type = rng.randrange(15)
        return
    name = attribute.name
    body = helper.make_graph([], "g", [], [])
    values = (
        1,
        -1,
        0.5,
        "text",
        [1, 2],
        [0.5],
        ["a"],
        helper.make_tensor("t", 1, [1], [1.0]),
        body,
        [body],
        float("nan"),
        2**62,
    )
    attribute.CopyFrom(helper.make_attribute(name, rng.choice(values)))


def _attribute_added(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    names = (
        "axis", "perm", "group", "pads", "strides", "kernel_shape", "to", "alpha", "block_size", "auto_pad", "transA", "axes",
        "ceil_mode", "saturate", "output_dtype", "num_outputs", "keepdims", "value", "shape", "opset", "outputs_present",
    )  # fmt: skip
    value = rng.choice(
        (rng.choice(_INTEGERS), [rng.choice(_INTEGERS)] * rng.randrange(1, 9), rng.choice(_REALS), "SAME_LOWER")
    )
    node.attribute.append(helper.make_attribute(rng.choice(names), value))


def _attribute_lost(model: onnx.ModelProto, rng: random.Random) -> None:
    node = rng.choice([n for n in model.graph.node if n.attribute] or list(model.graph.node))
    action = rng.randrange(4)
    if not node.attribute:
        return
    attribute = rng.choice(node.attribute)
    if action == 0:
        node.attribute.append(attribute)
    elif action == 1:
        attribute.name = rng.choice(_NAMES)
    elif action == 2:
        attribute.ref_attr_name = "other"
    else:
        node.attribute.remove(attribute)


def _wires(model: onnx.ModelProto, rng: random.Random) -> None:
    """Inputs and outputs of a node swapped, doubled, dropped, replaced."""
    node = _node(model, rng)
    names = rng.choice((node.input, node.input, node.output))
    action = rng.randrange(6)
    if not names or action == 0:
        names.extend([rng.choice(_names(model))] * rng.choice((1, 2, 100)))
    elif action == 1:
        a, b = (rng.randrange(len(names)) for _ in range(2))
        names[a], names[b] = names[b], names[a]
    elif action == 2:
        del names[rng.randrange(len(names))]
    elif action == 3:
        names[rng.randrange(len(names))] = rng.choice(("", "nowhere"))
    elif action == 4:
        del names[:]
    else:
        names[rng.randrange(len(names))] = rng.choice(_names(model))


def _cycle(model: onnx.ModelProto, rng: random.Random) -> None:
    nodes = list(model.graph.node)
    if rng.random() < 0.3:
        rng.shuffle(nodes)
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        return
    late = rng.randrange(len(nodes))
    early = rng.randrange(late + 1)
    if nodes[early].input and nodes[late].output:
        nodes[early].input[rng.randrange(len(nodes[early].input))] = rng.choice(nodes[late].output)


def _renamed(model: onnx.ModelProto, old: str, new: str) -> None:
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [new if name == old else name for name in list(names)]
    for value in (*_values(model), *model.graph.initializer):
        if value.name == old:
            value.name = new


def _name(model: onnx.ModelProto, rng: random.Random) -> None:
    """A name changed everywhere, in one place, or on what has no wire."""
    new = rng.choice(_NAMES)
    action = rng.randrange(7)
    if action <= 1:
        _renamed(model, rng.choice(_names(model)), new)
    elif action == 2:
        for number, name in enumerate(_names(model)):
            _renamed(model, name, f"{new}{number}")
    elif action == 3:
        _node(model, rng).name = new
    elif action == 4:
        for node in model.graph.node:
            node.name = new
    elif action == 5:
        rng.choice((*_values(model), *model.graph.initializer)).name = new
    else:
        model.graph.name = model.producer_name = model.doc_string = _node(model, rng).doc_string = new


def _operator(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if rng.random() < 0.75:
        node.op_type = rng.choice((*_OPS, *(n.op_type for n in model.graph.node)))
    else:
        node.domain = rng.choice(("", "ai.onnx", "com.microsoft", "ai.onnx.ml", "somewhere", "\n", "ai.onnx.training"))
    if rng.random() < 0.3:
        del node.attribute[:]


def _integers(model: onnx.ModelProto, rng: random.Random) -> None:
    """Values of a constant list of integers: shapes, axes, zero points."""
    candidates = [t for t in _tensors(model) if t.data_type in (2, 3, 5, 6, 7) and t.data_location == 0]
    tensor = rng.choice([t for t in candidates if len(t.raw_data) <= 64] or candidates)
    array = np.array(numpy_helper.to_array(tensor))
    flat = array.reshape(-1)
    info = np.iinfo(array.dtype)
    for at in range(flat.size):
        if rng.random() < 0.5:
            flat[at] = min(max(rng.choice(_INTEGERS), info.min), info.max)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _quantization(model: onnx.ModelProto, rng: random.Random) -> None:
    """Scales and zero points: extreme, of another length, of another type."""
    uses = [
        n
        for n in model.graph.node
        if "Quantize" in n.op_type or n.op_type.startswith("Q") or n.op_type == "DequantizeLinear"
    ]
    names = {name for n in uses for name in n.input[1:]}
    candidates = [t for t in model.graph.initializer if t.name in names and t.data_location == 0] or list(
        model.graph.initializer
    )
    tensor = rng.choice(candidates)
    if tensor.data_location != 0:
        return
    array = np.array(numpy_helper.to_array(tensor))
    action = rng.randrange(5)
    if action <= 1 and array.dtype.kind == "f":
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice(_REALS)
    elif action == 2:
        array = np.resize(array, rng.choice(((0,), (1,), (2,), (3,), (4,), (1, 1), (1000,))))
    elif action == 3:
        array = array.astype(
            rng.choice(("float64", "float16", "int8", "uint8", "int16", "int32", "uint16", "int64", "bool"))
        )
    elif array.dtype.kind in "iu":
        info = np.iinfo(array.dtype)
        array.reshape(-1)[:] = rng.choice((info.min, info.max, 1))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _data(model: onnx.ModelProto, rng: random.Random) -> None:
    """Other data than the shape asks for, none, twice, or in the wrong field."""
    tensor = rng.choice(_tensors(model))
    action = rng.randrange(7)
    if action == 0:
        tensor.raw_data = tensor.raw_data[: -rng.choice((1, 4, 1000))]
    elif action == 1:
        tensor.raw_data += bytes(rng.choice((1, 4, 10_000)))
    elif action == 2:
        tensor.ClearField("raw_data")
    elif action == 3:
        tensor.float_data.extend([1.0, float("nan")])
    elif action == 4:
        count = len(tensor.raw_data)
        tensor.ClearField("raw_data")
        field = rng.choice(("int32_data", "int64_data", "float_data", "double_data", "uint64_data"))
        getattr(tensor, field).extend([rng.choice((0, 1, 2**31 - 1) if "int32" in field else (0, 1, 2**40))] * count)
    elif action == 5:
        tensor.string_data.extend([b"\xff", b"a"])
    else:
        tensor.segment.begin, tensor.segment.end = 0, 2**40


def _interface(model: onnx.ModelProto, rng: random.Random) -> None:
    values = rng.choice((model.graph.input, model.graph.output))
    action = rng.randrange(7)
    if not values or action == 0:
        values.append(onnx.ValueInfoProto(name=rng.choice(_NAMES)))
    elif action == 1:
        del values[rng.randrange(len(values))]
    elif action == 2:
        rng.choice(values).name = rng.choice((*_NAMES, *_names(model)))
    elif action == 3:
        values.append(rng.choice(values))
    elif action == 4:
        del values[:]
    elif action == 5:
        values.append(helper.make_tensor_value_info(rng.choice(_names(model)), 1, [1]))
    else:
        rng.choice(values).ClearField("type")


def _versions(model: onnx.ModelProto, rng: random.Random) -> None:
    action = rng.randrange(5)
    if action <= 2 and model.opset_import:
        rng.choice(model.opset_import[:1] if rng.random() < 0.8 else model.opset_import).version = rng.choice(_OPSETS)
    elif action == 3:
        model.ir_version = rng.choice((0, 1, 3, 4, 9, 99, -1, 2**62))
    else:
        for _ in range(rng.randrange(3)):
            model.opset_import.append(
                helper.make_opsetid(rng.choice(("", "ai.onnx", "somewhere", "x" * 5000)), rng.choice(_OPSETS))
            )
        if rng.random() < 0.5:
            del model.opset_import[0]


def _external(model: onnx.ModelProto, rng: random.Random) -> None:
    """A constant that lies in another file."""
    tensor = rng.choice(_tensors(model))
    if rng.random() < 0.7:
        tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    numbers = ("0", "64", "4096", "-1", str(2**62), str(2**70), "1e3", "", "x", "٣", "9" * 5000)
    places = (DATA_FILE, DATA_FILE, DATA_FILE, "../../etc/passwd", "/etc/passwd", "/dev/zero", "", ".", "..", "absent", "a\0b",
              f"./{DATA_FILE}", f"x/../{DATA_FILE}", "x" * 10_000, "\\\\host\\share")  # fmt: skip
    for key, choices in (("location", places), ("offset", numbers), ("length", numbers), ("checksum", ("0",))):
        if rng.random() < 0.7 or key == "location":
            entry = tensor.external_data.add()
            entry.key, entry.value = key, rng.choice(choices)


def _bomb(model: onnx.ModelProto, rng: random.Random) -> None:
    """Constants of 10**12 elements, computed by a node at the front."""
    size = rng.choice((10**6, 10**6, 2**31, 2**62))
    graph = model.graph

    def constant(value: object, dtype: str) -> str:
        name = f"bomb{len(graph.initializer)}"
        graph.initializer.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    kind = rng.choice(
        ("ConstantOfShape", "Expand", "Tile", "Range", "Range", "Pad", "Resize", "OneHot", "EyeLike", "Cast", "Gather")
    )
    attributes: dict[str, object] = {}
    inputs: list[str] = []
    if kind == "ConstantOfShape":
        inputs = [constant([size, 10**6], "int64")]
    elif kind in ("Expand", "Tile"):
        inputs = [constant([[1.0]], "float32"), constant([size, 10**6], "int64")]
    elif kind == "Range":
        ends = rng.choice(((0, 10**12, 1), (0, 2**62, 1), (0, 1, 0), (0, -1, -1), (0.0, 1.0, 1e-30), (0.0, float("nan"), 1.0),
                           (0.0, float("inf"), 1.0), (0.0, 1e300, 1e-300), (-(2**63), 2**63 - 1, 1)))  # fmt: skip
        inputs = [constant(end, "float64" if isinstance(ends[1], float) else "int64") for end in ends]
    elif kind == "Pad":
        inputs = [constant([[1.0]], "float32"), constant([0, 0, size, 10**6], "int64")]
    elif kind == "Resize":
        inputs = [constant([[[[1.0]]]], "float32"), "", constant([1, 1, 1e6, 1e6], "float32")]
    elif kind == "OneHot":
        inputs = [constant(list(range(1000)), "int64"), constant(size, "int64"), constant([0.0, 1.0], "float32")]
    elif kind == "EyeLike":
        inputs = [constant([[1.0]], "float32")]
    elif kind == "Cast":
        inputs = [constant([[1.0] * 64] * 64, "float32")]
        attributes["to"] = rng.choice((8, 9, 16, 17, 22, 999))
    else:
        inputs = [constant([[1.0] * 64] * 64, "float32"), constant(np.zeros((1024, 1024), "uint8"), "int64")]
    node = helper.make_node(kind, inputs, ["boom"], "bomb", **attributes)
    graph.node.insert(0, node)
    if rng.random() < 0.5:
        graph.output.append(helper.make_tensor_value_info("boom", 1, [1]))
    else:
        target = _node(model, rng)
        if target.input and target.name != "bomb":
            target.input[rng.randrange(len(target.input))] = "boom"


def _structure(model: onnx.ModelProto, rng: random.Random) -> None:
    """Subgraphs, functions, sparse constants, training, metadata."""
    graph = model.graph
    body = helper.make_graph(
        [helper.make_node("Identity", ["a"], ["b"])], "body", [], [helper.make_tensor_value_info("b", 1, [1])]
    )
    action = rng.randrange(8)
    if action == 0:
        _node(model, rng).attribute.append(helper.make_attribute(rng.choice(("body", "then_branch", "value")), body))
    elif action == 1:
        opset = [helper.make_opsetid("", 17)]
        made = helper.make_function(
            "own", "F", ["a"], ["b"], [helper.make_node("F", ["a"], ["b"], domain="own")], opset
        )
        model.functions.append(made)
        node = _node(model, rng)
        node.op_type, node.domain = "F", "own"
        model.opset_import.append(helper.make_opsetid("own", 1))
    elif action == 2:
        values = helper.make_tensor("s", 1, [2], [1.0, 2.0])
        indices = helper.make_tensor("i", 7, [2], [0, rng.choice(_INTEGERS)])
        graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [10**6, 10**6]))
    elif action == 3:
        model.training_info.add().initialization.CopyFrom(graph)
    elif action == 4:
        helper.set_model_props(model, {name: name for name in _NAMES})
    elif action == 5:
        inner = body
        for _ in range(rng.choice((5, 20, 28))):
            inner = helper.make_graph(
                [helper.make_node("If", ["c"], ["b"], then_branch=inner, else_branch=body)], "deep", [], []
            )
        graph.node.append(
            helper.make_node("If", [rng.choice(_names(model))], ["deep"], then_branch=inner, else_branch=inner)
        )
    elif action == 6:
        graph.quantization_annotation.add().tensor_name = rng.choice(_names(model))
    else:
        _node(model, rng).overload = "other"


def _flood(model: onnx.ModelProto, rng: random.Random) -> None:
    """Very many of something small."""
    graph = model.graph
    first = rng.choice(_names(model))
    action = rng.randrange(6)
    if action == 0:
        for i in range(20_000):
            graph.node.append(helper.make_node("Identity", [f"flood{i - 1}" if i else first], [f"flood{i}"]))
    elif action == 1:
        for i in range(20_000):
            graph.initializer.append(TensorProto(name=f"flood{i}", data_type=1, dims=[1], raw_data=bytes(4)))
    elif action == 2:
        for i in range(3000):
            graph.node.append(helper.make_node(rng.choice(("Neg", "Relu", "Transpose")), [first], [f"flood{i}"]))
    elif action == 3:
        for i in range(3000):
            graph.node.append(helper.make_node("Add", [f"flood{i - 1}" if i else first, first], [f"flood{i}"]))
        graph.output.append(helper.make_tensor_value_info("flood2999", 1, [1]))
    elif action == 4:
        graph.node.append(helper.make_node("Concat", [first] * 20_000, ["flood"], axis=0))
    else:
        model.graph.input.extend(helper.make_tensor_value_info(f"flood{i}", 1, [1]) for i in range(20_000))


Damage = Callable[[onnx.ModelProto, random.Random], None]

MESSAGES: tuple[tuple[str, Damage], ...] = (
    ("dims", _dims), ("dtype", _dtype), ("value type", _value_type), ("attribute", _attribute), ("attribute", _attribute),
    ("attribute kind", _attribute_kind), ("attribute added", _attribute_added), ("attribute lost", _attribute_lost),
    ("wires", _wires), ("wires", _wires), ("cycle", _cycle), ("name", _name), ("operator", _operator), ("integers", _integers),
    ("integers", _integers), ("quantization", _quantization), ("quantization", _quantization), ("data", _data),
    ("interface", _interface), ("versions", _versions), ("external", _external), ("bomb", _bomb), ("structure", _structure),
    ("graft", graft), ("graft", graft), ("graft", graft), ("bloated", bloated), ("scales of one", scales_of_one),
    ("scales of one", scales_of_one), ("constant nodes", constant_nodes), ("twins", twins),
)  # fmt: skip
_FLOOD_SHARE = 0.025


class OnnxDamager:
    """One model described wrongly, in well-formed protobuf, by number: every kind in turn, one time in five several at once."""

    suffix = ".onnx"

    def __init__(self, name: str, data: bytes) -> None:
        self.name = f"{name} described wrongly"
        self.data = data

    def _kinds(self, number: int, rng: random.Random) -> Iterator[tuple[str, Damage]]:
        if rng.random() < _FLOOD_SHARE:
            yield rng.choice((("flood", _flood), ("flood", _flood), ("too deep", too_deep)))
            return
        yield MESSAGES[(number + 7 * len(self.name)) % len(MESSAGES)]
        if rng.random() < 0.2:
            for _ in range(rng.randrange(1, 4)):
                yield rng.choice(MESSAGES)

    def damaged(self, number: int) -> tuple[str, bytes]:
        """(kinds of damage, bytes)."""
        rng = random.Random(f"{self.name}:{number}")
        model = onnx.ModelProto.FromString(self.data)
        kinds = []
        for kind, damage in self._kinds(number, rng):
            try:
                damage(model, rng)
            except (ValueError, TypeError, IndexError, KeyError, AttributeError, Error):
                continue  # an earlier damage has taken away what this one would change
            kinds.append(kind)
        return " + ".join(kinds) or "nothing", model.SerializeToString()
