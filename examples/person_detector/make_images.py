"""Writes src/images.h: the two images of ../models/person_detect_int8.npz, 96 rows of 96 grey values less 128, as C."""

from __future__ import annotations

from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
IMAGES = {"person_image": "in0_0", "empty_image": "in0_1"}
"""C name of each array and the key of its values."""


def array(name: str, values: np.ndarray) -> str:
    """int8[1,96,96,1] as a C array, one line of text a row of the image."""
    rows = values.reshape(96, 96).tolist()
    lines = "\n".join(f"    {','.join(str(value) for value in row)}," for row in rows)
    return f"static const int8_t {name}[{values.size}] = {{\n{lines}\n}};\n"


def main() -> None:
    """The header, for src/main.c."""
    with np.load(HERE.parent / "models" / "person_detect_int8.npz") as vectors:
        arrays = [array(name, vectors[key]) for name, key in IMAGES.items()]
    (HERE / "src" / "images.h").write_text(
        "/* Written by make_images.py from ../models/person_detect_int8.npz. */\n" + "\n".join(arrays), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
