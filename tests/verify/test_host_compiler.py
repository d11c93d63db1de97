"""The host's C compiler as the user names it in CC: read as a shell does, and never blamed on emitc where it is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError
from emitc.verify.build import HostModel, compiler_command, run_compiler
from emitc.verify.golden_run import interface_of
from emitc.verify.verification import verify


def script(path: Path, text: str) -> Path:
    """A program of Python's."""
    path.write_text(f"#!{sys.executable}\nimport sys\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("cc", "command"),
    [
        ("", ["cc"]),
        ("  ", ["cc"]),
        ("gcc -m64", ["gcc", "-m64"]),
        ('"gcc" "-DX=a b"', ["gcc", "-DX=a b"]),
        ("gcc\\ ", None),
        ("nothing-of-this-name -O2", None),
        ("'gcc", None),
    ],
)
def test_cc_is_read_as_a_shell_reads_it(cc: str, command: list[str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", cc)
    if command is not None:
        assert compiler_command() == command
        return
    with pytest.raises(EmitcError) as caught:
        compiler_command()
    assert caught.value.exit_code == 2 and caught.value.what == f"CC={cc.strip()} names no C compiler"


def test_a_compiler_in_a_folder_with_a_blank(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my tools").mkdir()
    wrapped = script(tmp_path / "my tools" / "cc", "import os; os.execvp('cc', ['cc', *sys.argv[1:]])")
    monkeypatch.setenv("CC", f"'{wrapped}' -O1")
    assert verify(compile_model(tiny / "spotter.tflite"), reference="numpy", samples=1).match


@pytest.mark.parametrize("cc", ["sh -c id", "true"])
def test_a_program_that_compiles_nothing_is_named(cc: str, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", cc)
    with pytest.raises(EmitcError, match="it ended without an error and wrote no file") as caught:
        verify(compile_model(tiny / "spotter.tflite"), reference="numpy", samples=1)
    assert caught.value.what == f"CC={cc} is no C compiler"


def test_a_full_disk_is_no_bug_of_emitc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "fatal error: error writing to /tmp/ccX.s: No space left on device"
    monkeypatch.setenv(
        "CC", str(script(tmp_path / "cc", f"sys.exit('In file x.c:\\n' {words!r} '\\ncompilation terminated.')"))
    )
    with pytest.raises(EmitcError, match="there is no room for the host build") as caught:
        run_compiler(["x.c", "-o", str(tmp_path / "x")])
    assert (caught.value.exit_code, caught.value.why) == (2, words)
    assert "TMPDIR" in caught.value.hint


def test_a_silent_failure_has_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", str(script(tmp_path / "cc", "sys.exit(7)")))
    with pytest.raises(CannotCompile, match="it ended with exit code 7 and printed nothing"):
        run_compiler(["x.c", "-o", str(tmp_path / "x")])


def test_what_this_machine_cannot_load_is_named(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "other.so").write_bytes(b"of another machine")
    with pytest.raises(EmitcError, match="this machine cannot load what the host compiler built"):
        HostModel(tmp_path / "other.so", interface_of(compile_model(tiny / "spotter.tflite")))
