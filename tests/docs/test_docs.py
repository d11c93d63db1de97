"""The documents against the tree: links, commands, outputs, excerpts, examples and generated tables are all checked.

Conventions in the documents, as comments of their own line:

    <!-- generated: WHAT -->   up to <!-- end -->: written by `pytest tests/docs --update-golden`, never by hand
    <!-- excerpt: FILE -->     the code block below is a part of the file; a line `...` leaves something out. FILE may also
                               be MODEL:NAME, the file NAME that `emitc compile examples/models/MODEL.tflite` writes

A `console` block shows commands (after `$ `) with what they print; `--update-golden` rewrites those that are not shortened.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

from emitc.cli import main
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.emit.manifest import SCHEMA
from emitc.errors import CLASSES, Code, NoteCode, WarningCode
from emitc.options import Options, check_options
from emitc.report import catalogue, inspection
from emitc.report.catalogue import types_of
from emitc.target import load_board
from emitc.verify.build import WARNINGS, run_compiler
from tests.support.figures import TABLES

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
MODELS = ROOT / "examples" / "models"
OUTPUT_COMMANDS = ("compile", "verify", "inspect", "plan", "flash", "boards", "targets", "ops")
"""Commands whose output is the same on every machine; `run` is compared word by word, without its numbers."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced code block: its language, its lines, the first one's number, and the excerpt comment above it."""

    page: Path
    line: int
    language: str
    lines: tuple[str, ...]
    excerpt: str

    @property
    def id(self) -> str:
        """For test names."""
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    language, start, excerpt, inside = "", 0, "", False
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            if inside:
                yield Block(page, start, language, tuple(lines[start - 1 : number - 1]), excerpt)
                excerpt = ""
            else:
                language, start = line[3:].strip(), number + 1
            inside = not inside
        elif not inside and line.startswith("<!-- excerpt: "):
            excerpt = line.removeprefix("<!-- excerpt: ").removesuffix(" -->").strip()
    assert not inside, f"{page.name} has an open code block"


BLOCKS = [block for page in PAGES for block in blocks(page)]


@dataclass(frozen=True, slots=True)
class Session:
    """A command of a console block with the output that the page shows."""

    block: Block
    command: str
    output: tuple[str, ...]

    @property
    def name(self) -> str:
        """The subcommand."""
        return self.command.split()[1]


def sessions(block: Block) -> Iterator[Session]:
    """The commands of a console block."""
    starts = [i for i, line in enumerate(block.lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(block.lines)], strict=True):
        yield Session(block, block.lines[start][2:], block.lines[start + 1 : end])


SESSIONS = [session for block in BLOCKS if block.language == "console" for session in sessions(block)]


def commands() -> Iterator[tuple[Block, str]]:
    """Every `emitc` command of every shell block, continuation lines joined."""
    for block in BLOCKS:
        if block.language not in ("sh", "console"):
            continue
        for line in "\n".join(block.lines).replace("\\\n", " ").splitlines():
            text = line.removeprefix("$ ").strip()
            if text.startswith("emitc "):
                yield block, text.partition("  #")[0]


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(file), f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_paths_and_tests_that_are_named_exist(page: Path) -> None:
    named = re.findall(r"`((?:emitc|c_runtime|boards|tests|examples|docs|bench)/[\w./-]*)(?:::(\w+))?`", prose(page))
    for path, function in named:
        assert (ROOT / path).exists(), f"{path} is not there"
        assert not function or f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), (
            f"{path} has no {function}"
        )


@pytest.mark.parametrize(("block", "text"), list(commands()), ids=lambda v: v.id if isinstance(v, Block) else "")
def test_commands_are_accepted(block: Block, text: str) -> None:
    """Options exist, required ones are given, values are known; nothing is run."""
    words = shlex.split(text)[1:]
    if words[0].startswith("-"):
        return
    command = main.cli.commands[words[0]]
    try:
        values = command.make_context(words[0], words[1:]).params
    except click.ClickException as error:
        pytest.fail(f"{text}: {error.format_message()}")
    except click.exceptions.Exit:
        return
    model = values.get("model")
    assert model is None or not str(model).startswith("examples/") or (ROOT / model).is_file(), f"{model} is not there"
    if values.get("board"):
        load_board(values["board"])
    if "kernels" in values:
        names = {field.name for field in fields(Options)} - {"shapes", "disabled"}
        given = {name: values[name] for name in names & set(values) if values[name] is not None}
        check_options(Options(**given, disabled=frozenset(values["disabled"])))


def printed(session: Session, folder: Path) -> list[str]:
    """What the command prints, both streams, run in a folder that shows the examples."""
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "README.md").symlink_to(ROOT / "README.md")
    words = [sys.executable, "-m", "emitc", *shlex.split(session.command)[1:]]
    done = subprocess.run(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=300,
    )  # fmt: skip
    return [line.rstrip() for line in done.stdout.splitlines()]


def rewrite(session: Session, lines: list[str]) -> None:
    """Puts `lines` instead of the shown output; numbers of lines above it do not move while one page is rewritten."""
    text = session.block.page.read_text(encoding="utf-8")
    old = "\n".join(("$ " + session.command, *session.output)) + "\n"
    assert text.count(old) == 1, f"{session.command} stands twice with the same output"
    session.block.page.write_text(
        text.replace(old, "\n".join(("$ " + session.command, *lines)) + "\n"), encoding="utf-8"
    )


def comparable(lines: list[str]) -> list[str]:
    """Without what differs from run to run, and without empty lines at the ends."""
    return re.sub(r"\d+\.\d+ s\b", "S s", "\n".join(lines)).strip("\n").splitlines()


def holds(found: list[str], shown: list[str]) -> bool:
    """Whether the shown lines are the found ones; `...` stands for any number of lines."""
    rest = found
    open_end = False
    for line in shown:
        if line.strip() == "...":
            open_end = True
            continue
        if not open_end:
            if not rest or rest[0] != line:
                return False
            rest = rest[1:]
            continue
        if line not in rest:
            return False
        rest = rest[rest.index(line) + 1 :]
        open_end = False
    return open_end or not rest


@pytest.mark.parametrize(
    "session",
    [s for s in SESSIONS if s.command.startswith("emitc ") and s.name in OUTPUT_COMMANDS],
    ids=lambda s: s.command[:60],
)
def test_shown_output_is_what_the_command_prints(
    session: Session, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if session.name in ("verify", "flash"):
        pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    found = printed(session, tmp_path)
    if request.config.getoption("--update-golden") and not any(line.strip() == "..." for line in session.output):
        rewrite(session, found)
        return
    assert holds(comparable(found), comparable(list(session.output))), (
        "\n".join(found) + "\n\npytest tests/docs --update-golden"
    )


@pytest.mark.board
@pytest.mark.parametrize(
    "session", [s for s in SESSIONS if s.command.startswith("emitc run")], ids=lambda s: s.command[:60]
)
def test_shown_run_has_the_words_that_the_command_prints(
    session: Session, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Numbers are left out: they depend on the compiler's version."""
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    pytest.importorskip("platformio", reason="the extra emitc[boards] is not installed")
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    found = printed(session, tmp_path)
    if request.config.getoption("--update-golden"):
        rewrite(session, found)
        return
    words = [re.findall(r"[A-Za-z_]+", line) for line in found]
    assert words == [re.findall(r"[A-Za-z_]+", line) for line in session.output], "\n".join(found)


@cache
def shipped(name: str) -> Compiled:
    """A shipped model, compiled, by its name and perhaps the smallest budget."""
    name, smallest, _ = name.partition(" --ram-budget min")
    return compile_model(MODELS / f"{name}.tflite", Options(ram_budget="min" if smallest else None))


def source_of(excerpt: str) -> str:
    """The text that an excerpt is taken from."""
    model, colon, file = excerpt.partition(":")
    return shipped(model).files[file].decode("ascii") if colon else (ROOT / excerpt).read_text(encoding="utf-8")


def squeezed(text: str) -> str:
    """Without blanks and without trailing commas, so that a formatter's line breaks do not matter."""
    return re.sub(r",(?=[)\]}])", "", re.sub(r"\s+", "", text))


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.excerpt], ids=lambda b: b.id)
def test_excerpts_are_in_their_file(block: Block) -> None:
    rest = squeezed(source_of(block.excerpt))
    for part in re.split(r"^\s*\.\.\.\s*$", "\n".join(block.lines), flags=re.M):
        piece = squeezed(part)
        assert piece in rest, f"not in {block.excerpt}, or not in this order:\n{part}"
        rest = rest[rest.index(piece) + len(piece) :]


def markdown(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table."""
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def option_table(name: str) -> str:
    """The options of a command as click knows them."""
    rows = []
    command = main.cli.commands[name]
    for parameter in command.get_params(click.Context(command)):
        if isinstance(parameter, click.Option) and "--help" not in parameter.opts:
            flags = ", ".join(f"`{flag}`" for flag in sorted(parameter.opts, key=len))
            kind = parameter.type
            value = "" if parameter.is_flag else (parameter.metavar or kind.name).upper()
            if isinstance(kind, click.IntRange):
                value = f"{kind.min} to {kind.max}" if kind.max is not None else f"{kind.min} or more"
            default = parameter.default
            optional = f"`{default}`" if isinstance(default, str | int) and default not in ("", False) else ""
            shown = "required" if parameter.required else optional
            rows.append((flags, value.lower(), shown, parameter.help or ""))
    return markdown(("option", "value", "default", "what"), rows)


def operator_table(source_format: str) -> str:
    """The operators of a format as `emitc ops` lists them."""
    content = inspection.operator_list()
    rows = [r for r in content["operators"] if r["format"] == source_format]
    columns = [c for c in content["columns"] if any(not set(c["variants"]).isdisjoint(r["variants"]) for r in rows)]
    return markdown(
        ("operator", *(c["name"] for c in columns), "what"),
        [(f"`{r['op']}`", *(types_of(r, c["variants"]) for c in columns), r["summary"]) for r in rows],
    )


def board_table() -> str:
    """The boards as `emitc boards` lists them."""
    rows = catalogue.board_list()["boards"]
    return markdown(
        ("board", "kind", "target", "flash, bytes", "RAM, bytes", "what"),
        [
            (f"`{b['name']}`", b["kind"], f"`{b['target']}`", str(b["flash_bytes"]), str(b["ram_bytes"]), b["title"])
            for b in rows
        ],
    )


def manifest_table() -> str:
    """The keys of manifest.json as its JSON schema describes them."""

    def rows(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, ...]]:
        for key, inner in schema.get("properties", {}).items():
            yield f"`{path}{key}`", inner["description"]
            item = inner.get("items", {})
            yield from rows(
                item if "properties" in item else inner, f"{path}{key}{'[]' if 'properties' in item else ''}."
            )

    return markdown(("key", "what"), list(rows(json.loads(SCHEMA.read_text(encoding="utf-8")))))


def error_table() -> str:
    """The codes of errors."""
    rows = [(f"`{code.number}`", CLASSES[code.number[:3]], code.meaning) for code in Code]
    return markdown(("code", "class", "meaning"), rows)


def warning_table(codes: type[WarningCode] | type[NoteCode] = WarningCode) -> str:
    """The codes of warnings, or of notes."""
    rows = [(f"`{code.number}`", CLASSES["E" + code.number[1:3]], code.meaning) for code in codes]
    return markdown(("code", "class", "meaning"), rows)


def generated(what: str) -> str:
    """The content of a generated part."""
    kind, _, name = what.partition(" ")
    tables = {
        "options": lambda: option_table(name),
        "operators": lambda: operator_table(name),
        "boards": board_table,
        "errors": error_table,
        "warnings": warning_table,
        "notes": lambda: warning_table(NoteCode),
        "manifest": manifest_table,
        "figures": lambda: markdown(*TABLES[name]()),
    }
    return tables[kind]()


GENERATED = [
    (page, what)
    for page in PAGES
    for what in re.findall(r"^<!-- generated: (.+) -->$", page.read_text(encoding="utf-8"), re.M)
]


@pytest.mark.parametrize(("page", "what"), GENERATED, ids=lambda v: v.name if isinstance(v, Path) else v)
def test_generated_parts_are_current(page: Path, what: str, request: pytest.FixtureRequest) -> None:
    text = page.read_text(encoding="utf-8")
    pattern = re.compile(rf"(<!-- generated: {re.escape(what)} -->\n)(?:(?!<!--).)*(<!-- end -->\n)", re.S)
    fresh, count = pattern.subn(lambda m: m[1] + generated(what) + "\n" + m[2], text)
    assert count == 1
    if request.config.getoption("--update-golden"):
        page.write_text(fresh, encoding="utf-8")
    else:
        assert text == fresh, "pytest tests/docs --update-golden"


PAGE_OF = {
    "arena": "arena.md", "input_rows": "arena.md", "staging": "arena.md", "headline": "README.md", "vela_files": "backends.md",
    "calibration": "boards.md", "profile": "task-profile.md", "steps": "task-steps.md",
    "accuracy": "task-float-model.md", "remedies": "task-float-model.md",
    "stack": "generated-api.md",
    **{f"random_{name}": "random-graphs.md" for name in ("verdicts", "modes", "coverage", "disputes")},
}  # fmt: skip


def test_every_command_the_operators_and_the_boards_are_generated() -> None:
    here = {(page.name, what) for page, what in GENERATED}
    assert here == {
        ("operators.md", "operators tflite"),
        ("onnx.md", "operators onnx"),
        ("boards.md", "boards"),
        ("manifest.md", "manifest"),
        ("errors.md", "errors"),
        ("errors.md", "warnings"),
        ("errors.md", "notes"),
        *(("cli.md", f"options {name}") for name in main.cli.commands),
        *((PAGE_OF.get(name, "benchmarks.md"), f"figures {name}") for name in TABLES),
    }


def test_shortened_output_is_compared() -> None:
    """The comparison of shortened output itself."""
    found = ["a", "b", "c", "d"]
    assert holds(found, ["a", "...", "c", "d"])
    assert holds(found, ["a", "..."])
    assert holds(found, found)
    assert not holds(found, ["a", "...", "c"])
    assert not holds(found, ["a", "c", "d"])
    assert not holds(found, ["a", "b", "c"])
    assert not holds(found, ["...", "c", "b", "d"])


EXAMPLES = [b for b in BLOCKS if b.language == "c" and b.lines[0].startswith("#include")]


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda b: b.id)
def test_examples_in_c_compile(block: Block, tmp_path: Path) -> None:
    for model, name in (("kws_ref_int8", "kws_ref_int8"), ("kws_ref_int8", "kws"), ("digits_int8", "digits_int8")):
        compile_model(MODELS / f"{model}.tflite", name=name, profile=True, steps=True).write(tmp_path / name)
    (tmp_path / "example.c").write_text("\n".join(block.lines) + "\n", encoding="ascii")
    folders = [f"-I{tmp_path / name}" for name in ("kws_ref_int8", "kws", "digits_int8")]
    run_compiler([*WARNINGS, *folders, "-c", str(tmp_path / "example.c"), "-o", str(tmp_path / "example.o")])
