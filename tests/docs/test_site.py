"""The site: every link of every page resolves, nothing is loaded from elsewhere, and the gallery has its reports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOADED = re.compile(
    r'<(?:script|img|iframe|source)[^>]*\bsrc="([^"]+)"|<link[^>]*\brel="(?:stylesheet|icon|preload)"[^>]*'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="the extra emitc[docs] is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_a_page_of_the_site_is_made_of_every_document(site: Path) -> None:
    pages = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")}
    documents = {path.stem for path in (ROOT / "docs").glob("*.md")}
    examples = {f"examples/{path.parent.name}" for path in (ROOT / "examples").glob("*/README.md")}
    reports = {f"gallery/{name}" for name in ("kws_ref_int8", "mww_hey_jarvis_v2", "digits_qdq")}
    assert pages == documents | examples | reports | {"index", "changes", "404"}


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    found = {
        match[0]
        for path in [*site.glob("*.html"), *site.glob("examples/*.html"), *site.glob("gallery/*.html")]
        for match in LOADED.finditer(path.read_text(encoding="utf-8"))
    }
    assert found and [text for text in found if "://" in text or '"//' in text] == []


def test_links_of_the_repository_lead_to_pages_of_the_site(site: Path) -> None:
    index = (site / "index.html").read_text(encoding="utf-8")
    assert (
        'href="architecture.html"' in index
        and 'href="examples/wake_word.html"' in index
        and ".md" not in "".join(re.findall(r'href="([^"]+)"', index))
    )
    assert 'href="gallery/kws_ref_int8.html"' in (site / "gallery.html").read_text(encoding="utf-8")


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the extra emitc[docs] is not installed")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[a](nothing.md)\n", encoding="utf-8")
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    kept = text[: text.index("nav:\n  -")].replace("hooks: [docs/site/hooks.py]\n", "")
    (tmp_path / "mkdocs.yml").write_text(kept, encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "contains a link 'nothing.md'" in done.stderr, done.stderr
