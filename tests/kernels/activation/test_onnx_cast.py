"""Cast between all pairs of types: onnxruntime's result where ONNX defines one, saturation where it does not; the C agrees."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from emitc.ir import Array
from emitc.kernels import kernel_of
from tests.support.onnx_op import OnnxCase, computed, graph_of, prove_onnx

pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
TYPES = (*INTEGERS, *FLOATS, "bool")
COUNT = 24


def code(dtype: str) -> int:
    """ONNX's number of a type."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def ends(dtype: str) -> Array:
    """Zeros, ones, fractions, and the ends of the type and of narrower ones."""
    if dtype == "bool":
        return np.asarray(np.arange(COUNT) % 3 == 0)
    if dtype in FLOATS:
        values = [0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 126.9, -128.9, 100.5, 77.0, 2.5, -3.0]
        return np.resize(np.array(values, dtype), COUNT)
    info = np.iinfo(dtype)
    edges = [
        info.min,
        info.min + 1,
        info.max,
        info.max - 1,
        0,
        1,
        127,
        *(1 << k for k in (7, 8, 15, 16, 24, 31, 32, 53, 62)),
    ]
    whole = [v for v in (*edges, (1 << 24) + 1, (1 << 53) + 1, -1, -129, -(1 << 31)) if info.min <= v <= info.max]
    return np.resize(np.array(whole, dtype), COUNT)


def fixed(values: Array) -> Callable[[np.random.Generator, int], Mapping[str, Array]]:
    """The same values in every sample."""
    return lambda rng, sample: {"x": values}


def defined(x: str, y: str) -> Array:
    """Values whose conversion ONNX defines: only floats can leave the range."""
    values = ends(x)
    if x in FLOATS and y.startswith("uint"):
        return np.asarray(np.abs(values.astype(np.float64)).astype(x))
    return values


def _between(source: str, target: str, x: str, y: str) -> onnx.NodeProto:
    """A Cast where the types differ."""
    if x == y:
        return helper.make_node("Identity", [source], [target])
    return helper.make_node("Cast", [source], [target], to=code(y))


def converted(x: str, y: str, values: Array, name: str = "", op_type: str = "Cast") -> OnnxCase:
    """A Cast of these values; a type that the interface does not have is cast to or from there in turn."""
    inner = helper.make_node("Cast", ["inside"], ["outside"], to=code(y))
    inputs: dict[str, Any] = {"x": computed(values.shape, x)}
    if op_type == "CastLike":
        inputs["like"] = np.zeros(1, y)
        inner = helper.make_node("CastLike", ["inside", "like"], ["outside"])
    # float64 reaches the operator through a Cast of its own: no interface of a microcontroller has it.
    wide = "float32" if x == "float64" else x
    last = "float32" if y == "float64" else y
    nodes = (_between("x", "inside", wide, x), inner, _between("outside", "y", y, last))
    inputs["x"] = computed(values.shape, wide)
    return OnnxCase(name or f"{x}_to_{y}", "Cast", inputs, nodes=nodes, draw=fixed(values.astype(wide)))


def test_every_pair() -> None:
    cases = [converted(x, y, defined(x, y)) for x, y in itertools.product(TYPES, TYPES)]
    cases += [converted("float32", t, defined("float32", t), f"like_{t}", "CastLike") for t in TYPES]
    cases.append(converted("int8", "float32", ends("int8").reshape(2, 3, 4), "rank3"))
    cases.append(converted("int8", "float32", ends("int8")[0].reshape(()), "rank0"))
    prove_onnx(cases, samples=1).check()


def test_not_a_number_is_true() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 1e-40, 0.0, -0.0], np.float32)
    proven = prove_onnx([converted("float32", "bool", values)], samples=1)
    proven.check()
    assert proven.outcomes["float32_to_bool"].compiled[0][0].tolist() == [True, True, True, True, False, False]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_floats_that_do_not_fit_saturate(dtype: str) -> None:
    """ONNX leaves them open, and processors disagree. The largest values of wide types are no floats themselves."""
    info = np.iinfo(dtype)
    top = np.float32(info.max + 1)
    below = np.nextafter(top, np.float32(0))
    values = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, top, below, np.float32(info.min)], np.float32)
    case = converted("float32", dtype, values)
    proven = prove_onnx([case], samples=1, engine=False)
    proven.check()
    found = proven.outcomes[case.id].compiled[0][0].tolist()
    assert found == [0, info.max, info.min, info.max, info.min, info.max, int(below), info.min]


def test_what_is_printed() -> None:
    """Types of the same bytes are copied, narrower ones take the place of the input."""
    layers = {}
    for x, y in (
        ("int8", "uint8"),
        ("uint32", "int32"),
        ("bool", "uint8"),
        ("float32", "bool"),
        ("float32", "int32"),
        ("float32", "int8"),
        ("int32", "int8"),
        ("int8", "int32"),
    ):
        case = OnnxCase("c", "Cast", {"x": computed((4,), x)}, {"to": code(y)})
        (bound,) = graph_of(case).bound()
        layers[x, y] = kernel_of(bound).lower(bound)
    templates = [layer.kernel_name for layer in layers.values()]
    assert templates == ["copy", "copy", "copy", "truth", "cast_saturated", "cast_saturated", "cast", "cast"]
    assert layers["int32", "int8"].overlaps != ()
    assert layers["int8", "int32"].overlaps == ()
