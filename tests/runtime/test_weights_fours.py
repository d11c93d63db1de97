"""The check of weights from a file in which numbers between the weights lead to addresses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from emitc.kernels.mac.scalar_int8 import _fours_table
from emitc.program.weights import FOURS, Stream
from tests.support.runtime import INCLUDES

DRIVER = r"""
#include "emitc_scalar_fours.h"
#include "emitc_weights_fours.h"
#include <stdio.h>
#include <stdlib.h>
/* FILTERS FOURS, and arrays on stdin, each in heap memory of its size: one that is accepted is read by the kernel's functions,
 * from values in heap memory of their size. Prints a digit for each. */
int main(int argc, char **argv)
{
    const int32_t filters = atoi(argv[1]), fours = atoi(argv[2]), bytes = atoi(argv[argc - 1]);
    int8_t *const w = malloc((size_t)bytes);
    uint32_t *const x = calloc((size_t)fours * 8, 4);
    volatile int32_t seen = 0;
    while (fread(w, 1, (size_t)bytes, stdin) == (size_t)bytes) {
        const bool fits = emitc_weights_fours_fit(w, (uint32_t)bytes, (uint32_t)filters, (uint32_t)fours);
        const int8_t *at = w;
        int32_t o = 0;
        for (; fits && o + 2 <= filters; o += 2) {
            seen = emitc_fours_two(1, 2, x, &at, fours).b.a3;
        }
        for (; fits && o < filters; o++) {
            seen = emitc_fours_one(1, x, &at, fours).a3;
        }
        putchar(fits ? '1' : '0');
    }
    free(w);
    free(x);
    return seen == 12345;
}
"""


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver under AddressSanitizer."""
    folder = tmp_path_factory.mktemp("fours")
    (folder / "driver.c").write_text(DRIVER, encoding="ascii")
    flags = ["-std=c11", "-g1", "-O1", "-fsanitize=address", *INCLUDES]
    subprocess.run(["gcc", *flags, str(folder / "driver.c"), "-o", str(folder / "driver")], check=True)
    return folder / "driver"


@pytest.mark.parametrize(("filters", "depth"), [(1, 300), (2, 24), (5, 31), (8, 64)])
def test_it_accepts_what_is_packed_and_nothing_that_leads_outside(check: Path, filters: int, depth: int) -> None:
    rng = np.random.default_rng(filters)
    weights = np.clip(np.rint(rng.normal(0, 45, (filters, depth))), -128, 127).astype(np.int64)
    table = _fours_table(weights, weights.shape)
    assert table is not None
    stream = Stream(FOURS, filters, -(-depth // 4))
    assert len(table.values) <= stream.room_bytes
    good = np.zeros(stream.room_bytes, np.int8)
    good[: len(table.values)] = table.values
    changed = np.tile(good, (600, 1))
    start = 4 * stream.fours * min(filters, 2)
    for row in changed[:300]:
        row[rng.integers(start, len(row))] = rng.integers(-128, 128)
    for row in changed[300:500]:
        row[:] = rng.integers(-3, 4, len(row))
    for row in changed[500:]:
        row[rng.integers(0, len(row)) :] = -1
    files = good.tobytes() + changed.tobytes()
    arguments = [str(check), str(filters), str(stream.fours), str(stream.room_bytes)]
    done = subprocess.run(arguments, input=files, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    seen = done.stdout.decode()
    assert seen[0] == "1"
    assert len(seen) == 601
    assert "0" in seen[1:301]
    assert "1" in seen[1:301]
    assert seen[501:] == "0" * 100


@pytest.mark.parametrize("filters", [1, 64])
def test_the_room_holds_the_most_runs_that_its_number_of_parts_can_make(filters: int) -> None:
    """Weights of the two largest magnitudes in some fours: a run for every second part, which is the most."""
    weights = np.zeros((filters, 128), np.int64)
    weights[:, 0:16:4] = weights[:, 1:16:4] = 127
    weights[:, 2:16:4] = 127
    table = _fours_table(weights, weights.shape)
    assert table is not None
    assert len(table.values) <= Stream(FOURS, filters, 32).room_bytes
