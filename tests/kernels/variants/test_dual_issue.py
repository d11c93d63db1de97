"""The order for cores that begin two instructions in a cycle: the same C and the same bits, on an emulated Cortex-M7."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

import emitc
from emitc.backends.portable import backend
from emitc.boards.verify import on_emulator
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.emit.package import runtime_files
from emitc.writers.tflite import write_tflite
from tests.kernels.variants import test_depthwise_planes, test_joined_weights, test_variants, test_winograd
from tests.support.layer_cases import Scales, Slide, conv_2d, fully_connected
from tests.support.onnx_op import model_of as onnx_model_of
from tests.support.single_op import Case, model_of

ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples" / "models" / "digits_int8.tflite"
DUAL = '#include "emitc_dsp_dual.h"\n'
AWAY = Scales(output_zero_point=-7)
LOW = Scales(output_zero_point=-128)
board = pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)


def _turns() -> list[Case]:
    """Every number of words in the first turn of a loop and in whole turns, weights that are joined and that are not."""
    large = np.full((4, 1, 1, 300), 127, np.int8)
    return [
        *(conv_2d(f"words_{d}_{s.output_zero_point}", (1, 3, 3, d), 5, (1, 1), Slide(activation="RELU"), s)
          for d in (1, 2, 3, 4, 5, 7, 9, 11, 13, 15, 16, 17, 18, 31, 32, 33, 48, 64, 65) for s in (AWAY, LOW)),
        *(conv_2d(f"apart_{d}", (1, 5, 1, d), 4, (1, 1), w=large[..., :d]) for d in range(262, 280, 2)),
        *(conv_2d(f"pixels_{n}", (1, n, 1, 10), 6, (1, 1)) for n in range(4, 10)),
        *(fully_connected(f"row_{d}_{o}", (1, d), o, d) for d in (*range(1, 21), 32, 64, 127) for o in (4, 9)),
        *test_joined_weights._joined(),
        *test_joined_weights._apart(),
    ]  # fmt: skip


def _only(name: str) -> Callable[..., float]:
    return lambda _bound, _target, row=None: 0.0 if row and row.name == name else 1.0


def _run(compiled: Compiled, tmp_path: Path) -> None:
    assert "emitc_dsp_dual.h" in compiled.program.headers
    result = on_emulator(compiled, "qemu_m7", reference="numpy", samples=2, seed=1, layers=False, workdir=tmp_path)
    assert result.match


@pytest.mark.board
@board
@pytest.mark.parametrize("name", ["dsp", "dsp-stretch4", "dsp-stretch3"])
def test_sums_of_pixels_on_an_emulated_core(name: str, tmp_path: Path) -> None:
    cases = _turns() if name == "dsp" else [*test_joined_weights._joined(), *test_variants._stretches()]
    model = tmp_path / "cases.tflite"
    model.write_bytes(write_tflite(model_of(cases)))
    with patch.object(backend, "cost_of", _only(name)):
        compiled = compile_model(model, target="cortex-m7", package="platformio")
    assert sum(step.variant == name for step in compiled.program.steps) >= 10
    _run(compiled, tmp_path)


@pytest.mark.board
@board
@pytest.mark.parametrize("variant", test_winograd.OF_THREE_COLUMNS)
def test_products_between_transforms_on_an_emulated_core(variant: str, tmp_path: Path) -> None:
    cases = [
        *test_winograd.cases(variant),
        *(conv_2d(f"deep_{c}", (1, 4, 8, c), 4, (3, 3), Slide(padding="SAME")) for c in range(8, 48, 4)),
    ]
    model = tmp_path / "cases.tflite"
    model.write_bytes(write_tflite(model_of(cases)))
    asked = tuple((index, variant) for index in range(len(cases)))
    _run(compile_model(model, target="cortex-m7", package="platformio", variants=asked), tmp_path)


@pytest.mark.board
@board
def test_planes_on_an_emulated_core(tmp_path: Path) -> None:
    model = tmp_path / "cases.tflite"
    model.write_bytes(write_tflite(model_of(test_depthwise_planes.CASES)))
    with patch.object(backend, "cost_of", _only("dsp-planes")):
        _run(compile_model(model, target="cortex-m7", package="platformio"), tmp_path)


@pytest.mark.board
@board
def test_float_factors_on_an_emulated_core(tmp_path: Path) -> None:
    model = tmp_path / "cases.onnx"
    model.write_bytes(onnx_model_of([*test_depthwise_planes.FACTORS, *test_winograd.FACTORS]).SerializeToString())
    _run(compile_model(model, target="cortex-m7", package="platformio"), tmp_path)


@pytest.mark.board
@board
@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_a_network_on_an_emulated_core(optimize: str, tmp_path: Path) -> None:
    _run(compile_model(DIGITS, target="cortex-m7", package="platformio", optimize=optimize), tmp_path)


def test_the_generated_c_is_that_of_a_cortex_m4() -> None:
    """But for the header, which is the first of those whose loops it orders."""
    m4, m7 = (emitc.compile_model(DIGITS, target=target).files for target in ("cortex-m4f", "cortex-m7"))
    assert set(m7) - set(m4) == {"emitc_dsp_dual.h"}
    one, other = (re.sub(r"cortex-m\w+", "", files["digits_int8.c"].decode()) for files in (m4, m7))
    assert other.count(DUAL) == 1 and DUAL not in one
    assert other.replace(DUAL, "") == one
    assert other.index(DUAL) < other.index('#include "emitc_dsp_tile.h"')


def test_every_loop_that_it_orders_has_another_order() -> None:
    """A name that no other header has would order nothing."""
    own = runtime_files()["emitc_dsp_dual.h"].read_text(encoding="ascii")
    others = "".join(
        path.read_text(encoding="ascii") for name, path in runtime_files().items() if name != "emitc_dsp_dual.h"
    )
    guards = re.findall(r"#(?:el)?if !defined\((EMITC_\w+)\)", others)
    guards = [name for name in guards if re.search(rf"#define {name}\b", own)]
    assert sorted(guards) == [
        "EMITC_JOINED_FOURS", "EMITC_JOINED_TEXT", "EMITC_PIXELS_OUTPUTS", "EMITC_PLANE_SUMS", "EMITC_SPAN_4", "EMITC_TAP_VALUE",
        "EMITC_TILE_SUMS", "EMITC_WINOGRAD_ADD",
    ]  # fmt: skip
    for name in re.findall(r"#define (EMITC_(?!DUAL|DSP)\w+)", own):
        assert re.search(rf"#define {name}\b", others), name
