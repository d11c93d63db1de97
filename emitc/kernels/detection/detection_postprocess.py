"""TFLite_Detection_PostProcess, a custom operator: boxes from their encodings, and of those the best that overlap little.

Shapes  encodings [1, N, 4 or more], scores [1, N, C or C + 1] (the first class of C + 1 is the background), anchors [N, 4];
        boxes [1, M, 4] as ymin, xmin, ymax, xmax, classes [1, M], scores [1, M], number [1]; M is max_detections. What is
        after the number found is 0.
Types   float32, or encodings, scores and anchors uint8; anchors constant. Outputs float32.
Decoding, in double: centre = encoding / scale * anchor size + anchor centre; half a size = exp(encoding / scale) / 2 * anchor
        size; both rounded to float32, and then added and subtracted.
Fast    every box by its best class, the first of equal ones. Boxes come in the order of their scores, from nms_score_threshold
        on, the first of equal ones first. A box is taken if no box taken before overlaps it by more than nms_iou_threshold.
Regular the same for every class by itself, detections_per_class of each; the best of all classes, those of earlier classes first
        among equal ones.
        Overlap is intersection / union in float32, 0 with a box that has no area (where the interpreters stop).
Errors  several classes of one box (max_classes_per_detection over 1) in the fast way; computed anchors; int8.
Source  TFLite Micro's and LiteRT's kernels.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Op, Shape, Tensor
from emitc.kernels.contract import (
    KernelDef,
    Parsed,
    Variant,
    illegal,
    require_constants,
    require_dtypes,
    require_quantization,
    require_rank,
    requires,
)
from emitc.kernels.costs import UNKNOWN_PAIRS, UNKNOWN_VECTORS
from emitc.kernels.mac.dsp_int8 import BYTES_HEADER, HEADER
from emitc.layer import KernelSpec, Layer, Param, Scratch, Table
from emitc.records import dataclass
from emitc.source import SourceNode

Float32 = NDArray[np.float32]
Mask = NDArray[np.bool_]
_ANCHORS = 2
_LARGEST_COUNT = 1 << 15
_SHORT_PLACES = 1 << 16
"""Boxes whose numbers have 16 bits."""
_PER_CLASS = 100
"""detections_per_class where the options do not say."""
_REMEMBERED = 1 << 23
"""Pairs of boxes whose overlap is remembered: classes often take the same boxes."""


@dataclass(frozen=True, slots=True)
class DetectionPostprocess(Op):
    """scales: what encodings of y, x, height and width are divided by. per_class: boxes of a class, 0 for the fast way."""

    max_detections: int
    classes: int
    per_class: int
    score_threshold: float
    overlap_threshold: float
    scales: tuple[float, float, float, float]


def _single(node: SourceNode, name: str) -> float:
    """A real option, rounded to float32."""
    value = node.real(name)
    if abs(value) > float(np.finfo(np.float32).max):
        raise node.refusal(f"has {name} = {value}", "it is no float32 number")
    return float(np.float32(value))


def _from_tflite(node: SourceNode) -> Parsed:
    node.counts((3, 3), (4, 4))
    regular = bool(node.attribute("use_regular_nms", False))
    count = node.integer("max_detections", low=1, high=_LARGEST_COUNT)
    if node.integer("max_classes_per_detection", low=1) > 1 and not regular:
        what = "with several classes of one box is not supported"
        hint = "export the model with max_classes_per_detection 1, or with use_regular_nms"
        raise node.unsupported(what, "there is code for max_classes_per_detection 1", hint)
    per_class = node.integer("detections_per_class", _PER_CLASS, 1, _LARGEST_COUNT) if regular else 0
    scales = tuple(_single(node, f"{name}_scale") for name in "yxhw")
    overlap = _single(node, "nms_iou_threshold")
    if not all(scale > 0 for scale in scales) or not 0 < overlap <= 1:
        raise node.refusal("has options out of range", f"scales {scales}, nms_iou_threshold {overlap}")
    y, x, height, width = scales
    classes = node.integer("num_classes", low=1, high=_LARGEST_COUNT)
    threshold = _single(node, "nms_score_threshold")
    return Parsed(DetectionPostprocess(count, classes, per_class, threshold, overlap, (y, x, height, width)), (0, 1, 2))


def _check(bound: BoundNode) -> None:
    """Refuses what the module's docstring lists, and shapes that do not fit together."""
    op = bound.op(DetectionPostprocess)
    encodings, scores, anchors = (bound.input(i) for i in range(3))
    outputs = (DType.FLOAT32,) * 4
    require_dtypes(bound, [(DType.FLOAT32,) * 3 + outputs, (DType.UINT8,) * 3 + outputs], [(DType.INT8,) * 3 + outputs])
    if encodings.dtype is DType.UINT8:
        require_quantization(bound, encodings, scores, anchors)
    what = "with computed anchors is not supported"
    require_constants(bound, (anchors,), what, "they must be constants", "export the model again")
    require_rank(bound, encodings, 3)
    require_rank(bound, scores, 3)
    boxes = encodings.shape[1]
    fits = encodings.shape[0] == scores.shape[0] == 1 and encodings.shape[2] >= 4 and boxes >= 1
    if (
        not fits
        or scores.shape[1] != boxes
        or anchors.shape != (boxes, 4)
        or scores.shape[2] - op.classes not in (0, 1)
    ):
        raise illegal(
            bound,
            "has inputs that do not fit",
            f"boxes {list(encodings.shape)}, scores {list(scores.shape)}, {op.classes} classes; anchors {list(anchors.shape)}",
            tensor=scores,
        )


def _output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    count = bound.op(DetectionPostprocess).max_detections
    return (1, count, 4), (1, count), (1, count), (1,)


def _real(tensor: Tensor, values: Array) -> Float32:
    """float32(q - zero point) * scale; floats as they are."""
    if tensor.dtype is DType.FLOAT32:
        return values.astype(np.float32)
    centred = values.astype(np.float32) - np.float32(tensor.zero_point)
    return np.asarray(centred * np.float32(tensor.scale), np.float32)


def _decoded(bound: BoundNode, encodings: Float32) -> Float32:
    """The corners of every box, [N, 4]."""
    anchors = _real(bound.input(_ANCHORS), bound.input(_ANCHORS).array()).astype(np.float64)
    with np.errstate(all="ignore"):
        ratio = encodings[:, :4].astype(np.float64) / np.array(bound.op(DetectionPostprocess).scales, np.float64)
        centre = (ratio[:, :2] * anchors[:, 2:] + anchors[:, :2]).astype(np.float32)
        half = (0.5 * np.exp(ratio[:, 2:]) * anchors[:, 2:]).astype(np.float32)
        return np.concatenate([centre - half, centre + half], axis=1)


def _overlaps(box: Float32, others: Float32) -> Float32:
    """Intersection over union of a box with each of the others."""
    zero = np.float32(0)
    with np.errstate(all="ignore"):
        area = (box[2] - box[0]) * (box[3] - box[1])
        areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
        low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
        sides = np.maximum(high - low, zero)
        shared = sides[:, 0] * sides[:, 1]
        ratio = shared / (area + areas - shared)
    return np.where((area > 0) & (areas > 0), ratio, zero).astype(np.float32)


def _taken(op: DetectionPostprocess, separate: Callable[[int], Mask], scores: Float32, limit: int) -> list[int]:
    """The boxes that are kept of one class, best first. separate: by box, whether each of all boxes overlaps it little enough."""
    order = np.argsort(-scores, kind="stable")
    waiting = order[scores[order] >= np.float32(op.score_threshold)]
    taken: list[int] = []
    while len(waiting) and len(taken) < limit:
        taken.append(int(waiting[0]))
        waiting = waiting[1:]
        waiting = waiting[separate(taken[-1])[waiting]]
    return taken


def _reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    op = bound.op(DetectionPostprocess)
    assert inputs[0] is not None and inputs[1] is not None
    boxes = _decoded(bound, _real(bound.input(0), inputs[0])[0])
    scores = _real(bound.input(1), inputs[1])[0][:, -op.classes :]
    detections: list[tuple[float, int, int]] = []

    @lru_cache(maxsize=_REMEMBERED // max(len(boxes), 1))
    def separate(box: int) -> Mask:
        return _overlaps(boxes[box], boxes) <= np.float32(op.overlap_threshold)

    if op.per_class:
        for label in range(op.classes):
            chosen = _taken(op, separate, scores[:, label], op.per_class)
            detections += [(float(scores[i, label]), i, label) for i in chosen]
            detections = sorted(detections, key=lambda entry: -entry[0])[: op.max_detections]
    else:
        labels = scores.argmax(axis=1)
        best = scores[np.arange(len(scores)), labels]
        detections = [(float(best[i]), i, int(labels[i])) for i in _taken(op, separate, best, op.max_detections)]
    outputs = tuple(np.zeros(tensor.shape, np.float32) for tensor in bound.outputs)
    for place, (score, box, label) in enumerate(detections):
        outputs[0][0, place], outputs[1][0, place], outputs[2][0, place] = boxes[box], label, score
    outputs[3][0] = len(detections)
    return outputs


def _shares(bound: BoundNode) -> tuple[Table, ...]:
    """Of every byte of the encodings: centre and half a size as shares of an anchor's size, as `_decoded` has them."""
    bytes_ = _real(bound.input(0), np.arange(256, dtype=np.uint8)).astype(np.float64)
    tables = []
    for role, scale in zip(("y", "x", "height", "width"), bound.op(DetectionPostprocess).scales, strict=True):
        with np.errstate(all="ignore"):
            centre, half = bytes_ / scale, 0.5 * np.exp(bytes_ / scale)
        values, what = (centre, "centre") if len(role) == 1 else (half, "half the size")
        tables.append(
            Table(role, "double", tuple(values.tolist()), f"{what} by the encoding, as a share of the anchor's size")
        )
    return tuple(tables)


def _lower(bound: BoundNode) -> Layer:
    """A heap gives the boxes best first, until enough are taken. For best classes a box is decoded when it comes, for each
    class all are once; bytes by tables, without an exponential.
    """
    op, (encodings, scores, anchors) = bound.op(DetectionPostprocess), (bound.input(i) for i in range(3))
    boxes, columns = scores.shape[1:]
    wide = encodings.dtype is DType.FLOAT32
    scales = (Param(f"{name}_scale", "float", scale) for name, scale in zip("yxhw", op.scales, strict=True))
    kept = min(boxes, op.per_class or op.max_detections)
    with_corners = kept + (boxes if op.per_class else 0)
    params = (
        Param("boxes", "int32_t", boxes),
        Param("encoded", "int32_t", encodings.shape[2], "numbers of an encoding"),
        Param("columns", "int32_t", columns, "scores of a box"),
        Param("background", "int32_t", columns - op.classes, "1: the first score is not of a class"),
        Param("max_detections", "int32_t", op.max_detections),
        Param("per_class", "int32_t", op.per_class, "boxes of a class, 0: every box by its best class alone"),
        Param("room", "int32_t", with_corners, "boxes of which corners are kept"),
        Param("score_threshold", "float", op.score_threshold),
        Param("overlap_threshold", "float", op.overlap_threshold),
        *(scales if wide else ()),
        Param("score_zero", "float", 0.0 if wide else float(scores.zero_point)),
        Param("score_scale", "float", 1.0 if wide else scores.scale),
    )
    values = tuple(_real(anchors, anchors.array()).reshape(-1).tolist())
    tables: tuple[Table, ...] = (
        Table("anchors", "float", values, "centre and size of the anchors: y, x, height, width"),
    )
    index = DType.UINT16 if boxes <= _SHORT_PLACES else DType.INT32
    scratch = (Scratch("corners", 16 * with_corners), Scratch("best", 4 * boxes), Scratch("heap", index.bytes * boxes))
    if not wide:
        tables += _shares(bound)
    suffix = ("" if wide else "_u8") + ("" if index is DType.UINT16 else "_many")
    return Layer(
        "detection/detection_postprocess", "portable", (0, 1), tables, params, scratch=scratch,
        spec=KernelSpec(suffix, x="float" if wide else "uint8_t", w=f"{index.value}_t"),
    )  # fmt: skip


_BEST_CLASSES = (
    requires(lambda bound: bound.input(0).dtype is DType.UINT8, "its scores are not int8 or uint8"),
    requires(lambda bound: not bound.op(DetectionPostprocess).per_class, "its regular mode compares every score"),
)
"""Where a kernel looks for the best class of a box several bytes at a time."""
_DSP_HEADERS = (HEADER, BYTES_HEADER)
_MVE_HEADERS = ("emitc_bits.h", "emitc_mve.h", "emitc_mve_uint32.h")


def _work(bound: BoundNode) -> int:
    """Scores looked at, about."""
    op = bound.op(DetectionPostprocess)
    return bound.input(1).elements * (op.per_class or 1) + bound.input(1).shape[1] * op.max_detections


_TEMPLATE, _BYTES = "detection/detection_postprocess", (DType.UINT8,)
KERNELS = (
    KernelDef(
        DetectionPostprocess,
        "boxes from encodings, the best that overlap little",
        (DType.FLOAT32, DType.UINT8),
        tflite={"CUSTOM:TFLite_Detection_PostProcess": _from_tflite},
        check=_check,
        reference=_reference,
        lower=_lower,
        output_shapes=_output_shapes,
        work=_work,
        variants=(
            Variant("mve", "mve", _lower, UNKNOWN_VECTORS, _BYTES, _BEST_CLASSES, f"{_TEMPLATE}_mve", _MVE_HEADERS),
            Variant("dsp", "dsp", _lower, UNKNOWN_PAIRS, _BYTES, _BEST_CLASSES, f"{_TEMPLATE}_dsp", _DSP_HEADERS),
        ),
    ),
)
