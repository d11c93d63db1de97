"""Writes src/sound.h: what the firmware hears, 16 kHz mono, as C arrays.

Four clips: silence, white noise, the wake word, and another sentence. The two spoken ones are audio/*.wav between stretches of
faint noise, as a microphone has it. The same file comes out on every machine: noise is raw words of PCG64, whose stream
numpy keeps stable, and integer arithmetic.
"""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
RATE = 16000
LOUD = 3000
"""Largest sample of the noise clip: about -26 dBFS rms."""
FAINT = 40
"""Largest sample of the noise around speech: about -63 dBFS rms."""
PER_LINE = 20


def noise(seed: int, seconds: float, largest: int) -> NDArray[np.int16]:
    """White noise: evenly distributed samples in [-largest, largest], int16[seconds * RATE]."""
    words = np.random.PCG64(seed).random_raw(int(seconds * RATE))
    return ((words >> 33) % (2 * largest + 1)).astype(np.int16) - np.int16(largest)


def spoken(name: str, seed: int) -> NDArray[np.int16]:
    """audio/<name>.wav with 0.8 s of faint noise before it and 0.2 s after it."""
    with wave.open(str(HERE / "audio" / f"{name}.wav")) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2), name
        speech = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return np.concatenate([noise(seed, 0.8, FAINT), speech, noise(seed + 1, 0.2, FAINT)]).astype(np.int16)


def clips() -> dict[str, NDArray[np.int16]]:
    """The sound by the name that the firmware prints."""
    return {
        "silence": np.zeros(RATE, np.int16),
        "noise": noise(1, 1.5, LOUD),
        '"hey jarvis"': spoken("hey_jarvis", 2),
        '"turn on the kitchen light"': spoken("kitchen_light", 4),
    }


def main() -> None:
    """One array for each clip, and a table of them."""
    lines = ["/* Written by make_sound.py: 16 kHz, one channel. */"]
    table = []
    for number, (name, samples) in enumerate(clips().items()):
        lines.append(f"static const int16_t clip_{number}[{samples.size}] = {{")
        for start in range(0, samples.size, PER_LINE):
            lines.append(f"    {', '.join(map(str, samples[start : start + PER_LINE].tolist()))},")
        lines.append("};")
        label = name.replace('"', '\\"')
        table.append(f'    {{"{label}", clip_{number}, {samples.size}}},')
    lines += [
        "static const struct {",
        "    const char *name;",
        "    const int16_t *samples;",
        "    uint32_t count;",
        "} clips[] = {",
        *table,
        "};",
    ]
    (HERE / "src" / "sound.h").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
