"""clang-tidy (with the repository's .clang-tidy) and cppcheck over c_runtime and generated C."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.emit.package_set import Packages

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("spotter", "branches", "edges", "pulled", "filled")
CPPCHECK_SUPPRESSED = {
    "missingIncludeSystem": "cppcheck brings no system headers",
    "shiftNegativeLHS": "the _Static_assert on arithmetic shifts",
    "shiftTooManyBitsSigned": "x >> 31 is the sign, as that _Static_assert promises",
}


def clang_tidy() -> str:
    """The program, in the folder of this Python or on PATH."""
    found = shutil.which("clang-tidy", path=str(Path(sys.executable).parent)) or shutil.which("clang-tidy")
    if found is None:
        pytest.skip("clang-tidy is not installed")
    return found


def tidied(files: list[str], includes: list[str]) -> subprocess.CompletedProcess[str]:
    command = [
        clang_tidy(),
        f"--config-file={ROOT / '.clang-tidy'}",
        "--quiet",
        *files,
        "--",
        "-std=c11",
        "-DEMITC_NO_ASM",
        *includes,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_clang_tidy_is_silent(tiny_packages: Packages) -> None:
    folders = [tiny_packages.folders[name] for name in NAMES]
    files = [str(folders[0] / "emitc_runtime.c"), *(str(f / f"{n}.c") for f, n in zip(folders, NAMES, strict=True))]
    done = tidied(files, [f"-I{folder}" for folder in folders])
    assert done.returncode == 0, done.stdout[:4000]
    assert "error:" not in done.stdout
    assert "warning:" not in done.stdout


def test_clang_tidy_sees_a_fault(tmp_path: Path) -> None:
    source = tmp_path / "fault.c"
    source.write_text(
        "int f(int x);\nint f(int x)\n{\n    if (x)\n        return 1;\n    return 0;\n}\n", encoding="ascii"
    )
    done = tidied([str(source)], [])
    assert done.returncode != 0
    assert "readability-" in done.stdout


def test_each_disabled_check_has_a_reason() -> None:
    lines = (ROOT / ".clang-tidy").read_text(encoding="ascii").splitlines()
    for above, line in pairwise(lines):
        if re.match(r"  - -[a-z]", line):
            assert above.startswith(("  # ", "  - -")), line


@pytest.mark.skipif(shutil.which("cppcheck") is None, reason="cppcheck is not installed")
def test_cppcheck_is_silent(tiny_packages: Packages) -> None:
    command = ["cppcheck", "--std=c11", "--enable=warning,style,performance,portability", "--inconclusive", "--quiet"]
    command += ["--error-exitcode=1", *(f"--suppress={name}" for name in CPPCHECK_SUPPRESSED)]
    done = subprocess.run(
        [*command, *tiny_packages.includes, *tiny_packages.sources], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:4000]
