"""Samples of a data set on an emulated board, compared with the C on this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.evaluate import on_board as module
from emitc.evaluate.dataset import read_dataset
from emitc.evaluate.on_board import on_board
from emitc.evaluate.session import info_of

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"


@pytest.mark.board
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.parametrize("wrong", [False, True])
def test_a_board_gives_what_this_machine_gives(wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_model(MODELS / "digits_int8.tflite", target="cortex-m4f")
    data = read_dataset(MODELS / "digits_test.npz", tuple(map(info_of, compiled.program.inputs)), None)
    if wrong:
        outputs = module._through_the_c

        def changed(*arguments: object) -> list[tuple[bytes, ...]]:
            found = [np.frombuffer(each[0], np.int8).copy() for each in outputs(*arguments)]  # type: ignore[arg-type]
            found[0][0] ^= 1
            return [(each.tobytes(),) for each in found]

        monkeypatch.setattr(module, "_through_the_c", changed)
    found = on_board(compiled, "qemu_m4", data, 2)
    assert (found.match, found.differing, found.cases) == (not wrong, int(wrong), 2)
    assert found.reference == module.HOST and found.options == "--target cortex-m4f --package platformio"
