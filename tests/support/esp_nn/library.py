"""The stand-in for ESP-NN as a tree, and the real one where a variable of the environment names it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from emitc.backends.esp_nn.scratch import KNOWN_VERSIONS, SOURCES

HERE = Path(__file__).resolve().parent
REAL = Path(os.environ["ESP_NN_PATH"]) if os.environ.get("ESP_NN_PATH") else None
SKIPPED = "ESP_NN_PATH names no ESP-NN"
_FILES = {
    "esp_nn_conv_s8": "conv.c",
    "esp_nn_depthwise_conv_s8": "depthwise.c",
    "esp_nn_fully_connected_s8": "dense.c",
    "esp_nn_avg_pool_s8": "avg_pool.c",
    "esp_nn_max_pool_s8": "max_pool.c",
    "esp_nn_add_elementwise_s8": "add.c",
    "esp_nn_mul_elementwise_s8": "mul.c",
    "esp_nn_softmax_s8": "softmax.c",
}


def stand_in(folder: Path, *, version: str = KNOWN_VERSIONS[-1], more_scratch: int = 0) -> Path:
    """A tree of the stand-in. more_scratch: bytes beyond those that emitc plans, which its functions say they need."""
    for function, file in _FILES.items():
        for path in SOURCES[function]:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text("typedef int nothing_here;\n", encoding="ascii")
        shutil.copyfile(HERE / file, folder / SOURCES[function][-1])
    (folder / "include").mkdir(parents=True, exist_ok=True)
    (folder / "src" / "common").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(HERE / "esp_nn.h", folder / "include" / "esp_nn.h")
    shared = (HERE / "stand_in.h").read_text(encoding="ascii")
    text = f"#define MORE_SCRATCH {more_scratch}\n{shared}" if more_scratch else shared
    (folder / "src" / "common" / "stand_in.h").write_text(text, encoding="ascii")
    (folder / "idf_component.yml").write_text(f'version: "{version}"\n', encoding="ascii")
    return folder
