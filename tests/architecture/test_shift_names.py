"""Names of shifts in C have one meaning each: `shift` is positive to the left, `right` counts bits to the right."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RIGHT_BY_SHIFT = re.compile(
    r">> (p->)?(\w+_)?shift\b|emitc_(output_s16|output_s16_wide|int16_outputs)\([^;]*\bshift\b(?! \}\})"
)
LEFT_BY_RIGHT = re.compile(r"<< (p->)?(\w+_)?right\b")


def _sources() -> list[Path]:
    templates, runtime = ROOT / "emitc" / "templates", ROOT / "c_runtime"
    return sorted([*templates.rglob("*.j2"), *runtime.rglob("*.h"), *runtime.rglob("*.c")])


def test_shift_is_no_count_of_bits_to_the_right() -> None:
    named = {path.name: RIGHT_BY_SHIFT.findall(path.read_text(encoding="utf-8")) for path in _sources()}
    assert {name: uses for name, uses in named.items() if uses} == {}


def test_right_shifts_a_value_of_the_model_to_the_right_only() -> None:
    """1 << right is what the last bit that stays counts; `x << right` back of a rounded value undoes its own shift."""
    lines = [line.strip() for path in _sources() for line in path.read_text(encoding="utf-8").splitlines()]
    left = [line for line in lines if LEFT_BY_RIGHT.search(re.sub(r"1u? << right|\(uint64_t\)1 << right", "", line))]
    assert left == ["return round_even(x, right) << right;"]
