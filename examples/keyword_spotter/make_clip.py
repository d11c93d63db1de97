"""Writes src/clip.h: one input of the model, case 0 of ../models/kws_ref_int8.npz, as a C array of its 490 values."""

from __future__ import annotations

from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
PER_LINE = 10
"""Values a line: the coefficients of one frame."""


def main() -> None:
    """int8[1,49,10,1]: 49 frames of 10 coefficients, in the order in which the model reads them."""
    with np.load(HERE.parent / "models" / "kws_ref_int8.npz") as vectors:
        values = vectors["in0_0"].reshape(-1, PER_LINE)
    lines = [f"    {', '.join(str(value) for value in frame)}," for frame in values.tolist()]
    (HERE / "src" / "clip.h").write_text(
        "/* Written by make_clip.py from ../models/kws_ref_int8.npz, case 0. */\n"
        f"static const int8_t clip[{values.size}] = {{\n" + "\n".join(lines) + "\n};\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
