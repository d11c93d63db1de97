"""How long the sentences of the documents may be, and words that say where something is instead of what it is.

A sentence has at most 25 words, and a colon or a semicolon ends it too. Words of place (behind, beside, apart) are not used for
order, addition or exclusion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
MOST_WORDS = 25
UNCLEAR = re.compile(r"\b(behind|besides?|apart|in the place of|nothing but|but for)\b", re.IGNORECASE)
"""Words of place that stand for order, addition or exclusion."""
CODE_UNCLEAR = re.compile(r"\b(behind|besides?|in the place of|nothing but|but for)\b", re.IGNORECASE)
"""The same in Python, where `apart` is a distance."""
CODE = (
    ("emitc", ".py"), ("emitc/templates", ".j2"), ("c_runtime", ".h"), ("bench", ".py"), ("examples", ".py"),
    ("boards", ".py"), ("boards", ".c"), ("boards", ".h"),
)  # fmt: skip
"""Folders, and the ends of the names of their files, which have comments, docstrings and messages."""
_END = re.compile(r"(?:(?<=[.!?:;])|(?<=[.!?:;]\*\*))\s+")


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs, items of lists and cells of tables, without code and generated marks."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    block: list[str] = []
    for line in (*map(str.strip, text.splitlines()), ""):
        item = re.match(r"(?:[-*]|\d+\.)\s", line)
        if not line or item or line.startswith(("#", "|")):
            yield " ".join(block)
            block = [line[item.end() :]] if item else []
            if line.startswith("|"):
                yield from line.strip("|").split("|")
        else:
            block.append(line)


def sentences(text: str) -> list[str]:
    """The sentences of a Markdown text; a colon and a semicolon end one too."""
    return [sentence for block in _blocks(text) for sentence in _END.split(block.strip()) if sentence]


def words(sentence: str) -> int:
    """Words of a sentence. Code between backticks counts as one, and the target of a link does not count."""
    plain = re.sub(r"`[^`]*`", "X", re.sub(r"\]\([^)]*\)", "]", sentence))
    return len(re.findall(r"[A-Za-z][\w'.-]*|\d+", plain))


def test_sentences_are_counted() -> None:
    text = "# No sentence\n\nOne `two three` [four](five six). Then: this\nis it.\n\n- an item\n\n| a cell | b |\n"
    assert sentences(text) == [
        "One `two three` [four](five six).", "Then:", "this is it.", "an item", "a cell", "b",
    ]  # fmt: skip
    assert words("One `two three` [four](five six), 7.") == 4


@pytest.mark.parametrize("document", DOCUMENTS)
def test_sentences_are_short(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert [each for each in sentences(text) if words(each) > MOST_WORDS] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_words_of_place_are_not_used_for_order(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    found = [each for each in sentences(text) if UNCLEAR.search(each)]
    assert found == []


@pytest.mark.parametrize(("folder", "suffix"), CODE)
def test_words_of_place_are_not_used_for_order_in_code(folder: str, suffix: str) -> None:
    """Neither in docstrings, comments and messages nor in names."""
    paths = sorted((ROOT / folder).rglob(f"*{suffix}"))
    assert paths
    unclear = UNCLEAR if folder in ("emitc/templates", "c_runtime") else CODE_UNCLEAR
    lines = ((path, line) for path in paths for line in path.read_text(encoding="utf-8").splitlines())
    assert [f"{path.name}: {line.strip()}" for path, line in lines if unclear.search(line)] == []
