"""emitc.verify.engines.tensor_names: which of the engine's values belongs to which of emitc's tensors, and in what form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from emitc.ir import DType, Graph, Quantization, Tensor
from emitc.verify.engines.tensor_names import by_tensor

Q = Quantization((0.5,), (0,))
IMAGE = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
LINE = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
NHWC = np.ascontiguousarray(IMAGE.transpose(0, 2, 3, 1))


def graph(*tensors: Tensor) -> Graph:
    return Graph("g", tensors, (), (), ())


def tensor(label: str, shape: tuple[int, ...], dtype: DType = DType.FLOAT32, source: int = 0, name: str = "") -> Tensor:
    return Tensor(name or label, dtype, shape, None if dtype is DType.FLOAT32 else Q, None, label, source)


def single(made: Tensor, values: dict[int | str, np.ndarray]) -> np.ndarray | None:
    """The engine's value for a tensor; None where there is none."""
    found = by_tensor(graph(made), "onnx", values)
    if not found:
        return None
    return found[made.name]


def equal(found: np.ndarray | None, expected: np.ndarray) -> bool:
    return found is not None and found.dtype == expected.dtype and np.array_equal(found, expected)


def test_tflite_goes_by_index() -> None:
    values: dict[int | str, np.ndarray] = {0: IMAGE, 7: LINE}
    tensors = (
        tensor("a", IMAGE.shape, source=0), tensor("b", (6, 4), source=7), tensor("c", (1,), source=3),
        tensor("d", (1,), source=-1),
    )  # fmt: skip
    found = by_tensor(graph(*tensors), "tflite", values)
    assert sorted(found) == ["a", "b"]
    assert found["b"] is LINE


def test_a_value_of_the_same_name_is_taken_as_it_is() -> None:
    assert equal(single(tensor("y", IMAGE.shape), {"y": IMAGE}), IMAGE)
    assert single(tensor("z", IMAGE.shape), {"y": IMAGE}) is None


def test_the_layout_suffixes_say_the_order() -> None:
    assert equal(single(tensor("y_nhwc", (2, 4, 5, 3)), {"y": IMAGE}), NHWC)
    assert equal(single(tensor("y_nlc", (2, 4, 3)), {"y": LINE}), LINE.transpose(0, 2, 1))
    assert equal(single(tensor("y_nhwc", (2, 1, 4, 3)), {"y": LINE}), LINE.transpose(0, 2, 1).reshape(2, 1, 4, 3))
    square = np.arange(16, dtype=np.float32).reshape(1, 4, 2, 2)
    assert equal(single(tensor("y_nhwc", (1, 2, 2, 4)), {"y": square}), square.transpose(0, 2, 3, 1))


def test_unsigned_values_are_held_128_lower() -> None:
    value = np.array([[0, 1, 127, 128, 255]], np.uint8)
    held = np.array([[-128, -127, -1, 0, 127]], np.int8)
    assert equal(single(tensor("y", (1, 5), DType.INT8), {"y": value}), held)
    assert equal(single(tensor("y_s8", (1, 5), DType.INT8), {"y": value}), held)
    assert equal(single(tensor("y", (1, 5), DType.UINT8), {"y": value}), value)


def test_suffixes_add_up() -> None:
    value = np.arange(120, dtype=np.uint8).reshape(2, 3, 4, 5)
    held = (value.astype(np.int16) - 128).astype(np.int8).transpose(0, 2, 3, 1)
    assert equal(single(tensor("y_s8_nhwc", (2, 4, 5, 3), DType.INT8), {"y": value}), held)


def test_the_models_own_name_goes_before_a_suffix() -> None:
    own = np.ones((2, 4, 5, 3), np.float32)
    assert equal(single(tensor("y_nhwc", (2, 4, 5, 3)), {"y": IMAGE, "y_nhwc": own}), own)


def test_other_types_and_shapes_are_left_alone() -> None:
    assert single(tensor("y", IMAGE.shape, DType.INT8), {"y": IMAGE}) is None
    assert single(tensor("y", (2, 4, 5, 3)), {"y": IMAGE}) is None
    assert single(tensor("y_nhwc", IMAGE.shape), {"y": IMAGE}) is None
    assert single(tensor("y_nlc", IMAGE.shape), {"y": IMAGE}) is None
    assert single(tensor("y_nhwc", (3,)), {"y": np.zeros(3, np.float32)}) is None
    assert single(tensor("y", (3,), DType.INT16), {"y": np.zeros(3, np.uint8)}) is None


def test_two_tensors_of_one_label_are_left_out() -> None:
    tensors = (tensor("y", (3,), name="y#1", source=1), tensor("y", (3,), name="y#2", source=2))
    assert by_tensor(graph(*tensors), "onnx", {"y": np.zeros(3, np.float32)}) == {}


def test_a_tensor_that_a_pass_has_turned_has_the_order_that_it_says() -> None:
    turned = replace(tensor("y", (2, 4, 5, 3), name="y_turned", source=-1), order=(0, 2, 3, 1))
    assert equal(single(turned, {"y": IMAGE}), NHWC)
    square = np.arange(27, dtype=np.float32).reshape(3, 3, 3)
    cube = replace(tensor("y", (3, 3, 3), source=-1), order=(2, 0, 1))
    assert equal(single(cube, {"y": square}), square.transpose(2, 0, 1))
    assert single(replace(turned, order=(0, 3, 2, 1)), {"y": IMAGE}) is None
    assert single(tensor("y", (2, 4, 5), source=-1), {"y": IMAGE}) is None


def test_a_turned_tensor_and_the_models_own_may_share_a_label() -> None:
    turned = replace(tensor("y", (2, 4, 5, 3), name="y_turned", source=-1), order=(0, 2, 3, 1))
    found = by_tensor(graph(tensor("y", IMAGE.shape, source=4), turned), "onnx", {"y": IMAGE})
    assert equal(found["y"], IMAGE) and equal(found["y_turned"], NHWC)
