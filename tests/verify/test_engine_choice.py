"""Which interpreter `--reference auto` asks, and what is believed of it where TFLite Micro does not run the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from emitc.boards.verify import expected
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.report.verify import verify_text
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, TensorSpec, write_tflite
from tests.support.models.tiny import Net

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")


def compiled(folder: Path, spec: ModelSpec) -> Compiled:
    """The model, from a file."""
    path = folder / "model.tflite"
    path.write_bytes(write_tflite(spec))
    return compile_model(path)


def open_batch() -> ModelSpec:
    """SPACE_TO_BATCH_ND makes two images of one; the file says one, as converters do where they leave the batch open."""
    net = Net()

    def tensor(name: str, shape: tuple[int, ...]) -> int:
        return net.tensor(TensorSpec(name, "int8", shape, None, (0.05,), (3,), shape_signature=(-1, *shape[1:])))

    x, halves, both, y = (tensor(n, (1, *s)) for n, s in (("x", (4, 3)), ("h", (2, 3)), ("r", (2, 3)), ("y", (4, 3))))
    block, nothing = net.integers("block", (2,)), net.integers("nothing", (0, 0), (1, 2))
    net.op("SPACE_TO_BATCH_ND", (x, block, nothing), (halves,))
    net.op("RELU", (halves,), (both,))
    net.op("BATCH_TO_SPACE_ND", (both, block, nothing), (y,))
    return net.spec((x,), (y,))


def test_shapes_that_the_file_states_wrongly_are_not_for_tflite_micro(tmp_path: Path) -> None:
    model = compiled(tmp_path, open_batch())
    proof = verify(model, samples=4, layers=True)
    assert proof.match and proof.reference == "litert" and proof.layers_checked
    with pytest.raises(EmitcError) as caught:
        verify(model, samples=1, reference="tflm")
    assert caught.value.why == "it takes shapes from the file, which states 6 elements instead of 12"
    assert "--reference tflm" in str(caught.value)
    right = replace(open_batch(), tensors=tuple(replace(t, shape_signature=None) for t in open_batch().tensors))
    halves = tuple(replace(t, shape=(2, 2, 3)) if t.name in "hr" else t for t in right.tensors)
    assert verify(compiled(tmp_path, replace(right, tensors=halves)), samples=1).reference == "tflm"


def padded_batch() -> ModelSpec:
    """SPACE_TO_BATCH_ND with a row of the zero point below the image."""
    net = Net()
    x, y = net.activation("x", (1, 3, 2), 0.05, 3), net.activation("y", (2, 2, 2), 0.05, 3)
    net.op("SPACE_TO_BATCH_ND", (x, net.integers("block", (2,)), net.integers("ends", (0, 1), (1, 2))), (y,))
    return net.spec((x,), (y,))


def test_padding_that_tflite_micro_does_not_set_is_for_litert(tmp_path: Path) -> None:
    model = compiled(tmp_path, padded_batch())
    proof = verify(model, samples=4, layers=True)
    assert proof.match and proof.reference == "litert"
    with pytest.raises(EmitcError) as caught:
        verify(model, samples=1, reference="tflm")
    assert caught.value.why == "it pads with whatever lies in its memory, instead of the zero point 3"


def dense(*, only_litert: bool) -> ModelSpec:
    """A fully connected layer with one scale, after an operator that TFLite Micro has, or has not."""
    net = Net(3)
    x, before = net.activation("x", (64, 4), 0.01, -3), net.activation("before", (64, 4), 0.0123, -3)
    y = net.activation("y", (64, 16), 0.01685, 5)
    net.op("EXP" if only_litert else "RELU", (x,), (before,))
    net.op("FULLY_CONNECTED", (before, net.weights("w", (16, 4), (0.0137,)), net.bias("b", 16, (0.0001685,))), (y,),
           fused_activation_function="NONE")  # fmt: skip
    return net.spec((x,), (y,))


def wrong(model: Compiled, before: str, after: str) -> Compiled:
    """The model with its C changed."""
    name = f"{model.program.name}.c"
    text = model.files[name].decode("ascii")
    assert before in text
    return replace(model, files=model.files | {name: text.replace(before, after, 1).encode("ascii")})


def test_litert_is_asked_operator_by_operator_where_it_rounds_otherwise(tmp_path: Path) -> None:
    model = compiled(tmp_path, dense(only_litert=True))
    proof = verify(model, samples=10)
    assert proof.match and proof.reference == "litert" and proof.differing, "the two roundings differ on these inputs"
    assert "  rounding    LiteRT rounds FULLY_CONNECTED otherwise than TFLite Micro, " in verify_text(model, proof)
    found = {group.op_type: group for group in proof.groups}
    assert found["FULLY_CONNECTED"].kind == "word" and found["FULLY_CONNECTED"].largest == 1
    assert found["EXP"].kind == "exact" and not found["EXP"].differing
    outputs = [values for _, values in expected(model, "auto", 3, 0)[1]]
    on_numpy = [values for _, values in expected(model, "numpy", 3, 0)[1]]
    assert outputs == on_numpy, "a board has to give the bits of the C"
    assert not verify(model, samples=10, reference="litert").match, "who asks for LiteRT gets LiteRT"


def word(op: str, dtype: str) -> ModelSpec:
    """An operator that LiteRT rounds otherwise, beside one that TFLite Micro does not have."""
    net = Net(3)

    def tensor(name: str, shape: tuple[int, ...], scale: float) -> int:
        return net.tensor(TensorSpec(name, dtype, shape, None, (scale,), (0,)))

    before, exp = net.activation("before", (4, 4), 0.01, -3), net.activation("exp", (4, 4), 0.0123, -3)
    net.op("EXP", (before,), (exp,))
    if op == "SOFTMAX":
        x, y = tensor("x", (64, 10), 1 / 4096), tensor("y", (64, 10), 1 / 32768)
        net.op(op, (x,), (y,), beta=1.0)
        return net.spec((before, x), (exp, y))
    x, y = tensor("x", (64, 32), 0.0123), tensor("y", (64, 16), 0.3)
    given, w = (net.activation(name, (16, 32), 0.0137) for name in ("given", "w"))
    net.op("RELU", (given,), (w,))
    net.op(op, (x, w), (y,), fused_activation_function="NONE")
    return net.spec((before, x, given), (exp, y))


@pytest.mark.parametrize(
    ("op", "dtype"), [("FULLY_CONNECTED", "int8"), ("FULLY_CONNECTED", "int16"), ("SOFTMAX", "int16")]
)
def test_every_operator_that_litert_rounds_otherwise_is_judged_by_itself(op: str, dtype: str, tmp_path: Path) -> None:
    proof = verify(compiled(tmp_path, word(op, dtype)), samples=40)
    found = {group.op_type: group for group in proof.groups}
    assert proof.match and proof.reference == "litert" and proof.differing, "the two roundings differ on these inputs"
    assert found[op].kind == "word" and found[op].largest == 1 and found["EXP"].kind == "exact"


@pytest.mark.parametrize("change", [lambda model: wrong(model, "= 0;", "= 1;"), None], ids=["changed", "unchanged"])
def test_such_a_proof_can_fail(change: Callable[[Compiled], Compiled] | None, tmp_path: Path) -> None:
    model = compiled(tmp_path, dense(only_litert=True))
    assert verify(change(model) if change else model, samples=3).match is (change is None)


def test_what_tflite_micro_runs_is_compared_with_it(tmp_path: Path) -> None:
    proof = verify(compiled(tmp_path, dense(only_litert=False)), samples=3)
    assert proof.match and proof.reference == "tflm" and not proof.groups


def test_layers_that_quantize_inexact_floats_are_judged_one_by_one(tmp_path: Path) -> None:
    """The last bit of a sigmoid may become a step of the layer after it; on LiteRT's own inputs no bit differs."""
    net = Net(4)
    x, before, y = (net.tensor(TensorSpec(name, "float32", (8, 16))) for name in ("x", "before", "y"))
    net.op("LOGISTIC", (x,), (before,))
    net.op("FULLY_CONNECTED", (before, net.weights("w", (16, 16), (0.01,) * 16)), (y,), fused_activation_function="NONE",
           asymmetric_quantize_inputs=True)  # fmt: skip
    model = compiled(tmp_path, net.spec((x,), (y,)))
    proof = verify(model, samples=4)
    assert "  rounding    layers quantize floats while they run, " in verify_text(model, proof)
    found = {group.op_type: group for group in proof.groups}
    assert proof.match and proof.reference == "litert" and found["FULLY_CONNECTED"].holds
    assert found["FULLY_CONNECTED"].differing == 0
