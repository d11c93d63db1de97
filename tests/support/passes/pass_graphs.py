"""Small graphs for the tests of the passes: what a pass makes of each alone, and all of them side by side as one model.

A `PassCase` builds its graph into a `Net`. Structure is tested graph by graph without any C; numbers are tested on one
model that holds every graph of a table, compiled with the pass on and off, against the golden engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from emitc.compiler import compile_model
from emitc.frontends.build import build_graph
from emitc.frontends.tflite.reader import read_tflite
from emitc.ir import Array, Graph
from emitc.kernels import tflite_registry
from emitc.passes import PASSES
from emitc.passes.verify_graph import verify_graph
from emitc.program import PassReport
from emitc.verify.reference import run_reference
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, OperatorSpec, OptionValue, TensorSpec, write_tflite

SCALE = 0.05


@dataclass
class Net:
    """A model under construction. Methods that add a tensor return its index."""

    tensors: list[TensorSpec] = field(default_factory=list)
    operators: list[OperatorSpec] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    prefix: str = ""
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def tensor(self, spec: TensorSpec) -> int:
        """Any tensor, named by its place."""
        name = spec.name or f"{self.prefix}{len(self.tensors)}"
        self.tensors.append(replace(spec, name=name))
        return len(self.tensors) - 1

    def activation(self, shape: Sequence[int], zero_point: int = 3, scale: float = SCALE, name: str = "") -> int:
        """A computed int8 tensor."""
        return self.tensor(TensorSpec(name, "int8", tuple(shape), None, (scale,), (zero_point,)))

    def input(self, shape: Sequence[int], zero_point: int = 3, scale: float = SCALE) -> int:
        """An int8 input of the model."""
        self.inputs.append(self.activation(shape, zero_point, scale))
        return self.inputs[-1]

    def constant(self, shape: Sequence[int], zero_point: int = 3, scale: float = SCALE) -> int:
        """A random int8 constant that is quantized like an activation."""
        values = self.rng.integers(-128, 128, tuple(shape)).astype(np.int8)
        return self.tensor(TensorSpec("", "int8", tuple(shape), values.tobytes(), (scale,), (zero_point,)))

    def integers(self, values: Sequence[int], shape: Sequence[int] | None = None) -> int:
        """A constant of int32."""
        shape = (len(values),) if shape is None else shape
        return self.tensor(TensorSpec("", "int32", tuple(shape), np.array(values, "<i4").tobytes()))

    def op(self, opcode: str, inputs: Sequence[int], output: int, **options: OptionValue) -> int:
        """One operator of one output, which it returns."""
        self.operators.append(OperatorSpec(opcode, tuple(inputs), (output,), options))
        return output

    def output(self, *tensors: int) -> None:
        """Makes tensors outputs of the model."""
        self.outputs += tensors

    def filters(self, shape: Sequence[int], channels: int, bias: Array | None = None) -> tuple[int, int]:
        """Random weights and a bias for them."""
        weights = self.rng.integers(-127, 128, tuple(shape)).astype(np.int8)
        w = self.tensor(TensorSpec("", "int8", tuple(shape), weights.tobytes(), (0.01,), (0,)))
        values = self.rng.integers(-2000, 2000, channels) if bias is None else bias
        b = self.tensor(
            TensorSpec(
                "",
                "int32",
                (channels,),
                values.astype("<i4").tobytes(),
                (float(np.float32(SCALE) * np.float32(0.01)),),
                (0,),
            )
        )
        return w, b

    def conv(self, x: int, channels: int = 4, *, kernel: int = 3, activation: str = "NONE", **output: float) -> int:
        """A VALID CONV_2D; `padding`, `stride`, `zero_point` and `scale` (of the output) as keywords."""
        return self._window("CONV_2D", x, channels, kernel, activation, output)

    def depthwise(self, x: int, *, kernel: int = 3, activation: str = "NONE", **output: float) -> int:
        """A VALID DEPTHWISE_CONV_2D of multiplier 1."""
        return self._window("DEPTHWISE_CONV_2D", x, self.tensors[x].shape[3], kernel, activation, output)

    def _window(
        self, opcode: str, x: int, channels: int, kernel: int, activation: str, output: dict[str, float]
    ) -> int:
        batch, height, width, in_c = self.tensors[x].shape
        same, stride = bool(output.pop("same", 0)), int(output.pop("stride", 1))
        depthwise = opcode == "DEPTHWISE_CONV_2D"
        w, b = self.filters((1, kernel, kernel, channels) if depthwise else (channels, kernel, kernel, in_c), channels)
        sizes = [-(-s // stride) if same else (s - kernel) // stride + 1 for s in (height, width)]
        y = self.activation((batch, *sizes, channels), int(output.pop("zero_point", -5)), output.pop("scale", 0.3))
        assert not output
        options: dict[str, OptionValue] = {"depth_multiplier": 1} if depthwise else {}
        return self.op(
            opcode, (x, w, b), y, stride_h=stride, stride_w=stride, dilation_h_factor=1, dilation_w_factor=1,
            padding="SAME" if same else "VALID", fused_activation_function=activation, **options,
        )  # fmt: skip

    def dense(
        self, x: int, channels: int = 5, activation: str = "NONE", zero_point: int = -5, scale: float = 0.3
    ) -> int:
        """A FULLY_CONNECTED over the last dimension."""
        *leading, depth = self.tensors[x].shape
        w, b = self.filters((channels, depth), channels)
        y = self.activation((int(np.prod(leading)), channels), zero_point, scale)
        return self.op("FULLY_CONNECTED", (x, w, b), y, fused_activation_function=activation)

    def pool(
        self, opcode: str, x: int, kernel: int = 2, *, same: bool = False, stride: int = 1, activation: str = "NONE"
    ) -> int:
        """A pool."""
        spec = self.tensors[x]
        batch, height, width, channels = spec.shape
        sizes = [-(-s // stride) if same else (s - kernel) // stride + 1 for s in (height, width)]
        y = self.activation((batch, *sizes, channels), spec.zero_points[0], spec.scales[0])
        return self.op(
            opcode, (x,), y, stride_h=stride, stride_w=stride, filter_height=kernel, filter_width=kernel,
            padding="SAME" if same else "VALID", fused_activation_function=activation,
        )  # fmt: skip

    def like(self, x: int, **changes: object) -> int:
        """A computed tensor with the shape and quantization of another."""
        return self.tensor(replace(self.tensors[x], name="", data=None, **changes))  # type: ignore[arg-type]

    def unary(self, opcode: str, x: int, **changes: object) -> int:
        """An operator on one tensor, with an output like its input except for the changes."""
        return self.op(opcode, (x,), self.like(x, **changes))

    def binary(self, opcode: str, a: int, b: int, activation: str = "NONE") -> int:
        """ADD, SUB or MUL."""
        return self.op(opcode, (a, b), self.like(a, scales=(0.1,)), fused_activation_function=activation)

    def reshape(self, x: int, shape: Sequence[int]) -> int:
        """A RESHAPE."""
        return self.op("RESHAPE", (x, self.integers(shape)), self.like(x, shape=tuple(shape)))

    def pad(self, x: int, paddings: Sequence[tuple[int, int]], value: int | None = None) -> int:
        """A PAD, or a PADV2 with a quantized value."""
        shape = tuple(b + s + a for s, (b, a) in zip(self.tensors[x].shape, paddings, strict=True))
        listed = self.integers([v for pair in paddings for v in pair], (len(paddings), 2))
        y = self.like(x, shape=shape)
        if value is None:
            return self.op("PAD", (x, listed), y)
        fill = self.tensor(replace(self.tensors[x], name="", shape=(1,), data=np.array([value], np.int8).tobytes()))
        return self.op("PADV2", (x, listed, fill), y)

    def spec(self) -> ModelSpec:
        """The model."""
        return ModelSpec(tuple(self.tensors), tuple(self.operators), tuple(self.inputs), tuple(self.outputs))


@dataclass(frozen=True, slots=True)
class PassCase:
    """One graph. after: the operators that the pass leaves, in order. engine: whether the golden engine runs it."""

    id: str
    build: Callable[[Net], None]
    after: tuple[str, ...]
    engine: bool = True


def graph_of(build: Callable[[Net], None]) -> Graph:
    """The graph before any pass."""
    net = Net()
    build(net)
    return build_graph(read_tflite(write_tflite(net.spec())), tflite_registry(), "case")


def operators(graph: Graph) -> tuple[str, ...]:
    """The source names of the graph's operators."""
    return tuple(node.op_type for node in graph.nodes)


def pass_named(name: str) -> Callable[[Graph], Graph]:
    """The function of a pass."""
    return dict(PASSES)[name]


def check_structure(name: str, case: PassCase) -> None:
    """The pass alone leaves the operators that the case states, a legal graph, the same values, and nothing to do."""
    before = graph_of(case.build)
    after = pass_named(name)(before)
    verify_graph(after)
    assert operators(after) == case.after
    if operators(before) == case.after and len(before.tensors) == len(after.tensors):
        assert after is before
    assert pass_named(name)(after) == after
    rng = np.random.default_rng(1)
    inputs = [
        rng.integers(-128, 128, before.tensor(x).shape).astype(before.tensor(x).dtype.value) for x in before.inputs
    ]
    expected, actual = run_reference(before, inputs), run_reference(after, inputs)
    for old, new in zip(before.outputs, after.outputs, strict=True):
        assert np.array_equal(expected[old], actual[new])


def check_numbers(cases: Sequence[PassCase], folder: Path, *disabled: str) -> tuple[PassReport, ...]:
    """All graphs as one model equal the engine on every bit, C and reference, with the named passes switched off.

    With every pass on, the C also runs under the sanitizers.
    """
    net = Net()
    for case in cases:
        if case.engine:
            net.prefix = f"{case.id}/"
            case.build(net)
    path = folder / "cases.tflite"
    path.write_bytes(write_tflite(net.spec()))
    compiled = compile_model(path, disabled=frozenset(disabled))
    proof = verify(compiled, reference="tflm", samples=6, sanitize=not disabled)
    assert (proof.differing, proof.numpy_differing, proof.memory_errors) == (0, 0, ()), proof
    assert proof.match
    return compiled.passes
