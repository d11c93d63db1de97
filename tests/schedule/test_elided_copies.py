"""Layers that only copy vanish: parts of a concatenation are written in place, slices and splits read where they lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.options import Options
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, write_tflite
from tests.support.models.image_nets import ImageNet


def _image(net: ImageNet, height: int, width: int, channels: int, like: int) -> int:
    """An image with another one's quantization."""
    y, _ = net.image(height, width, channels)
    net.tensors[y] = net.tensors[y].__class__(
        net.tensors[y].name, "int8", net.tensors[y].shape, None, net.tensors[like].scales, net.tensors[like].zero_points
    )
    return y


def _cut(net: ImageNet, x: int, start: int, rows: int) -> int:
    """Rows of an image, by STRIDED_SLICE."""
    _, _, width, channels = net.tensors[x].shape
    y = _image(net, rows, width, channels, x)
    begin = net.integers(f"begin{y}", (0, start, 0, 0))
    end = net.integers(f"end{y}", (1, start + rows, width, channels))
    ones = net.integers(f"ones{y}", (1, 1, 1, 1))
    net.op("STRIDED_SLICE", (x, begin, end, ones), (y,), begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0,
           shrink_axis_mask=0)  # fmt: skip
    return y


def _joined(net: ImageNet, parts: list[int], like: int) -> int:
    """Images one below the other."""
    shapes = [net.tensors[part].shape for part in parts]
    y = _image(net, sum(shape[1] for shape in shapes), shapes[0][2], shapes[0][3], like)
    net.op("CONCATENATION", tuple(parts), (y,), axis=1)
    return y


def _halves(seed: int) -> ModelSpec:
    """Two halves of an image, each through a convolution, one below the other, and a convolution over both."""
    net = ImageNet(seed)
    x, _ = net.image(8, 6, 4)
    parts = []
    for start in (0, 4):
        half = _cut(net, x, start, 4)
        y, _ = net.window(half, (1, 4, 6, 4), 5, 3, 1, "SAME", depthwise=False)
        net.tensors[y] = net.tensors[y].__class__(net.tensors[y].name, "int8", (1, 4, 6, 5), None, (0.07,), (3,))
        parts.append(y)
    both = _joined(net, parts, parts[0])
    y, _ = net.window(both, (1, 8, 6, 5), 3, 3, 2, "SAME", depthwise=False)
    return net.spec((x,), (y,))


def _split(seed: int) -> ModelSpec:
    """A SPLIT whose parts go through layers of their own and are added."""
    net = ImageNet(seed)
    x, shape = net.image(6, 5, 3)
    a, _ = net.window(x, shape, 4, 3, 1, "SAME", depthwise=False)
    top, bottom = (_image(net, 3, 5, 4, a) for _ in range(2))
    net.op("SPLIT", (net.integers("axis", (1,), ()), a), (top, bottom), num_splits=2)
    left, made = net.window(top, (1, 3, 5, 4), 4, 3, 1, "SAME", depthwise=True)
    y, _ = net.add(left, bottom, made)
    return net.spec((x,), (y,))


def _whole(seed: int) -> ModelSpec:
    """A SPLIT into one part, whose input is also read by a later layer: no line buffer may stand for that input."""
    net = ImageNet(seed)
    x, shape = net.image(41, 14, 1)
    a, _ = net.window(x, shape, 1, 5, 1, "SAME", depthwise=True)
    part = _image(net, 41, 14, 1, a)
    net.op("SPLIT", (net.integers("axis", (1,), ()), a), (part,), num_splits=1)
    twice, _ = net.add(part, part, shape)
    y, _ = net.add(x, a, shape)
    return net.spec((x,), (twice, y))


def _interface(seed: int) -> ModelSpec:
    """Parts that are inputs or outputs of the model keep their places."""
    net = ImageNet(seed)
    x, _ = net.image(4, 4, 2)
    z, _ = net.image(4, 4, 2)
    net.tensors[z] = net.tensors[z].__class__(
        net.tensors[z].name, "int8", net.tensors[z].shape, None, net.tensors[x].scales, net.tensors[x].zero_points
    )
    both = _joined(net, [x, z], x)
    cut = _cut(net, both, 2, 3)
    return net.spec((x, z), (both, cut))


def _compiled(folder: Path, spec: ModelSpec, **options: object) -> Compiled:
    file = folder / "net.tflite"
    file.write_bytes(write_tflite(spec))
    return compile_model(file, Options(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize(("make", "gone"), [(_halves, 3), (_split, 1), (_interface, 0)])
@pytest.mark.parametrize("budget", [None, "min"])
def test_copies_vanish_and_the_bits_stay(make: object, gone: int, budget: str | None, tmp_path: Path) -> None:
    spec = make(3)  # type: ignore[operator]
    kept = _compiled(tmp_path, spec, disabled=frozenset({"views"}))
    made = _compiled(tmp_path, spec, ram_budget=budget)
    assert len(kept.program.steps) - len(made.program.steps) == gone
    assert made.program.plan.arena_bytes <= kept.program.plan.arena_bytes
    proof = verify(made, samples=6, layers=True, sanitize=True)
    assert proof.match and proof.differing == 0 and proof.memory_errors == ()
    assert proof.arena_observed == proof.arena_planned


@pytest.mark.parametrize("target", ["generic32", "cortex-m3"])
def test_a_tensor_that_holds_others_is_whole_for_later_layers(target: str, tmp_path: Path) -> None:
    made = _compiled(tmp_path, _whole(3), ram_budget="min", target=target)
    assert len(made.program.steps) == 3
    assert verify(made, samples=3, layers=True, sanitize=True).match


def test_parts_are_named_places_inside_their_host(tmp_path: Path) -> None:
    program = _compiled(tmp_path, _halves(1)).program
    places = {slot.name: slot for slot in (*program.slots, *program.pins)}
    host = next(slot for slot in program.slots if "int8[1,8,6,5]" in slot.what)
    inside = [slot for slot in program.pins if "int8[1,4,6,5]" in slot.what]
    assert [slot.offset_bytes - host.offset_bytes for slot in inside] == [0, 120]
    assert places["AT_INPUT_0"].size_bytes == 192


def test_an_order_with_a_smaller_arena_is_taken(tmp_path: Path) -> None:
    """Two branches that shrink: one after the other instead of side by side."""
    net = ImageNet(4)
    x, shape = net.image(8, 8, 2)
    wide = [net.window(x, shape, 16, 1, 1, "SAME", depthwise=False) for _ in range(3)]
    small = [net.window(y, made, 2, 8, 8, "VALID", depthwise=False) for y, made in wide]
    total, made = net.add(small[0][0], small[1][0], small[0][1])
    y, _ = net.add(total, small[2][0], made)
    spec = net.spec((x,), (y,))
    given = _compiled(tmp_path, spec, disabled=frozenset({"order"}))
    found = _compiled(tmp_path, spec)
    assert found.program.plan.arena_bytes < given.program.plan.arena_bytes // 2
    assert [s.index for s in found.program.steps] != sorted(s.index for s in found.program.steps)
    proof = verify(found, samples=4, layers=True, sanitize=True)
    assert proof.match and proof.differing == 0


def test_a_segment_sees_its_source_under_another_shape(tmp_path: Path) -> None:
    """Rows of a flat input that a RESHAPE made an image of; the last row of it is needed by nobody."""
    net = ImageNet(6)
    flat = net.activation("flat", (1, 9 * 6), 0.05, -3)
    x = net.activation("image", (1, 9, 6, 1), 0.05, -3)
    net.op("RESHAPE", (flat, net.integers("shape", (1, 9, 6, 1))), (x,), new_shape=(1, 9, 6, 1))
    a, _ = net.window(x, (1, 9, 6, 1), 8, 3, 1, "SAME", depthwise=False)
    y = net.activation("pooled", (1, 4, 3, 8), net.tensors[a].scales[0], net.tensors[a].zero_points[0])
    net.op("MAX_POOL_2D", (a,), (y,), padding="VALID", stride_w=2, stride_h=2, filter_width=2, filter_height=2)
    made = _compiled(tmp_path, net.spec((flat,), (y,)), ram_budget="min")
    (segment,) = made.program.segments
    assert (segment.source.rows, segment.source.row_bytes) == (9, 6)
    proof = verify(made, samples=4, layers=True, sanitize=True)
    assert proof.match and proof.differing == 0 and proof.arena_observed == proof.arena_planned


def test_an_output_stays_off_an_input_that_a_view_of_it_is_added_to(tmp_path: Path) -> None:
    """y = x + x[:, 2:3]: each element in place would do for x, but the slice, which lies in x, is read again for all of them."""
    from tests.support.models.onnx_control import constant, floats, model, node

    sliced = node("Slice", ["x", "from", "to", "axis"], ["piece"])
    bounds = [constant(name, [value], "int64") for name, value in (("from", 2), ("to", 3), ("axis", 1))]
    path = tmp_path / "model.onnx"
    made = model([sliced, node("Add", ["x", "piece"], ["y"])], floats("x"), floats("y"), bounds)
    path.write_bytes(made.SerializeToString())
    compiled = compile_model(path)
    assert [step.op_type for step in compiled.program.steps] == ["Add"]
    assert verify(compiled, samples=5, reference="numpy").match
