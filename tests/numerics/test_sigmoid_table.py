"""The table of the sigmoid, and what is computed from it: against the functions themselves, over every 16-bit value."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import numpy as np
import pytest

from emitc.emit.render import environment
from emitc.kernels.shared.sigmoid_table import SIGMOID, sigmoid_q15, tanh_q15, tanh_scaling
from emitc.verify.build import compiler_command

EVERY = np.arange(-(2**15), 2**15, dtype=np.int64)
LSB = 2.0**-15


def test_the_table_is_tensorflow_lites() -> None:
    """By the digest of its 256 values as little-endian 16-bit numbers."""
    values = np.array(SIGMOID, "<u2")
    assert (
        hashlib.sha256(values.tobytes()).hexdigest()
        == "c79a34d2c8c6e794fbb0207601538fe0169e968cd6d9d5ca65fff859dcd55183"
    )
    assert (np.diff(values.astype(int)) >= 0).all()


def test_sigmoid_is_within_two_steps() -> None:
    exact = 1 / (1 + np.exp(-EVERY * 2.0**-12))
    assert np.abs(sigmoid_q15(EVERY) * LSB - exact).max() < 2 * LSB


@pytest.mark.parametrize("exponent", range(-26, 3))
def test_tanh_is_within_three_steps_whatever_its_unit(exponent: int) -> None:
    exact = np.tanh(EVERY * 2.0**exponent)
    found = tanh_q15(EVERY, exponent)
    assert np.abs(found * LSB - exact).max() < 3 * LSB
    assert found.min() >= -(2**15) and found.max() < 2**15


def test_both_are_odd_about_their_middle() -> None:
    x = EVERY[EVERY > 0]
    assert np.abs(sigmoid_q15(x) + sigmoid_q15(-x) - 2**15).max() <= 1
    assert np.abs(tanh_q15(x, -12) + tanh_q15(-x, -12)).max() <= 1
    assert sigmoid_q15(np.array([0])) == 2**14 and tanh_q15(np.array([0]), -12) == 0


def test_no_step_leaves_32_bits() -> None:
    for exponent in range(-26, 3):
        factor, right = tanh_scaling(exponent)
        assert 2**15 * factor + (1 << right) < 2**31


PROGRAM = """
#include <stdint.h>
#include <stdio.h>

static const uint16_t table[256] = {%s};
%s
int main(void)
{
    static const int32_t scaling[][2] = {%s};
    for (int32_t x = -32768; x < 32768; x++) {
        printf("%%d", (int)t_sigmoid(table, x));
        for (int i = 0; i < %d; i++) {
            printf(" %%d", (int)t_tanh(table, x, scaling[i][0], scaling[i][1]));
        }
        puts("");
    }
    return 0;
}
"""


def test_the_c_gives_the_same_for_every_value(tmp_path: Path) -> None:
    """Ties among them, which a layer meets too seldom."""
    exponents = (-26, -15, -14, -13, -12, -11, -9, 2)
    functions = str(environment().get_template("kernels/recurrent/_sigmoid_table.c.j2").module.functions("t"))  # type: ignore[attr-defined]
    scaling = ", ".join(f"{{{factor}, {right}}}" for factor, right in map(tanh_scaling, exponents))
    source = PROGRAM % (", ".join(map(str, SIGMOID)), functions, scaling, len(exponents))
    (tmp_path / "t.c").write_text(source, encoding="ascii")
    command = [
        *compiler_command(),
        "-std=c11",
        "-O1",
        "-fsanitize=undefined",
        "-fno-sanitize-recover=all",
        "t.c",
        "-o",
        "t",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([str(tmp_path / "t")], capture_output=True, text=True, check=True)
    found = np.array(done.stdout.split(), np.int64).reshape(len(EVERY), 1 + len(exponents))
    assert np.array_equal(found[:, 0], sigmoid_q15(EVERY))
    for column, exponent in enumerate(exponents):
        assert np.array_equal(found[:, 1 + column], tanh_q15(EVERY, exponent)), exponent
