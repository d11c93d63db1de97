"""The C of two tiny models as text: a change of what is generated shows as a diff. `pytest --update-golden` rewrites it."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.compiler import compile_model
from emitc.verify.verification import verify

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
NAMES = ("spotter", "branches")


@pytest.mark.parametrize("name", NAMES)
def test_generated_c_is_the_golden_text(name: str, tiny: Path, request: pytest.FixtureRequest) -> None:
    compiled = compile_model(tiny / f"{name}.tflite")
    for file in (f"{name}.h", f"{name}.c"):
        golden = GOLDENS / file
        text = compiled.files[file].decode("ascii")
        if request.config.getoption("--update-golden"):
            golden.write_text(text, encoding="ascii")
        assert text.splitlines() == golden.read_text(encoding="ascii").splitlines(), "see pytest --update-golden"


@pytest.mark.parametrize("name", NAMES)
def test_the_golden_models_are_proven(name: str, tiny: Path) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    proof = verify(compile_model(tiny / f"{name}.tflite"), samples=6, layers=True)
    assert proof.match
    assert (proof.reference, proof.samples) == ("tflm", 6)
    assert proof.layers_checked == 6 * len(compile_model(tiny / f"{name}.tflite").program.steps)


def test_the_goldens_are_only_those_of_the_models() -> None:
    assert sorted(p.name for p in GOLDENS.iterdir()) == sorted(f"{name}.{end}" for name in NAMES for end in ("c", "h"))
