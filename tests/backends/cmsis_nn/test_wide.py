"""int16 activations as calls of CMSIS-NN: no bit differs on the host and on boards, and refusals say why."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emitc.backends.cmsis_nn import known_bugs
from emitc.backends.cmsis_nn.backend import CmsisNn
from emitc.backends.cmsis_nn.definition import NAME
from emitc.backends.cmsis_nn.versions import Tree
from emitc.boards import verify as on_boards
from emitc.compiler import compile_model
from emitc.ir import Array
from emitc.kernels.normalization.softmax_tables import EXPONENTIAL, looked_up
from emitc.target import load_target
from emitc.writers.tflite import write_tflite
from tests.kernels.elementwise.test_int16_elementwise import binary, softmax
from tests.kernels.variants.test_int16_layers import CASES, X, far
from tests.support.cmsis.library import SKIPPED, trees
from tests.support.int16_cases import wide
from tests.support.layer_cases import Scales, Slide, conv_2d, depthwise, fully_connected, pool, with_input
from tests.support.single_op import Case, Proven, graph_of, model_of, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
TREES = trees()
pytestmark = pytest.mark.skipif(not TREES, reason=SKIPPED)
each_tree = pytest.mark.parametrize("tree", TREES, ids=lambda tree: str(tree.version))
BOARDS = {"qemu_m4": "cortex-m4", "qemu_m55": "cortex-m55"}
SCALES = Scales(factor=2.0**-9)
SINCE_SHORT_BIAS = (16, 0, 0)
UNIT = 10.0 / 65535.0
"""The input scale with which softmax reads its table at the difference itself."""


def random_layers(seed: int) -> list[Case]:
    """Layers whose sums the library holds."""
    rng = np.random.default_rng(seed)
    found: list[Case] = []
    for i in range(10):
        h, w, c, o = (int(v) for v in rng.integers((4, 4, 1, 1), (9, 9, 20, 12)))
        kh, kw = (int(v) for v in rng.integers(1, 5, 2))
        stride = (int(rng.integers(1, 3)), int(rng.integers(1, 3)))
        dilation = (1, 1) if i % 3 or 1 not in stride else (2, 1) if kh * 2 <= h else (1, 1)
        slide = Slide(stride if dilation == (1, 1) else (1, 1), ("SAME", "VALID")[i % 2], dilation)
        count = o if i % 2 else 1
        each = tuple(2.0**e for e in rng.uniform(-9, -6, count).tolist())
        scales = Scales(weights=each, factor=2.0 ** rng.uniform(-13, -5))
        found.append(wide(conv_2d(f"conv{i}", (1, h, w, c), o, (kh, kw), slide, scales)))
        found.append(wide(conv_2d(f"conv_short{i}", (1, h, w, c), o, (kh, kw), slide, scales), "int32"))
        one = replace(scales, weights=each[:1])
        found.append(wide(depthwise(f"depthwise{i}", (1, h, w, c), 1 + i // 7, (kh, kw), slide, one)))
        found.append(wide(fully_connected(f"connected{i}", (o, 40 * c), o, 40 * c, scales=scales)))
        found.append(
            wide(pool(f"average{i}", "AVERAGE_POOL_2D", (1, h, w, c), (kh, kw), slide, 0.01, 0))
            if dilation == (1, 1)
            else softmax(f"row{i}", (h, 5), 3e-4)
        )
        found.append(wide(pool(f"largest{i}", "MAX_POOL_2D", (1, 9, 9, c), (2, 3), Slide((2, 1)), 0.01, 0)))
        found.append(
            binary(f"sum{i}", "ADD", (0.01, 0.01 * 2.0 ** rng.uniform(-3, 3), 0.02), shape=(int(rng.integers(1, 90)),))
        )
        found.append(
            binary(f"product{i}", "MUL", (0.01, 0.01, 2.0 ** rng.uniform(-4, 3)), shape=(int(rng.integers(1, 90)),))
        )
        found.append(softmax(f"softmax{i}", (h, 2 + i % 7), 2.0 ** rng.uniform(-14, -9)))
        found.append(softmax(f"bytes{i}", (h, 2 + 3 * i), 2.0 ** rng.uniform(-6, -2), x="int8"))
    return found  # fmt: skip


RANDOM = random_layers(1)


def _proven(tree: Tree, cases: Sequence[Case], samples: int = 5) -> Proven:
    return prove(cases, kernels=NAME, backends={NAME: str(tree.root)}, samples=samples)


def _lacks(tree: Tree, reason: str) -> bool:
    """Whether an operator is not called for want of a function."""
    return reason.startswith((f"CMSIS-NN {tree.version} has no", f"this copy of CMSIS-NN {tree.version} lacks"))


@each_tree
def test_random_layers_on_the_host(tree: Tree) -> None:
    proven = _proven(tree, RANDOM)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    short = "takes no bias of 32 bits"
    for row in proven.compiled.partition.assignments:
        reason = dict(row.refused).get(NAME, "")
        allowed = short in reason and tree.version.functions < SINCE_SHORT_BIAS
        assert row.backend == NAME or allowed or _lacks(tree, reason), reason


@each_tree
def test_cases_of_the_kernels(tree: Tree) -> None:
    """Extremes of factors, sums and shapes are called right, or refused."""
    proven = _proven(tree, CASES, 4)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert all(row.backend == NAME or row.refused for row in proven.compiled.partition.assignments)


@pytest.mark.parametrize("board", BOARDS)
@each_tree
def test_board(tree: Tree, board: str, tmp_path: Path) -> None:
    for tool in ("qemu-system-arm", "arm-none-eabi-gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    pytest.importorskip("platformio", reason="PlatformIO, which builds for the boards, is not installed")
    path = tmp_path / "cases.tflite"
    path.write_bytes(write_tflite(model_of(RANDOM[:50])))
    options = {NAME: str(tree.root)}
    made = compile_model(path, target=BOARDS[board], package="platformio", kernels=NAME, backends=options)
    work = tmp_path / "build"
    assert on_boards.on_emulator(made, board, reference="auto", samples=3, seed=2, layers=False, workdir=work).match


# ---- refusals and faults ----


def refusal(case: Case, tree: Tree) -> str:
    """Why the case is not called, before any pass."""
    (bound,) = graph_of(case).bound()
    return CmsisNn(tree.root, load_target("host")).supports(bound)


def _with(function: str) -> list[Tree]:
    """Trees that have a function with its source."""
    host = load_target("host")
    return [t for t in TREES if function in t.functions and function in CmsisNn(t.root, host).library.defined]


def test_refusals() -> None:
    for tree in _with("arm_convolve_wrapper_s16"):
        assert refusal(wide(conv_2d("c", X, 4, (3, 3), scales=SCALES)), tree) == ""
        groups = wide(conv_2d("c", (1, 5, 5, 6), 4, (3, 3), scales=SCALES, groups=2))
        assert refusal(groups, tree) == "its functions for int16 activations have no groups"
        short = refusal(wide(conv_2d("c", X, 4, (3, 3), scales=SCALES), "int32"), tree)
        takes = tree.version.functions >= SINCE_SHORT_BIAS
        assert short == (
            "" if takes else f"arm_convolve_wrapper_s16 of CMSIS-NN {tree.version} takes no bias of 32 bits"
        )
        lowest = np.full((3, 3, 3, 64), -128, np.int8)
        deep = wide(conv_2d("c", (1, 3, 3, 64), 3, (3, 3), scales=Scales(factor=2.0**-14), w=lowest))
        assert refusal(deep, tree) == "with weights of -128 its sums of 512 products can leave 32 bits"
        far_bias = wide(conv_2d("c", X, 4, (3, 3), scales=Scales(factor=0.3)), values=far(4))
        assert refusal(far_bias, tree) == "its requantization loses results beyond 30 bits"
    for tree in _with("arm_fully_connected_s16"):
        short = refusal(wide(fully_connected("f", (1, 8), 4, 8, scales=SCALES), "int32"), tree)
        assert short == f"arm_fully_connected_s16 of CMSIS-NN {tree.version} takes no bias of 32 bits"
    for tree in TREES:
        zeros = with_input(fully_connected("f", (1, 8), 4, 8), 1, zero_points=(3,))
        assert refusal(zeros, tree) == "weights with a zero point"
        assert refusal(binary("s", "SUB", (0.01, 0.01, 0.02)), tree) == (
            "CMSIS-NN has no function for this operator that emitc calls"
        )


def _nine(_rng: np.random.Generator, _sample: int) -> Sequence[Array]:
    """Eight largest values and one whose exponential makes the sum 2**18 - 1."""
    values = np.arange(-(2**15), 2**15)
    exponentials = looked_up(EXPONENTIAL, values)
    rest = values[exponentials == 2**18 - 1 - 8 * exponentials[-1]]
    return [np.array([[32767] * 8 + [rest[0]]], np.int16)]


FAULTY = {
    "one": (softmax("one", (3, 1), UNIT), "a row of one value comes out as -32768, since nothing limits it"),
    "nine": (
        replace(softmax("nine", (1, 9), UNIT), draw=_nine),
        "rows of 9 values or more can have a sum whose rounding leaves 32 bits, 262143 for example",
    ),
}


@pytest.mark.parametrize("name", FAULTY)
def test_rows_that_the_library_gets_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, reason = FAULTY[name]
    for tree in _with("arm_softmax_s16"):
        assert refusal(case, tree) == f"CMSIS-NN {tree.version}: {reason}"
        assert refusal(softmax("s", (3, 8), UNIT), tree) == refusal(softmax("s", (3, 2), UNIT), tree) == ""
    monkeypatch.setattr(known_bugs, "FAULTS", ())
    for tree in _with("arm_softmax_s16"):
        (outcome,) = prove(
            [case], kernels=NAME, backends={NAME: str(tree.root)}, samples=1, sanitize=False
        ).outcomes.values()
        assert np.array_equal(outcome.golden[0][0].reshape(-1), outcome.reference[0][0].reshape(-1))
        assert not np.array_equal(outcome.compiled[0][0].reshape(-1), outcome.reference[0][0].reshape(-1))
