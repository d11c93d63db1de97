"""Writes files of weights as arrays of C, as a flash memory would hold them: NAME=FILE for each argument.

A name that begins with `damaged` gets its file with one bit changed.
"""

import sys
from pathlib import Path


def array(name: str, data: bytes) -> str:
    """The array of a file."""
    rows = (", ".join(str(byte) for byte in data[start : start + 24]) for start in range(0, len(data), 24))
    return f"static _Alignas(16) const unsigned char {name}[] = {{\n    " + ",\n    ".join(rows) + ",\n};\n"


if __name__ == "__main__":
    texts = []
    for argument in sys.argv[1:]:
        name, _, path = argument.partition("=")
        data = bytearray(Path(path).read_bytes())
        if name.startswith("damaged"):
            data[len(data) // 2] ^= 4
        texts.append(array(name, bytes(data)))
    print("\n".join(texts), end="")
