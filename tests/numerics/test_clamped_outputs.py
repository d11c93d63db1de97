"""Sums as outputs by float32 factors with limits inside the type's, as the templates print them, against exact arithmetic.

A float32 product is the exact one rounded to 24 bits, half to even; so is the sum, before it is multiplied.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from emitc.emit.render import environment
from emitc.layer import PLAIN
from tests.support.runtime import INCLUDES

FACTORS = [2.0**-16, 2.0**-15 * 1.9999999, 2.0**-8, 0.001, 0.0117647061, 0.24999999, 0.25, 0.3333333433]
LIMITS = [(-128, 127), (-128, -128), (127, 127), (-5, -4), (0, 100), (-128, 0), (3, 127)]
OFFSETS = [-128, -1, 0, 127]
HEADERS = {"dsp": "emitc_dsp.h", "scalar": "emitc_scalar.h"}


def _rounded(value: Fraction, bits: int = 24) -> Fraction:
    """To so many significant bits, half to even."""
    if value == 0:
        return value
    exponent = 0
    while abs(value) / Fraction(2) ** exponent >= 1 << bits:
        exponent += 1
    while abs(value) / Fraction(2) ** exponent < 1 << (bits - 1):
        exponent -= 1
    unit = Fraction(2) ** exponent
    return round(value / unit) * unit


def _expected(acc: int, factor: Fraction, offset: int, low: int, high: int) -> int:
    return min(max(round(_rounded(_rounded(Fraction(acc)) * factor)) + offset, low), high)


def _sums(factor: Fraction) -> list[int]:
    """Around ties of every size of result, and the largest that a kernel without floats takes."""
    left = int(np.float32(factor).view(np.uint32) >> 23) - 111
    most = (2**31 - 1) >> left
    near = [int((k + Fraction(1, 2)) / factor) + d for k in (-300, -129, -6, -1, 0, 1, 2, 99, 255) for d in (-1, 0, 1)]
    return sorted({a for a in (*near, 0, 1, -1, most, -most) if abs(a) <= most})


def _source(kind: str) -> tuple[str, list[int]]:
    spec = replace(PLAIN, fixed_point=False, clamped=True, exact_rounding=kind == "scalar")
    output = str(environment().get_template(f"kernels/mac/_epilogue_{kind}.c.j2").module.output(spec, "acc", "a"))  # type: ignore[attr-defined]
    rows, wanted = [], []
    for value in FACTORS:
        factor = Fraction(float(np.float32(value)))
        bits = int(np.float32(value).view(np.uint32))
        for acc, offset, (low, high) in product(_sums(factor), OFFSETS, LIMITS):
            mantissa, left = (bits & 0x7FFFFF | 0x800000) << 7, (bits >> 23) - 111
            rows.append(f"{{{acc}, {float(factor).hex()}f, INT32_C({mantissa}), {left}, {offset}, {low}, {high}}},")
            wanted.append(_expected(acc, factor, offset, low, high))
    unused = "(void)factor_a;" if kind == "scalar" else "(void)mantissa_a; (void)left_a;"
    return (
        f"""#include "{HEADERS[kind]}"
#include <stdio.h>
struct row {{
    int32_t acc;
    float factor;
    int32_t mantissa, left, output_offset, clamp_low, clamp_high;
}};
static const struct row rows[] = {{ {" ".join(rows)} }};
int main(void)
{{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {{
        const struct row *const p = &rows[i];
        const int32_t acc = p->acc;
        const float factor_a = p->factor;
        const int32_t mantissa_a = p->mantissa;
        const int32_t left_a = p->left;
        {unused}
        printf("%d\\n", (int){output});
    }}
    return 0;
}}
""",
        wanted,
    )


@pytest.mark.parametrize("kind", HEADERS)
def test_limits_inside_the_type(kind: str, tmp_path: Path) -> None:
    source, wanted = _source(kind)
    (tmp_path / "clamped.c").write_text(source, encoding="ascii")
    command = ["gcc", "-std=c11", "-O1", "-fsanitize=undefined", *INCLUDES, "clamped.c", "-o", "clamped"]
    subprocess.run(command, check=True, cwd=tmp_path)
    found = subprocess.run([tmp_path / "clamped"], check=True, capture_output=True, text=True).stdout.split()
    assert len(wanted) > 3000
    assert [int(value) for value in found] == wanted
