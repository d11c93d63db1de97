"""The specification of a sweep: every key is checked, no file outside of its folder is read, no product is too large."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.errors import EmitcError
from emitc.sweep import spec as specification
from emitc.sweep.jobs import jobs_of
from emitc.sweep.spec import read_spec

MODEL = Path(__file__).resolve().parents[2] / "examples" / "models" / "digits_int8.tflite"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "in"
    place.mkdir()
    for name in ("a.tflite", "b.tflite", "secret.tflite"):
        (place / name).write_bytes(MODEL.read_bytes())
    (place / "secret.tflite").rename(tmp_path / "secret.tflite")
    (place / "link.onnx").symlink_to(tmp_path / "secret.tflite")
    return place


def refused(folder: Path, text: str | bytes) -> EmitcError:
    (folder / "s.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(EmitcError) as error:
        read_spec(folder / "s.toml")
    assert error.value.exit_code == 2
    return error.value


OWN = 'models = ["a.tflite"]\n'


@pytest.mark.parametrize(
    ("text", "where", "why", "hint"),
    [
        (OWN + "target = 1", "s.toml: target", "the key is unknown; known are models", "did you mean targets?"),
        (OWN + 'targets = ["cortex-m4g"]', "s.toml: targets", "cortex-m4g", "did you mean cortex-m4"),
        (OWN + 'boards = ["qemu_m5"]', "s.toml: boards", "qemu_m5", "did you mean qemu_m"),
        (OWN + 'kernels = ["portabel"]', "s.toml: kernels", "portabel", "did you mean portable?"),
        (OWN + 'ram_budgets = ["20X"]', "s.toml: ram_budgets", "'20X' is neither", "see docs/sweep.md"),
        (OWN + 'ram_budgets = ["1K", "1024"]', "s.toml: ram_budgets", "'1024' stands there twice", "name it once"),
        (OWN + "verify = 1", "s.toml: verify", "expected true or false, and 1 is given", "see docs/sweep.md"),
        (OWN + "samples = true", "s.toml: samples", "expected a whole number", "see docs/sweep.md"),
        (OWN + "samples = 1001", "s.toml: samples", "from 1 to 1000, and 1001 is given", "see docs/sweep.md"),
        (OWN + '[[options]]\nname = "x"\noptimise = "size"', "options[0].optimise", "unknown", "did you mean optimize?"),
        (OWN + '[[options]]\nname = "x"\noptimize = "tiny"', "options[0].--optimize", "tiny is unknown", "choose one"),
        (OWN + '[[options]]\nname = "x"\nmax_step_cycles = 0', "options[0].max_step_cycles", "a whole number", "docs/sweep"),
        (OWN + '[[options]]\noptimize = "size"', "options[0].name", "expected a text", "see docs/sweep.md"),
        (OWN + '[[options]]\nname = "x"\n[[options]]\nname = "x"', "options[1].name", "twice", "a name of its own"),
        (OWN + '[[options]]\nname = "x"\nshapes = {x = [0]}', "options[0].shapes", "a table of shapes", "docs/sweep.md"),
        (OWN + '[[options]]\nname = "x"\nbackends = {npv = "y"}', "backends.npv", "unknown", "did you mean npu?"),
        (OWN + '[[options]]\nname = "x"\nbackends = {cmsis-nn = "/x"}', "backends.cmsis-nn", "names a file", "remove it"),
        (OWN + '[[data]]\npath = "a.tflite"\nmetric = "/tmp/x.py"', "data[0].metric", "unknown", "choose one"),
        (OWN + '[[data]]\npath = "a.tflite"\nscale = "1/0"', "data[0].scale", "a fraction", "see docs/sweep.md"),
        (OWN + '[[data]]\npath = "../secret.tflite"', "data[0].path", "leaves the folder", "--root FOLDER"),
        (OWN + '[[data]]\npath = "nothing.npz"', "data[0].path", "is no file and no folder", "correct the path"),
        ('models = ["../*.tflite"]', "s.toml: models", "'../*.tflite' leaves the folder", "--root FOLDER"),
        ('models = ["/etc/*"]', "s.toml: models", "'/etc/*' leaves the folder", "--root FOLDER"),
        ('models = ["link.onnx"]', "s.toml: models", "is a link to", "--root FOLDER"),
        ('models = ["x/**y"]', "s.toml: models", "", ""),
        ('models = ["*.pb"]', "s.toml: models", "'*.pb' finds no file below", "correct the pattern"),
        ("models = []", "s.toml: models", "no model is named", "*.tflite"),
        ('models = "a.tflite"', "s.toml: models", "expected a list of texts", "see docs/sweep.md"),
        ('models = ["a\\u0000"]', "s.toml: models", "expected a list of texts", "see docs/sweep.md"),
        ("models = [", "s.toml", "Invalid", "docs/sweep.md"),
        (b"\xff\xfe", "s.toml", "utf-8", "docs/sweep.md"),
        ("a = " + "[" * 5000, "s.toml", "nested too deeply", "docs/sweep.md"),
        ("samples = " + "9" * 5000, "s.toml", "", ""),
        ("#" * (1 << 21), "s.toml", "2097152 bytes, and a sweep has at most", "patterns"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(folder: Path, text: str | bytes, where: str, why: str, hint: str) -> None:
    error = refused(folder, text)
    assert where in str(error.where) and why in error.why and hint in error.hint


def test_a_huge_product_is_refused_before_it_is_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specification, "MOST_JOBS", 1000)
    budgets = ", ".join(f'"{number + 1}"' for number in range(501))
    error = refused(folder, f'models = ["*.tflite"]\nram_budgets = [{budgets}]')
    assert error.what == "the sweep has up to 1002 jobs" and "501 budgets" in error.why


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmitcError, match="the sweep cannot be read"):
        read_spec(tmp_path / "no.toml")


def test_another_root_holds_the_files(folder: Path, tmp_path: Path) -> None:
    (folder / "s.toml").write_text('models = ["secret*", "in/*.tflite", "in/a.tflite"]', encoding="utf-8")
    found = read_spec(folder / "s.toml", tmp_path)
    assert [model.name for model in found.models] == ["secret.tflite", "a.tflite", "b.tflite"]


def test_every_combination_is_one_job(folder: Path) -> None:
    text = (
        'models = ["*.tflite"]\ntargets = ["cortex-m0"]\nboards = ["qemu_m4", "nucleo_f446re"]\n'
        'kernels = ["portable", "auto"]\nram_budgets = ["none", "20K"]\n'
        '[[options]]\nname = "small"\noptimize = "size"\n[[options]]\nname = "fast"\n'
        '[[data]]\npath = "a.tflite"\nmodels = ["a*"]\n[[data]]\npath = "b.tflite"\nmodels = ["a.tflite"]\nmetric = "mse"\n'
    )
    (folder / "s.toml").write_text(text, encoding="utf-8")
    jobs = jobs_of(read_spec(folder / "s.toml"))
    assert len(jobs) == (2 + 1) * 3 * 2 * 2 * 2  # a has two data sets, b none
    assert len({job.key for job in jobs}) == len(jobs)
    places = {(job.options.target, job.board, job.measure) for job in jobs}
    assert places == {("cortex-m0", "", False), ("cortex-m4f", "qemu_m4", True), ("cortex-m4f", "nucleo_f446re", False)}
    assert {job.options.ram_budget for job in jobs} == {None, 20480}


def test_options_of_steps_are_those_of_the_command_line(folder: Path) -> None:
    text = (
        'models = ["a.tflite"]\n[[options]]\nname = "none"\n[[options]]\nname = "steps"\nsteps = true\n'
        '[[options]]\nname = "short"\nmax_step_cycles = 20000\n'
    )
    (folder / "s.toml").write_text(text, encoding="utf-8")
    jobs = jobs_of(read_spec(folder / "s.toml"))
    found = [(job.options.in_steps, job.options.max_step_cycles) for job in jobs]
    assert found == [(False, None), (True, None), (True, 20000)]
    assert len({job.key for job in jobs}) == 3


def test_the_key_follows_the_content_alone(folder: Path, tmp_path: Path) -> None:
    text = 'models = ["*.tflite"]\nverify = false\n'
    (folder / "s.toml").write_text(text, encoding="utf-8")
    before = [job.key for job in jobs_of(read_spec(folder / "s.toml"))]
    moved = tmp_path / "elsewhere"
    folder.rename(moved)
    after = [job.key for job in jobs_of(read_spec(moved / "s.toml"))]
    assert after == before
    (moved / "s.toml").write_text(text + "samples = 4\n", encoding="utf-8")
    assert not set(before) & {job.key for job in jobs_of(read_spec(moved / "s.toml"))}
