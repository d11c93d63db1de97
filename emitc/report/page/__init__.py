"""Pages of HTML that are complete in themselves: a browser is forbidden to load anything else.

Names come from models and are hostile text. The templates escape every value, and data for the scripts is JSON without any mark
that could end its element. Scripts put names into a page as text alone.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from emitc._version import __version__

PAGE_MARK = '<meta name="generator" content="emitc">'
"""In every page, so that a later one may replace it."""
_TEMPLATES = Path(__file__).resolve().parents[2] / "templates" / "report"


@cache
def _environment() -> jinja2.Environment:
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
    )
    env.filters["json"] = script_json
    env.filters["number"] = lambda value: "-" if value is None else f"{value:,}".replace(",", "\u202f")
    return env


def script_json(value: Any) -> str:
    """JSON for a `<script type="application/json">`: no character of it can end the element or begin a comment.

    >>> print(script_json("</script>"))
    "\\u003c/script\\u003e"
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def page(template: str, **values: Any) -> str:
    """The page that a template of `emitc/templates/report` makes of the values."""
    return _environment().get_template(template).render(version=__version__, **values)
