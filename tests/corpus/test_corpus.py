"""The committed verdicts on the model corpus: complete, true for a fixed sample, and true for all in the sweep."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench import corpus
from emitc.verify.engines.run import ENGINES
from tests.support.onnx_op import OnnxCase, computed, model_of

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = {verdict.model: verdict for verdict in corpus.read_verdicts(corpus.JSON_FILE)}
SEVEN = (
    "ad01_int8", "hello_world_int8", "ic_resnet_int8", "kws_ref_int8", "micro_speech_int8", "person_detect_int8", "vww_96_int8",
)  # fmt: skip
"""The nets that have to be verified whatever else changes."""
QOPERATOR = (
    "digits_cnn_qop_s8s8", "digits_cnn_qop_u8s8_pc", "digits_dscnn_qop_s8s8", "digits_dscnn_qop_u8s8_pc",
    "digits_dscnn_qop_u8s8_pc_intio", "digits_gru_unrolled_qop_u8s8_pc", "digits_mlp_qop_s8s8", "digits_mlp_qop_u8s8_pc",
    "digits_resnet_qop_s8s8", "digits_resnet_qop_u8s8_pc", "ic_tiny_qop_u8s8_pc", "kws_tiny_qop_u8s8_pc",
    "micro_kws_m_qoperator",
)  # fmt: skip
"""ONNX nets of integer operators: every bit is defined."""
TEXT = (
    "# What emitc makes of the model corpus",
    "| kws_ref_int8.tflite | verified | tflm | exact |",
    "| digits_mlp_qop_u8s8_pc.onnx | verified | onnxruntime | exact |",
    "| float/digits_mlp.onnx | verified | onnxruntime | tolerance ",
)


def test_nothing_in_the_committed_file_differs() -> None:
    assert [v.model for v in COMMITTED.values() if v.verdict == "differs"] == []
    assert {v.verdict for v in COMMITTED.values()} <= set(corpus.VERDICTS)


def test_every_model_without_proof_says_why_and_every_proof_is_whole() -> None:
    for verdict in COMMITTED.values():
        assert bool(verdict.reasons) == (verdict.verdict != "verified"), verdict.model
        if verdict.verdict == "verified":
            assert verdict.samples >= corpus.SAMPLES
            assert verdict.elements >= verdict.samples
            engines = ENGINES[corpus.format_of(verdict.model)]
            assert verdict.reference in engines


@pytest.mark.parametrize("name", SEVEN)
def test_the_seven_nets_are_verified(name: str) -> None:
    assert COMMITTED[f"{name}.tflite"].verdict == "verified"
    assert COMMITTED[f"{name}.tflite"].reference == "tflm"


@pytest.mark.parametrize("name", QOPERATOR)
def test_the_nets_of_integer_operators_are_verified_exactly(name: str) -> None:
    verdict = COMMITTED[f"{name}.onnx"]
    assert (verdict.verdict, verdict.reference, verdict.rule) == ("verified", "onnxruntime", "exact")


def test_only_float_outputs_are_tolerant() -> None:
    """Nets of floats, and those that quantize while they run; of each the file says so by its name."""
    tolerant = [v.model for v in COMMITTED.values() if v.rule == "tolerance"]
    onnx = [name for name in tolerant if name.endswith(".onnx")]
    assert [name for name in onnx if not name.startswith("float/") and "_dyn_" not in name] == []
    tflite = [name for name in tolerant if name.endswith(".tflite")]
    assert [name for name in tflite if not name.startswith("float_ops/") and not name.endswith("_float.tflite")] == []
    assert sorted(onnx + tflite) == sorted(tolerant)
    assert all(v.tolerated == 0 for v in COMMITTED.values() if v.rule == "exact")


def test_only_nets_with_qdq_groups_are_judged_operator_by_operator() -> None:
    """And what they are off by in the end is little."""
    grouped = [v for v in COMMITTED.values() if v.rule == "groups"]
    assert [
        v.model for v in grouped if v.model.startswith("float/") or v.model.removesuffix(".onnx") in QOPERATOR
    ] == []
    assert [v.model for v in grouped if v.differing > v.elements / 20] == []
    assert [v.model for v in COMMITTED.values() if v.rule != "groups" and v.verdict == "verified" and v.differing] == []


def test_the_text_is_that_of_the_rows() -> None:
    text = corpus.TEXT_FILE.read_text(encoding="utf-8")
    assert text == corpus.markdown_text(list(COMMITTED.values()))
    assert corpus.JSON_FILE.read_text(encoding="utf-8") == corpus.json_text(COMMITTED.values())
    assert all(line in text for line in TEXT)


@pytest.mark.corpus
def test_the_file_knows_exactly_the_models_of_the_corpus(shared_models: Path) -> None:
    assert list(COMMITTED) == corpus.models(shared_models)


@pytest.mark.corpus
@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("model", COMMITTED)
def test_the_committed_verdict_is_true(model: str, shared_models: Path) -> None:
    """A sample of the corpus; --full takes all of it (some ten minutes)."""
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    assert corpus.judged(shared_models, model).claim == COMMITTED[model].claim


def test_without_a_corpus_the_command_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert corpus.main(["--corpus", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"skipped: there is no corpus of models in {tmp_path}\n"


def test_a_sample_is_the_same_for_its_seed() -> None:
    names = [f"m{i}" for i in range(50)]
    assert corpus.chosen(names, 7, 1) == corpus.chosen(names, 7, 1)
    assert corpus.chosen(names, 7, 1) != corpus.chosen(names, 7, 2)
    assert corpus.chosen(names, None, 1) == names
    assert set(corpus.chosen(names, 7, 1)) < set(names)


@pytest.fixture
def small(tiny: Path, tmp_path: Path) -> Path:
    """A corpus of tiny models, two of them damaged."""
    folder = tmp_path / "models"
    (folder / "tflite" / "more").mkdir(parents=True)
    for name, place in (("wires", "wires"), ("unsupported", "more/unsupported")):
        (folder / "tflite" / f"{place}.tflite").write_bytes((tiny / f"{name}.tflite").read_bytes())
    (folder / "tflite" / "damaged.tflite").write_bytes(b"\0" * 64)
    (folder / "onnx" / "float").mkdir(parents=True)
    constants = {"s": np.array(0.1, np.float32), "z": np.array(3, np.int8)}
    cases = {
        "quantize": OnnxCase("c", "QuantizeLinear", {"x": computed((2, 3)), **constants}),
        "float/sigmoid": OnnxCase("c", "Sigmoid", {"x": computed((2, 30))}),
    }
    for place, case in cases.items():
        (folder / "onnx" / f"{place}.onnx").write_bytes(model_of([case]).SerializeToString())
    (folder / "onnx" / "damaged.onnx").write_bytes(b"\0" * 64)
    return folder


def test_the_models_of_a_corpus_are_listed_by_format(small: Path) -> None:
    assert corpus.models(small) == [
        "damaged.tflite", "more/unsupported.tflite", "wires.tflite", "damaged.onnx", "float/sigmoid.onnx", "quantize.onnx",
    ]  # fmt: skip
    (small / "onnx" / "notes.txt").write_text("not a model")
    assert len(corpus.models(small)) == 6


def test_vectors_of_onnx_models_are_used(small: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    assert corpus.judged(small, "quantize.onnx").samples == corpus.SAMPLES
    (small / "vectors" / "onnx").mkdir(parents=True)
    x = np.array([[0.1, 0.24, -0.31], [1000, -1000, 0]], np.float32)
    right = np.array([[4, 5, 0], [127, -128, 3]], np.int8)
    for expected, verdict in ((right, "verified"), (right + np.int8(1), "differs")):
        np.savez(small / "vectors" / "onnx" / "quantize.npz", in0_0=x, out0_0=expected)
        found = corpus.judged(small, "quantize.onnx")
        assert (found.verdict, found.samples) == (verdict, corpus.SAMPLES + 1)


def test_rows_of_one_format_are_rewritten_alone(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    monkeypatch.setattr(corpus, "JSON_FILE", tmp_path / "v.json")
    monkeypatch.setattr(corpus, "TEXT_FILE", tmp_path / "v.md")
    kept = corpus.Verdict("wires.tflite", "no engine", ("as before",))
    (tmp_path / "v.json").write_text(corpus.json_text([kept, corpus.Verdict("gone.onnx", "refused", ("x",))]))
    assert corpus.main(["--corpus", str(small), "--format", "onnx"]) == 0
    rows = corpus.read_verdicts(tmp_path / "v.json")
    assert rows[0] == kept
    assert [(v.model, v.verdict, v.rule) for v in rows[1:]] == [
        ("damaged.onnx", "refused", ""),
        ("float/sigmoid.onnx", "verified", "tolerance"),
        ("quantize.onnx", "verified", "exact"),
    ]
    assert "3 models" in capsys.readouterr().out
    assert corpus.main(["--corpus", str(small), "--format", "onnx", "--check"]) == 0
    assert (tmp_path / "v.md").read_text(encoding="utf-8") == corpus.markdown_text(rows)


def test_the_command_writes_checks_and_notices_a_change(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    monkeypatch.setattr(corpus, "JSON_FILE", tmp_path / "v.json")
    monkeypatch.setattr(corpus, "TEXT_FILE", tmp_path / "v.md")
    assert corpus.main(["--corpus", str(small)]) == 0
    written = {v.model: (v.verdict, v.reasons) for v in corpus.read_verdicts(tmp_path / "v.json")}
    assert written == {
        "damaged.tflite": ("refused", ("this is not a .tflite file: the identifier TFL3 is missing at byte 4",)),
        "more/unsupported.tflite": (
            "unsupported",
            (
                "DENSIFY is not supported: emitc has no kernel for this operator",
                "CUSTOM:Mystery is not supported: emitc has no kernel for this operator",
            ),
        ),
        "wires.tflite": ("verified", ()),
        "damaged.onnx": written["damaged.onnx"],
        "float/sigmoid.onnx": ("verified", ()),
        "quantize.onnx": ("verified", ()),
    }
    assert written["damaged.onnx"][0] == "refused"
    assert corpus.main(["--corpus", str(small), "--check"]) == 0
    assert "as in the committed file" in capsys.readouterr().out
    text = (tmp_path / "v.json").read_text(encoding="utf-8")
    (tmp_path / "v.json").write_text(
        text.replace('"verdict": "verified"', '"verdict": "unsupported"'), encoding="utf-8"
    )
    assert corpus.main(["--corpus", str(small), "--check"]) == 1
    assert "wires.tflite: ('unsupported'" in capsys.readouterr().out
    assert corpus.main(["--corpus", str(small), "--check", "--sample", "1", "--seed", "2"]) in (0, 1)


def test_a_proof_that_fails_is_a_verdict(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    real = corpus.compile_model

    def wrong(path: Path) -> corpus.Compiled:
        compiled = real(path)
        text = compiled.files["wires.c"].decode("ascii")
        changed = text.replace("    return EMITC_OK;\n}", "    self->arena[0] ^= 1;\n    return EMITC_OK;\n}")
        assert changed != text
        compiled.files["wires.c"] = changed.encode("ascii")
        return compiled

    monkeypatch.setattr(corpus, "compile_model", wrong)
    verdict = corpus.judged(small, "wires.tflite")
    assert verdict.verdict == "differs"
    assert any("elements differ, by 1 at most" in reason for reason in verdict.reasons)
