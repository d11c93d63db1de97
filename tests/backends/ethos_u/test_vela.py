"""vela's faults, injected: missing, of another version, crashing, hanging, refusing. Each is an error or a recorded reason."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from emitc.backends.ethos_u import vela
from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError
from emitc.verify import verification

MODEL = Path(__file__).resolve().parents[3] / "examples" / "models" / "digits_int8.tflite"
NPU = {"npu": "ethos-u55-128", "npu-always": "yes"}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    vela.version.cache_clear()


def child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    """Another program instead of vela's child process."""
    monkeypatch.setattr(vela, "version", lambda: "5.2.0")
    (tmp_path / "vela_child.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(vela, "__file__", str(tmp_path / "vela.py"))


def reasons() -> set[str]:
    made = compile_model(MODEL, backends=NPU)
    assert {row.backend for row in made.partition.assignments} == {"portable"}
    assert verification.verify(made, reference="numpy", samples=1).match
    return {reason for row in made.partition.assignments for _, reason in row.refused}


def test_a_missing_vela_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(EmitcError, match="compiling for the NPU needs vela") as caught:
        compile_model(MODEL, backends=NPU)
    assert caught.value.hint == 'in a checkout of emitc: pip install -e ".[npu]"'


@pytest.mark.parametrize("version", ["4.5.0", "5.1.0", "6.0.0", "garbage"])
def test_another_version_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    with pytest.raises(EmitcError, match=f"vela {version} is not supported"):
        compile_model(MODEL, backends=NPU)


def test_a_crash_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child(monkeypatch, tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    assert reasons() == {"vela crashed (signal 11)"}


def test_a_hang_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child(monkeypatch, tmp_path, "import time\ntime.sleep(60)\n")
    monkeypatch.setattr(vela, "TIMEOUT_SECONDS", 1)
    assert reasons() == {"vela did not end within 1 seconds"}


def test_an_error_is_a_reason_with_its_last_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child(monkeypatch, tmp_path, "import sys\nsys.exit('no such accelerator')\n")
    assert reasons() == {"vela failed: no such accelerator"}


def test_an_answer_that_is_missing_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child(monkeypatch, tmp_path, "")
    assert reasons() == {"vela ended with 0"}


def test_without_fallback_a_refusal_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child(monkeypatch, tmp_path, "import sys\nsys.exit(1)\n")
    with pytest.raises(CannotCompile, match="ethos-u does not take 7 of the operators"):
        compile_model(MODEL, backends=NPU, fallback="fail")


@pytest.mark.usefixtures("vela")
def test_a_damaged_file_is_declined() -> None:
    """vela's own compiler ends the process on it."""
    configuration = vela.Configuration("EthosU55", 128, "Ethos_U55_High_End_Embedded", "Shared_Sram", "Size", 1 << 20)
    for data in (b"", b"\0" * 64, MODEL.read_bytes()[:900]):
        answer = vela.compile_region(data, configuration, separate=True)
        assert isinstance(answer, vela.Declined)
        assert answer.reason.startswith("vela ")


@pytest.mark.usefixtures("vela")
def test_what_vela_leaves_on_the_core_is_taken_out_and_the_rest_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = vela.compile_region

    def picky(data: bytes, configuration: vela.Configuration, *, separate: bool) -> vela.Compiled | vela.Declined:
        asked.append(len(data))
        if len(asked) == 1:
            import tflite

            graph = tflite.Model.GetRootAsModel(data, 0).Subgraphs(0)
            name = graph.Tensors(graph.Operators(3).Outputs(0)).Name().decode()
            return vela.Declined("vela leaves it on the core", (name,))
        return real(data, configuration, separate=separate)

    monkeypatch.setattr(vela, "compile_region", picky)
    made = compile_model(MODEL, backends=NPU)
    left = [row for row in made.partition.assignments if row.backend == "portable"]
    assert len(left) == 1
    assert ("ethos-u", "vela leaves it on the core") in left[0].refused
    assert len(asked) == 3
    assert verification.verify(made, samples=3, layers=True).match
