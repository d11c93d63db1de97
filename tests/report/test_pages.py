"""The pages of `emitc report` and `emitc sweep` in a headless browser, and what they say."""

from __future__ import annotations

import csv
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import emitc
from emitc.cli.main import cli
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.report.page.model import findings_of
from emitc.report.page.view import view_of
from emitc.sweep.sweep import write_tables
from emitc.writers.tflite import write_tflite
from tests.support.models.tiny import MODELS as TINY

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
DIGITS = MODELS / "digits_int8.tflite"
WIDTHS = (360, 768, 1280, 1920)
HOSTILE = '"><img src=x onerror=hacked=1></title></script><script>hacked=1</script>\u202e'
Opened = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="the extra emitc[dev] is not installed")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    with api.sync_playwright() as made:
        started = made.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Opened]:
    """A page in the browser. A message on its console, an error or a request for anything but the file fails the test."""
    said: list[str] = []
    contexts = []

    def open_page(path: Path, width: int = 1280, scheme: str = "light") -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, accept_downloads=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda r: said.append(r.url) if not r.url.startswith(("file:", "blob:")) else None)
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


def report(*arguments: object) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["report", *map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "digits.html"
    said = report(DIGITS, "--target", "cortex-m4f", "--samples", 0, "-o", path)
    assert (said["kind"], said["name"], said["bytes"]) == ("model", "digits_int8", path.stat().st_size)
    return path


def row(model: str, arena: int, cycles: int, **more: Any) -> dict[str, Any]:
    plain = {"key": f"{model}{arena}", "model": model, "target": "cortex-m4f", "board": "", "kernels": "portable"}
    plain |= {"ram_budget": None, "options": "default", "data": "", "metric": "", "status": "ok"}
    return plain | {"arena_bytes": arena, "estimated_cycles": cycles, "seconds": 0.1, "error": None} | more


ROWS = [
    row("a.tflite", 100, 900),
    row("a.tflite", 200, 500, options="size"),
    row("b.tflite", 200, 700),
    row("b.tflite", 400, 100),
    row(HOSTILE, 500, 2000, target="rv32imac", status="mismatch", error={"what": HOSTILE, "code": None}),
    row("=1+1", 300, 300),
]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    write_tables(folder, ROWS, "")
    assert report(folder, "-o", folder / "index.html", "--force")["kind"] == "sweep"
    return folder / "index.html"


@pytest.mark.parametrize("width", WIDTHS)
def test_pages_fit_the_window(opened: Opened, digits: Path, swept: Path, width: int) -> None:
    for path in (digits, swept):
        page = opened(path, width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        drawn = page.locator("svg[role=img]").first.bounding_box()
        assert drawn["width"] >= 300 and drawn["height"] >= 100


def test_the_colours_follow_the_system(opened: Opened, digits: Path) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    assert opened(digits).evaluate(colour) == "rgb(255, 255, 255)"
    assert opened(digits, scheme="dark").evaluate(colour) == "rgb(13, 17, 23)"


def test_the_keyboard_reaches_everything(opened: Opened, digits: Path) -> None:
    page = opened(digits)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    indices = page.locator("table.sortable tbody tr td:first-child")
    assert indices.all_inner_texts() == ["0", "1", "2", "3", "4", "6", "7"]
    page.get_by_role("button", name="MACs").focus()
    page.keyboard.press("Enter")
    assert page.locator("th[aria-sort=ascending]").inner_text() == "MACs"
    page.keyboard.press("Enter")
    assert indices.all_inner_texts()[:2] == ["2", "0"]  # 36864 and 13824 multiply-accumulates, the first of two
    page.locator(".graph a").nth(2).focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('tr:target').id") == "layer-2"


def test_a_model_report_says_what_the_manifest_says(digits: Path) -> None:
    compiled = compile_model(DIGITS, target="cortex-m4f")
    view, found = view_of(json.loads(compiled.files["manifest.json"]), ""), findings_of(compiled)
    assert max(layer.arena_bytes for layer in view.layers) == view.arena_bytes == 3264
    assert [layer.arena_bytes for layer in view.layers][-1] == 10 + 10  # the input of the softmax and its output
    assert found.edges == {0: (-1,), 1: (0,), 2: (1,), 3: (0, 2), 4: (3,), 6: (4,), 7: (6,)} and found.ends == (7,)
    text = digits.read_text(encoding="utf-8")
    for layer in compiled.program.steps:
        assert f'<tr id="layer-{layer.index}">' in text and f"<td>{layer.kernel}</td>" in text
    assert "Red hatching" in text and "http" not in re.sub(r'xmlns="http://www.w3.org/2000/svg"|http-equiv', "", text)


def test_a_package_has_the_same_layers(tmp_path: Path, digits: Path) -> None:
    compile_model(DIGITS, target="cortex-m4f").write(tmp_path / "package")
    assert report(tmp_path / "package", "-o", tmp_path / "p.html")["kind"] == "package"
    text, of_model = (path.read_text(encoding="utf-8") for path in (tmp_path / "p.html", digits))
    layer = r'<tr id="layer-\d+">.*?<td class="meters"><span class="meter" style="width: \d+%"></span></td>'
    assert re.findall(layer, text, re.S) == re.findall(layer, of_model, re.S) != []
    assert "emitc verify proves the model" in text


def test_the_proof_and_the_memories_of_a_board_are_shown(tmp_path: Path) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    report(DIGITS, "--board", "nucleo_f446re", "--samples", 2, "-o", tmp_path / "r.html")
    text = tmp_path.joinpath("r.html").read_text(encoding="utf-8")
    assert "MATCH" in text and "tflm were compared on 2 random samples: 0\nof 20 elements" in text
    assert "RAM: arena and state: 3\u202f264 of 131\u202f072 bytes" in text and 'aria-valuenow="2.5"' in text


def test_a_proof_that_cannot_be_made_is_a_line_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from emitc.errors import CannotCompile, Where
    from emitc.verify import verification

    def fail(*arguments: object, **options: object) -> None:
        raise CannotCompile("there is no C compiler", Where(option="CC"), "none <b>is</b> installed", "install gcc")

    monkeypatch.setattr(verification, "verify", fail)
    report(DIGITS, "-o", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "There is no proof: there is no C compiler, because none &lt;b&gt;is&lt;/b&gt; installed." in text


def test_names_of_a_model_stay_text(opened: Opened, tmp_path: Path) -> None:
    data = write_tflite(TINY["spotter"]())
    name = next(layer.label for layer in compile_model_of(data, tmp_path).program.steps if len(layer.label) >= 4)
    hostile = "<b onclick=hacked=1>\"&'"[: len(name)].ljust(len(name), "<")
    path = tmp_path / "hostile.tflite"
    path.write_bytes(data.replace(name.encode(), hostile.encode()))
    report(path, "--samples", 0, "-o", tmp_path / "h.html")
    page = opened(tmp_path / "h.html")
    assert page.evaluate("typeof hacked") == "undefined"
    assert hostile in page.locator("td.name").all_inner_texts()


def compile_model_of(data: bytes, folder: Path) -> Any:
    (folder / "plain.tflite").write_bytes(data)
    return compile_model(folder / "plain.tflite")


def test_names_in_a_sweep_stay_text(opened: Opened, swept: Path) -> None:
    page = opened(swept)
    assert page.evaluate("typeof hacked") == "undefined"
    assert any(text.startswith('"><img src=x') for text in page.locator("td.name").all_inner_texts())


def test_filters_fronts_and_csv_of_a_sweep(opened: Opened, swept: Path, tmp_path: Path) -> None:
    page = opened(swept)
    assert page.locator("#count").inner_text() == "6 of 6 rows"
    front = page.locator("#front li")
    assert [text.rpartition("arena_bytes ")[2] for text in front.all_inner_texts()] == [
        "100, estimated_cycles 900", "200, estimated_cycles 500", "300, estimated_cycles 300", "400, estimated_cycles 100",
    ]  # fmt: skip
    page.locator("#search").fill("B.tflite")
    assert page.locator("#count").inner_text() == "2 of 6 rows" and front.count() == 2
    page.get_by_role("button", name="Clear filters").click()
    page.locator("select[data-column=target]").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("#count").inner_text() == "5 of 6 rows"
    page.get_by_role("button", name="arena_bytes").click()
    page.get_by_role("button", name="arena_bytes").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save these rows as CSV").click()
    with Path(download.value.path()).open(encoding="utf-8", newline="") as file:
        saved = list(csv.DictReader(file))
    assert [line["arena_bytes"] for line in saved] == ["400", "300", "200", "200", "100"]
    assert saved[1]["model"] == "'=1+1"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"layers": 1}, "a list of at most 16384 values"),
        ({"macs": -1}, "'-1' is no whole number"),
        ({"name": ["x"]}, "is no text"),
        ({"schedule": [{"layer": 0}] * 20000}, "a list of at most 16384 values"),
        ({"memory": {}}, "KeyError"),
        ({"inputs": None}, "a list of at most"),
        ({"schedule": [7] * 7}, "TypeError"),
        ({"constant_bytes": 10**400}, "is no whole number"),
        ({"constant_bytes": True}, "is no whole number"),
    ],
)  # fmt: skip
def test_a_manifest_that_makes_no_sense_is_refused(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    content = json.loads(compile_model(DIGITS).files["manifest.json"]) | change
    refused(tmp_path, json.dumps(content), why)


@pytest.mark.parametrize(("text", "why"), [("[" * 9000, "no JSON"), ("\x00", "no JSON"), ("[]", "TypeError")])
def test_a_file_that_is_no_manifest_is_refused(tmp_path: Path, text: str, why: str) -> None:
    refused(tmp_path, text, why)


def refused(folder: Path, manifest: str, why: str) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "manifest.json").write_text(manifest, encoding="utf-8")
    done = CliRunner().invoke(cli, ["report", str(folder / "package"), "-o", str(folder / "r.html")])
    assert done.exit_code == 2 and "this is no manifest of emitc" in done.output and why in done.output
    assert not (folder / "r.html").exists()


def test_a_page_replaces_only_a_page(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    path.write_text("mine", encoding="utf-8")
    command = ["report", str(DIGITS), "--samples", "0", "-o", str(path)]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 2 and "emitc did not write it" in done.output and path.read_text() == "mine"
    assert CliRunner().invoke(cli, [*command, "--force"]).exit_code == 0
    assert CliRunner().invoke(cli, command).exit_code == 0  # its own page
    empty = CliRunner().invoke(cli, ["report", str(tmp_path), "-o", str(tmp_path / "x.html")])
    assert empty.exit_code == 2 and "neither manifest.json nor results.jsonl" in empty.output


def test_rows_that_make_no_sense_are_left_out(opened: Opened, tmp_path: Path) -> None:
    odd = row("odd", 1, 2, target={"a": [1]}, seconds="x", error=[1], arena_bytes=True, proven=3)
    lines = [
        json.dumps(odd),
        json.dumps(row("nan", 1, 2)).replace("0.1", "NaN"),
        "{}",
        json.dumps(row("b.tflite", 3, 4)),
    ]
    (tmp_path / "results.jsonl").write_text("\n".join(lines), encoding="utf-8")
    report(tmp_path, "-o", tmp_path / "r.html")
    assert opened(tmp_path / "r.html").locator("#count").inner_text() == "2 of 2 rows"
    (tmp_path / "results.jsonl").write_text("{}\n", encoding="utf-8")
    done = CliRunner().invoke(cli, ["report", str(tmp_path), "-o", str(tmp_path / "x.html")])
    assert done.exit_code == 2 and "none of its lines is a row of a sweep" in done.output


@pytest.mark.corpus
def test_the_largest_model_opens_in_two_seconds(opened: Opened, shared_models: Path, tmp_path: Path) -> None:
    largest = max((shared_models / "tflite").glob("*.tflite"), key=lambda path: path.stat().st_size)
    report(largest, "--samples", 0, "-o", tmp_path / "r.html")
    opened(tmp_path / "r.html").close()  # the browser's own start is not the page's
    start = time.monotonic()
    page = opened(tmp_path / "r.html")
    assert page.locator("table.sortable tbody tr").count() > 10
    assert time.monotonic() - start < 2


def test_the_python_api_writes_the_page_of_the_command(digits: Path, tmp_path: Path) -> None:
    model = emitc.compile_model(DIGITS, target="cortex-m4f")
    page = tmp_path / "page.html"
    assert model.report(page, samples=0) == str(page)
    assert page.read_bytes() == digits.read_bytes()
    assert model.report() == model.report(None) != ""
    page.write_text("mine", encoding="utf-8")
    with pytest.raises(EmitcError, match="emitc did not write"):
        model.report(page, samples=0)
    assert page.read_text(encoding="utf-8") == "mine"
    model.report(page, samples=1, force=True)
    assert "MATCH" in page.read_text(encoding="utf-8")
    with pytest.raises(EmitcError, match="qemu_m5"):
        model.report(page, board="qemu_m5")
