"""How often the int8 keyword spotter micro_kws_m agrees with its float original, on sounds that are made here.

    python -m bench.networks.speech

No package carries recordings of its ten classes, so that its accuracy cannot be measured here. The sounds are noise, vowels
with moving formants, and vowels with a hiss in front; `examples/models/audio_preprocessor_int8.tflite` makes the features
that the network was trained on. Of 600 sounds 200 calibrate, and the class by the float model is the label of the others.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import emitc
from bench.corpus import CORPUS
from emitc.report.tables import table
from emitc.verify.engines.run import run_isolated

PREPROCESSOR = Path(__file__).resolve().parents[2] / "examples" / "models" / "audio_preprocessor_int8.tflite"
SCALE = 0.10171568393707275
"""Of the features, as the input of micro_kws_m_int8 states it; the zero point is -128."""
RATE, FRAMES, STRIDE, LENGTH = 16000, 49, 320, 480
SOUNDS, CALIBRATION = 600, 200
Floats = NDArray[np.float32]


def sound(rng: np.random.Generator, kind: int) -> NDArray[np.float64]:
    """A second of noise (0), of a vowel (1), or of a vowel after a hiss (2), from -1 to 1."""
    time = np.arange(RATE) / RATE
    if kind == 0:
        return np.asarray(0.05 * rng.random() * rng.normal(size=RATE))
    loudness = np.interp(time, [0, 0.1, 0.3, rng.uniform(0.5, 0.8), 1], [0, 0, 1, rng.random(), 0])
    pitch = rng.uniform(80, 300) * np.interp(time, [0, 0.5, 1], rng.uniform(0.8, 1.25, 3))
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    ranges = ((250, 900, 90), (800, 2400, 130), (2200, 3300, 200))
    formants = [(np.interp(time, [0, 0.35, 0.65, 1], rng.uniform(low, high, 4)), width) for low, high, width in ranges]
    wave = 0.003 * rng.normal(size=RATE)
    for harmonic in range(1, 40):
        tone = harmonic * pitch
        gain = sum(np.exp(-(((tone - formant) / width) ** 2)) for formant, width in formants) * (tone < 7500)
        wave += loudness * gain * np.sin(harmonic * phase) / harmonic**0.5
    if kind == 2:
        wave += 0.3 * np.interp(time, [0.1, 0.18, 0.3], [0, 1, 0]) * np.diff(rng.normal(size=RATE), prepend=0)
    return np.asarray(wave * rng.uniform(0.02, 0.9) / np.abs(wave).max())


def features() -> Floats:
    """Of all sounds, [SOUNDS, 1960]."""
    rng, preprocessor = np.random.default_rng(0), emitc.compile_model(PREPROCESSOR)
    rows = []
    for number in range(SOUNDS):
        wave = np.clip(np.rint(32767 * sound(rng, number % 3)), -32768, 32767).astype(np.int16)
        frames = np.stack([wave[STRIDE * i : STRIDE * i + LENGTH] for i in range(FRAMES)])
        rows.append(np.asarray(preprocessor.run(frames)).reshape(-1))
    return (SCALE * (np.stack(rows).astype(np.float32) + 128)).astype(np.float32)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.networks.speech", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--models", type=Path, default=CORPUS, help="directory of the corpus")
    model = parser.parse_args().models / "onnx" / "float" / "micro_kws_m_fp32.onnx"
    x = features()
    answers = run_isolated(model.read_bytes(), [(row[np.newaxis],) for row in x], source_format="onnx").outputs
    classes = np.array([int(np.argmax(answer[0])) for answer in answers])
    rows = []
    with tempfile.TemporaryDirectory(prefix="emitc-") as name:
        calibration, test = Path(name) / "calibration.npz", Path(name) / "test.npz"
        np.savez(calibration, allow_pickle=False, X=x[:CALIBRATION])
        np.savez(test, allow_pickle=False, X=x[CALIBRATION:], y=classes[CALIBRATION:])
        for settings in ((), ("bias",), ("equalize", "bias")):
            made = emitc.quantize(model, calibration, Path(name) / "q.onnx", test=test, remedies=settings, force=True)
            assert made.test is not None
            ratio = made.quality.outputs[0].sqnr_db
            rows.append(
                (" ".join(settings) or "default", f"{made.test.value:.2%}", f"{ratio:.1f}", made.test.engine_differing)
            )
    counts = ", ".join(map(str, np.bincount(classes[CALIBRATION:], minlength=10)))
    print(f"sounds of each class by the float model: {counts}")
    print(table(("remedies", "same class>", "dB>", "differ from ONNX Runtime>"), rows))


if __name__ == "__main__":
    main()
