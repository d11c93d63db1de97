"""What ONNX's operators that move values refuse: by the kernels themselves, whatever the reader before them lets through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emitc.errors import EmitcError
from emitc.source import SourceNode
from tests.support.onnx_node import settled, source
from tests.support.onnx_op import Array

_ENDS = (np.iinfo(np.int64).min, np.iinfo(np.int64).max)


def numbers(*values: int) -> Array:
    """A constant vector."""
    return np.array(values, np.int64)


REFUSED = [
    ("reshape_elements", source("Reshape", (2, 3), numbers(4, 2)), 2, "[2, 3] to [4, 2]"),
    ("reshape_two_open", source("Reshape", (2, 3), numbers(-1, -1)), 2, "at most one -1"),
    ("reshape_zero_beyond", source("Reshape", (2, 3), numbers(2, 3, 0)), 2, "a 0 copies a dimension of the input, which has 2"),
    ("reshape_allowzero", source("Reshape", (2, 3), numbers(0, 6), allowzero=1), 2, "positive sizes"),
    ("reshape_no_shape", source("Reshape", (2, 3), None), 2, "neither an input nor an attribute"),
    ("flatten_axis", source("Flatten", (2, 3), axis=3), 2, "an integer in [-2, 2]"),
    ("squeeze_of_2", source("Squeeze", (2, 3), numbers(0)), 2, "only those of size 1"),
    ("squeeze_twice", source("Squeeze", (1, 3), numbers(0, -2)), 2, "different ones of a tensor of 2 dimensions"),
    ("unsqueeze_nothing", source("Unsqueeze", (2, 3)), 2, "at least one is expected"),
    ("unsqueeze_too_many", source("Unsqueeze", (2, 3), numbers(*range(7))), 2, "no more than 8"),
    ("transpose_twice", source("Transpose", (2, 3), perm=[0, 0]), 2, "each of 0 to 1 is expected once"),
    ("concat_rank", source("Concat", (2, 3), (3,), axis=0), 2, "all dimensions but 0 must be equal"),
    ("concat_axis", source("Concat", (2, 3), (2, 3)), 2, "the operator's options are missing"),
    ("split_sum", source("Split", (2, 7), numbers(2, 3), count=2, axis=1), 2, "they must add up to dimension 1 of [2, 7]"),
    ("split_uneven", source("Split", (7,), count=2), 2, "dimension 0 has 7 elements"),
    ("split_gap", source("Split", (8,), count=2, outputs_present=[0, 2]), 1, "every part is written"),
    ("slice_step_0", source("Slice", (5,), numbers(0), numbers(3), numbers(0), numbers(0)), 2, "steps other than 0"),
    ("slice_axes", source("Slice", (5,), numbers(0), numbers(3), numbers(1)), 2, "of a tensor of 1 dimensions"),
    ("slice_no_ends", source("Slice", (5,), numbers(0)), 2, "both are needed"),
    ("gather_outside", source("Gather", (4, 3), numbers(0, 4)), 2, "dimension 0 has 4"),
    ("gather_reals", source("Gather", (4, 3), np.zeros(2, np.float32)), 2, "int32 or int64 is expected"),
    ("gather_nothing", source("Gather", (4, 3), numbers()), 1, "there are no indices"),
    ("expand_shapes", source("Expand", (3, 4), numbers(2, 4)), 2, "dimensions must be equal, or one of them 1"),
    ("tile_repeats", source("Tile", (3, 4), numbers(2)), 2, "one for each of 2 dimensions"),
    ("pad_count", source("Pad", (3, 4), numbers(1, 1)), 2, "two for each of 2 dimensions"),
    ("pad_value", source("Pad", (3,), numbers(1, 1), np.float32(1)), 2, "one element of int16 is expected"),
    ("pad_mode", source("Pad", (3,), numbers(1, 1), mode="mirror"), 1, "supported: constant, reflect, edge, wrap"),
    ("pad_all_away", source("Pad", (3, 4), numbers(-3, 0, 4, 0)), 1, "paddings [[-3, 4], [0, 0]] of [3, 4]"),
    ("pad_huge", source("Pad", (3,), numbers(2**40, 0), mode="edge"), 1, "would not fit any microcontroller"),
    ("pad_wide", source("Pad", (3,), numbers(2**17, 0), mode="wrap"), 1, "65535 is the limit"),
    ("blocks", source("DepthToSpace", (1, 2, 2, 6), blocksize=2), 2, "2x2 pixels of 6 channels cannot be divided"),
    ("blocks_of_0", source("SpaceToDepth", (1, 2, 2, 6), blocksize=0), 2, "an integer in [1, "),
    ("blocks_rank", source("SpaceToDepth", (2, 2, 6), blocksize=2), 2, "rank 4 is expected"),
    ("training", source("Dropout", (2, 3), np.float32(0.5), np.array(True)), 1, "it drops values at random"),
    ("training_once", source("Dropout", (2, 3), opset=6), 1, "it drops values at random"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "code", "why"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refusals(made: SourceNode, code: int, why: str) -> None:
    with pytest.raises(EmitcError) as caught:
        settled(made)
    assert caught.value.exit_code == code
    assert why in str(caught.value)


def test_arbitrary_nodes_are_refused_or_lowered() -> None:
    """Whatever a file says, nothing but an EmitcError comes of it."""
    rng = np.random.default_rng(3)
    kinds = sorted(
        {
            "Reshape",
            "Flatten",
            "Squeeze",
            "Unsqueeze",
            "Transpose",
            "Concat",
            "Split",
            "Slice",
            "Gather",
            "Expand",
            "Tile",
        }
        | {"Pad", "Resize", "Upsample"}
    )
    small = np.array([-3, -2, -1, 0, 1, 2, 3, 4, 5, 2**31, *_ENDS])
    taken = refused = 0

    def some(limit: int) -> Array:
        return rng.choice(small[: rng.choice([9, 9, 9, small.size])], rng.integers(0, limit))

    def operand() -> Any:
        if rng.integers(3) == 0:
            return None
        return rng.choice([0.5, 1, 2, 0, -1, 1e30, np.inf], 4).astype(np.float32) if rng.integers(4) == 0 else some(5)

    for _ in range(4000):
        kind = str(rng.choice(kinds))
        shape = tuple(int(d) for d in rng.integers(1, 5, rng.integers(0, 5)))
        names = rng.choice(["axis", "axes", "perm", "pads", "starts", "ends", "split", "scales", "mode", "shape"], 3)
        attributes = {
            str(name): int(rng.choice(small)) if name == "axis" else str(rng.choice(["edge", "wrap", "linear", "cubic"]))
            if name == "mode" else [int(v) for v in some(5)]
            for name in names
        }  # fmt: skip
        opset = int(rng.choice([1, 7, 10, 11, 13, 18, 21]))
        found = source(kind, shape, *[operand() for _ in range(rng.integers(0, 4))], opset=opset, **attributes)
        try:
            settled(found)
            taken += 1
        except EmitcError:
            refused += 1
    assert taken > 200
    assert refused > 2000
