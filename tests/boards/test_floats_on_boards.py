"""Floats on boards: the tolerance of the host's proof, and nothing beyond it; integers by every byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from emitc.boards import verify
from emitc.boards.project import Case, RunModel, RunTensor
from emitc.boards.protocol import CaseLines, Transcript
from emitc.boards.result import RunResult, Verdict, judged
from emitc.compiler import compile_model
from emitc.report.run import run_text
from emitc.target import load_board
from emitc.verify.tolerances import EXACT, NEAR, TOLERANT, Tolerance, compared
from emitc.writers.tflite import TensorSpec, write_tflite
from tests.support.models.tiny import Net


def printed(values: np.ndarray, wanted: np.ndarray, rule: Tolerance, c_type: str = "float") -> Verdict:
    """The verdict on one case with one output."""
    model = RunModel("m", (), (RunTensor(values.nbytes, c_type, rule),), 16)
    got, expected = values.tobytes(), wanted.tobytes()
    bytes_ = sum(a != b for a, b in zip(got, expected, strict=True))
    seen = CaseLines(None, 0, False, None, [got], [bytes_])
    return judged(model, load_board("qemu_m4"), Transcript("b", "", None, None, (seen,)), [((), [expected])])


def test_what_an_element_may_be_off_by_is_the_rules_business() -> None:
    wanted = np.array([0.0, 1.0, -4.0], np.float32)
    near = wanted + np.array([0.0, 0.0, 4e-5], np.float32)
    found = printed(near, wanted, TOLERANT)
    assert (found.differing, found.tolerated, found.bound) == (0, 1, TOLERANT)
    assert 0 < found.differing_bytes <= 4
    assert found.max_abs_diff == pytest.approx(4e-5, rel=0.02)
    for rule in (NEAR, EXACT):
        assert (printed(near, wanted, rule).differing, printed(near, wanted, rule).tolerated) == (1, 0)
    far = wanted + np.array([6e-5, 0.0, 0.0], np.float32)
    assert printed(far, wanted, TOLERANT).differing == 1
    assert printed(np.array([np.nan, 1.0, -4.0], np.float32), wanted, TOLERANT).differing == 1
    assert printed(np.array([-0.0, 1.0, -4.0], np.float32), wanted, EXACT).differing == 1


def test_integers_have_no_tolerance() -> None:
    wanted = np.array([5, 6, 7], np.int16)
    found = printed(wanted + np.array([0, 1, 0], np.int16), wanted, EXACT, "int16_t")
    assert (found.differing, found.differing_bytes, found.max_abs_diff) == (1, 1, 1.0)


def _layer_and_softmax(path: Path) -> Path:
    """A fully connected layer, TANH and SOFTMAX in float32."""
    net = Net(4)
    x, summed, bent, y = (
        net.tensor(TensorSpec(name, "float32", (1, size))) for name, size in (("x", 9), ("s", 6), ("t", 6), ("y", 6))
    )
    weights = net.rng.normal(0.0, 0.4, (6, 9)).astype("<f4")
    bias = net.rng.normal(0.0, 0.4, 6).astype("<f4")
    w = net.tensor(TensorSpec("w", "float32", weights.shape, weights.tobytes()))
    b = net.tensor(TensorSpec("b", "float32", bias.shape, bias.tobytes()))
    net.op("FULLY_CONNECTED", (x, w, b), (summed,), fused_activation_function="NONE")
    net.op("TANH", (summed,), (bent,))
    net.op("SOFTMAX", (bent,), (y,), beta=1.0)
    path.write_bytes(write_tflite(net.spec((x,), (y,))))
    return path


@pytest.mark.board
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
def test_a_float_model_is_held_to_the_tolerance_and_a_wrong_float_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    pytest.importorskip("platformio", reason="PlatformIO, which builds for the boards, is not installed")
    made = compile_model(_layer_and_softmax(tmp_path / "m.tflite"), target="cortex-m4f", package="platformio")
    honest = verify.expected

    def run(folder: str, off: float) -> RunResult:
        def nudged(*arguments: object) -> tuple[str, list[Case]]:
            engine, (first, *others) = honest(*arguments)  # type: ignore[arg-type]
            values = np.frombuffer(first[1][0], np.float32) + np.array([0, 0, off, 0, 0, 0], np.float32)
            return engine, [(first[0], (values.tobytes(),)), *others]

        monkeypatch.setattr(verify, "expected", nudged)
        return verify.on_emulator(
            made, "qemu_m4", reference="tflm", samples=5, seed=2, layers=False, workdir=tmp_path / folder
        )

    # Nudged by a few units in the last place, so that the tolerance is needed whatever the board's library gives.
    result = run("near", 3e-7)
    assert result.match
    assert result.tolerated > 0 == result.differing
    assert (result.as_json()["rule"], result.as_json()["tolerance"]) == ("tolerance", 1e-5)
    assert "floats beyond 1e-05 + 1e-05 of the largest" in run_text(made, result)
    wrong = run("far", 3e-5)
    assert not wrong.match
    assert wrong.differing == 1
    assert "MISMATCH" in run_text(made, wrong)


def test_the_sign_of_a_nan_is_the_processors() -> None:
    """The square root of -1: x86 makes a NaN with the sign, Arm one without."""
    wanted = np.array([0xFFC00000, 0x3F800000], np.uint32).view(np.float32)
    found = np.array([0x7FC00000, 0x3F800000], np.uint32).view(np.float32)
    verdict = printed(found, wanted, EXACT)
    assert (verdict.differing, verdict.tolerated, verdict.differing_bytes) == (0, 1, 1)
    infinite = np.array([0x7F800000, 0x3F800000], np.uint32).view(np.float32)
    assert printed(infinite, wanted, EXACT).differing == 1
    assert compared(found, wanted).differing == 1, "on one processor the bits are the same"
