"""The code respects C's rule of strict aliasing: the shipped models at -O3, optimized as a whole with the application."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from emitc.boards import project
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.ir import Array

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
STRICT = ["-O3", "-flto", "-fstrict-aliasing"]
SHIPPED = {
    "audio_preprocessor_int8.tflite": "int16, uint32 and uint64 within, and state",
    "kws_ref_int8.tflite": "bytes, tensors that are relocated",
    "mww_hey_jarvis_v2.tflite": "bytes and state",
    "digits_qdq.onnx": "bytes within, float32 outside",
}
"""Shipped models, and the types in their arenas."""
TARGETS = ("generic32", "cortex-m4f", "cortex-m55")


def numbers(values: Array) -> str:
    """The rows of an array as a C initializer; floats as hexadecimal constants."""
    each = (lambda v: f"{float(v).hex()}f") if values.dtype == np.float32 else str
    return ", ".join(f"{{{', '.join(map(each, row))}}}" for row in values.tolist())


def application(arrays: dict[str, Array]) -> str:
    """A program that writes inputs element by element, and says how many elements of the outputs are others."""
    count = sum(name.startswith("in0_") for name in arrays)
    x, y = (np.stack([arrays[f"{way}0_{run}"].reshape(-1) for run in range(count)]) for way in ("in", "out"))
    return f"""#include "net.h"
#include <stdio.h>
#include <stdlib.h>

static const NET_INPUT_0_TYPE given[{count}][NET_INPUT_0_ELEMENTS] = {{{numbers(x)}}};
static const NET_OUTPUT_0_TYPE wanted[{count}][NET_OUTPUT_0_ELEMENTS] = {{{numbers(y)}}};
static _Alignas(NET_ARENA_ALIGN) unsigned char arena[NET_ARENA_BYTES];
static _Alignas(NET_ARENA_ALIGN) unsigned char state[NET_STATE_BYTES + 1u];

int main(void)
{{
    net_t net;
    int others = net_init(&net, arena, sizeof arena, state, sizeof state - 1u) != EMITC_OK;
    for (int run = 0; run < {count}; run++) {{
        NET_INPUT_0_TYPE *const x = net_input_0(&net);
        for (unsigned i = 0; i < NET_INPUT_0_ELEMENTS; i++) {{
            x[i] = given[run][i];
        }}
        others += net_run(&net) != EMITC_OK;
        const NET_OUTPUT_0_TYPE *const y = net_output_0(&net);
        for (unsigned i = 0; i < NET_OUTPUT_0_ELEMENTS; i++) {{
            others += y[i] != wanted[run][i];
        }}
    }}
    printf("%d", others);
    return 0;
}}
"""


@pytest.mark.sweep(keep=8)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("model", SHIPPED)
def test_on_the_host(model: str, target: str, compiler: str, tmp_path: Path) -> None:
    """Every target's package, whose functions for instructions are plain C here."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    compile_model(MODELS / model, target=target, name="net").write(tmp_path / "net")
    with np.load((MODELS / model).with_suffix(".npz")) as stored:
        (tmp_path / "main.c").write_text(application(dict(stored)), encoding="ascii")
    flags = ["-std=c11", "-ffp-contract=off", *STRICT, "-Wall", "-Werror", "-Wstrict-aliasing=2", "-Inet"]
    if compiler == "clang":
        flags = [*flags, *(["-fuse-ld=lld"] if shutil.which("ld.lld") else [])]
    sources = ["main.c", "net/net.c", "net/emitc_runtime.c"]
    done = subprocess.run(
        [compiler, *flags, *sources, "-lm"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert subprocess.run([str(tmp_path / "a.out")], capture_output=True, text=True, check=True).stdout == "0"


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize(("target", "board"), [("cortex-m4f", "qemu_m4"), ("cortex-m55", "qemu_m55")])
@pytest.mark.parametrize("model", SHIPPED)
def test_on_emulated_cores(
    model: str, target: str, board: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instructions of the cores, with the proof's own source in the same optimization."""
    monkeypatch.setattr(project, "_PROOF_FLAGS", " ".join([project._PROOF_FLAGS, *STRICT]))
    compiled = compile_model(MODELS / model, target=target, package="platformio")
    library = compiled.files["library.json"].replace(b'"-O2"', ", ".join(f'"{flag}"' for flag in STRICT).encode())
    assert library != compiled.files["library.json"]
    compiled.files["library.json"] = library
    result = on_emulator(compiled, board, reference="numpy", samples=2, seed=1, layers=False, workdir=tmp_path)
    assert result.match
