"""Writing a package: it is there whole, or what was there before is; nothing is left lying about."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from emitc.emit.package import write_package
from emitc.errors import EmitcError

OURS = b'{"schema_version": 1, "emitc_version": "0", "files": {"m.c": "", "src/n.c": ""}}'
OLD = {"manifest.json": OURS, "m.c": b"old\n"}
NEW = {"manifest.json": OURS + b"\n", "m.c": b"new\n", "src/n.c": b"x" * 100_000}


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """An earlier package."""
    write_package(OLD, tmp_path / "out")
    return tmp_path / "out"


def only(target: Path) -> None:
    """Asserts that nothing lies next to the package."""
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_a_package_replaces_an_earlier_one(target: Path) -> None:
    assert write_package(NEW, target) == ("m.c", "manifest.json", "src/n.c")
    assert content(target) == NEW
    only(target)


class _Full:
    """A call that fails at the n-th time as a full disk does."""

    def __init__(self, function: object, failing: int, error: BaseException) -> None:
        self.function, self.left, self.error = function, failing, error

    def __call__(self, *arguments: object, **options: object) -> object:
        self.left -= 1
        if self.left == 0:
            raise self.error
        return self.function(*arguments, **options)  # type: ignore[operator]


@pytest.mark.parametrize("failing", [1, 2])
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "interrupt"]
)
def test_a_failing_rename_keeps_the_old_package(
    failing: int, error: BaseException, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "replace", _Full(os.replace, failing, error))
    with pytest.raises((EmitcError, KeyboardInterrupt)):
        write_package(NEW, target)
    assert content(target) == OLD
    only(target)


@pytest.mark.parametrize("failing", [1, 2, 3])
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "interrupt"]
)
def test_a_failing_write_keeps_the_old_package(
    failing: int, error: BaseException, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = _Full(Path.write_bytes, failing, error)
    monkeypatch.setattr(Path, "write_bytes", lambda self, data: full(self, data))
    with pytest.raises((EmitcError, KeyboardInterrupt)):
        write_package(NEW, target)
    assert content(target) == OLD
    only(target)


def test_a_file_size_limit_is_a_refusal(target: Path) -> None:
    code = (
        "import resource, sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "from test_hostile_output import NEW; from emitc.emit.package import write_package; from emitc.errors import EmitcError\n"
        "try: write_package(NEW, Path(sys.argv[2]))\n"
        "except EmitcError as error: print(error); sys.exit(error.exit_code)\n"
    )
    here = Path(__file__).resolve().parent
    done = subprocess.run(
        [sys.executable, "-c", code, str(here), str(target)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(here.parents[1])},
    )
    assert done.returncode == 2, done.stderr
    assert "the package cannot be written" in done.stdout
    assert content(target) == OLD
    only(target)


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "full")
    before = content(tmp_path)
    for place in ("file", "file/below", "full", "link", "full/../file", "x" * 300, f"{'y' * 300}/out", "a\0b"):
        with pytest.raises(EmitcError) as refused:
            write_package(NEW, tmp_path / place)
        assert refused.value.exit_code == 2
        assert refused.value.where.option == "-o"
    assert content(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full", "link"]


@pytest.mark.parametrize(
    "manifest",
    [b"{}", b"[]", b"5", b"\xff\xfe", b"[" * 200_000, b'{"emitc_version": "0", "schema_version": 1, "files": 7}', b""],
    ids=["empty_object", "list", "number", "not_utf8", "deep", "no_files", "empty"],
)
def test_a_directory_with_another_manifest_is_kept(manifest: bytes, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(manifest)
    (tmp_path / "notes.txt").write_text("mine")
    before = content(tmp_path)
    with pytest.raises(EmitcError, match="has content that emitc did not write"):
        write_package(NEW, tmp_path)
    assert content(tmp_path) == before


def test_the_longest_name_of_a_directory(tmp_path: Path) -> None:
    write_package(NEW, tmp_path / ("x" * 250))
    assert content(tmp_path / ("x" * 250)) == NEW


def test_a_read_only_parent_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rights of a directory do not bind root, so that the call is made to fail as they would make it."""
    monkeypatch.setattr("tempfile.mkdtemp", _Full(None, 1, PermissionError(13, "Permission denied")))
    with pytest.raises(EmitcError, match="Permission denied"):
        write_package(NEW, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_unreadable_target_is_a_refusal(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "iterdir", _Full(None, 1, PermissionError(13, "Permission denied")))
    with pytest.raises(EmitcError, match="Permission denied"):
        write_package(NEW, target)


def test_a_working_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getcwd", _Full(None, 1, FileNotFoundError(2, "No such file or directory")))
    with pytest.raises(EmitcError, match="No such file"):
        write_package(NEW, Path("out"))


def test_the_current_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(EmitcError, match="is the working directory"):
        write_package(NEW, Path("."))
    assert content(tmp_path / "here") == {}
    monkeypatch.chdir(tmp_path)
    only(tmp_path / "here")
