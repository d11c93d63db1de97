"""TFLM_DECODE: compressed constants give what TFLite Micro unpacks, and hostile ones are refused."""

from __future__ import annotations

import heapq
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.report.inspection import inspect_model
from emitc.verify.engines.run import run_isolated
from emitc.verify.reference import random_samples, run_reference
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, OperatorSpec, SubgraphSpec, TensorSpec, write_tflite

Values = NDArray[np.generic]


def bits(fields: Iterator[tuple[int, int]]) -> bytes:
    """(value, width) one after the other, the highest bit first; whole words, as an engine reads them, and one more."""
    text = "".join(f"{value:0{width}b}" for value, width in fields)
    text += "0" * (-len(text) % 32 + 32)
    return int(text, 2).to_bytes(len(text) // 8, "big")


def head(kind: int, *more: int, version: int = 1) -> bytes:
    return bytes([kind, version, 0, 0, 1, *more]).ljust(16, b"\0")


def tabled(values: Values, axis: int | None = None, width: int = 0) -> tuple[bytes, bytes]:
    """As a table, or one for each slice of `axis`."""
    tables = [np.unique(values)] if axis is None else [np.unique(v) for v in np.moveaxis(values, axis, 0)]
    stride = max(len(table) for table in tables)
    width = max(width, (stride - 1).bit_length(), 1)
    count = len(tables)
    shape = (1,) * values.ndim if axis is None else tuple(count if i == axis else 1 for i in range(values.ndim))
    channel = np.broadcast_to(np.arange(count).reshape(shape), values.shape).reshape(-1)
    places = ((int(np.searchsorted(tables[c], v)), width) for c, v in zip(channel, values.reshape(-1), strict=True))
    padded = [np.concatenate([table, np.zeros(stride - len(table), table.dtype)]) for table in tables]
    return bits(places), head(0, width, stride) + b"".join(table.tobytes() for table in padded)


def pruned(values: Values, zeros: Values) -> tuple[bytes, bytes]:
    """Without the values that are `zeros`."""
    there = values != zeros
    return bits((int(each), 1) for each in there.reshape(-1)), head(2) + values[there].tobytes()


def huffman(values: Values, first: int, more: int, long: bool) -> tuple[bytes, bytes]:
    """By a code of the values' frequencies; the first look-up takes `first` bits, all others `more`."""
    heap: list[tuple[int, int, object]] = [
        (count, number, value)
        for number, (value, count) in enumerate(sorted(Counter(values.reshape(-1).tolist()).items()))
    ]
    heapq.heapify(heap)
    while len(heap) > 1:
        (a, number, left), (b, _, right) = heapq.heappop(heap), heapq.heappop(heap)
        heapq.heappush(heap, (a + b, number, (left, right)))
    codes: dict[str, int] = {}

    def walk(node: object, code: str) -> None:
        if isinstance(node, tuple):
            walk(node[0], code + "0")
            walk(node[1], code + "1")
        else:
            codes[code] = node  # type: ignore[assignment]

    walk(heap[0][2], "")
    rest = 27 if long else 11
    table: list[int] = []

    def filled(prefix: str, width: int) -> int:
        """Where the look-up of `width` bits after `prefix` lies in the table."""
        at = len(table)
        table.extend([0] * (1 << width))
        for place in range(1 << width):
            looked = prefix + f"{place:0{width}b}"
            found = next((code for code in codes if looked.startswith(code)), None)
            if found is None:
                table[at + place] = (more - 1) << rest | filled(looked, more) - at - place
            else:
                symbol = codes[found] & (0xFFFF if long else 0xFF)
                table[at + place] = 1 << (rest + 4) | (len(found) - len(prefix)) << rest | symbol
        return at

    filled("", first)
    code_of = {value: code for code, value in codes.items()}
    stream = bits((int(code_of[value], 2), len(code_of[value])) for value in values.reshape(-1).tolist())
    return stream, head(1, (first - 1) << 4 | int(long)) + struct.pack(f"<{len(table)}{'I' if long else 'H'}", *table)


def decoded(tensor: TensorSpec, pair: tuple[bytes, bytes]) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """The encoded bytes, their description and what is decoded."""
    names = f"{tensor.name!s}_encoded", f"{tensor.name!s}_description"
    encoded, described = (TensorSpec(name, "uint8", (len(data),), data) for name, data in zip(names, pair, strict=True))
    return encoded, described, replace(tensor, data=None)


def layers(weights: TensorSpec, bias: TensorSpec, pairs: Sequence[tuple[bytes, bytes] | None]) -> ModelSpec:
    """A fully connected layer whose weights and biases are decoded, both by one operator."""
    tensors = [
        TensorSpec("x", "int8", (1, 24), None, (0.1,), (-3,)),
        TensorSpec("y", "int8", (1, 10), None, (0.4,), (5,)),
    ]
    operands, inputs, outputs = [0], [], []
    for tensor, pair in zip((weights, bias), pairs, strict=True):
        if pair is None:
            operands.append(len(tensors))
            tensors.append(tensor)
            continue
        at = len(tensors)
        tensors += decoded(tensor, pair)
        inputs += [at, at + 1]
        outputs.append(at + 2)
        operands.append(at + 2)
    unpacked = OperatorSpec("CUSTOM", tuple(inputs), tuple(outputs), custom_code="TFLM_DECODE")
    layer = OperatorSpec("FULLY_CONNECTED", tuple(operands), (1,), {"fused_activation_function": "NONE"})
    return ModelSpec(tuple(tensors), (unpacked, layer), (0,), (1,))


def added(constant: TensorSpec, pair: tuple[bytes, bytes]) -> ModelSpec:
    """A constant that is decoded, added to the input."""
    x = TensorSpec("x", "int8", constant.shape, None, (0.1,), (-3,))
    y = TensorSpec("y", "int8", constant.shape, None, (0.2,), (5,))
    operators = (
        OperatorSpec("CUSTOM", (2, 3), (4,), custom_code="TFLM_DECODE"),
        OperatorSpec("ADD", (0, 4), (1,), {"fused_activation_function": "NONE"}),
    )
    return ModelSpec((x, y, *decoded(constant, pair)), operators, (0,), (1,))


def depthwise(filters: TensorSpec, pair: tuple[bytes, bytes]) -> ModelSpec:
    """A depthwise convolution, whose filters have their scales along the last dimension."""
    channels = filters.shape[-1]
    x = TensorSpec("x", "int8", (1, 5, 4, channels), None, (0.1,), (-3,))
    bias = TensorSpec("b", "int32", (channels,), bytes(4 * channels), tuple(0.1 * scale for scale in filters.scales))
    operators = (
        OperatorSpec("CUSTOM", (3, 4), (5,), custom_code="TFLM_DECODE"),
        OperatorSpec(
            "DEPTHWISE_CONV_2D", (0, 5, 2), (1,),
            {"padding": "SAME", "stride_w": 1, "stride_h": 1, "depth_multiplier": 1, "dilation_w_factor": 1,
             "dilation_h_factor": 1, "fused_activation_function": "NONE"},
        ),
    )  # fmt: skip
    return ModelSpec((x, replace(x, name="y", scales=(0.2,)), bias, *decoded(filters, pair)), operators, (0,), (1,))


RNG = np.random.default_rng(6)
BIAS = RNG.choice([-900, -20, 0, 1, 70000], 10).astype("<i4")


def quantized(name: str, values: Values, channels: int = 0, axis: int = 0, zero: int = 0) -> TensorSpec:
    scales = tuple(0.01 + 0.001 * i for i in range(channels)) or (0.01,)
    zeros = (zero,) if not channels else ()
    return TensorSpec(name, "int8", values.shape, values.tobytes(), scales, zeros, axis)


def biased(w: TensorSpec) -> TensorSpec:
    return TensorSpec("b", "int32", (10,), BIAS.tobytes(), tuple(0.1 * scale for scale in w.scales))


def drawn(count: int, *shape: int) -> NDArray[np.int8]:
    """Values of which `count` are different at most."""
    return RNG.choice(RNG.permutation(np.arange(-128, 128))[:count], shape or (10, 24)).astype(np.int8)


def case(kind: str) -> tuple[ModelSpec, NDArray[np.int8]]:
    """A model and the value of the tensor `w` in it, which is decoded."""
    sort, *numbers = kind.split("_")
    if sort == "table":
        values = drawn(1 << int(numbers[0]))
        w = quantized("w", values)
        return layers(w, biased(w), (tabled(values, width=int(numbers[0])), tabled(BIAS))), values
    if sort == "rows":
        values = np.stack([drawn(12, 24) for _ in range(10)])
        w = quantized("w", values, 10)
        return layers(w, biased(w), (tabled(values, 0), tabled(BIAS, 0))), values
    if sort == "columns":
        values = np.stack([drawn(3, 1, 3, 3) for _ in range(6)], axis=-1)
        return depthwise(quantized("w", values, 6, 3), tabled(values, 3)), values
    if sort == "pruned":
        values = np.where(RNG.random((10, 24)) < 0.6, 0, drawn(200)).astype(np.int8)
        w = quantized("w", values)
        return layers(w, biased(w), (pruned(values, np.zeros_like(values)), pruned(BIAS, np.zeros_like(BIAS)))), values
    if sort == "kept":
        values = np.where(RNG.random((1, 31)) < 0.6, -7, drawn(200, 1, 31)).astype(np.int8)
        return added(quantized("w", values, zero=-7), pruned(values, np.full_like(values, -7))), values
    chances = 0.8 ** np.arange(80)
    values = RNG.choice(np.arange(-40, 40), (10, 24), p=chances / chances.sum()).astype(np.int8)
    w = quantized("w", values)
    first, more = (int(number) for number in numbers)
    return layers(w, biased(w), (huffman(values, first, more, sort == "long"), None)), values


KINDS = (
    *(f"table_{bits}" for bits in range(1, 8)),
    "rows",
    "columns",
    "pruned",
    "kept",
    "short_3_1",
    "short_2_3",
    "long_5_2",
)


def saved(spec: ModelSpec, folder: Path) -> Path:
    path = folder / "m.tflite"
    path.write_bytes(write_tflite(spec))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_decoded_is_a_constant_and_the_engine_agrees(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    spec, values = case(kind)
    made = compile_model(saved(spec, tmp_path))
    assert np.array_equal(made.graph.tensor("w").array(), values)
    assert [step.op_type for step in made.program.steps] == [spec.operators[1].opcode]
    inputs = random_samples(made.graph, 4, 1)
    golden = run_isolated(made.model_bytes, inputs, engine="tflm", source_format="tflite", preserve=False)
    for given, outputs in zip(inputs, golden.outputs, strict=True):
        assert np.array_equal(outputs[0], run_reference(made.graph, given)["y"])


def test_the_c_equals_the_engine(tmp_path: Path) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    proof = verify(
        compile_model(saved(case("rows")[0], tmp_path)), samples=5, reference="tflm", layers=True, sanitize=True
    )
    assert proof.match and proof.differing == 0 and proof.layers_checked > 0


def test_inspect_lists_the_operator_as_done(tmp_path: Path) -> None:
    found = inspect_model(saved(case("pruned")[0], tmp_path), {})
    assert [(each["op"], each["supported"]) for each in found["operators"]] == [
        ("CUSTOM:TFLM_DECODE", True),
        ("FULLY_CONNECTED", True),
    ]


def test_branches_are_unpacked_too(tmp_path: Path) -> None:
    values = drawn(8, 1, 31)
    branch = added(quantized("w", values), tabled(values))
    inside = SubgraphSpec(branch.tensors, branch.operators, (0,), (1,))
    x, y = branch.tensors[:2]
    choice = OperatorSpec("IF", (1, 0), (2,), {"then_subgraph_index": 1, "else_subgraph_index": 2})
    spec = ModelSpec((x, TensorSpec("c", "bool", (1,)), y), (choice,), (0, 1), (2,), subgraphs=(inside, inside))
    made = compile_model(saved(spec, tmp_path))
    (branches,) = (node.op.graphs for node in made.graph.nodes)  # type: ignore[attr-defined]
    for graph in branches:
        assert sum(t.data == values.tobytes() for t in graph.tensors) == 1


def damaged(**changes: object) -> ModelSpec:
    """The model `table_3` with another description, encoded tensor, or decoded type."""
    spec, _ = case("table_3")
    tensors = list(spec.tensors)
    for name, (at, field) in {"encoded": (2, "data"), "described": (3, "data"), "dtype": (4, "dtype")}.items():
        if name in changes:
            value = changes[name]
            tensors[at] = replace(tensors[at], **{field: value})  # type: ignore[arg-type]
            if field == "data":
                tensors[at] = replace(tensors[at], shape=(len(value),))  # type: ignore[arg-type]
    return replace(spec, tensors=tuple(tensors))


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        pytest.param(damaged(described=head(127)), 1, "constants of kind 127, version 1 is not supported", id="custom"),
        pytest.param(damaged(described=head(3)), 1, "constants of kind 3, version 1 is not supported", id="unknown"),
        pytest.param(damaged(described=head(0, 3, 8, version=2)), 1, "kind 0, version 2", id="version"),
        pytest.param(damaged(described=head(0)[:15]), 2, "description that is too short", id="short"),
        pytest.param(damaged(described=head(0, 0, 8)), 2, "indices have no bits", id="no_bits"),
        pytest.param(damaged(described=head(0, 3, 8) + b"1"), 2, "value 7 of 1 is chosen", id="small_table"),
        pytest.param(damaged(encoded=b"12"), 2, "720 bits are needed, there are 16", id="few_indices"),
        pytest.param(damaged(described=head(2)), 2, "values are needed, there are 0", id="few_values"),
        pytest.param(damaged(described=head(1)), 2, "of 0 is looked up", id="no_entries"),
        pytest.param(damaged(described=head(1) + b"\0\x80" * 2), 2, "a symbol has no bits", id="no_step"),
        pytest.param(
            damaged(described=head(1) + b"\0\0" * 4, encoded=b"\0" * 30), 2, "the bits end within", id="endless"
        ),
        pytest.param(damaged(described=head(1) + b"\0\0", encoded=b"1"), 2, "240 symbols are needed", id="few_bits"),
        pytest.param(
            damaged(dtype="uint8"), 2, "compressed constants of type uint8[10, 24] is not supported", id="type"
        ),
    ],
)
def test_what_cannot_be_unpacked_is_refused(spec: ModelSpec, code: int, message: str, tmp_path: Path) -> None:
    path = saved(spec, tmp_path)
    with pytest.raises(EmitcError) as caught:
        compile_model(path)
    assert message in str(caught.value) and caught.value.exit_code == code
    assert inspect_model(path, {})["operators"][0]["supported"] is False
