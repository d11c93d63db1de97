"""The choice of operators: how much of what makes a random ONNX graph of each style."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import numpy as np

from bench.random_graphs.case import Description
from bench.random_graphs.onnx import control, elements, moves, products, rare, rows, windows
from bench.random_graphs.onnx.net import FLOAT, LARGEST, Known, Net, Unfit

Adder = Callable[[Net], None]
_MOVES: Mapping[Adder, int] = {
    moves.transpose: 6, moves.reshape: 3, moves.flatten: 1, moves.squeeze: 1, moves.unsqueeze: 1, moves.identity: 1,
    moves.slice_: 3, moves.split: 2, moves.concat: 3, moves.gather: 2, moves.pad: 2, moves.expand: 1, moves.tile: 1,
    moves.depth_to_space: 1, moves.space_to_depth: 1,
}  # fmt: skip
_REALS: Mapping[Adder, int] = {
    windows.conv: 8, windows.conv_transpose: 2, windows.pool: 5, windows.resize: 2, products.gemm: 3, products.matmul: 4,
    elements.function: 14, elements.binary: 8, elements.power: 1, elements.several: 1, rows.reduction: 3, rows.softmax: 2,
    rows.batch_normalization: 1, rows.normalization: 2, products.recurrent: 2,
}  # fmt: skip
_CODES: Mapping[Adder, int] = {
    windows.q_linear_conv: 6, windows.q_linear_pool: 3, windows.max_pool_of_codes: 1, products.q_linear_matmul: 3,
    products.q_gemm: 3, products.q_linear_softmax: 2, elements.q_linear_binary: 5, elements.q_linear_function: 2,
    elements.q_linear_concat: 2,
}  # fmt: skip
_DYNAMIC: Mapping[Adder, int] = {
    products.dynamic_quantize: 5, products.matmul_integer: 4, windows.conv_integer: 4, products.dynamic_lstm: 2,
}  # fmt: skip
_WHOLE: Mapping[Adder, int] = {
    elements.compare: 2, elements.classify: 1, elements.logic: 5, elements.where: 2, elements.whole_arithmetic: 2,
    elements.real_modulo: 1, elements.cast: 2, elements.whole_input: 2, rows.whole_reduction: 1, rows.arg_extremum: 2,
}  # fmt: skip
_RARE: Mapping[Adder, int] = {
    rare.other_type: 3, rare.wide_arithmetic: 2, rare.computed_shape: 3, rare.computed_scale: 2, rare.packed_weights: 4,
    rare.normalization_with_statistics: 1, rare.resize_of_axes: 2, rare.all_dimensions: 1, rare.defined_by_others: 1,
    rare.twice_quantized: 2, rare.wide_codes: 1, rare.packed_filters: 3,
}  # fmt: skip
_FAMILIES = (_MOVES, _REALS, _CODES, _DYNAMIC, _WHOLE, _RARE)
STYLES: Mapping[str, tuple[int, tuple[float, ...]]] = {
    "qdq": (10, (3, 8, 0, 0, 1, 0.7)), "qdq16": (2, (3, 8, 0, 0, 1, 0.7)), "qoperator": (6, (3, 1, 9, 0, 1, 0.3)),
    "float": (7, (3, 8, 0, 0, 2, 1)), "dynamic": (3, (2, 2, 0, 8, 1, 0.5)), "mixed": (4, (3, 5, 3, 2, 3, 2)),
}  # fmt: skip
"""How often each style is drawn, and the weights of its families."""
_OLD: Mapping[Adder, int] = {
    rare.upsample: 4, moves.transpose: 2, windows.conv: 2, elements.binary: 1,
    rows.batch_normalization: 1,
}  # fmt: skip
"""What a graph of opset 9 is made of, whose other operators state their options in another way."""
OPSETS = (11, 12, 13, 13, 14, 15, 16, 17, 17, 17, 18, 19, 20, 21, 21, 22, 23, 24)
_CONTROL: tuple[Callable[[Net, control.Grow], None], ...] = (
    control.branches, control.loop, control.scan, control.function,
)  # fmt: skip


def _adders(style: str, opset: int) -> tuple[list[Adder], list[float]]:
    if opset < OPSETS[0]:
        return list(_OLD), list(_OLD.values())
    shares = STYLES[style][1]
    pairs = [
        (adder, share * weight / sum(family.values()))
        for family, share in zip(_FAMILIES, shares, strict=True)
        for adder, weight in family.items()
    ]
    return [adder for adder, _ in pairs], [weight for _, weight in pairs]


def grow(net: Net, count: int) -> None:
    """Adds about so many operators; fewer where nothing fits."""
    adders, weights = _adders(net.style, net.opset)
    for _ in range(count):
        for _attempt in range(6):
            before = len(net.nodes), len(net.values), len(net.pool), len(net.inputs)
            try:
                if net.opset >= OPSETS[0] and net.rng.random() < (0.02 if net.style == "qoperator" else 0.05):
                    net.rng.choice(_CONTROL)(net, grow)
                else:
                    net.rng.choices(adders, weights)[0](net)
            except Unfit:
                net.undo(*before)
                continue
            break


def _first(net: Net) -> None:
    """The first input."""
    shape = net.shape(net.rng.choice((1, 2, 3, 3, 4, 4, 4, 4, 5)))
    if net.rng.random() < 0.04:  # a large one
        net.most_elements = 8 * LARGEST
        shape = (1, net.rng.choice((1, 3, 8)), net.rng.randint(60, 110), net.rng.randint(60, 110))
    if net.style in ("qoperator", "qdq", "qdq16") and net.rng.random() < 0.5:
        dtype = net.byte_type()
        net.input(dtype, shape, *net.scales_for(4.0, dtype))
    else:
        net.input(FLOAT, shape)


def _outputs(net: Net) -> list[Known]:
    """What nothing reads, and now and then more."""
    inputs = {value.name for value in net.inputs}
    ends = [
        value for value in net.pool if value.name not in net.read and value.name not in inputs and not value.constant
    ]
    if not ends:
        raise Unfit
    while len(ends) > 4 and net.rng.random() < 0.7:
        ends.remove(net.rng.choice(ends))
    more = [v for v in net.pool if v.name in net.read and v.name not in inputs and not v.constant]
    if more and net.rng.random() < 0.15:
        ends.append(net.rng.choice(more))
    if net.rng.random() < 0.2:
        net.rng.shuffle(ends)
    return ends


def draw(rng: np.random.Generator) -> Description:
    """A valid graph of one to about twenty operators."""
    while True:
        choices = random.Random(int(rng.integers(1 << 62)))
        style = choices.choices(list(STYLES), [weight for weight, _ in STYLES.values()])[0]
        old = choices.random() < 0.01
        net = Net(choices, "float" if old else style, 9 if old else choices.choice(OPSETS))
        _first(net)
        grow(net, choices.choice((1, 1, 2, 2, 3, 4, 5, 6, 8, 10, 14)))
        try:
            described = net.described(_outputs(net))
        except Unfit:
            continue
        return described
