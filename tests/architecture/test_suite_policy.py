"""The rules of the test suite itself: a skip that nobody allowed fails a strict run, and a long sweep runs by a fixed sample."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.scheduling import scope_of
from tests.support.skip_policy import ALLOWED_SKIPS, read_allowed, unexpected
from tests.support.sweep_sampling import sampled, share

TESTS = Path(__file__).resolve().parents[1]
SUITE = """\
import pytest

def test_runs():
    pass

@pytest.mark.skipif(True, reason="the tool is not installed")
def test_skips():
    pass

@pytest.mark.xfail(strict=True)
def test_known_to_fail():
    assert False

@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("case", range(200))
def test_sweep(case):
    pass
"""


def run(folder: Path, *options: str, allowed: str) -> subprocess.CompletedProcess[str]:
    """pytest over SUITE and a module that skips as a whole, with this suite's own conftest.py."""
    tests = folder / "tests"
    if not tests.exists():
        (tests / "support").mkdir(parents=True)
        for name in (
            "__init__.py",
            "conftest.py",
            "support/__init__.py",
            "support/scheduling.py",
            "support/skip_policy.py",
            "support/sweep_sampling.py",
        ):
            shutil.copyfile(TESTS / name, tests / name)
        (tests / "test_suite.py").write_text(SUITE, encoding="utf-8")
        whole = "import pytest\npytest.skip('no ../shared here', allow_module_level=True)\n"
        (tests / "test_whole.py").write_text(whole, encoding="utf-8")
        (folder / "pytest.ini").write_text("[pytest]\nmarkers = sweep\n", encoding="utf-8")
    (tests / "allowed_skips.txt").write_text(allowed, encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "EMITC"))}
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options, "tests"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def swept(printed: str) -> list[str]:
    """The cases of the sweep that ran."""
    return sorted(set(re.findall(r"test_sweep\[\d+\]", printed)))


BOTH = "always | the tool is not | here\nwithout ../shared | \\.\\./shared | here\n"


def test_a_strict_run_fails_for_a_skip_that_is_not_allowed(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    assert run(checkout, allowed="").returncode == 0
    assert run(checkout, "--strict-skips", allowed=BOTH).returncode == 0

    (tmp_path / "shared").mkdir()
    refused = run(checkout, "--strict-skips", allowed=BOTH)
    assert refused.returncode == 1
    assert "test_whole.py: Skipped: no ../shared here" in refused.stdout
    assert "test_skips: Skipped" not in refused.stdout


def test_with_workers_the_run_fails_as_well_and_the_sweep_has_the_same_sample(tmp_path: Path) -> None:
    refused = run(tmp_path, "-n", "2", "--strict-skips", allowed="")
    assert refused.returncode == 1
    assert "test_suite.py::test_skips: Skipped: the tool is not installed" in refused.stdout
    assert "test_whole.py: Skipped: no ../shared here" in refused.stdout
    assert "test_known_to_fail: " not in refused.stdout

    everything = run(tmp_path, "-n", "2", "--full", allowed="")
    samples = [swept(done.stdout) for done in (refused, run(tmp_path, allowed=""))]
    assert samples[0] == samples[1] and len(samples[0]) == 3
    assert len(swept(everything.stdout)) == 200


def test_the_shares_of_a_sweep_together_are_all_of_it(tmp_path: Path) -> None:
    shares = [set(swept(run(tmp_path, "--share", f"{part}/2", allowed="").stdout)) for part in range(2)]
    assert sorted(len(each) for each in shares) == [3 + 98, 3 + 99]
    assert len(shares[0] & shares[1]) == 3
    assert len(shares[0] | shares[1]) == 200

    refused = run(tmp_path, "--share", "3/3", allowed="")
    assert refused.returncode == 4
    assert "--share: '3/3' is not PART/PARTS, such as 3/8" in refused.stderr


def test_sweeps_with_few_cases_are_spread_over_the_shares() -> None:
    assert len({part for part in range(8) for test in "abcdefgh" if share(["case"], part, 8, test)}) > 3
    for test in "abcdefgh":
        assert sum(len(share(["case"], part, 8, test)) for part in range(8)) == 1


def test_continuous_integration_takes_no_other_argument_than_full() -> None:
    """What it does with the right ones takes half an hour."""
    called = subprocess.run(
        ["bash", str(TESTS.parent / ".ci" / "run"), "--fulll"], capture_output=True, text=True, check=False
    )
    assert (called.returncode, called.stdout) == (2, "")
    assert called.stderr == "usage: bash .ci/run [--full]\n"


def test_the_sample_depends_on_names_and_seed_alone() -> None:
    names = [f"case{i}" for i in range(50)]
    assert sampled(names, 5, "a") == sampled(names[::-1], 5, "a")
    assert len(sampled(names, 5, "a")) == 5
    assert sampled(names, 5, "a") != sampled(names, 5, "b")
    assert sampled(names, 60, "a") == frozenset(names)


@pytest.mark.parametrize("text", ["pattern", "always | pattern", "sometimes | pattern | why", "always |  | why"])
def test_a_malformed_line_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape("allowed skips, line 2: ")):
        read_allowed(f"# comment\n{text}\n", tmp_path)


def test_the_committed_list_is_legal_and_allows_no_missing_tool() -> None:
    allowed = read_allowed(ALLOWED_SKIPS.read_text(encoding="utf-8"), TESTS.parent)
    missing = [("test_boot", "Skipped: not installed: qemu-system-arm")]
    assert unexpected(missing * 2, allowed) == missing


def test_files_that_share_fixtures_run_in_one_process() -> None:
    """The packages of every operator take more than a minute to make."""
    assert scope_of("tests/emit/test_compilers.py::test_no_compiler_warns[gcc--O3]") == "tests/emit"
    assert scope_of("tests/emit/test_suffixes.py::test_every_word_has_a_meaning") == "tests/emit"
    assert scope_of("tests/emit/package_kinds/test_zig.py::test_x") == "tests/emit/package_kinds/test_zig.py"
    assert scope_of("tests/test_x.py::test_y") == "tests/test_x.py", "the root's fixtures are cheap"
