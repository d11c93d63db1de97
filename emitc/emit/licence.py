"""The licence of what emitc writes, stated in every file of a package."""

import re
from pathlib import PurePosixPath

LICENSE = "Apache-2.0 OR 0BSD"
"""SPDX expression for all that emitc writes or copies: 0BSD asks for no notice in a product, Apache-2.0 grants patents."""
TAG = f"SPDX-License-Identifier: {LICENSE}"
_LIKE_C = (".c", ".h", ".hpp", ".cpp", ".ino")
"""Endings of files with the comments of C."""

_SLASHES = (".rs", ".zig", ".zon")
"""Endings of files whose comments begin with two slashes."""


_LONGEST = 200
_WORD = r"(?:[A-Za-z0-9][A-Za-z0-9.-]*\+?)"
_TERM = re.compile(rf"\(*{_WORD}(?: WITH {_WORD})?\)*")


def is_expression(text: str) -> bool:
    """Whether a text has the form of an SPDX expression. Which licences there are is not looked up.

    >>> is_expression("MIT"), is_expression("(GPL-2.0 WITH X) OR 0BSD"), is_expression('MIT" */'), is_expression("A B")
    (True, True, False, False)
    """
    terms = re.split(" AND | OR ", text)
    depth = 0
    for term in terms:
        depth += term.count("(") - term.count(")")
        if depth < 0 or _TERM.fullmatch(term) is None:
            return False
    return depth == 0 and len(text) <= _LONGEST


def with_model(model_licence: str) -> str:
    """The expression for files that hold numbers of the model too, which has a licence of its own; "" where it is not stated.

    >>> with_model("MIT")
    '(Apache-2.0 OR 0BSD) AND (MIT)'
    """
    return f"({LICENSE}) AND ({model_licence})" if model_licence else LICENSE


def stated(path: str, text: str, licence: str = LICENSE) -> str:
    """The text of a file with the licence as its first line, as a comment of the file's language; JSON has a key for it.

    A text that states its licence is left as it is. licence: an SPDX expression.

    >>> stated("include/kws.h", "int x;\\n")
    '/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */\\nint x;\\n'
    """
    suffix = PurePosixPath(path).suffix
    if suffix == ".json" or "SPDX-License-Identifier:" in text.partition("\n\n")[0]:
        return text
    tag = TAG.replace(LICENSE, licence)
    if suffix in _LIKE_C:
        return f"/* {tag} */\n{text}"
    return f"{'//' if suffix in _SLASHES else '#'} {tag}\n{text}"
