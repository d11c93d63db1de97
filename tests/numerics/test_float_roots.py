"""Square roots by a float unit: those of the integers, on an emulated core."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.firmware import printed_by

FIRMWARE = """
#include "emitc_board.h"
#include "emitc_fpu_isqrt.h"

static uint32_t wrong(uint64_t value)
{
    return emitc_root_nearest_fpu(value) != emitc_root_nearest(value);
}

int main(void)
{
    uint32_t differing = 0;
    uint64_t random = 88172645463325252u;
    for (uint32_t i = 0; i < 40000; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        /* Of all sizes; next to squares, and to where the nearest root changes, of roots that have 24 bits and fewer. */
        const uint64_t root = i < 2000 ? i : (random >> 40) >> (i % 20);
        const uint64_t square = root * root;
        differing += wrong(random >> (i % 64)) + wrong(square) + wrong(square - 1) + wrong(square + 1);
        differing += wrong(square + root) + wrong(square + root + 1) + wrong(square - root) + wrong(square - root + 1);
    }
    for (uint64_t last = 0; last < 70000; last++) {
        differing += wrong(((uint64_t)1 << 48) - last) + wrong(((uint64_t)1 << 32) + 35000 - last) + wrong(~last);
    }
    emitc_print("differing ");
    emitc_print_u32(differing);
    emitc_print("\\n");
    return 0;
}
"""


@pytest.mark.board
@pytest.mark.parametrize("board", ["qemu_m4", "qemu_m55"])
def test_roots_by_a_float_unit_are_those_of_integers(board: str, tmp_path: Path) -> None:
    assert "differing 0\n" in printed_by(FIRMWARE, board, (), tmp_path)
