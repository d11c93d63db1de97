"""A picture as one file of HTML: the drawing, and a table in which every buffer finds its rectangle."""

from html import escape

from emitc.report.picture.model import Panel, Picture, partners, shown_name
from emitc.report.picture.svg import plan_svg

HTML_MARK = '<meta name="generator" content="emitc">'
"""In every page, so that a later one may replace it."""
_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; color: #1b1f24; margin: 16px; }
.drawing { overflow-x: auto; border: 1px solid #d8dee4; }
table { border-collapse: collapse; margin: 16px 0; }
caption { text-align: left; font-weight: bold; padding: 4px 0; }
th, td { padding: 2px 10px; border-bottom: 1px solid #d8dee4; text-align: left; font-variant-numeric: tabular-nums; }
td.number, th.number { text-align: right; }
tr.hot, tbody tr:hover { background: #fff8c5; }
"""
_SCRIPT = """
for (const row of document.querySelectorAll("tr[data-bar]")) {
  const bar = document.getElementById(row.dataset.bar);
  const mark = on => () => { bar.classList.toggle("hot", on); row.classList.toggle("hot", on); };
  for (const item of [row, bar]) {
    item.addEventListener("mouseenter", mark(true));
    item.addEventListener("mouseleave", mark(false));
  }
}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def html_page(picture: Picture) -> str:
    """The page, complete in itself: the browser is forbidden to load anything else."""
    tables = "\n".join(_table(index, panel) for index, panel in enumerate(picture.panels))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
{HTML_MARK}
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{_escaped(picture.title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<div class="drawing">
{plan_svg(picture)}</div>
{tables}
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _table(index: int, panel: Panel) -> str:
    rows, sharing = [], partners(panel)
    for at, bar in sorted(enumerate(panel.bars), key=lambda item: (item[1].offset_bytes, item[1].first, item[0])):
        over = ", ".join(str(other + 1) for other in sorted(other for other, _ in sharing.get(at, ())))
        rows.append(
            f'<tr data-bar="bar-{index}-{at + 1}"><td class="number">{at + 1}</td><td>{_escaped(bar.name)}</td>'
            f"<td>{_escaped(bar.kind)}</td>"
            f'<td class="number">{bar.size_bytes}</td><td class="number">{bar.offset_bytes}</td>'
            f"<td>[{bar.first}, {bar.end})</td><td>{over}</td><td>{_escaped(bar.what)}</td></tr>"
        )
    return (
        f"<table><caption>{_escaped(panel.heading)}</caption><thead><tr>"
        '<th class="number">#</th><th>buffer</th><th>kind</th><th class="number">bytes</th>'
        '<th class="number">offset</th><th>steps</th><th>shares bytes with</th><th>what</th></tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table>"
    )


def _escaped(text: str) -> str:
    return escape(shown_name(text, 200), quote=True)
