"""What MkDocs does not do by itself: pages from outside of docs/, links to them, and a gallery of reports.

A link to a file that is no page of the site, such as a source, becomes its text.
"""

from __future__ import annotations

import json
import posixpath
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
GALLERY = (
    ("kws_ref_int8.tflite", "cortex-m4f", "Keyword spotting, 12 words"),
    ("mww_hey_jarvis_v2.tflite", "cortex-m4f", "A wake word, with state"),
    ("digits_qdq.onnx", "rv32imac", "Handwritten digits, from ONNX"),
)
"""Model, target and title of each report."""
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"(^[ \t]*```.*?^[ \t]*```[ \t]*$)", re.MULTILINE | re.DOTALL)


def _pages() -> dict[str, str]:
    """The site's address of each page from outside of docs/, by its path in the repository."""
    pages = {"README.md": "index.md", "CHANGELOG.md": "changes.md"}
    for path in sorted((ROOT / "examples").glob("*/README.md")):
        pages[path.relative_to(ROOT).as_posix()] = f"examples/{path.parent.name}.md"
    return pages


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages from outside of docs/, and the reports."""
    for path, uri in _pages().items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text(encoding="utf-8")))
    for model, target, _ in GALLERY:
        files.append(File.generated(config, _report_uri(model), content=_report(model, target)))
    return files


def _report_uri(model: str) -> str:
    return f"gallery/{Path(model).stem}.html"


def _report(model: str, target: str) -> bytes:
    """The page that `emitc report` writes of a shipped model."""
    path = ROOT / "examples" / "models" / model
    words = ["report", str(path), "--target", target, "--samples", "0", "-o", "/dev/stdout"]
    done = subprocess.run([sys.executable, "-m", "emitc", *words], cwd=ROOT, capture_output=True, check=True)
    end = b"</html>\n"
    return done.stdout[: done.stdout.index(end) + len(end)]


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links as the site needs them, and the list of the gallery."""
    source = {uri: path for path, uri in _pages().items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    parts = _BLOCK.split(markdown)
    for at in range(0, len(parts), 2):  # every second part is a code block
        parts[at] = _LINK.sub(lambda m: _linked(m, source, page.file.src_uri), parts[at])
    return "".join(parts).replace("<!-- gallery -->", "\n".join(map(_entry, GALLERY)))


def _entry(report: tuple[str, str, str]) -> str:
    model, target, title = report
    return f"- [{title}]({_report_uri(model)}): `{model}` for `{target}`"


def _linked(match: re.Match[str], source: str, uri: str) -> str:
    image, text, link = match.groups()
    if link.startswith(("http:", "https:", "#", "mailto:")):
        return match[0]
    path, _, anchor = link.partition("#")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    page = _pages().get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
    if page is None:
        return text
    address = posixpath.relpath(page, posixpath.dirname(uri) or ".") + (f"#{anchor}" if anchor else "")
    return f"{image}[{text}]({address})"


def on_post_build(config: Any) -> None:
    """The search of the theme must know every page: a site without an index is broken."""
    index = Path(config["site_dir"]) / "search" / "search_index.json"
    assert json.loads(index.read_text(encoding="utf-8"))["docs"]
