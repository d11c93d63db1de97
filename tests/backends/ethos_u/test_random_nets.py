"""Random nets with some operators kept on the core: regions with several edges, values that many read, outputs in between."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emitc.backends.ethos_u.driver import NAME
from emitc.compiler import compile_model
from emitc.verify import verification
from emitc.writers.tflite import ModelSpec, OperatorSpec, OptionValue, TensorSpec, write_tflite
from tests.support.layer_cases import Scales, Slide, conv_2d
from tests.support.single_op import quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
pytestmark = pytest.mark.usefixtures("vela")

SCALE, ZERO = 0.05, 3
UNARY = ("TANH", "RELU", "MAX_POOL_2D", "CONV_2D", "RESHAPE")
BINARY = ("ADD", "MUL", "CONCATENATION")
NONE: dict[str, OptionValue] = {"fused_activation_function": "NONE"}


class Net:
    """A model under construction: images [1, 6, 6, C] of one scale. Nothing concatenates results of TANH."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.tensors: list[TensorSpec] = []
        self.operators: list[OperatorSpec] = []
        self.images: list[int] = []

    def tensor(self, spec: TensorSpec) -> int:
        """Adds a tensor; its index."""
        self.tensors.append(replace(spec, name=f"t{len(self.tensors)}"))
        return len(self.tensors) - 1

    def image(self, channels: int, scale: float = SCALE, zero_point: int = ZERO) -> int:
        """Adds an image."""
        self.images.append(self.tensor(quantized((1, 6, 6, channels), scale, zero_point)))
        return self.images[-1]

    def channels(self, index: int) -> int:
        """Of an image."""
        return self.tensors[index].shape[3]

    def unary(self, kind: str) -> None:
        """An operator on one image."""
        x = int(self.rng.choice(self.images))
        spec, name = self.tensors[x], f"t{len(self.tensors)}"
        if kind == "TANH":
            self.operators.append(OperatorSpec("TANH", (x,), (self.image(self.channels(x), 1 / 128, 0),)))
        elif kind == "CONV_2D":
            scales = Scales(spec.scales[0], factor=0.003, input_zero_point=spec.zero_points[0], output=SCALE)
            case = conv_2d(name, (1, 6, 6, self.channels(x)), 8, (3, 3), Slide(padding="SAME"), scales)
            constants = [self.tensor(t) for t in case.inputs[1:] if t is not None]
            made = self.image(8, SCALE, case.outputs[0].zero_points[0])
            self.operators.append(OperatorSpec(kind, (x, *constants), (made,), case.options, case.version))
        elif kind == "RESHAPE":  # there and back: two views
            shapes = ((36, self.channels(x)), spec.shape)
            places = [self.tensor(TensorSpec("", "int32", (len(s),), np.array(s, "<i4").tobytes())) for s in shapes]
            flat = self.tensor(replace(spec, shape=shapes[0]))
            self.operators.append(OperatorSpec(kind, (x, places[0]), (flat,), {"new_shape": shapes[0]}))
            back = self.image(self.channels(x), spec.scales[0], spec.zero_points[0])
            self.operators.append(OperatorSpec(kind, (flat, places[1]), (back,), {"new_shape": shapes[1]}))
        else:
            same = (self.channels(x), spec.scales[0], spec.zero_points[0])
            window: dict[str, OptionValue] = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
            options = window | {"filter_height": 3, "filter_width": 3} if kind == "MAX_POOL_2D" else {}
            self.operators.append(OperatorSpec(kind, (x,), (self.image(*same),), options))

    def binary(self, kind: str) -> None:
        """An operator on two images that fit."""
        a = int(self.rng.choice(self.images))
        first = self.tensors[a]
        if kind == "CONCATENATION":
            fitting = [i for i in self.images if self.tensors[i].scales == first.scales]
            fitting = [i for i in fitting if self.tensors[i].zero_points == first.zero_points]
        else:
            fitting = [i for i in self.images if self.channels(i) == self.channels(a)]
        b = int(self.rng.choice(fitting))
        if kind != "CONCATENATION":
            self.operators.append(OperatorSpec(kind, (a, b), (self.image(self.channels(a)),), NONE))
        elif self.channels(a) + self.channels(b) <= 40:
            made = self.image(self.channels(a) + self.channels(b), first.scales[0], first.zero_points[0])
            self.operators.append(OperatorSpec(kind, (a, b), (made,), NONE | {"axis": 3}))


def net(rng: np.random.Generator) -> ModelSpec:
    """Five to fourteen operators on one or two inputs; every value that nothing reads is an output, and some others."""
    made = Net(rng)
    inputs = [made.image(8) for _ in range(int(rng.integers(1, 3)))]
    for _ in range(int(rng.integers(5, 15))):
        if rng.random() < 0.5:
            made.unary(str(rng.choice(UNARY)))
        else:
            made.binary(str(rng.choice(BINARY)))
    read = {i for operator in made.operators for i in operator.inputs}
    outputs = [i for i in made.images if i not in inputs and (i not in read or rng.random() < 0.15)]
    return ModelSpec(tuple(made.tensors), tuple(made.operators), tuple(inputs), tuple(outputs))


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("seed", range(60))
def test_random_nets(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    spec = net(rng)
    (tmp_path / "net.tflite").write_bytes(write_tflite(spec))
    kept = tuple(str(i) for i in range(len(spec.operators)) if rng.random() < 0.25)
    plain = compile_model(tmp_path / "net.tflite")
    nodes = {str(node.index) for node in plain.graph.nodes}
    npu = str(rng.choice(["ethos-u55-32", "ethos-u55-128", "ethos-u65-256"]))
    made = compile_model(
        tmp_path / "net.tflite", backends={"npu": npu, "npu-always": "yes"}, cpu_only=tuple(set(kept) & nodes)
    )
    for row in made.partition.assignments:
        assert (row.backend == NAME) != (str(row.index) in kept), row
    proof = verification.verify(made, samples=2, layers=True, sanitize=seed % 4 == 0)
    assert proof.match, proof
