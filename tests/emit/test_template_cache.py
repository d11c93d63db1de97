"""Bytecode of templates is kept, renewed when anything that it depends on changes, and never needed."""

import sys
from pathlib import Path

import jinja2
import pytest

from emitc.emit.template_cache import TemplateCache


@pytest.fixture(autouse=True)
def writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python writes bytecode next to the sources, whatever the variables of the tests' own process say."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)


def printed(folder: Path, *, trim: bool = False) -> tuple[str, bool]:
    """What the template t.c.j2 of a folder prints, and whether Jinja had to compile it."""
    env = jinja2.Environment(loader=jinja2.FileSystemLoader(folder), trim_blocks=trim)
    env.bytecode_cache = TemplateCache(env)
    compiled = []
    compile_source = env.compile
    env.compile = lambda *args, **kwargs: compiled.append(args) or compile_source(*args, **kwargs)  # type: ignore
    return env.get_template("t.c.j2").render(), bool(compiled)


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "t.c.j2"
    path.write_text("{% if true %}\nint a;{% endif %}")
    return path


def stored(template: Path) -> Path:
    (path,) = (template.parent / "__pycache__").iterdir()
    return path


def test_a_template_is_compiled_once(template: Path) -> None:
    assert printed(template.parent) == ("\nint a;", True)
    assert printed(template.parent) == ("\nint a;", False)
    assert stored(template).name == f"t.c.{sys.implementation.cache_tag}.pyc"


def test_another_text_and_other_options_are_compiled_again(template: Path) -> None:
    printed(template.parent)
    assert printed(template.parent, trim=True) == ("int a;", True)
    template.write_text("int b;")
    assert printed(template.parent) == ("int b;", True)


def test_another_jinja_is_not_trusted(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed(template.parent)
    monkeypatch.setattr(jinja2, "__version__", "9.9")
    assert printed(template.parent) == ("\nint a;", True)


@pytest.mark.parametrize("kept", [0, 10, 64, 70])
def test_damaged_bytecode_is_compiled_again(template: Path, kept: int) -> None:
    printed(template.parent)
    path = stored(template)
    whole = path.read_bytes()
    for damaged in (whole[:kept], whole[:kept] + bytes([whole[kept] ^ 1]) + whole[kept + 1 :]):
        path.write_bytes(damaged)
        assert printed(template.parent) == ("\nint a;", True)
        assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_made_costs_nothing_but_time(template: Path) -> None:
    (template.parent / "__pycache__").write_text("a file")
    assert printed(template.parent) == ("\nint a;", True)
    assert printed(template.parent) == ("\nint a;", True)


def test_the_switches_of_python_hold(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    printed(template.parent)
    assert not (template.parent / "__pycache__").exists()
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "elsewhere"))
    printed(template.parent)
    assert not (template.parent / "__pycache__").exists()
    assert printed(template.parent) == ("\nint a;", False)
