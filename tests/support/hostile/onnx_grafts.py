"""Seeded damage that adds to a .onnx file: operators with attributes of their schema, results at the limits, scales of one node.

What these make is mostly right in itself, and so reaches the checks after the reader.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from emitc.frontends.onnx.types import CONTRIB
from emitc.kernels import registry_of

_SIZES = (0, 1, 2, 3, 7, 64, 1000, 2**16, 2**20, 2**22, 2**24, 2**31 - 1, 2**40)
_SMALL = (-3, -2, -1, 0, 1, 2, 3, 4)
_FAR = (-(2**63), -(2**31), -1000, 255, 1000, 2**16, 2**31 - 1, 2**40, 2**63 - 1)
_REALS = (0.0, -0.0, 0.5, 1.0, -1.0, 1e-45, 1e38, 3.4e38, float("inf"), -float("inf"), float("nan"))
_WORDS = (
    b"nearest", b"linear", b"cubic", b"asymmetric", b"align_corners", b"half_pixel", b"pytorch_half_pixel", b"floor", b"ceil",
    b"round_prefer_ceil", b"SAME_UPPER", b"SAME_LOWER", b"VALID", b"NOTSET", b"constant", b"edge", b"reflect", b"wrap", b"DCR",
    b"CRD", b"tanh", b"none", b"", b"\xff", b"*/",
)  # fmt: skip
_CHANGEABLE = frozenset(("DequantizeLinear", "QuantizeLinear", "QLinearConv", "QLinearMatMul", "QGemm", "QLinearAdd"))


_NUMPY = {
    "tensor(float)": ("float32",), "tensor(int8)": ("int8",), "tensor(uint8)": ("uint8",), "tensor(int32)": ("int32",),
    "tensor(int64)": ("int64",), "tensor(bool)": ("bool",), "tensor(int16)": ("int16",),
}  # fmt: skip


def _constant(model: onnx.ModelProto, value: object, dtype: str = "float32") -> str:
    """A new initializer; returns its name."""
    name = f"graft{len(model.graph.initializer)}"
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(value, dtype), name))
    return name


def _opset(model: onnx.ModelProto) -> int:
    return next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 17)


def _small_or_far(rng: random.Random) -> int:
    return rng.choice(_SMALL if rng.random() < 0.8 else _FAR)


def _attribute(name: str, kind: int, rng: random.Random) -> AttributeProto | None:
    """A value of the kind that the schema names."""
    kinds = onnx.defs.OpSchema.AttrType
    values: dict[object, Callable[[], object]] = {
        kinds.INT: lambda: _small_or_far(rng),
        kinds.INTS: lambda: [_small_or_far(rng) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4, 8)))],
        kinds.FLOAT: lambda: rng.choice(_REALS),
        kinds.FLOATS: lambda: [rng.choice(_REALS) for _ in range(rng.randrange(4))],
        kinds.STRING: lambda: rng.choice(_WORDS),
        kinds.TENSOR: lambda: numpy_helper.from_array(np.full(rng.choice(((), (1,), (2,), (0,))), 1, "float32"), "t"),
    }
    return helper.make_attribute(name, values[kind](), attr_type=int(kind)) if kind in values else None


def _types(model: onnx.ModelProto) -> dict[str, tuple[int, tuple[int, ...]]]:
    """(element type, shape) of the values that the package onnx can infer."""
    try:
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except onnx.shape_inference.InferenceError:  # an earlier damage
        graph = model.graph
    values = [(v.name, v.type.tensor_type) for v in (*graph.input, *graph.value_info)]
    types = {name: (kind.elem_type, tuple(max(1, d.dim_value) for d in kind.shape.dim)) for name, kind in values}
    return types | {t.name: (t.data_type, tuple(t.dims)) for t in graph.initializer}


def _like(model: onnx.ModelProto, elem_type: int, shape: tuple[int, ...], rng: random.Random) -> str:
    """A constant that goes with a value: of its shape, broadcast against it, a filter or a matrix for it; or of any shape."""
    channels, last = (shape[1] if len(shape) > 1 else 1), (shape[-1] if shape else 1)
    shapes: tuple[tuple[int, ...], ...] = (
        shape, (), (1,), (last,), (channels,), (1,) * len(shape), (channels, 1, 1), (*shape[:-1], 1), (1, *shape[1:]),
        (3, channels, 3, 3), (channels, 1, 2, 2), (channels, 2, 3, 3), (3, channels, 2), (last, 4), (4, last), (2, *shape), (0,),
        (3,),
    )  # fmt: skip
    chosen = rng.choice(shapes)
    if np.prod(chosen, dtype=float) > 10_000:
        chosen = ()
    try:
        dtype = helper.tensor_dtype_to_np_dtype(elem_type)
    except KeyError:
        dtype = np.dtype("float32")
    pools: dict[str, list[object]] = {
        "f": [[0.5, -1.0, 2.0], [0.5, -1.0, 2.0], [1e-3, 3.0], [0.0], [float("inf")], [float("nan")], [3e38], [-1e-45, 1e30]],
        "i": [[1, -1, 2], [0, 1], [-128, 127], [3]], "u": [[1, 0, 2], [255, 128], [3]], "b": [[True, False]],
    }  # fmt: skip
    return _constant(model, np.resize(rng.choice(pools.get(dtype.kind, [[1]])), chosen), dtype.name)


def _operand(
    model: onnx.ModelProto, schema: onnx.defs.OpSchema, i: int, first: str, known: list[str],
    types: dict[str, tuple[int, tuple[int, ...]]], rng: random.Random,
) -> str:  # fmt: skip
    """An input of a node of this schema after its first: an existing value, a fitting constant, or any."""
    type_name = schema.inputs[min(i, len(schema.inputs) - 1)].type_str
    elem_type, shape = types.get(first, (1, ()))
    luck = rng.random()
    if type_name == "tensor(int64)" or luck < 0.05:
        rank = max(1, len(shape))
        return _constant(
            model, [_small_or_far(rng) for _ in range(rng.choice((1, 1, rank, rank, 2 * rank, 0, 2)))], "int64"
        )
    if type_name != schema.inputs[0].type_str:
        return _like(model, rng.choice((1, 1, 2, 3, 6, 7, 7, 9)), shape, rng)
    same_type = [name for name in known if types.get(name) == types.get(first)]
    return (
        rng.choice(same_type or [first])
        if luck < 0.4
        else _like(model, elem_type, shape, rng)
        if luck < 0.9
        else rng.choice(known)
    )


def graft(model: onnx.ModelProto, rng: random.Random) -> None:
    """A new operator, of those that have code or of any, on values of the model; something after it reads its result."""
    graph, opset, types = model.graph, _opset(model), _types(model)
    every = [(schema.name, schema.domain) for schema in onnx.defs.get_all_schemas()]
    ours = [(name, "") for name in sorted(registry_of("onnx")) if onnx.defs.has(name, opset, "")]
    contrib = [(name, "com.microsoft") for name in sorted(CONTRIB)]
    name, domain = rng.choice(rng.choice((ours, ours, ours, ours, ours, contrib, every)))
    at = rng.randrange(len(graph.node))
    initializers = [tensor.name for tensor in graph.initializer]
    known = [v.name for v in graph.input if v.name not in initializers]
    known += [o for node in graph.node[:at] for o in node.output if o][-12:]
    if not known:
        return
    node = helper.make_node(name, [], [f"grafted{len(graph.node)}"], f"graft{len(graph.node)}", domain=domain)
    if domain == "com.microsoft":
        node.input.extend(rng.choice(known + initializers) for _ in range(rng.randrange(1, 10)))
        attributes = {
            "axis": _small_or_far(rng),
            "channels_last": rng.randrange(3),
            "transB": rng.randrange(2),
            "alpha": 1.0,
        }
        node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items() if rng.random() < 0.5)
    else:
        there = onnx.defs.has(name, opset, domain)
        schema = onnx.defs.get_schema(name, opset, domain) if there else onnx.defs.get_schema(name, domain)
        formal = schema.inputs[0].type_str if schema.inputs else ""
        allowed = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == formal), [formal])
        numbers = {helper.np_dtype_to_tensor_dtype(np.dtype(n)) for t in allowed for n in _NUMPY.get(t, ())}
        first = rng.choice([k for k in known if types.get(k, (1, ()))[0] in numbers] or known)
        for i in range(rng.randint(schema.min_input, min(schema.max_input, schema.min_input + 3))):
            node.input.append(first if i == 0 else _operand(model, schema, i, first, known, types, rng))
        for key in sorted(schema.attributes):
            attribute = schema.attributes[key]
            if attribute.required or rng.random() < 0.3:
                made = _attribute(key, attribute.type, rng)
                node.attribute.extend([made] if made is not None else [])
        for i in range(1, min(rng.choice((1, 1, 1, 1, 2, 3)), schema.max_output)):
            node.output.append(f"grafted{len(graph.node)}_{i}")
    reader = rng.choice(graph.node[at:])
    graph.node.insert(at, node)
    if rng.random() < 0.4 and reader.input:
        reader.input[0] = node.output[0]
    else:
        kind = rng.choice((1, 1, 1, 3, 7, 9))
        graph.output.append(helper.make_tensor_value_info(node.output[0], kind, rng.choice(([], None, [1], ["n"]))))


def bloated(model: onnx.ModelProto, rng: random.Random) -> None:
    """Operators on an input whose results are around the largest that is taken, or far beyond it, and more on top."""
    graph = model.graph
    if not graph.input:
        return
    value = graph.input[0]
    rank, x = len(value.type.tensor_type.shape.dim), value.name
    size = rng.choice(_SIZES)
    kind = rng.choice(
        (
            "Tile",
            "Expand",
            "Pad",
            "Resize",
            "Reshape",
            "ConvTranspose",
            "Concat",
            "OneHot",
            "Gather",
            "Slice",
            "Upsample",
        )
    )
    name = f"bloated{len(graph.node)}"
    inputs, attributes = [x], {}
    if kind in ("Tile", "Expand", "Reshape"):
        inputs.append(_constant(model, [size] + [1] * max(0, rank - 1), "int64"))
    elif kind == "Pad":
        pads = [0] * max(0, 2 * rank - 1) + [size]
        inputs.append(_constant(model, pads, "int64"))
        attributes["mode"] = rng.choice(("constant", "edge", "reflect", "wrap"))
    elif kind in ("Resize", "Upsample"):
        scales = _constant(model, [1.0] * max(0, rank - 1) + [float(size)])
        inputs += ["", scales] if kind == "Resize" else [scales]
        attributes["mode"] = rng.choice(("nearest", "linear", "cubic"))
    elif kind == "ConvTranspose":
        inputs.append(_constant(model, np.ones((1, 1, 3, 3))))
        attributes |= {"strides": [size, size], "kernel_shape": [3, 3]}
    elif kind == "Concat":
        inputs = [x] * rng.choice((2, 100, 1000))
        attributes["axis"] = rng.choice((0, -1))
    elif kind == "OneHot":
        inputs += [_constant(model, size, "int64"), _constant(model, [0.0, 1.0])]
    elif kind == "Gather":
        inputs.append(_constant(model, [0] * min(size, 2**20), "int64"))
        attributes["axis"] = rng.choice((0, -1))
    else:
        inputs += [_constant(model, [v], "int64") for v in (0, size, 0)] + [
            _constant(model, [rng.choice((1, -1, size, 0))], "int64")
        ]
    graph.node.insert(0, helper.make_node(kind, inputs, [name], name, **attributes))
    last = name
    for i in range(rng.choice((0, 0, 1, 5, 30))):
        op_type = rng.choice(("Relu", "Sigmoid", "Add", "Transpose", "Softmax", "Erf", "Mul"))
        binary = op_type in ("Add", "Mul")
        graph.node.insert(
            i + 1, helper.make_node(op_type, [last, name] if binary else [last], [f"{name}_{i}"], f"{name}_{i}")
        )
        last = f"{name}_{i}"
    graph.output.append(helper.make_tensor_value_info(last, 1, None))


def scales_of_one(model: onnx.ModelProto, rng: random.Random) -> None:
    """One node's scale and zero point anew: of a wrong length, rank, axis, type or value, nowhere else."""
    nodes = [n for n in model.graph.node if n.op_type in _CHANGEABLE and len(n.input) > 1]
    if not nodes:
        return graft(model, rng)
    node = rng.choice(nodes)
    by_name = {tensor.name: tensor for tensor in model.graph.initializer}
    places = [i for i, name in enumerate(node.input) if name in by_name and i > 0 and by_name[name].data_location == 0]
    if not places:
        return graft(model, rng)
    i = rng.choice(places)
    array = np.array(numpy_helper.to_array(by_name[node.input[i]]))
    length = array.size
    action = rng.randrange(7)
    if action == 0:
        array = np.resize(array, (max(0, length + rng.choice((-1, 1, 2, -length, length))),))
    elif action == 1:
        array = np.resize(array, rng.choice(((1, length), (length, 1), (1,), (), (2, 2), (1, 1, 1), (3, 4, 5))))
    elif action == 2:
        array = array.astype(
            rng.choice(("int8", "uint8", "int16", "uint16", "int32", "int64", "float16", "float64", "bool"))
        )
    elif action == 3 and array.dtype.kind == "f":
        array = np.full(array.shape, rng.choice(_REALS), array.dtype)
    elif action == 3 and array.dtype.kind in "iu":
        array = np.full(array.shape, rng.choice((np.iinfo(array.dtype).min, np.iinfo(array.dtype).max)), array.dtype)
    elif action == 4:
        kept = [a for a in node.attribute if a.name != "axis"]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute("axis", _small_or_far(rng))])
        array = np.resize(array, (rng.choice((1, 2, 3, 4, 8, 16, length or 1)),))
    elif action == 5:
        key = rng.choice(("block_size", "output_dtype", "saturate", "precision"))
        node.attribute.append(helper.make_attribute(key, rng.choice((0, 1, 2, 3, 9, 16, 17, -1, 2**40))))
        array = np.resize(array, rng.choice(((1, 2), (2, 1), (1, 1, 3, 3), (4, 4), (length or 1,))))
    else:
        del node.input[i:]
        return None
    node.input[i] = _constant(model, array, array.dtype.name)
    if len(node.input) > i + 1 and rng.random() < 0.5 and action in (0, 1, 4, 5):
        node.input[i + 1] = _constant(model, np.zeros(array.shape), "int8")
    return None


def constant_nodes(model: onnx.ModelProto, rng: random.Random) -> None:
    """An initializer made by a Constant node instead: of another kind, or of a shape without end."""
    if not model.graph.initializer:
        return
    at = rng.randrange(len(model.graph.initializer))
    tensor = TensorProto()
    tensor.CopyFrom(model.graph.initializer[at])
    del model.graph.initializer[at]
    size = rng.choice(_SIZES)
    huge = TensorProto(name="h", data_type=tensor.data_type, dims=[size, rng.choice(_SIZES)])
    if rng.random() < 0.3:
        huge.raw_data = bytes(64)
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("v", 1, [1], [1.0]), helper.make_tensor("i", 7, [1], [rng.choice(_SIZES)]), [size, size]
    )
    values: tuple[tuple[str, object], ...] = (
        ("value", tensor), ("value", tensor), ("value", huge), ("value", huge), ("value_int", 3), ("value_ints", [1, -1]),
        ("value_float", 0.5), ("value_floats", [0.5] * 4), ("value_string", "*/"), ("value_strings", ["a", "b"]),
        ("sparse_value", sparse), ("value", 1), ("value_ints", []),
    )  # fmt: skip
    name, value = rng.choice(values)
    model.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], "constant", **{name: value}))


def twins(model: onnx.ModelProto, rng: random.Random) -> None:
    """Nodes there twice, missing, in another order, or all between one node and its reader."""
    nodes = list(model.graph.node)
    at = rng.randrange(len(nodes))
    action = rng.randrange(4)
    if action == 0:
        model.graph.node.insert(at, nodes[at])
    elif action == 1:
        del model.graph.node[at]
    elif action == 2:
        del model.graph.node[:]
        model.graph.node.extend(reversed(nodes))
    else:
        for first, second in list(pairwise(nodes))[at : at + 8]:
            if first.output and second.input:
                second.input[0] = first.output[0]


def too_deep(model: onnx.ModelProto, rng: random.Random) -> None:
    """A chain of a hundred thousand operators, or one just below what is taken."""
    graph = model.graph
    first = graph.input[0].name if graph.input else ""
    count, op_type = rng.choice((100_000, 4000)), rng.choice(("Identity", "Relu", "Neg", "Sigmoid", "Transpose"))
    names = [first, *(f"deep{i}" for i in range(count))]
    graph.node.extend(onnx.NodeProto(op_type=op_type, input=[a], output=[b]) for a, b in pairwise(names))
    if rng.random() < 0.7:
        graph.output.append(helper.make_tensor_value_info(names[-1], 1, None))
