"""The licence of what emitc writes, stated in every file of a package."""

from pathlib import PurePosixPath

LICENSE = "Apache-2.0 OR 0BSD"
"""SPDX expression for all that emitc writes or copies: 0BSD asks for no notice in a product, Apache-2.0 grants patents."""
TAG = f"SPDX-License-Identifier: {LICENSE}"


def stated(path: str, text: str) -> str:
    """The text of a file with the licence as its first line, as a comment of the file's language; JSON has a key for it.

    A text that states its licence is left as it is.

    >>> stated("include/kws.h", "int x;\\n")
    '/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */\\nint x;\\n'
    """
    suffix = PurePosixPath(path).suffix
    if suffix == ".json" or "SPDX-License-Identifier:" in text.partition("\n\n")[0]:
        return text
    return f"/* {TAG} */\n{text}" if suffix in (".c", ".h") else f"# {TAG}\n{text}"
