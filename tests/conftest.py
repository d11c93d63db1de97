"""What all tests share: `--update-golden`, `--strict-skips`, `--full`, `--share`, sampled sweeps, the tiny models as files,
and the sibling folder of models where it exists."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/goldens with what is generated now")
    parser.addoption(
        "--strict-skips", action="store_true", help="fail when a test skips for a reason not in tests/allowed_skips.txt"
    )
    parser.addoption("--full", action="store_true", help="run the long sweeps whole instead of a fixed sample of each")
    parser.addoption(
        "--share", metavar="PART/PARTS", help="with the sample, this share of the cases that it leaves out: 0/8 to 7/8"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the policy once: with xdist, in the process that gathers the workers' reports."""
    from tests.support.skip_policy import ALLOWED_SKIPS, SkipPolicy, read_allowed

    if config.getoption("--strict-skips") and not hasattr(config, "workerinput"):
        allowed = read_allowed(ALLOWED_SKIPS.read_text(encoding="utf-8"), HERE.parent)
        config.pluginmanager.register(SkipPolicy(allowed), "emitc-skip-policy")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keeps the folders whose tests share fixtures in one process; files elsewhere, as --dist=loadfile does."""
    from tests.support.scheduling import FolderScheduling

    return FolderScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of each test marked `sweep` keeps a fixed sample, with --share some of the other cases too; --full keeps all of them."""
    from tests.support.sweep_sampling import KEPT, SHARE_VARIABLE, parse_share, sampled, share

    if config.getoption("--full"):
        return
    try:
        part, parts = parse_share(config.getoption("--share") or "0/1")
    except ValueError as error:
        raise pytest.UsageError(f"--share: {error}") from None
    if config.getoption("--share"):
        os.environ[SHARE_VARIABLE] = str(part)
    sweeps: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sweep") is not None:
            sweeps[item.nodeid.partition("[")[0]].append(item)
    left_out: set[pytest.Item] = set()
    for test, cases in sweeps.items():
        marker = cases[0].get_closest_marker("sweep")
        keep = marker.kwargs.get("keep", KEPT) if marker is not None else KEPT
        kept = sampled([case.nodeid for case in cases], keep, test)
        if config.getoption("--share"):
            kept |= share([case.nodeid for case in cases if case.nodeid not in kept], part, parts, test)
        left_out.update(case for case in cases if case.nodeid not in kept)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every model of tiny_models.py as NAME.tflite."""
    from emitc.writers.tflite import write_tflite
    from tests.support.models.tiny import MODELS

    folder = tmp_path_factory.mktemp("tiny")
    for name, make in MODELS.items():
        (folder / f"{name}.tflite").write_bytes(write_tflite(make()))
    return folder


@pytest.fixture(scope="session")
def shared_models() -> Path:
    """The corpus of models next to the checkout; the test is skipped where it is absent."""
    folder = HERE.parents[1] / "shared" / "models"
    if not (folder / "tflite").is_dir():
        pytest.skip("the corpus of models (../shared/models) is not next to this checkout")
    return folder
