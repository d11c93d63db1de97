"""The source of a package explains the ends of its kernels' names."""

from __future__ import annotations

from pathlib import Path

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.emit.facts import meaning

KWS = Path(__file__).resolve().parents[2] / "examples" / "models" / "kws_ref_int8.tflite"
PLAIN_WORDS = {"late", "bias", "max", "min", "mve", "words", "last", "double", "float", "signed", "fpu"}
"""Words of suffixes that say it all."""


def test_every_word_has_a_meaning(every_family: list[Compiled]) -> None:
    specs = {step.spec.suffix for compiled in every_family for step in compiled.program.kernels}
    words = {word for suffix in specs for word in suffix.split("_") if word}
    assert {word for word in words if not meaning(word)} <= PLAIN_WORDS
    assert {"up", "away", "clamped", "f32"} <= words


def test_the_source_says_it_once() -> None:
    source = compile_model(KWS, target="cortex-m4f").files["kws_ref_int8.c"].decode("ascii")
    assert source.count(" * _up: halves are rounded up") == 1
    assert " * _joined: " in source
    assert "_uneven:" not in source
