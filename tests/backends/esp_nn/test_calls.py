"""Operators as calls of ESP-NN: with the interpreter's bits, and refused where its functions would give others.

The stand-in has the library's prototypes and TensorFlow Lite's arithmetic: it tests arguments and constants without the library.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emitc.backends.esp_nn.backend import EspNn
from emitc.backends.esp_nn.definition import NAME
from emitc.backends.esp_nn.lowering import RULES
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.target import BuildSupport
from emitc.verify import verification
from emitc.verify.build import HostModel, build_shared
from emitc.verify.golden_run import interface_of
from emitc.verify.reference import random_samples
from emitc.writers.tflite import write_tflite
from tests.support.esp_nn.library import REAL, SKIPPED, stand_in
from tests.support.layer_cases import Scales, Slide, conv_2d, depthwise, fully_connected, pool, softmax
from tests.support.single_op import Case, model_of, quantized

MODELS = Path(__file__).resolve().parents[3] / "examples" / "models"


def compiled(model: Path, library: Path, **options: Any) -> Compiled:
    return compile_model(model, kernels=NAME, backends={NAME: str(library)}, **options)


def backends_of(made: Compiled) -> set[str]:
    return {row.backend for row in made.partition.assignments}


def elementwise(name: str, opcode: str, shape: tuple[int, ...], rng: np.random.Generator) -> Case:
    """ADD or MUL of two tensors with random scales."""
    a, b = (quantized(shape, float(np.float32(rng.uniform(0.01, 0.2))), int(rng.integers(-128, 128))) for _ in range(2))
    y = quantized(shape, float(np.float32(rng.uniform(0.05, 0.4))), int(rng.integers(-128, 128)))
    activation = str(rng.choice(["NONE", "RELU", "RELU6"]))
    return Case(name, opcode, (a, b), (y,), {"fused_activation_function": activation}, 2)


def scales(rng: np.random.Generator, channels: int) -> Scales:
    """Of a layer that accumulates: one factor, or one for each channel, some of them above one."""
    count = channels if rng.random() < 0.7 else 1
    weights = tuple(float(np.float32(x)) for x in rng.uniform(0.001, 0.05, count))
    factor = float(10.0 ** rng.uniform(-4.5, 0.3))
    return Scales(0.05, weights, factor, int(rng.integers(-128, 128)), int(rng.integers(-128, 128)))


def slide(rng: np.random.Generator) -> Slide:
    stride = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    return Slide(stride, str(rng.choice(["SAME", "VALID"])), activation=str(rng.choice(["NONE", "RELU", "RELU6"])))


def random_cases(kind: str, count: int, seed: int) -> list[Case]:
    """Single operators of random shapes, strides, paddings, activations and scales."""
    rng = np.random.default_rng([seed, *kind.encode()])
    cases = []
    for i in range(count):
        name = f"{kind}_{i}"
        h, w, c, n = (int(x) for x in rng.integers((1, 1, 1, 1), (14, 14, 20, 24)))
        kernel = (int(rng.integers(1, min(h, 5) + 1)), int(rng.integers(1, min(w, 5) + 1)))
        if i % 3 == 0:
            kernel = (1, 1) if kind == "conv" else kernel
        moved = slide(rng)
        match kind:
            case "conv":
                cases.append(conv_2d(name, (1, h, w, c), n, kernel, moved, scales(rng, n)))
            case "depthwise":
                many = int(rng.integers(1, 5))
                cases.append(depthwise(name, (1, h, w, c), many, kernel, moved, scales(rng, c * many)))
            case "dense":
                per_tensor = Scales(0.05, (0.01,), float(10.0 ** rng.uniform(-4, 0.3)), 7, -20)
                quantization = per_tensor if i % 2 else scales(rng, n)
                cases.append(fully_connected(name, (1, h * c), n, h * c, scales=quantization))
            case "average" | "max":
                opcode = f"{kind.upper()}_POOL_2D"
                cases.append(pool(name, opcode, (1, h, w, c), kernel, moved, 0.05, int(rng.integers(-128, 128))))
            case "add" | "mul":
                cases.append(elementwise(name, kind.upper(), (1, h, w, c), rng))
            case _:
                cases.append(softmax(name, (h, w * c + 1), float(10.0 ** rng.uniform(-2.5, 0.5))))
    return cases


KINDS = ("conv", "depthwise", "dense", "average", "max", "add", "mul", "softmax")


def check(kind: str, library: Path, folder: Path, count: int, seed: int) -> Compiled:
    """Random operators of a kind as one model: all of them are called, and every element is the interpreter's."""
    path = folder / f"{kind}.tflite"
    path.write_bytes(write_tflite(model_of(random_cases(kind, count, seed))))
    made = compiled(path, library)
    proof = verification.verify(made, samples=4, layers=True)
    assert proof.match, proof
    assert proof.layers_checked >= count
    called = sum(row.backend == NAME for row in made.partition.assignments)
    assert called >= count - 2, [row.refused for row in made.partition.assignments if row.backend != NAME]
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_random_layers_have_the_interpreters_bits(kind: str, library: Path, tmp_path: Path) -> None:
    check(kind, library, tmp_path, 12, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_its_reference_functions_have_the_interpreters_bits(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The functions whose names end in `_ansi`, which the library takes where nothing asks for optimized ones."""
    if REAL is None:
        pytest.skip(SKIPPED)
    support = EspNn.support

    def plain(self: EspNn, *what: Any) -> BuildSupport:
        found = support(self, *what)
        return BuildSupport(found.sources, found.includes)

    monkeypatch.setattr(EspNn, "support", plain)
    check(kind, REAL, tmp_path, 60, 2)


def test_a_sum_is_widened_by_the_interpreters_bits(library: Path, tmp_path: Path) -> None:
    """Where the first input is at its zero point, the second, whose scale is a millionth, has few bits left after 20 of shift."""
    inputs = (quantized((1, 16, 16, 32), 10.0), quantized((1, 16, 16, 32), 1.7e-5))
    sums = Case("sums", "ADD", inputs, (quantized((1, 16, 16, 32), 9e-5),), {"fused_activation_function": "NONE"}, 2)
    path = tmp_path / "sums.tflite"
    path.write_bytes(write_tflite(model_of([sums])))
    made = compiled(path, library)
    assert NAME in backends_of(made)
    assert verification.verify(made, samples=4, layers=True).match


def test_every_operator_with_a_rule_is_tried() -> None:
    assert len(RULES) == len(KINDS)


@pytest.mark.parametrize("model", ["digits_int8", "kws_ref_int8", "person_detect_int8"])
def test_the_host_proof_of_a_net_holds(model: str, library: Path) -> None:
    made = compiled(MODELS / f"{model}.tflite", library)
    proof = verification.verify(made, samples=3, layers=True, sanitize=model == "digits_int8")
    assert proof.match, proof
    assert proof.layers_checked > 0
    kinds = {row.op_type for row in made.partition.assignments if row.backend == NAME}
    assert {"CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "SOFTMAX"} <= kinds
    assert all(row.backend == NAME or row.refused for row in made.partition.assignments)


DILATED = Slide((1, 1), "SAME", (2, 2))
REFUSED = {
    "dilated": (conv_2d("dilated", (1, 8, 8, 4), 4, (3, 3), DILATED), "have no dilation"),
    "dilated_depthwise": (depthwise("dilated", (1, 8, 8, 4), 1, (3, 3), DILATED), "have no dilation"),
    "groups": (conv_2d("groups", (1, 8, 8, 4), 4, (3, 3), groups=2), "ignores groups"),
    "two_images": (conv_2d("images", (2, 8, 8, 4), 4, (3, 3)), "one image at a time"),
    "rows": (fully_connected("rows", (3, 16), 5, 16), "one row at a time"),
    "large": (pool("large", "MAX_POOL_2D", (1, 1, 32768, 1), (1, 2)), "cannot count"),
    "coarse_softmax": (softmax("coarse", (1, 4), 100.0), "leaves the range"),
    "factor": (
        Case("factor", "MUL", (quantized((1, 4), 0.5), quantized((1, 4), 0.5)), (quantized((1, 4), 0.01),),
             {"fused_activation_function": "NONE"}, 2),
        "no factor above one",
    ),
    "two_shapes": (
        Case("shapes", "ADD", (quantized((1, 4, 4), 0.5), quantized((1, 1, 4), 0.5)), (quantized((1, 4, 4), 0.6),),
             {"fused_activation_function": "NONE"}, 2),
        "two tensors of one shape",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_its_functions_would_compute_wrongly_stays_on_emitcs_kernels(name: str, own: Path, tmp_path: Path) -> None:
    case, reason = REFUSED[name]
    path = tmp_path / "net.tflite"
    path.write_bytes(write_tflite(model_of([case])))
    made = compiled(path, own)
    assert NAME not in backends_of(made)
    assert any(reason in str(refused) for row in made.partition.assignments for _, refused in row.refused)


def test_onnx_models_stay_on_emitcs_kernels(own: Path) -> None:
    made = compiled(MODELS / "digits_qdq.onnx", own)
    assert NAME not in backends_of(made)
    texts = {str(refused) for row in made.partition.assignments for _, refused in row.refused}
    assert any("rounds as TensorFlow Lite does" in text for text in texts)


def test_a_library_that_needs_more_scratch_ends_the_run(tmp_path: Path) -> None:
    """Instead of writing beyond the buffer: another version is linked than the one that emitc has seen."""
    greedy = stand_in(tmp_path / "greedy", more_scratch=16)
    made = compiled(MODELS / "digits_int8.tflite", greedy)
    made.write(tmp_path / "package")
    built = build_shared(tmp_path / "package", tmp_path, trace=False, support=made.support("host"))
    host = HostModel(built, interface_of(made))
    with pytest.raises(RuntimeError, match="digits_int8_run returned status 6"):
        host.run(random_samples(made.graph, 1, 1)[0])


def test_the_cheaper_library_is_taken_layer_by_layer(own: Path) -> None:
    options = {"kernels": "auto", "backends": {NAME: str(own)}}
    person = MODELS / "person_detect_int8.tflite"
    assert NAME in backends_of(compile_model(person, target="esp32s3", **options))
    assert math.isfinite(
        sum(row.cost for row in compile_model(person, target="esp32p4", **options).partition.assignments)
    )


@pytest.mark.parametrize(
    ("version", "message"), [("0.9.0", "ESP-NN 0.9.0 is not supported"), ("", "without a version is not supported")]
)
def test_a_version_whose_buffers_are_not_known_is_refused(version: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(EmitcError, match=message) as refused:
        compiled(MODELS / "digits_int8.tflite", stand_in(tmp_path, version=version))
    assert refused.value.exit_code == 2


def test_a_path_without_the_library_is_refused(own: Path, tmp_path: Path) -> None:
    with pytest.raises(EmitcError, match="there is no ESP-NN at this path"):
        compiled(MODELS / "digits_int8.tflite", tmp_path)
    with pytest.raises(EmitcError, match="the path of ESP-NN is not given"):
        compile_model(MODELS / "digits_int8.tflite", kernels=NAME)
    part = stand_in(tmp_path / "part")
    (part / "src" / "pooling" / "esp_nn_avg_pool_ansi.c").unlink()
    with pytest.raises(EmitcError, match="is not complete"):
        compiled(MODELS / "digits_int8.tflite", part)
    (part / "idf_component.yml").unlink()
    with pytest.raises(EmitcError, match="version of this ESP-NN cannot be read"):
        compiled(MODELS / "digits_int8.tflite", part)
