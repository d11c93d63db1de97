"""The runtime's function that fills a few bytes with a number from a file of weights."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.runtime import INCLUDES

DRIVER = r"""
#include "emitc_weights.h"
#include <stdio.h>
/* Fills each length at each distance from an aligned address with each number; returns 1 where memset leaves another byte. */
int main(void)
{
    static _Alignas(16) unsigned char made[48], wanted[48];
    for (int32_t value = -128; value < 128; value++) {
        for (size_t distance = 0; distance < 8; distance++) {
            for (size_t bytes = 0; bytes <= 21; bytes++) {
                memset(made, 0x5A, sizeof made);
                memset(wanted, 0x5A, sizeof wanted);
                emitc_weights_fill(made + distance, value, bytes);
                memset(wanted + distance, value, bytes);
                if (memcmp(made, wanted, sizeof made) != 0) {
                    printf("%d bytes at distance %d\n", (int)bytes, (int)distance);
                    return 1;
                }
            }
        }
    }
    return 0;
}
"""


@pytest.mark.parametrize("core", [(), ("-D__ARM_FEATURE_UNALIGNED",)], ids=["aligned_words", "any_words"])
def test_it_fills_as_memset_does_at_every_address(core: tuple[str, ...], tmp_path: Path) -> None:
    """On cores that load words at multiples of four alone, and on others; no word is stored at an address that forbids it."""
    source, program = tmp_path / "driver.c", tmp_path / "driver"
    source.write_text(DRIVER, encoding="ascii")
    flags = ["-std=c11", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, *core, *INCLUDES, str(source), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
