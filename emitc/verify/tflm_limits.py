"""TFLite models that TFLite Micro cannot be the reference of as a whole, and how they are run instead."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from emitc.compiled import Compiled
from emitc.errors import Where
from emitc.ir import Array
from emitc.kernels.detection.detection_postprocess import DetectionPostprocess
from emitc.kernels.movement.pixel_blocks import pads_with
from emitc.verify.engines.contract import EngineRefused
from emitc.verify.engines.run import CRASHED, TRY_NUMPY, IsolatedRun, run_isolated
from emitc.verify.samples import Sample

_NOT_TFLM = "TFLite Micro cannot be the reference of this model"
_OTHERS = "verify with --reference litert or numpy"
_FOUND = 3
"""The output of a detection that counts what was found."""


def stale_shape(compiled: Compiled) -> EngineRefused | None:
    """Why TFLite Micro, which takes shapes from the file, runs another model than its operators describe; None where not so.

    Converters write 1 for an open batch, in whose place SPACE_TO_BATCH_ND and others have more.
    """
    if compiled.source.format != "tflite":
        return None
    written = {tensor.index: math.prod(abs(d) for d in tensor.shape) for tensor in compiled.source.tensors}
    own = set(compiled.graph.inputs)  # of these the user may have closed open dimensions
    for tensor in compiled.graph.tensors:
        stated = written.get(tensor.source, tensor.elements)
        if stated != tensor.elements and tensor.name not in own and not tensor.channels:
            where = Where(option="--reference tflm", tensor=f'tensor {tensor.source} "{tensor.label or tensor.name}"')
            why = f"it takes shapes from the file, which states {stated} elements instead of {tensor.elements}"
            return EngineRefused(_NOT_TFLM, where, why, f"{_OTHERS}, or export the model with a fixed batch")
    return None


def not_of_tflm(compiled: Compiled) -> EngineRefused | None:
    """Why TFLite Micro's result of a model is not the one to match; None where it is."""
    return stale_shape(compiled) or _unset_padding(compiled)


def _unset_padding(compiled: Compiled) -> EngineRefused | None:
    """The refusal of a SPACE_TO_BATCH_ND that pads with a zero point: TFLite Micro never sets its padding value."""
    built = next((step.graph for step in compiled.history if not step.inside), compiled.graph)
    for bound in built.bound():
        if compiled.source.format == "tflite" and pads_with(bound):
            where = Where(option="--reference tflm", op=bound.node.describe())
            why = f"it pads with whatever lies in its memory, instead of the zero point {pads_with(bound)}"
            return EngineRefused(_NOT_TFLM, where, why, _OTHERS)
    return None


def leaves_rows_unset(compiled: Compiled) -> bool:
    """Whether an engine may leave rows of an output unset: of detections that are chosen by their best class."""
    return any(isinstance(node.op, DetectionPostprocess) and not node.op.per_class for node in compiled.graph.nodes)


def unset_detections(compiled: Compiled, tensors: Sequence[Mapping[str, Array]]) -> str:
    """Why an engine's run is no reference: in a case it found fewer detections than its outputs have rows; "" otherwise.

    tensors: every tensor of each case by name. Neither engine writes the other rows: they hold what lay in its memory.
    """
    for number, values in enumerate(tensors):
        for node in compiled.graph.nodes:
            if isinstance(node.op, DetectionPostprocess) and not node.op.per_class:
                count = values.get(node.outputs[_FOUND])
                if count is not None and not count.min() >= node.op.max_detections:
                    return (
                        f"the engine finds {count.item():g} of {node.op.max_detections} detections in case {number} and leaves"
                        f" the other rows of {node.describe()} unset"
                    )
    return ""


def run_otherwise(
    compiled: Compiled, cases: Sequence[Sample], keywords: Mapping[str, Any], error: EngineRefused
) -> IsolatedRun:
    """A TFLite model whose run has ended with `error`: on LiteRT where TFLite Micro has ended the process, or in pieces."""
    if compiled.source.format != "tflite":
        raise error
    if error.what == CRASHED:
        with contextlib.suppress(EngineRefused):
            run = run_isolated(compiled.model_bytes, cases, engine="litert", **keywords)
            require_sizes(compiled, run, "auto")
            return run
    try:
        return in_pieces(compiled, cases, keywords)
    except EngineRefused as refusal:
        why = f"{error.why}; operator by operator: {refusal.why}"
        raise EngineRefused(error.what, error.where, why, error.hint) from error


def in_pieces(compiled: Compiled, cases: Sequence[Sample], keywords: Mapping[str, Any]) -> IsolatedRun:
    """Operator by operator; without asking LiteRT about those of TFLite Micro too, where that ends the process."""
    stale = stale_shape(compiled)
    if stale is not None:
        raise stale
    try:
        return run_isolated(compiled.model_bytes, cases, engine="compared", **keywords)
    except EngineRefused:
        return run_isolated(compiled.model_bytes, cases, engine="mixed", **keywords)


def require_sizes(compiled: Compiled, run: IsolatedRun, reference: str) -> None:
    """Raises EngineRefused for outputs with other numbers of elements than the file states, which LiteRT may infer."""
    graph = compiled.graph
    for name, value in ((n, v) for outputs in run.outputs for n, v in zip(graph.outputs, outputs, strict=True)):
        if value.size != graph.tensor(name).elements:
            what = f"{run.engine} gives an output of another size"
            why = f"{graph.tensor(name).describe()} has {value.size} elements there"
            raise EngineRefused(what, Where(option=f"--reference {reference}"), why, TRY_NUMPY)
