"""Random ONNX operators that only move values: transposes, views, slices, joins and the like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.random_graphs.onnx.net import FLOAT, Known, Net, Unfit
from bench.random_graphs.onnx.operands import Wanted, anything, factored, ranked, reshaped, same, transposed
from emitc.ir import Shape


def movable(net: Net, wanted: Wanted = anything) -> Known:
    """A value to move: as it is, or dequantized."""
    value = net.pick(lambda v: wanted(v) and not v.constant)
    return net.dequantize(value) if value.quantized and net.rng.random() < 0.5 else value


def moved(
    net: Net, op_type: str, inputs: Sequence[Known | str], source: Known, shape: Shape, **attributes: Any
) -> Known:
    """A moving operator; what was dequantized before it is often quantized again."""
    made = same(net, op_type, inputs, source, shape, **attributes)
    return net.quantize(made) if made.codes and net.rng.random() < 0.85 else made


def _axis(net: Net, rank: int) -> int:
    """An axis, counted from either end."""
    return net.rng.randrange(-rank, rank)


def transpose(net: Net) -> None:
    """Transpose, of any permutation."""
    source = movable(net, lambda v: v.rank >= 2)
    made = transposed(net, source)
    if made.codes and net.rng.random() < 0.85:
        net.quantize(made)


def reshape(net: Net) -> None:
    """Reshape with sizes, -1 or 0."""
    source = movable(net)
    if source.rank and net.rng.random() < 0.2:
        rest = factored(net, source.elements // source.shape[0], net.rng.randint(1, 3))
        moved(net, "Reshape", [source, net.ints((0, *rest))], source, (source.shape[0], *rest))
        return
    made = reshaped(net, source, factored(net, source.elements, net.rng.randint(1, 5)))
    if made.codes and made is not source and net.rng.random() < 0.8:
        net.quantize(made)


def flatten(net: Net) -> None:
    """Flatten."""
    source = movable(net, lambda v: v.rank >= 1)
    axis = net.rng.randint(-source.rank, source.rank)
    at = axis % source.rank if axis < source.rank else source.rank
    moved(net, "Flatten", [source], source, (math.prod(source.shape[:at]), math.prod(source.shape[at:])), axis=axis)


def squeeze(net: Net) -> None:
    """Squeeze of some or of all dimensions of size 1."""
    source = movable(net, lambda v: 1 in v.shape)
    ones = [i for i, size in enumerate(source.shape) if size == 1]
    chosen = sorted(net.rng.sample(ones, net.rng.randint(1, len(ones))))
    shape = tuple(size for i, size in enumerate(source.shape) if i not in chosen)
    stated = tuple(i - source.rank * (net.rng.random() < 0.3) for i in chosen)
    if chosen == ones and net.rng.random() < 0.3:
        moved(net, "Squeeze", [source], source, shape)
    elif net.opset < 13:
        moved(net, "Squeeze", [source], source, shape, axes=stated)
    else:
        moved(net, "Squeeze", [source, net.ints(stated)], source, shape)


def unsqueeze(net: Net) -> None:
    """Unsqueeze."""
    source = movable(net, lambda v: v.rank <= 4)
    rank = source.rank + net.rng.randint(1, min(2, 5 - source.rank))
    axes = sorted(net.rng.sample(range(rank), rank - source.rank))
    sizes = list(source.shape)
    for axis in axes:
        sizes.insert(axis, 1)
    stated = tuple(axis - rank * (net.rng.random() < 0.3) for axis in axes)
    if net.opset < 13:
        moved(net, "Unsqueeze", [source], source, tuple(sizes), axes=stated)
    else:
        moved(net, "Unsqueeze", [source, net.ints(stated)], source, tuple(sizes))


def identity(net: Net) -> None:
    """Identity or Dropout."""
    source = movable(net)
    if source.dtype == FLOAT and net.rng.random() < 0.4:
        moved(net, "Dropout", [source], source, source.shape)
    else:
        moved(net, "Identity", [source], source, source.shape)


def slice_(net: Net) -> None:
    """Slice of some axes, with negative positions and steps, and ends outside."""
    source = movable(net, lambda v: v.rank >= 1 and v.elements > 1)
    axes = net.rng.sample(range(source.rank), net.rng.randint(1, source.rank))
    starts, ends, steps, sizes = [], [], [], list(source.shape)
    for axis in axes:
        size = source.shape[axis]
        step = net.rng.choice((1, 1, 1, 2, 3, -1, -1, -2))
        low, high = sorted(net.rng.randint(0, size) for _ in range(2))
        low, high = (low, high) if low < high else (0, size)
        chosen = range(low, high, step) if step > 0 else range(high - 1, low - 1, step)
        start, end = chosen.start, chosen.stop
        if end < 0:
            end = net.rng.choice((-size - 1, -(1 << 31)))
        elif end == size:
            end = net.rng.choice((size, size + 5, (1 << 63) - 1))
        elif net.rng.random() < 0.3:
            end -= size
        starts.append(start - size * (net.rng.random() < 0.3))
        ends.append(end)
        steps.append(step)
        sizes[axis] = len(chosen)
    stated = [axis - source.rank * (net.rng.random() < 0.3) for axis in axes]
    plain = all(step == 1 for step in steps) and net.rng.random() < 0.5
    names = [net.ints(starts), net.ints(ends)]
    if not (plain and sorted(stated) == stated == list(range(source.rank)) and net.rng.random() < 0.5):
        names.append(net.ints(stated))
        names += [] if plain else [net.ints(steps)]
    moved(net, "Slice", [source, *names], source, tuple(sizes))


def split(net: Net) -> None:
    """Split into equal or unequal parts."""
    source = movable(net, lambda v: max(v.shape, default=1) > 1)
    axis = net.rng.choice([i for i, size in enumerate(source.shape) if size > 1])
    size = source.shape[axis]
    count = net.rng.randint(2, min(size, 4))
    cuts = sorted(net.rng.sample(range(1, size), count - 1))
    parts = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    equal = net.rng.random() < 0.5 and (size % count == 0 or net.opset >= 18)
    if equal:
        size_of_part = -(-size // count)
        parts = [min(size_of_part, size - size_of_part * i) for i in range(count)]
        if min(parts) <= 0:
            raise Unfit
    attributes: dict[str, Any] = {"axis": axis - source.rank * (net.rng.random() < 0.3)}
    names: list[Known | str] = [source]
    if equal:
        attributes["num_outputs"] = count if net.opset >= 18 else None
    elif net.opset < 13:
        attributes["split"] = tuple(parts)
    else:
        names.append(net.ints(parts))
    shapes = [(source.dtype, (*source.shape[:axis], part, *source.shape[axis + 1 :])) for part in parts]
    made = net.add(
        "Split", names, *shapes, top=source.top, exact=True, quantized=(source.scale, source.zero), codes=source.codes,
        **attributes,
    )  # fmt: skip
    for value in made:
        if value.codes and net.rng.random() < 0.7:
            net.quantize(value)


def concat(net: Net) -> None:
    """Concat of values that agree in all other dimensions, of one value twice, and of constants."""
    first = movable(net, lambda v: v.rank >= 1)
    axis = net.rng.randrange(first.rank)

    def fits(value: Known) -> bool:
        others = [i for i in range(first.rank) if i != axis]
        return (
            value.dtype == first.dtype
            and value.rank == first.rank
            and all(value.shape[i] == first.shape[i] for i in others)
            and (value.scale, value.zero, value.codes) == (first.scale, first.zero, first.codes)
            and not value.constant
        )

    parts = [first]
    for _ in range(net.rng.choice((1, 1, 1, 2, 3))):
        candidates = net.candidates(fits)
        if first.dtype == FLOAT and net.rng.random() < 0.15:
            sizes = [*first.shape[:axis], net.rng.randint(1, 4), *first.shape[axis + 1 :]]
            parts.append(net.constant_value(net.reals(sizes, first.top), first.top))
        else:
            parts.append(net.rng.choice([*candidates, first]))
    net.rng.shuffle(parts)
    shape = (*first.shape[:axis], sum(part.shape[axis] for part in parts), *first.shape[axis + 1 :])
    moved(net, "Concat", parts, first, shape, axis=axis - first.rank * (net.rng.random() < 0.3))


def gather(net: Net) -> None:
    """Gather by constant or computed indices, of any rank, counted from either end."""
    source = movable(net, lambda v: v.rank >= 1)
    axis = net.rng.randrange(source.rank)
    size = source.shape[axis]
    shape = net.rng.choice(((), (1,), (2,), (3,), (2, 2), (1, 3)))
    dtype = net.rng.choice(("int64", "int32"))
    if len(net.inputs) < net.most_inputs and net.parent is None and net.rng.random() < 0.3:
        indices = net.input(dtype, shape, bounds=(0, size - 1))
        net.pool.remove(indices)
    else:
        values = net.data.integers(-size if net.rng.random() < 0.3 else 0, size, shape)
        indices = net.constant_value(np.asarray(values, dtype))
    result = (*source.shape[:axis], *shape, *source.shape[axis + 1 :])
    if len(result) > 6:
        raise Unfit
    moved(net, "Gather", [source, indices], source, result, axis=axis - source.rank * (net.rng.random() < 0.3))


def pad(net: Net) -> None:
    """Pad with a constant, an edge, a reflection or round the other end; also by 0, and by less than 0."""
    source = movable(net, lambda v: v.rank >= 1 and v.dtype != "int16" and (v.dtype != "bool" or net.opset >= 13))
    modes = ["constant"] * 3 + ["edge", "reflect"] + ["wrap"] * (net.opset >= 19)
    mode = net.rng.choice(modes)
    most = [min(4, size - 1) if mode in ("reflect", "wrap") else 4 for size in source.shape]
    axes = [i for i in range(source.rank) if net.rng.random() < 0.5] or [source.rank - 1]
    before = [net.rng.randint(0, most[i]) if i in axes else 0 for i in range(source.rank)]
    after = [net.rng.randint(0, most[i]) if i in axes else 0 for i in range(source.rank)]
    if mode == "constant" and net.rng.random() < 0.1:
        axis = net.rng.choice(axes)
        before[axis] = -net.rng.randint(0, source.shape[axis] - 1)
    shape = tuple(size + before[i] + after[i] for i, size in enumerate(source.shape))
    names: list[Known | str] = [source]
    some = net.opset >= 18 and net.rng.random() < 0.3
    names.append(net.ints([before[i] for i in axes] + [after[i] for i in axes] if some else [*before, *after]))
    value = ""
    if mode == "constant" and net.rng.random() < 0.6:
        number: float = net.rng.choice((0, 1, -1, 3))
        if source.dtype == "bool" or source.dtype.startswith("u"):
            number = abs(number) if source.dtype != "bool" else number > 0
        value = net.scalar(number, source.dtype)
    names += [value, net.ints([a - source.rank * (net.rng.random() < 0.3) for a in axes])] if some else [value]
    moved(net, "Pad", names, source, shape, mode=mode if mode != "constant" or net.rng.random() < 0.3 else None)


def expand(net: Net) -> None:
    """Expand to a shape that broadcasts."""
    source = movable(net, lambda v: v.elements <= 2048 and v.rank <= 4)
    sizes = [size if size > 1 or net.rng.random() < 0.5 else net.size() for size in source.shape]
    stated = [
        1 if size == old and net.rng.random() < 0.3 else size for size, old in zip(sizes, source.shape, strict=True)
    ]
    extra = [net.rng.randint(1, 3) for _ in range(net.rng.choice((0, 0, 1)))]
    moved(net, "Expand", [source, net.ints([*extra, *stated])], source, (*extra, *sizes))


def tile(net: Net) -> None:
    """Tile."""
    source = movable(net, lambda v: v.rank >= 1 and v.elements <= 2048)
    times = [net.rng.choice((1, 1, 2, 3)) for _ in source.shape]
    shape = tuple(size * count for size, count in zip(source.shape, times, strict=True))
    moved(net, "Tile", [source, net.ints(times)], source, shape)


def depth_to_space(net: Net) -> None:
    """DepthToSpace in both orders."""
    source = ranked(net, (4,))
    fitting = [b for b in (2, 3, 4) if source.shape[1] % (b * b) == 0]
    if not fitting:
        raise Unfit
    b = net.rng.choice(fitting)
    n, c, h, w = source.shape
    mode = net.rng.choice(("DCR", "CRD", None))
    moved(net, "DepthToSpace", [source], source, (n, c // (b * b), h * b, w * b), blocksize=b, mode=mode)


def space_to_depth(net: Net) -> None:
    """SpaceToDepth."""
    source = ranked(net, (4,))
    n, c, h, w = source.shape
    fitting = [b for b in (2, 3, 4) if h % b == 0 and w % b == 0]
    if not fitting:
        raise Unfit
    b = net.rng.choice(fitting)
    moved(net, "SpaceToDepth", [source], source, (n, c * b * b, h // b, w // b), blocksize=b)
