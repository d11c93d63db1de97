"""A picture as SVG: one drawing with its own styles, numbers for bars that are too small for a name, and their legend.

Units are pixels at the drawing's natural size; it scales. The text is laid out for a monospaced font, whose width is
known without measuring: no label runs out of its rectangle, and no two labels share a place.
"""

from collections.abc import Iterable
from colorsys import hls_to_rgb
from html import escape

from emitc.report.picture.model import Bar, Panel, Picture, partners, shared_bytes, shown_name

_CHARACTER = 0.62
"""Width of a character over the size of the font; monospaced fonts have 0.55 to 0.61."""
_FONT, _SMALL, _TINY = 11, 9, 7
_LEFT, _RIGHT, _TOP = 84, 24, 56
_PLOT_HEIGHT = 460
_LOWEST_PLOT, _PER_BAR = 170, 24
"""Of several panels, one with few bars is not as high: at least the first, and so much for each bar."""
_NARROWEST, _WIDEST, _PLOT_WIDTH = 13, 96, 1180
"""Bounds of a step's width, and the width of the plot that is aimed at between them."""
_NARROWEST_PICTURE = 860
_STEP_LABELS = 168
_ROW = 14
_LEGEND_COLUMN = 420
_HUES = (210, 28, 140, 275, 55, 330, 180, 0, 95, 245)
SVG_MARK = "<!-- drawn by emitc -->"
"""In every drawing, so that a later one may replace it."""
STYLE = """
text { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1b1f24; }
.title { font-size: 15px; font-weight: bold; }
.axis { stroke: #57606a; stroke-width: 1; }
.grid { stroke: #d8dee4; stroke-width: 0.5; }
.free { fill: #f6f8fa; }
.bar { stroke: #24292f; stroke-width: 0.6; }
.scratch { stroke-dasharray: 3 2; }
.hot .bar, .bar:hover { stroke: #000; stroke-width: 2.5; }
.shares { fill: url(#hatch); stroke: #a40e26; stroke-width: 0.8; pointer-events: none; }
.peak { fill: #cf222e; fill-opacity: 0.12; }
.frame { fill: none; stroke: #cf222e; stroke-width: 1.6; pointer-events: none; }
.rows { fill: #8250df; fill-opacity: 0.10; }
.bound { stroke: #cf222e; stroke-width: 1.4; stroke-dasharray: 7 4; }
.top { stroke: #24292f; stroke-width: 1.4; }
.label { pointer-events: none; }
"""


def plan_svg(picture: Picture) -> str:
    """The drawing as the text of an SVG file; bars carry `id="bar-PANEL-NUMBER"` with numbers as in the legend, from 1."""
    step_count = max([len(picture.steps), 1, *(bar.end for panel in picture.panels for bar in panel.bars)])
    step_width = min(_WIDEST, max(_NARROWEST, _PLOT_WIDTH // step_count))
    width = max(_NARROWEST_PICTURE, _LEFT + step_count * step_width + _RIGHT)
    columns = max(1, (width - _LEFT) // _LEGEND_COLUMN)
    body: list[str] = []
    top = _TOP
    for index, panel in enumerate(picture.panels):
        drawn = _PanelDrawing(picture, panel, index, step_count, step_width, top)
        body += drawn.lines()
        body += _legend(panel, drawn.bottom, columns)
        top = drawn.bottom + _ROW * (-(-len(panel.bars) // columns) + 3)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" viewBox="0 0 {width} {top}" style="max-width: {2 * width}px"'
        ' role="img">',
        SVG_MARK,
        f"<style>{STYLE}</style>",
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<rect width="6" height="6" fill="#ffffff" fill-opacity="0.35"/>'
        '<line x1="0" y1="0" x2="0" y2="6" stroke="#a40e26" stroke-width="2"/></pattern></defs>',
        f'<rect width="{width}" height="{top}" fill="#ffffff"/>',
        _text(12, 22, shown_name(picture.title, 120), "title"),
        _text(12, 40, shown_name(picture.subtitle, int((width - 24) / (_FONT * _CHARACTER)))),
    ]
    return "\n".join([*head, *body, "</svg>"]) + "\n"


class _PanelDrawing:
    """One panel whose title stands at `top`; `bottom` is the free place under it. Bars have numbers from 1."""

    def __init__(self, picture: Picture, panel: Panel, index: int, step_count: int, step_width: int, top: int) -> None:
        self._picture, self._panel, self._index = picture, panel, index
        self._step_width, self._right = step_width, _LEFT + step_count * step_width
        self._peak = panel.peak_step if panel.peak_step < step_count else -1
        self._shared, self._partners = shared_bytes(panel), partners(panel)
        self._title_at = top + 16
        self._ceiling = top + 34 + (_ROW if panel.note else 0)
        several = len(picture.panels) > 1
        self._height = min(_PLOT_HEIGHT, _LOWEST_PLOT + _PER_BAR * len(panel.bars)) if several else _PLOT_HEIGHT
        self._floor = self._ceiling + self._height
        self._scale = self._height / max(1, panel.size_bytes, panel.bound_bytes)
        self._bars = list(enumerate(panel.bars, 1))
        self._outside = _stacked((self._x(bar.first), str(n)) for n, bar in self._bars if not self._inside(n, bar)[0])
        rows = 1 + max((row for row, _, _ in self._outside), default=-1)
        self._names_at = self._floor + 6 + rows * (_SMALL + 1) + (_ROW if rows else 0)
        self.bottom = self._names_at + _STEP_LABELS + 2 * _ROW

    def lines(self) -> list[str]:
        panel = self._panel
        longest = int((max(self._right, _NARROWEST_PICTURE - _RIGHT) - _LEFT) / (_SMALL * _CHARACTER))
        elements = [f'<g class="panel">{_text(_LEFT, self._title_at, shown_name(panel.heading, 150))}']
        if panel.note:
            elements.append(_text(_LEFT, self._title_at + _ROW, shown_name(panel.note, longest), size=_SMALL))
        elements.append(_rect("free", _LEFT, self._ceiling, self._right - _LEFT, self._height))
        elements += self._bands()
        elements += self._address_axis()
        elements += [self._bar(number, bar) for number, bar in self._bars]
        for shared in self._shared:
            x, width = self._x(shared.first), (shared.end - shared.first) * self._step_width
            elements.append(_rect("shares", x, self._y(shared.high), width, (shared.high - shared.low) * self._scale))
        elements += [self._label(number, bar) for number, bar in self._bars if self._inside(number, bar)[0]]
        if self._peak >= 0:
            elements.append(_rect("frame", self._x(self._peak), self._ceiling, self._step_width, self._height))
        return [*elements, *self._numbers_outside(), *self._step_axis(), *self._bound(), "</g>"]

    def _x(self, step: int) -> int:
        return _LEFT + step * self._step_width

    def _y(self, address: int) -> float:
        return self._floor - address * self._scale

    def _box(self, bar: Bar) -> tuple[int, float, int, float]:
        """x, y, width and height; a bar of few bytes is still to be seen."""
        height = max(1.0, bar.size_bytes * self._scale)
        return self._x(bar.first), self._y(bar.offset_bytes) - height, (bar.end - bar.first) * self._step_width, height

    def _inside(self, number: int, bar: Bar) -> tuple[str, float]:
        """The label that fits into the bar and its font's size; "" where not even the number does.

        Where several bars share bytes the label has to find room in the part that belongs to this one alone.
        """
        _, _, width, height = self._label_box(number, bar)
        name = f"{number} {shown_name(bar.name)}"
        for text, size in ((name, _FONT), (name, _SMALL), (str(number), _SMALL), (str(number), _TINY)):
            if len(text) * size * _CHARACTER + 4 <= width and size + 1 <= height:
                return text, size
        return "", 0

    def _label_box(self, number: int, bar: Bar) -> tuple[float, float, float, float]:
        """Where a label may stand: in the longer run of steps before or after those in which other bars share its bytes."""
        x, y, _, height = self._box(bar)
        first, end = bar.first, bar.end
        for _, shared in self._partners.get(number - 1, ()):
            if shared.first < end and shared.end > first:
                if shared.first - first >= end - shared.end:
                    end = shared.first
                else:
                    first = shared.end
                if first >= end:
                    return self._unshared_rows(number, bar)
        return x + (first - bar.first) * self._step_width, y, (end - first) * self._step_width, height

    def _unshared_rows(self, number: int, bar: Bar) -> tuple[float, float, float, float]:
        """The largest slice of addresses that the bar shares with no other while it lives; without one, nothing."""
        x, _, width, _ = self._box(bar)
        edges = [(bar.offset_bytes, bar.offset_bytes + bar.size_bytes)]
        for _, shared in self._partners[number - 1]:
            parts = [
                part for low, high in edges for part in ((low, min(high, shared.low)), (max(low, shared.high), high))
            ]
            edges = [part for part in parts if part[0] < part[1]]
        if not edges:
            return x, 0, 0, 0
        low, high = max(edges, key=lambda edge: edge[1] - edge[0])
        return x, self._y(high), width, (high - low) * self._scale

    def _bar(self, number: int, bar: Bar) -> str:
        lines = [
            f"{number} {shown_name(bar.name, 200)}",
            *([shown_name(bar.what, 200)] if bar.what else []),
            f"{bar.size_bytes} bytes at {bar.offset_bytes}, alive in steps {_range(bar.first, bar.end)}",
        ]
        for other, pair in self._partners.get(number - 1, ()):
            lines.append(f"shares {pair.high - pair.low} bytes with {other + 1}, {_range(pair.first, pair.end)}")
        fill = f' fill="{_colour(number, bar.kind)}"'
        drawn = _rect("bar scratch" if bar.kind == "scratch" else "bar", *self._box(bar), fill)
        return f'<g id="bar-{self._index}-{number}">{drawn}<title>{escape(chr(10).join(lines))}</title></g>'

    def _label(self, number: int, bar: Bar) -> str:
        (text, size), (x, y, _, height) = self._inside(number, bar), self._label_box(number, bar)
        return _text(x + 2, y + height / 2 + size * 0.36, text, "label", size=size)

    def _numbers_outside(self) -> list[str]:
        """Numbers of bars that have no room for them of their own, under the plot where the bar starts."""
        below = self._floor + 4 + _SMALL + 1
        elements = [_text(x, below + row * (_SMALL + 1), n, "label", size=_SMALL) for row, x, n in self._outside]
        return [*elements, _text(_LEFT - 4, below, "starts here", size=_SMALL, anchor="end")] if elements else []

    def _bands(self) -> list[str]:
        """Bands under the bars: steps that stand for several operators, and the peak."""
        steps = enumerate(self._picture.steps)
        bands = [(step, "rows", f"{bar.text} = {bar.stands_for}") for step, bar in steps if bar.stands_for]
        if self._peak >= 0:
            bands.append((self._peak, "peak", "the peak: most bytes are held here"))
        height = self._names_at + _STEP_LABELS - self._ceiling
        return [
            f"{_rect(kind, self._x(step), self._ceiling, self._step_width, height).removesuffix('/>')}>"
            f"<title>{escape(shown_name(title, 200))}</title></rect>"
            for step, kind, title in bands
        ]

    def _across(self, kind: str, y: float) -> str:
        """A line over the whole width of the plot."""
        return f'<line class="{kind}" x1="{_LEFT}" y1="{_figure(y)}" x2="{self._right}" y2="{_figure(y)}"/>'

    def _address_axis(self) -> list[str]:
        elements = []
        every = _round_step(max(1, self._panel.size_bytes))
        for address in range(0, self._panel.size_bytes + 1, every):
            y = self._y(address)
            elements += [self._across("grid", y), _text(_LEFT - 6, y + 3, f"{address}", size=_SMALL, anchor="end")]
        return elements

    def _step_axis(self) -> list[str]:
        elements = [self._across("axis", self._floor)]
        longest = int(_STEP_LABELS / (_SMALL * _CHARACTER))
        for step, label in enumerate(self._picture.steps):
            x, y = self._x(step) + self._step_width / 2 + 3, self._names_at + 2
            marked = f"PEAK {label.text}" if step == self._panel.peak_step else label.text
            text = f"{marked} = {label.stands_for}" if label.stands_for else marked
            elements.append(
                f'<text x="{x}" y="{y}" font-size="{_SMALL}" text-anchor="end" transform="rotate(-90 {x} {y})">'
                f"{escape(shown_name(text, longest))}<title>{escape(shown_name(text, 200))}</title></text>"
            )
        return elements

    def _bound(self) -> list[str]:
        panel, top = self._panel, self._across("top", self._y(self._panel.size_bytes))
        if not panel.bound_bytes:
            return [top]
        text = f"lower bound {panel.bound_bytes} bytes, {'met' if panel.bound_bytes == panel.size_bytes else 'not met'}"
        label = _text(self._right, self._ceiling - 6, text, size=_SMALL, anchor="end", colour="#a40e26")
        return [top, self._across("bound", self._y(panel.bound_bytes)), label]


def _stacked(labels: Iterable[tuple[int, str]]) -> list[tuple[int, int, str]]:
    """(row, x, text) of labels that start at their x, or a little to the right, each in the first row with room for it."""
    ends: list[float] = []
    panels = []
    for x, text in sorted(labels):
        width = len(text) * _SMALL * _CHARACTER + 4
        row = next((row for row, end in enumerate(ends) if end <= x), len(ends))
        if row == len(ends):
            ends.append(0.0)
        ends[row] = x + width
        panels.append((row, x, text))
    return panels


def _legend(panel: Panel, top: int, columns: int) -> list[str]:
    rows = -(-len(panel.bars) // columns)
    longest = int((_LEGEND_COLUMN - 20) / (_SMALL * _CHARACTER))
    elements = []
    for number, bar in enumerate(panel.bars, 1):
        column, row = divmod(number - 1, max(1, rows))
        x, y = 12 + column * _LEGEND_COLUMN, top + row * _ROW
        figures = f" {bar.size_bytes} B at {bar.offset_bytes}, {_range(bar.first, bar.end)}"
        name = shown_name(bar.name, max(8, longest - len(figures) - len(f"{number} ")))
        elements.append(
            f'<rect x="{x}" y="{y - 8}" width="9" height="9" fill="{_colour(number, bar.kind)}" stroke="#57606a"/>'
            + _text(x + 14, y, f"{number} {name}{figures}", size=_SMALL)
        )
    return elements


def _colour(number: int, kind: str) -> str:
    """Neighbours in the plan differ in hue; scratch is grey, what the caller sees is stronger."""
    if kind == "scratch":
        return "#d0d7de"
    saturation, lightness = (0.85, 0.68) if kind in ("input", "output", "state") else (0.55, 0.80)
    # As #rrggbb: converters that know no other colours would draw black boxes.
    parts = hls_to_rgb(_HUES[number % len(_HUES)] / 360, lightness, saturation)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


def _round_step(size: int) -> int:
    """About a seventh of `size`, as a power of two, or three quarters of one.

    >>> [_round_step(n) for n in (1, 100, 36864)]
    [1, 12, 4096]
    """
    wanted = max(1, size // 7)
    power = 1 << max(0, wanted.bit_length() - 1)
    return power * 3 // 2 if power > 1 and power * 3 // 2 <= wanted else power


def _range(first: int, end: int) -> str:
    return f"[{first}, {end})"


def _figure(value: float) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _rect(kind: str, x: int, y: float, width: int, height: float, more: str = "") -> str:
    return f'<rect class="{kind}" x="{x}" y="{_figure(y)}" width="{width}" height="{_figure(height)}"{more}/>'


def _text(
    x: float, y: float, text: str, kind: str = "", *, size: float = _FONT, anchor: str = "", colour: str = ""
) -> str:
    """One line of text. `text` is escaped here."""
    extra = f' class="{kind}"' if kind else ""
    extra += f' text-anchor="{anchor}"' if anchor else ""
    extra += f' style="fill: {colour}"' if colour else ""
    extra += "" if kind == "title" else f' font-size="{size:g}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{extra}>{escape(text)}</text>'


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
<title>{_shown(picture.title)}</title>
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
            f'<tr data-bar="bar-{index}-{at + 1}"><td class="number">{at + 1}</td><td>{_shown(bar.name)}</td>'
            f"<td>{_shown(bar.kind)}</td>"
            f'<td class="number">{bar.size_bytes}</td><td class="number">{bar.offset_bytes}</td>'
            f"<td>[{bar.first}, {bar.end})</td><td>{over}</td><td>{_shown(bar.what)}</td></tr>"
        )
    return (
        f"<table><caption>{_shown(panel.heading)}</caption><thead><tr>"
        '<th class="number">#</th><th>buffer</th><th>kind</th><th class="number">bytes</th>'
        '<th class="number">offset</th><th>steps</th><th>shares bytes with</th><th>what</th></tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table>"
    )


def _shown(text: str) -> str:
    return escape(shown_name(text, 200))
