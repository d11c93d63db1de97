"""The same model, options and version give the same bytes: in every process, hash seed, directory and file time."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from emitc.compiler import compile_model
from emitc.emit.package import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import hashlib, sys
import emitc
for package in sys.argv[2:]:
    files = emitc.compile_model(sys.argv[1], package=package).files
    for name, data in sorted(files.items()):
        print(package, name, hashlib.sha256(data).hexdigest())
"""


def listing(model: Path) -> list[str]:
    """Every file of every package with its hash, as this process makes them."""
    return [
        f"{package} {name} {hashlib.sha256(data).hexdigest()}"
        for package in PACKAGES
        for name, data in sorted(compile_model(model, package=package).files.items())
    ]


@pytest.mark.parametrize("name", ["spotter", "branches"])
def test_packages_are_equal_across_processes_hash_seeds_and_directories(name: str, tiny: Path, tmp_path: Path) -> None:
    expected = listing(tiny / f"{name}.tflite")
    for seed, zone in (("1", "Asia/Kathmandu"), ("4242", "UTC")):
        folder = tmp_path / f"a directory with the number {seed}"
        folder.mkdir()
        model = folder / f"{name}.tflite"
        model.write_bytes((tiny / f"{name}.tflite").read_bytes())
        os.utime(model, (0, 0))
        env = os.environ | {
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": str(ROOT),
            "TZ": zone,
            "LC_ALL": "C",
            "HOME": str(folder),
        }
        command = [sys.executable, "-c", SCRIPT, str(model), *PACKAGES]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=env)
        assert done.stdout.splitlines() == expected


def test_no_path_date_or_host_is_in_a_package(tiny: Path) -> None:
    for name, data in compile_model(tiny / "spotter.tflite", package="cmake").files.items():
        text = data.decode("ascii")
        for word in (str(tiny), str(ROOT), str(Path.home()), os.uname().nodename, "20260", "20270"):
            assert word not in text, f"{word} in {name}"


def test_the_options_order_does_not_matter(tiny: Path) -> None:
    model = tiny / "branches.tflite"
    one = compile_model(model, disabled=frozenset(["drop-dead", "fold-constants", "alias-views"]))
    two = compile_model(model, disabled=frozenset(["alias-views", "fold-constants", "drop-dead"]))
    assert one.files == two.files


def test_compiling_twice_in_one_process_leaves_no_trace(tiny: Path) -> None:
    first = compile_model(tiny / "spotter.tflite").files
    compile_model(tiny / "branches.tflite")
    assert compile_model(tiny / "spotter.tflite").files == first
