"""No line of a package is wider than 120 columns, and breaking a line changes no token of the C."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.emit import render
from emitc.emit.package import runtime_files
from emitc.emit.wrap import WIDTH, wrapped

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
MESSAGE = re.compile(r'#(?:error|warning|pragma) |#include |#define \w+ "|.*_Static_assert\(|\s*"| \* regenerate: ')
"""Lines whose text is in quotes, and the command that makes the file: they stay in one piece."""


def wide(text: str) -> list[str]:
    """The lines that are too wide."""
    return [line for line in text.splitlines() if len(line) > WIDTH and not MESSAGE.match(line)]


def sources(compiled: Compiled) -> Iterator[tuple[str, str]]:
    """The C files of a package with their text."""
    return ((n, data.decode("ascii")) for n, data in compiled.files.items() if n.endswith((".c", ".h")))


def tokens(text: str) -> str:
    """The C without comments, blanks and continued lines. A line ends where a directive ends."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL).replace("\\\n", " ")
    text = re.sub(r"^( *#.*)$", "@\\1@", text, flags=re.MULTILINE)
    return re.sub(r"\s+", "", text)


def words(text: str) -> list[str]:
    """The words of all comments, in any order."""
    comments = " ".join(re.findall(r"/\*.*?\*/", text, flags=re.DOTALL))
    return sorted(re.sub(r"[*/]+", " ", comments).split())


def test_no_line_is_wider(packages: object, every_family: list[Compiled], tiny_compiled: list[Compiled]) -> None:
    found = {name: wide(text) for each in (*every_family, *tiny_compiled) for name, text in sources(each)}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_no_line_of_the_runtime_is_wider() -> None:
    for name, path in runtime_files().items():
        assert wide(path.read_text(encoding="ascii")) == [], name


@pytest.mark.parametrize("target", ["generic32", "cortex-m4f", "cortex-m55"])
@pytest.mark.parametrize("model", ["person_detect_int8.tflite", "digits_qdq.onnx"])
def test_tokens_and_words_stay(model: str, target: str) -> None:
    made = compile_model(MODELS / model, target=target, name="model_" + "0123456789" * 5).program
    with patch.object(render, "wrapped", lambda text: text):
        before = render.render_sources(made)
    after = render.render_sources(made)
    assert any(wide(text) for text in before.values())
    for name, text in before.items():
        assert tokens(after[name]) == tokens(text)
        assert words(after[name]) == words(text)


LONG = "one " * 30
CASES = {
    "comment": (f"    /* {LONG.strip()} */", f"    /* {'one ' * 27}one\n     * one one */"),
    "comment that goes on": (f"/* {LONG}\n * two */", f"/* {'one ' * 28}one\n * one two */"),
    "item of a list": (
        f"/* Options:\n *   NAME   {'one ' * 29}\n *   OTHER  two */",
        f"/* Options:\n *   NAME   {'one ' * 26}one\n *          one one\n *   OTHER  two */",
    ),
    "arguments": (f"    call({'value, ' * 17}last);", f"    call({'value, ' * 15}value,\n        value, last);"),
    "a call within the arguments": (
        f"    call({'value, ' * 14}inner(one, two));",
        f"    call({'value, ' * 14}\n        inner(one, two));".replace(", \n", ",\n"),
    ),
    "a sum within the arguments": (
        f"    call({'value, ' * 15}one + two);",
        f"    call({'value, ' * 15}\n        one + two);".replace(", \n", ",\n"),
    ),
    "arguments that go on": (
        f"call(\n    {'value, ' * 16}last,\n    next, end);",
        f"call(\n    {'value, ' * 15}value,\n    last, next, end);",
    ),
    "members that go on": (
        f"    {'value, ' * 16}last,\n    .next = 1,",
        f"    {'value, ' * 15}value,\n        last,\n    .next = 1,",
    ),
    "text in quotes": (f'    "{LONG}"', f'    "{LONG}"'),
    "comment after code": (
        f"    int x; /* {LONG.strip()} */",
        f"    /* {'one ' * 27}one\n     * one one */\n    int x;",
    ),
    "condition": (
        "#if " + " && ".join(["defined(A_LONG_NAME)"] * 6),
        "#if " + " && ".join(["defined(A_LONG_NAME)"] * 4) + " \\\n    && " + " && ".join(["defined(A_LONG_NAME)"] * 2),
    ),
    "line of a macro": (
        f"    call({'value, ' * 17}last); \\",
        f"    call({'value, ' * 14}value, \\\n        value, value, last); \\",
    ),
    "last line of a macro": (
        f"#define CALL \\\n    call({'value, ' * 17}last)",
        f"#define CALL \\\n    call({'value, ' * 14}value, \\\n        value, value, last)",
    ),
    "parameters of their own line": (
        f"    call(\n        {'value, ' * 17}last);",
        f"    call(\n        {'value, ' * 15}value,\n        value, last);",
    ),
    "end of a comment": (f"/* {'one ' * 29}*/", f"/* {'one ' * 28}\n * one */".replace(" \n", "\n")),
    "message": (f'#error "{LONG}"', f'#error "{LONG}"'),
}


@pytest.mark.parametrize("case", CASES)
def test_lines_are_broken_so(case: str) -> None:
    before, after = CASES[case]
    assert wrapped(f"int a;\n{before}\nint b;") == f"int a;\n{after}\nint b;"
