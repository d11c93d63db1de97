"""The wheel, built offline and installed into an empty environment outside the checkout, compiles a model there."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from emitc.compiler import compile_model

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("build", reason="the extra emitc[dev] is not installed")
    pytest.importorskip("hatchling", reason="the extra emitc[dev] is not installed")
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.glob("emitc-*.whl")
    return path


def test_the_wheel_holds_runtime_boards_and_templates_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, inside in (
        ("c_runtime", "emitc/_data/c_runtime"), ("boards", "emitc/_data/boards"), ("emitc/templates", "emitc/templates"),
    ):  # fmt: skip
        tree = [p for p in (ROOT / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
        missing = [str(p) for p in tree if f"{inside}/{p.relative_to(ROOT / folder).as_posix()}" not in names]
        assert tree
        assert missing == []
    assert {"emitc/py.typed", "emitc/emit/manifest.schema.json"} <= names
    tops = {name.split("/")[0] for name in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"emitc"}


def test_an_installed_wheel_compiles_a_model(wheel: Path, tiny: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    # Only pip's command is needed, and this Python has it: the new environment stays empty.
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    libraries = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--no-deps",
        "--no-index",
        "--quiet",
        str(wheel),
    ]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    subprocess.run(install, check=True, env=env, cwd=tmp_path)
    # The dependencies come from here; a .pth file puts them after the wheel's own folder.
    (Path(libraries) / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    where = subprocess.run(
        [str(python), "-c", "import emitc; print(emitc.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=env,
    )
    assert where.stdout.strip() == str(Path(libraries) / "emitc" / "__init__.py")
    command = [str(home / "bin" / "emitc"), "compile", str(tiny / "spotter.tflite"), "-o", "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    expected = compile_model(tiny / "spotter.tflite").files
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == expected
    listed = subprocess.run(
        [str(home / "bin" / "emitc"), "boards", "--json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=env,
    )
    assert '"qemu_m4"' in listed.stdout


def test_a_build_that_is_told_its_commit_writes_it_down(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hatchling", reason="the extra emitc[dev] is not installed")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    hook = object.__new__(module.CommitHook)
    for commit, expected in (("", []), ("0123abc", ["0123abc\n"])):
        monkeypatch.setenv("EMITC_COMMIT", commit)
        data: dict[str, dict[str, str]] = {"force_include": {}}
        hook.initialize("standard", data)
        assert [Path(path).read_text(encoding="ascii") for path in data["force_include"]] == expected
        assert set(data["force_include"].values()) == ({"emitc/_data/commit"} if commit else set())
    monkeypatch.setenv("EMITC_COMMIT", "main; rm")
    with pytest.raises(ValueError, match="is no commit"):
        hook.initialize("standard", {"force_include": {}})


def test_packages_state_the_commit_of_the_wheel(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "EMITC_COMMIT" not in compile_model(tiny / "spotter.tflite").files["spotter.h"].decode()
    monkeypatch.setattr("emitc.compiler.commit", lambda: "0123abc")
    made = compile_model(tiny / "spotter.tflite")
    assert '#define SPOTTER_EMITC_COMMIT "0123abc"\n' in made.files["spotter.h"].decode()
    assert json.loads(made.files["manifest.json"])["emitc_commit"] == made.summary()["emitc_commit"] == "0123abc"
