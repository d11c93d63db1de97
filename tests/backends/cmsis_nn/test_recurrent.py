"""SVDF, LSTM and 4-bit weights as calls of CMSIS-NN: no bit differs on the host and on boards, and refusals say why."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emitc.backends.cmsis_nn.backend import CmsisNn
from emitc.backends.cmsis_nn.definition import NAME
from emitc.backends.cmsis_nn.versions import Tree
from emitc.boards import verify as on_boards
from emitc.compiler import compile_model
from emitc.target import load_target
from emitc.writers.tflite import write_tflite
from tests.support.cmsis.library import SKIPPED, trees
from tests.support.int4_cases import conv, dw, fc
from tests.support.layer_cases import Scales, Slide
from tests.support.recurrent_cases import WIDE, LstmScales, SvdfScales, lstm, svdf
from tests.support.single_op import Case, Proven, graph_of, model_of, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
TREES = trees()
pytestmark = pytest.mark.skipif(not TREES, reason=SKIPPED)
each_tree = pytest.mark.parametrize("tree", TREES, ids=lambda tree: str(tree.version))
BOARDS = {"qemu_m4": "cortex-m4", "qemu_m55": "cortex-m55"}


def random_svdf(index: int) -> Case:
    """A layer whose 8-bit memory has no zero point, or one of 16 bits."""
    rng = np.random.default_rng(4000 + index)
    kind = ("int8", "int16")[index % 2]
    zeros = [int(v) for v in rng.integers(-128, 128, 2)]
    memory = float(10.0 ** rng.uniform(-2.5, 0)) / (1 if kind == "int8" else 256)
    scales = SvdfScales(0.05, memory, float(10.0 ** rng.uniform(-2, 0)), zeros[0], 0, zeros[1])
    sizes = (int(rng.integers(1, 3)), int(rng.integers(1, 40)), int(rng.integers(1, 12)), int(rng.integers(1, 4)))
    return svdf(f"svdf_{index}", *sizes, int(rng.integers(1, 13)), scales, kind=kind)


def random_lstm(index: int) -> Case:
    """A layer whose recurrent sums stay within Q3.12."""
    rng = np.random.default_rng(5000 + index)
    weights = tuple(float(v) for v in rng.uniform(0.002, 0.008, 4))
    zeros = [int(v) for v in rng.integers(-20, 20, 2)]
    scales = LstmScales(
        float(rng.uniform(0.005, 0.05)), weights, 0.0078, *zeros, int(rng.integers(-14, -8)),  # type: ignore[arg-type]
    )  # fmt: skip
    sizes = (int(rng.integers(1, 4)), int(rng.integers(1, 6)), int(rng.integers(1, 20)), int(rng.integers(1, 10)))
    clip = float(rng.choice([0.0, 0.5, 8.0]))
    return lstm(f"lstm_{index}", *sizes, scales, time_major=bool(rng.integers(0, 2)), clip=clip)


def random_four_bits(index: int) -> Case:
    """A convolution, a depthwise one of one filter a channel, or a fully connected layer."""
    rng = np.random.default_rng(6000 + index)
    x = (1, *(int(v) for v in rng.integers(4, 9, 2)), int(rng.integers(1, 20)))
    kernel = (int(rng.integers(1, 5)), int(rng.integers(1, 5)))
    slide = Slide((int(rng.integers(1, 3)), int(rng.integers(1, 3))), ("SAME", "VALID")[int(rng.integers(0, 2))])
    scales = Scales(0.05, (0.01,), float(2.0 ** rng.uniform(-8, -4)), *(int(v) for v in rng.integers(-128, 128, 2)))
    name = f"bits_{index}"
    if index % 3 == 0:
        return conv(name, x, int(rng.integers(1, 12)), kernel, slide, scales)
    if index % 3 == 1:
        return dw(name, x, 1, kernel, slide, scales)
    depth = int(rng.integers(1, 70))
    return fc(name, (int(rng.integers(1, 4)), depth), int(rng.integers(1, 18)), depth, scales)


SVDFS = [random_svdf(index) for index in range(24)]
LSTMS = [random_lstm(index) for index in range(24)]
FOUR_BITS = [random_four_bits(index) for index in range(45)]
FAMILIES = {"svdf": SVDFS, "lstm": LSTMS, "four_bits": FOUR_BITS}


def _proven(tree: Tree, cases: list[Case]) -> Proven:
    return prove(cases, kernels=NAME, backends={NAME: str(tree.root)}, samples=6)


def _require_lack(tree: Tree, reasons: set[str]) -> None:
    """Asserts that what is not called is not called for want of a function, or of one that keeps its state, or is right."""
    lacking = f"CMSIS-NN {tree.version}", f"this copy of CMSIS-NN {tree.version}"
    assert all(reason.startswith(lacking) for reason in reasons), reasons


def _reasons(proven: Proven) -> set[str]:
    """Why operators were not called; empty where all were."""
    return {dict(row.refused)[NAME] for row in proven.compiled.partition.assignments if row.backend != NAME}


@each_tree
@pytest.mark.parametrize("family", FAMILIES)
def test_host(family: str, tree: Tree) -> None:
    proven = _proven(tree, FAMILIES[family])
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    _require_lack(tree, _reasons(proven))


@each_tree
def test_what_a_complete_tree_calls(tree: Tree) -> None:
    """Of the functions that it has, none is left out."""
    for family, (function, cases) in {
        "svdf": ("arm_svdf_s8", SVDFS),
        "four_bits": ("arm_fully_connected_s4", FOUR_BITS),
    }.items():
        library = CmsisNn(tree.root, load_target("host")).library
        if function in library.defined and function in tree.functions:
            assert _reasons(_proven(tree, cases)) == set(), family


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("family", FAMILIES)
@each_tree
def test_board(tree: Tree, family: str, board: str, tmp_path: Path) -> None:
    for tool in ("qemu-system-arm", "arm-none-eabi-gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    pytest.importorskip("platformio", reason="PlatformIO, which builds for the boards, is not installed")
    path = tmp_path / "cases.tflite"
    path.write_bytes(write_tflite(model_of(FAMILIES[family])))
    made = compile_model(
        path, target=BOARDS[board], package="platformio", kernels=NAME, backends={NAME: str(tree.root)}
    )
    if all(step.backend != NAME for step in made.program.steps):  # other tests prove emitc's own kernels on the boards
        _require_lack(tree, {dict(row.refused)[NAME] for row in made.partition.assignments})
        return
    assert on_boards.on_emulator(
        made, board, reference="auto", samples=4, seed=2, layers=False, workdir=tmp_path / "build"
    ).match


# ---- refusals ----


def refusal(case: Case, tree: Tree, target: str = "host") -> str:
    """Why the case is not called, before any pass."""
    (bound,) = graph_of(case).bound()
    return CmsisNn(tree.root, load_target(target)).supports(bound)


def _with(function: str) -> list[Tree]:
    """Trees that have a function with its source; of others test_host says that it is missing."""
    host = load_target("host")
    return [t for t in TREES if function in t.functions and function in CmsisNn(t.root, host).library.defined]


def test_a_memory_of_bytes_with_a_zero_point_is_not_given_away() -> None:
    for tree in _with("arm_svdf_s8"):
        case = svdf("case", 1, 5, 4, 1, 3)
        assert refusal(case, tree) == "its 8-bit memory has no zero point"
        assert refusal(svdf("case", 1, 5, 4, 1, 3, WIDE, kind="int16"), tree) == ""


def test_an_lstm_that_forgets_is_not_called() -> None:
    for tree in _with("arm_lstm_unidirectional_s8"):
        expected = f"CMSIS-NN {tree.version}: its LSTM begins every call with a state of zeros"
        keeps = tree.has_member("cmsis_nn_lstm_context", "hidden_state")
        assert refusal(LSTMS[0], tree) == ("" if keeps else expected)


def test_an_lstm_that_is_limited_elsewhere_is_not_called() -> None:
    keeping = [t for t in _with("arm_lstm_unidirectional_s8") if t.has_member("cmsis_nn_lstm_context", "hidden_state")]
    for tree in keeping:
        wide = replace(LstmScales(), weights=(0.1, 0.002, 0.002, 0.002))
        assert "of 32767, where TFLite Micro limits it by itself" in refusal(lstm("case", 1, 3, 5, 4, wide), tree)
        fine = replace(LstmScales(), weights=(0.002,) * 4, cell=-15)
        assert refusal(lstm("case", 1, 3, 5, 4, fine), tree).startswith("what is added to the cell state can be larger")
        clipped = lstm("case", 1, 3, 5, 4, replace(fine, cell=-12), clip=0.0001)
        assert refusal(clipped, tree) == "the library takes a cell_clip below one step for none"


def test_wrong_kernels_of_four_bits_are_not_called() -> None:
    for tree in _with("arm_depthwise_conv_wrapper_s4"):
        several = refusal(dw("case", (1, 5, 5, 3), 2, (3, 3)), tree)
        assert "its general kernel of 4-bit weights is wrong: several filters a channel" in several
        mve = refusal(dw("case", (1, 5, 5, 3), 1, (3, 3)), tree, "cortex-m55")
        assert mve.endswith("is wrong since 6.0.0") == (tree.version.support >= (21, 1, 0)), mve
        assert refusal(dw("case", (1, 5, 5, 3), 1, (3, 3)), tree, "cortex-m4") == ""
        grouped = conv("case", (1, 5, 5, 6), 4, (3, 3), groups=2)
        assert refusal(grouped, tree) == "its functions for 4-bit weights have no groups"


def test_four_bits_stay_packed_in_flash() -> None:
    for tree in _with("arm_fully_connected_s4"):
        (step,) = _proven(tree, [fc("case", (1, 33), 7, 33)]).compiled.program.steps
        (weights,) = (constant.table for constant in step.constants if constant.table.role == "weights")
        assert weights.size_bytes == (7 * 33 + 1) // 2


def test_scratch_is_what_the_functions_write() -> None:
    """Scores of every filter, and sums of every output; two vectors of gates."""
    for tree in _with("arm_svdf_s8"):
        (step,) = _proven(tree, [svdf("case", 2, 5, 4, 3, 3, WIDE, kind="int16")]).compiled.program.steps
        assert [each.size_bytes for each in step.scratch] == [4 * 2 * 12, 4 * 2 * 4]
    for tree in _with("arm_lstm_unidirectional_s8"):
        if tree.has_member("cmsis_nn_lstm_context", "hidden_state"):
            cases = [lstm("case", 3, 2, 4, 5, LSTM_SCALES), lstm("major", 3, 2, 4, 5, LSTM_SCALES, time_major=True)]
            sizes = [[each.size_bytes for each in step.scratch] for step in _proven(tree, cases).compiled.program.steps]
            assert sizes == [[10, 10], [30, 30]]


LSTM_SCALES = LstmScales(weights=(0.004,) * 4)
