"""Names of the model as C identifiers and comment text. Everything that comes from a model file is hostile here."""

from __future__ import annotations

import re

_KEYWORDS = frozenset(
    [
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "alignas",
        "alignof",
        "bool",
        "constexpr",
        "false",
        "nullptr",
        "static_assert",
        "thread_local",
        "true",
        "typeof",
        "and",
        "and_eq",
        "asm",
        "bitand",
        "bitor",
        "catch",
        "class",
        "compl",
        "concept",
        "const_cast",
        "decltype",
        "delete",
        "dynamic_cast",
        "explicit",
        "export",
        "friend",
        "mutable",
        "namespace",
        "new",
        "noexcept",
        "not",
        "not_eq",
        "operator",
        "or",
        "or_eq",
        "private",
        "protected",
        "public",
        "reinterpret_cast",
        "requires",
        "static_cast",
        "template",
        "this",
        "throw",
        "try",
        "typeid",
        "typename",
        "using",
        "virtual",
        "wchar_t",
        "xor",
        "xor_eq",
        "main",
    ]
)
_HEADERS = frozenset(
    [
        "assert",
        "complex",
        "ctype",
        "errno",
        "fenv",
        "float",
        "inttypes",
        "iso646",
        "limits",
        "locale",
        "math",
        "setjmp",
        "signal",
        "stdalign",
        "stdarg",
        "stdatomic",
        "stdbool",
        "stddef",
        "stdint",
        "stdio",
        "stdlib",
        "stdnoreturn",
        "string",
        "tgmath",
        "threads",
        "time",
        "uchar",
        "wchar",
        "wctype",
        "emitc_runtime",
        "arduino",
        "emitc",
        "emitc_board",
        "unistd",
        "new",
        "queue",
    ]
)
_LONGEST = 48


def identifier(text: str, fallback: str) -> str:
    """`text` as a C identifier in lower case: ASCII letters, digits and single underscores, at most 48 characters.

    `fallback` serves where nothing is left; a keyword or a standard header's name gets the suffix `_model`.

    >>> identifier('*/ int8 "x"', 'model'), identifier('3d', 'model'), identifier('while', 'model')
    ('int8_x', 'model_3d', 'while_model')
    """
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:_LONGEST].strip("_")
    if not name:
        return fallback
    if name[0].isdigit():
        name = f"{fallback}_{name}"
    return f"{name}_model" if name in _KEYWORDS or name in _HEADERS else name


def is_model_name(text: str) -> bool:
    """Whether a user may call the model so: a C identifier that shadows nothing.

    >>> is_model_name('kws'), is_model_name('string'), is_model_name('a__b'), is_model_name('9')
    (True, False, False, False)
    """
    lower = text.lower()
    plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,62}", text) is not None
    return plain and "__" not in text and not text.endswith("_") and lower not in _KEYWORDS and lower not in _HEADERS


def unique(name: str, taken: set[str]) -> str:
    """`name`, with a number where it is taken; the result is added to `taken`."""
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    taken.add(candidate)
    return candidate


def comment_text(text: str, limit: int = 120) -> str:
    """`text` as harmless content of a C comment: printable ASCII, no comment marks, no trigraphs, no backslash.

    >>> comment_text('a*/ b//c ??/')
    'a_/ b/_c ?_/'
    """
    plain = "".join(c if " " <= c <= "~" and c != "\\" else "_" for c in text)
    plain = plain.replace("*/", "_/").replace("/*", "/_").replace("//", "/_").replace("??", "?_")
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."


def string_text(text: str, limit: int = 120) -> str:
    """`text` as harmless content of a C or JSON string: `comment_text` without quotes."""
    return comment_text(text, limit).replace('"', "'")
