"""TFLite_Detection_PostProcess: reference, engine and C agree, in both ways of choosing; what has no code is refused."""

from __future__ import annotations

import math
import shutil
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from flatbuffers import flexbuffers

from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.errors import EmitcError, Where
from emitc.frontends.tflite.flatbuffer import numbers
from emitc.kernels.detection import detection_postprocess
from emitc.verify.engines.run import EngineRefused
from emitc.verify.verification import verify
from emitc.writers.tflite import write_tflite
from tests.support.single_op import Array, Case, Proven, TensorSpec, model_of, plain, prove, quantized, refusal

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")

OPERATOR = "TFLite_Detection_PostProcess"
OPTIONS: dict[str, int | float | bool] = {
    "max_detections": 5,
    "max_classes_per_detection": 1,
    "detections_per_class": 100,
    "use_regular_nms": False,
    "nms_score_threshold": 0.2,
    "nms_iou_threshold": 0.5,
    "num_classes": 3,
    "y_scale": 10.0,
    "x_scale": 10.0,
    "h_scale": 5.0,
    "w_scale": 5.0,
}


def drawn(boxes: int, columns: int, encoded: int) -> Callable[[np.random.Generator, int], list[Array]]:
    """Encodings and scores; in every other sample few different scores, so that many are equal."""

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        scores = rng.uniform(0, 1, (1, boxes, columns))
        scores = np.round(scores * 5) / 5 if sample % 2 else scores
        return [rng.standard_normal((1, boxes, encoded)).astype(np.float32) * 3, scores.astype(np.float32)]

    return draw


def detection(
    name: str,
    boxes: int = 40,
    *,
    background: bool = True,
    encoded: int = 4,
    unsigned: bool = False,
    **changes: int | float | bool,
) -> Case:
    """A layer with random anchors."""
    options = OPTIONS | changes
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    columns, count = int(options["num_classes"]) + background, int(options["max_detections"])
    anchors = np.concatenate([rng.uniform(0, 1, (boxes, 2)), rng.uniform(0.1, 0.5, (boxes, 2))], axis=1).astype(
        np.float32
    )
    shapes = (1, boxes, encoded), (1, boxes, columns)
    if unsigned:
        inputs = (
            quantized(shapes[0], 0.079, 191, "uint8"),
            quantized(shapes[1], 2.0**-8, 0, "uint8"),
            quantized((boxes, 4), 0.00645, 0, "uint8", rng.integers(10, 155, (boxes, 4))),
        )
    else:
        inputs = (plain(shapes[0]), plain(shapes[1]), TensorSpec("", "float32", (boxes, 4), anchors.tobytes()))
    outputs = plain((1, count, 4)), plain((1, count)), plain((1, count)), plain((1,))
    draw = None if unsigned else drawn(boxes, columns, encoded)
    return Case(
        name, "CUSTOM", inputs, outputs, draw=draw, custom_code=OPERATOR, custom_options=flexbuffers.Dumps(options)
    )


FLOAT: list[Case] = [
    detection("fast"),
    detection("fast_no_background", background=False),
    detection("fast_wide_encodings", encoded=7),
    detection("fast_one_class", 60, num_classes=1),
    detection("fast_all_overlap_allowed", nms_iou_threshold=1.0),
    detection("regular", use_regular_nms=True),
    detection("regular_few_of_a_class", use_regular_nms=True, detections_per_class=2, max_detections=4),
    detection("regular_not_all_found", 7, use_regular_nms=True, max_detections=30, nms_score_threshold=0.7),
    detection("regular_none_found", 7, use_regular_nms=True, nms_score_threshold=2.0),
    detection("regular_no_background", use_regular_nms=True, background=False, nms_iou_threshold=0.1),
]
UNSIGNED: list[Case] = [
    detection("unsigned_fast", unsigned=True),
    detection("unsigned_regular", unsigned=True, use_regular_nms=True, nms_iou_threshold=0.2),
]
ROWS: list[Case] = [
    detection(f"row_of_{classes}_classes", 30, unsigned=True, num_classes=classes, background=classes % 2 == 0)
    for classes in (1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 17, 35)
]
"""Classes in whole fours and sixteens, and what such leave over."""
TARGETS = {"dsp": ("cortex-m4", "qemu_m4"), "mve": ("cortex-m55", "qemu_m55")}


@pytest.mark.parametrize(
    ("table", "engine"), [(FLOAT, "tflm"), (FLOAT, "litert"), (UNSIGNED, "litert"), (ROWS, "litert")]
)
def test_reference_engine_and_c_agree(table: list[Case], engine: str) -> None:
    proven: Proven = prove(table, engine=engine, samples=6)  # type: ignore[arg-type]
    for outcome in proven.outcomes.values():
        outcome.check()
        assert any(sample[3][0] > 0 for sample in outcome.compiled) or "none" in outcome.case.id
    assert proven.memory_errors == ()


@pytest.mark.parametrize("variant", TARGETS)
def test_rows_of_scores_in_words_and_in_vectors(variant: str) -> None:
    proven = prove([*UNSIGNED, *ROWS], engine="litert", samples=6, target=TARGETS[variant][0])
    for outcome in proven.outcomes.values():
        outcome.check()
        assert outcome.step is not None
        assert outcome.step.variant == ("portable" if "regular" in outcome.case.id else variant)
    assert proven.memory_errors == ()


@pytest.mark.board
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.parametrize("variant", TARGETS)
def test_rows_of_scores_on_an_emulated_core(variant: str, tmp_path: Path) -> None:
    model = tmp_path / "rows.tflite"
    model.write_bytes(write_tflite(model_of(ROWS)))
    target, board = TARGETS[variant]
    compiled = compile_model(model, target=target, package="platformio")
    assert on_emulator(compiled, board, reference="numpy", samples=2, seed=0, layers=False, workdir=tmp_path).match


def test_boxes_whose_numbers_have_more_than_16_bits() -> None:
    table = [case for case in (*FLOAT, *UNSIGNED) if case.id in ("fast", "regular", "unsigned_fast")]
    with patch.object(detection_postprocess, "_SHORT_PLACES", 39):
        proven = prove(table, engine="litert", samples=4)
    for outcome in proven.outcomes.values():
        outcome.check()
        assert outcome.step is not None and outcome.step.kernel.endswith("_many")


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize("unsigned", [False, True])
def test_memory_is_used_to_the_last_byte_however_few_boxes_wait(regular: bool, unsigned: bool, tmp_path: Path) -> None:
    model = tmp_path / "few.tflite"
    case = detection("few_wait", unsigned=unsigned, use_regular_nms=regular, nms_score_threshold=0.9)
    model.write_bytes(write_tflite(model_of([case])))
    proof = verify(compile_model(model), reference="numpy", samples=2)
    assert proof.match and proof.arena_observed == proof.arena_planned


def test_what_is_behind_the_boxes_found_is_zero() -> None:
    """In the fast way the interpreters leave it alone."""
    found = prove([detection("few", 3, nms_iou_threshold=0.01)], engine=None).outcomes["few"]
    found.check()
    for boxes, classes, scores, count in found.compiled:
        end = int(count[0])
        assert 0 < end < 5
        assert not boxes[0, end:].any() and not classes[0, end:].any() and not scores[0, end:].any()


@pytest.mark.parametrize("engine", ["tflm", "litert"])
def test_an_engine_that_leaves_rows_unset_is_no_reference(engine: str, tmp_path: Path) -> None:
    """With `auto` the numpy references decide and the report says why; a model whose rows are all found keeps its engine."""
    few, all_found = tmp_path / "few.tflite", tmp_path / "all.tflite"
    few.write_bytes(write_tflite(model_of([detection("few", 3, nms_iou_threshold=0.01)])))
    all_found.write_bytes(
        write_tflite(model_of([detection("all", 40, nms_score_threshold=0.0, nms_iou_threshold=1.0, max_detections=2)]))
    )
    with pytest.raises(EngineRefused, match=r"leaves the other rows of op 0 .* unset"):
        verify(compile_model(few), reference=engine, samples=3)
    proof = verify(compile_model(few), samples=3)
    assert proof.match and proof.reference == "numpy" and "of 5 detections" in proof.no_engine[-1]
    proof = verify(compile_model(all_found), reference=engine, samples=3)
    assert proof.match and proof.reference == engine and not proof.no_engine


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"max_classes_per_detection": 2}, 1, "several classes of one box is not supported"),
        ({"max_detections": 0}, 2, "has max_detections = 0"),
        ({"nms_iou_threshold": 1.5}, 2, "has options out of range"),
        ({"h_scale": 0.0}, 2, "has options out of range"),
        ({"nms_score_threshold": float("nan")}, 2, "a finite number is expected"),
        ({"num_classes": 9}, 2, "has inputs that do not fit"),
    ],
)
def test_refused_options(changes: dict[str, float], code: int, message: str) -> None:
    case = replace(detection("layer"), custom_options=flexbuffers.Dumps(OPTIONS | changes))
    error = refusal(case)
    assert message in str(error) and error.exit_code == code


@pytest.mark.parametrize(
    "options", [b"", b"\x00", b"\x05\x04\x01", bytes(40), b"\xff" * 40, flexbuffers.Dumps([1, 2]), bytes(9000)]
)
def test_damaged_options_are_refused(options: bytes) -> None:
    error = refusal(replace(detection("layer"), custom_options=options))
    assert error.exit_code == 2


def test_truncated_and_changed_options_never_crash() -> None:
    """Every error of the package on damaged bytes is a refusal."""
    whole = flexbuffers.Dumps(OPTIONS)
    rng = np.random.default_rng(3)
    for end in range(0, len(whole), 3):
        refusal(replace(detection("layer"), custom_options=whole[:end]))
    for _ in range(3000):
        changed = bytearray(whole)
        for at in rng.integers(0, len(whole), 3):
            changed[at] = rng.integers(0, 256)
        try:
            found = numbers(bytes(changed), Where())
        except EmitcError:
            continue
        assert all(isinstance(value, bool | int | float) for value in found.values())


def test_an_option_beyond_float32_is_refused() -> None:
    """The package cannot write such a number itself."""
    options = flexbuffers.Dumps(OPTIONS | {"y_scale": math.pi})
    options = options.replace(struct.pack("<d", math.pi), struct.pack("<d", 1e300))
    error = refusal(replace(detection("layer"), custom_options=options))
    assert "y_scale = 1e+300" in str(error) and error.exit_code == 2


def test_computed_anchors_are_refused() -> None:
    case = detection("layer")
    error = refusal(replace(case, inputs=(*case.inputs[:2], plain((40, 4)))))
    assert "computed anchors" in str(error) and error.exit_code == 1
