"""The picture of a plan: every buffer labelled once and legibly, overlaps and the peak marked, hostile names harmless."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest

from emitc.planner import Buffer, Distance, LiveRange, Plan, plan
from emitc.report.picture import Bar, Panel, Picture, StepLabel, html_page, plan_svg
from emitc.report.picture.model import shared_bytes

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</text></svg><script>alert(1)</script>\x00\x1b[31m\u202e&amp;\"'\ud800" + "n" * 5000


def drawn(picture: Picture) -> ElementTree.Element:
    """The drawing, parsed: it is well-formed XML."""
    return ElementTree.fromstring(plan_svg(picture))


def of_class(root: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if kind in element.get("class", "").split()]


def panel_of(planned: Plan) -> Panel:
    bars = tuple(Bar(p.name, p.size_bytes, p.offset_bytes, p.live.first, p.live.end) for p in planned.placements)
    peak = planned.peak_step if bars else -1
    return Panel("arena", planned.arena_bytes, bars, planned.lower_bound_bytes, peak)


def picture(count: int, seed: int, steps: int = 40) -> Picture:
    """A planned problem by chance, with overlaps and very small buffers."""
    rng = random.Random(f"{count} {seed}")
    buffers = []
    for i in range(count):
        first = rng.randrange(steps)
        size = rng.choice([1, 16, 100, 5000, 20000, 90000])
        buffers.append(Buffer(f"buffer {i}", size, LiveRange(first, min(steps, first + rng.randint(1, 6)))))
    distances = [
        Distance(left.name, right.name, above=right.size_bytes // 3)
        for left, right in pairwise(buffers)
        if left.live.overlaps(right.live)
    ]
    labels = tuple(StepLabel(f"{i} CONV_2D") for i in range(steps))
    return Picture("model.tflite", "proof", labels, (panel_of(plan(buffers, distances)),))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", [1, 12, 60, 209])
def test_every_buffer_is_labelled_once_and_no_two_labels_collide(count: int, seed: int) -> None:
    shown = picture(count, seed)
    root = drawn(shown)
    assert len(of_class(root, "bar")) == count
    labels = of_class(root, "label")
    assert sorted(int((label.text or "").split()[0]) for label in labels) == list(range(1, count + 1))
    width, height = map(float, root.get("viewBox", "").split()[2:])
    assert root.get("width") == "100%" and root.get("height") is None, "it scales with the page"
    boxes = []
    for text in root.iter(f"{SVG}text"):
        if text.get("transform") is None:
            size = float(text.get("font-size", "15"))
            x, y, length = float(text.get("x", "")), float(text.get("y", "")), len(text.text or "") * size * 0.6
            x -= length if text.get("text-anchor") == "end" else 0
            assert x >= 0 and x + length <= width and size <= y <= height, text.text
            boxes.append((x, x + length, y - 0.75 * size, y, text.text))
    for a, b in combinations(boxes, 2):
        assert a[0] >= b[1] or b[0] >= a[1] or a[2] >= b[3] or b[2] >= a[3], (a, b)


@pytest.mark.parametrize("seed", range(6))
def test_a_label_inside_stands_on_its_own_bar_alone(seed: int) -> None:
    root = drawn(picture(40, seed, steps=20))
    rectangles = {
        number: [float(bar.get(key, "")) for key in ("x", "y", "width", "height")]
        for number, bar in enumerate(of_class(root, "bar"), 1)
    }
    floor = max(y + height for _, y, _, height in rectangles.values())
    inside = 0
    for label in of_class(root, "label"):
        x, y, size = (float(label.get(key, "")) for key in ("x", "y", "font-size"))
        if y > floor:
            continue
        inside += 1
        text = label.text or ""
        for number, (left, top, width, height) in rectangles.items():
            clear = (
                x >= left + width or x + len(text) * size * 0.6 <= left or y - 0.6 * size >= top + height or y <= top
            )
            assert clear == (number != int(text.split()[0])) or (not clear and height <= 1.5), (text, number)
    assert inside > 5


def test_names_where_they_fit_numbers_where_they_do_not() -> None:
    bars = (Bar("wide", 1000, 0, 0, 10), Bar("narrow", 900, 1000, 0, 1), Bar("flat", 1, 1900, 0, 10))
    steps = tuple(StepLabel(str(i)) for i in range(80))
    root = drawn(Picture("m", "", steps, (Panel("arena", 1901, bars),)))
    assert [label.text for label in of_class(root, "label")] == ["1 wide", "2", "3"]
    legend = " ".join(text.text or "" for text in root.iter(f"{SVG}text"))
    for line in ("1 wide 1000 B at 0, [0, 10)", "2 narrow 900 B at 1000, [0, 1)", "3 flat 1 B at 1900, [0, 10)"):
        assert line in legend


def test_hovering_tells_what_a_bar_is() -> None:
    bar = Bar("op3", 64, 16, 1, 3, "int8[8,8], from op 3")
    root = drawn(Picture("m", "", (), (Panel("arena", 128, (bar, Bar("op4", 64, 48, 2, 4))),)))
    titles = [group.findtext(f"{SVG}title") for group in root.iter(f"{SVG}g") if group.get("id") == "bar-0-1"]
    assert titles == [
        "1 op3\nint8[8,8], from op 3\n64 bytes at 16, alive in steps [1, 3)\nshares 32 bytes with 2, [2, 3)"
    ]


def test_shared_bytes_are_hatched() -> None:
    buffers = [Buffer("x", 128, LiveRange(0, 2)), Buffer("y", 128, LiveRange(1, 3)), Buffer("z", 128, LiveRange(2, 4))]
    apart = panel_of(plan(buffers))
    assert shared_bytes(apart) == ()
    assert not of_class(drawn(Picture("m", "", (), (apart,))), "shares")
    over = panel_of(plan(buffers, [Distance("x", "y", above=32)]))
    assert [(s.high - s.low, s.first, s.end) for s in shared_bytes(over)] == [(96, 1, 2)]
    (hatched,) = of_class(drawn(Picture("m", "", (), (over,))), "shares")
    (first, *_) = of_class(drawn(Picture("m", "", (), (over,))), "bar")
    assert float(hatched.get("height", "")) == pytest.approx(0.75 * float(first.get("height", "")), abs=0.02)
    assert 2 * float(hatched.get("width", "")) == float(first.get("width", ""))


def test_the_peak_the_bound_and_streamed_steps_are_marked() -> None:
    steps = (StepLabel("0 CONV_2D"), StepLabel("1 rows", "ops 1 to 6"), StepLabel("7 ADD"))
    panel = Panel("arena", 200, (Bar("a", 200, 0, 0, 2), Bar("b", 100, 0, 2, 3)), 160, 1)
    root = drawn(Picture("m", "", steps, (panel,)))
    assert len(of_class(root, "peak")) == len(of_class(root, "frame")) == len(of_class(root, "rows")) == 1
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "PEAK 1 rows = ops 1 to 6" in texts
    assert "lower bound 160 bytes, not met" in texts
    (bound,), (top,) = of_class(root, "bound"), of_class(root, "top")
    assert float(bound.get("y1", "")) > float(top.get("y1", ""))
    met = drawn(Picture("m", "", steps, (replace(panel, bound_bytes=200),)))
    assert "lower bound 200 bytes, met" in [text.text for text in met.iter(f"{SVG}text")]


def test_several_regions_are_several_panels() -> None:
    panels = tuple(Panel(f"region {i}", 100, (Bar(f"b{i}", 100, 0, 0, 1),)) for i in range(3))
    root = drawn(Picture("m", "", (StepLabel("0"),), panels))
    assert len(of_class(root, "panel")) == 3
    tops = [float(bar.get("y", "")) for bar in of_class(root, "bar")]
    assert tops == sorted(tops) and 400 < tops[2] - tops[1] < 560
    assert {group.get("id") for group in root.iter(f"{SVG}g")} >= {"bar-0-1", "bar-1-1", "bar-2-1"}


def test_a_panel_says_what_its_region_has_and_its_proof() -> None:
    panel = Panel("DTCM", 100, (Bar("a", 100, 0, 0, 1),), limit_bytes=128, note="arena 100 B, proven")
    shown = Picture("m", "", (StepLabel("0"),), (panel, replace(panel, title="SRAM", limit_bytes=0, note="")))
    texts = [text.text for text in drawn(shown).iter(f"{SVG}text")]
    assert {"DTCM: 100 of 128 bytes", "arena 100 B, proven", "SRAM: 100 bytes"} <= set(texts)
    assert "<caption>DTCM: 100 of 128 bytes</caption>" in html_page(shown)


def test_colours_are_ones_that_every_converter_knows() -> None:
    fills = [bar.get("fill", "") for bar in of_class(drawn(picture(60, 1)), "bar")]
    assert all(re.fullmatch("#[0-9a-f]{6}", fill) for fill in fills)
    assert len(set(fills)) > 5


def test_nothing_to_place_is_drawn_too() -> None:
    empty = Picture("m", "", (), (panel_of(plan([])),))
    assert not of_class(drawn(empty), "bar")
    assert html_page(empty).endswith("</html>\n")


class Tags(HTMLParser):
    """Counts the tags of a page, and what it refers to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "data")]


def hostile_picture() -> Picture:
    bars = (Bar(HOSTILE, 64, 0, 0, 2, HOSTILE), Bar("plain", 64, 64, 1, 2, kind="scratch"))
    return Picture(
        HOSTILE, HOSTILE, (StepLabel(HOSTILE, HOSTILE), StepLabel("1")), (Panel(HOSTILE, 128, bars, 128, 1),)
    )


def test_hostile_names_stay_in_their_place() -> None:
    text = plan_svg(hostile_picture())
    ElementTree.fromstring(text)
    page = html_page(hostile_picture())
    for shown in (text, page):
        shown.encode("utf-8")
        assert "<script>alert" not in shown and "\x00" not in shown and "\u202e" not in shown and "n" * 300 not in shown
    plain = html_page(Picture("m", "", (StepLabel("0", "s"), StepLabel("1")), (
        Panel("arena", 128, (Bar("a", 64, 0, 0, 2, "w"), Bar("plain", 64, 64, 1, 2, kind="scratch")), 128, 1),)))  # fmt: skip
    assert Tags(page).tags == Tags(plain).tags


def test_the_page_is_complete_in_itself() -> None:
    page = html_page(picture(30, 0))
    assert Tags(page).references == []
    assert Tags(page).tags.count("script") == 1
    assert set(re.findall(r"url\(([^)]*)\)", page)) == {"#hatch"}
    assert set(re.findall(r"https?://[^\"' ]*", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page
    assert page.count("<tr data-bar=") == 30
    bars = set(re.findall(r'<g id="(bar-[0-9-]+)"', page))
    assert set(re.findall(r'data-bar="([^"]+)"', page)) == bars


def test_the_same_plan_gives_the_same_picture() -> None:
    assert html_page(picture(60, 1)) == html_page(picture(60, 1))
