"""The self test of a package on emulated boards: it passes there, is measured, and names a weight that flash has lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.boards.measurement import Measurement
from emitc.boards.protocol import BadTranscript, parse
from emitc.boards.verify import expected, run_cases
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.report.run import run_text
from tests.boards.test_board_protocol import WHOLE
from tests.boards.test_board_run import needs_boards

MODEL = Path(__file__).resolve().parents[2] / "examples" / "models" / "digits_int8.tflite"
BOARDS = {"qemu_m4": "cortex-m4f", "qemu_rv32": "rv32imac"}


def measured(compiled: Compiled, board: str, folder: Path) -> Measurement:
    return run_cases(compiled, board, folder, expected(compiled, "numpy", 1, 0))


@needs_boards
@pytest.mark.parametrize("board", BOARDS)
def test_it_passes_and_names_a_wrong_weight(board: str, tmp_path: Path) -> None:
    compiled = compile_model(MODEL, target=BOARDS[board], package="platformio", self_test=2)
    package = tmp_path / "package"
    compiled.write(package)
    right = measured(compiled, board, package)
    assert right.match and right.self_test is not None and right.self_test.passed
    test = compiled.program.self_test
    assert test is not None
    assert right.self_test.input_bytes == test.input_bytes
    assert 800 < right.self_test.flash_bytes < 2500
    assert right.self_test.count is not None and right.self_test.count > 2 * right.count
    assert right.self_test.stack_bytes is not None and right.self_test.stack_bytes > (right.stack_bytes or 0)
    assert right.as_json()["self_test"]["passed"] is True
    source = package / "src" / "digits_int8.c"
    text = source.read_text(encoding="ascii")
    step = next(step for step in compiled.program.steps if step.op_type == "CONV_2D")
    start = text.index("{\n", text.index(f" {step.constants[0].name}[")) + 2
    first, _, rest = text[start:].partition(",")
    source.write_text(f"{text[:start]}    {int(first) ^ 16},{rest}", encoding="ascii")
    wrong = measured(compiled, board, package)
    assert wrong.self_test is not None and not wrong.match
    assert (wrong.self_test.status, wrong.self_test.part, wrong.self_test.index) == (8, 1, step.index)
    assert f"status 8, op {step.index}" in run_text(compiled, wrong)


def test_its_line_is_read() -> None:
    text = WHOLE.replace("emitc done", "emitc selftest 8 2 5 64 -\nemitc done")
    line = parse(text).self_test
    assert line is not None
    assert (line.status, line.part, line.index, line.stack_bytes, line.ticks) == (8, 2, 5, 64, None)
    assert parse(WHOLE).self_test is None
    with pytest.raises(BadTranscript, match="garbled"):
        parse(text.replace("selftest 8", "selftest x"))
