"""A program with its inference in steps: which layers run some rows at a time, how many, and what a step costs.

A layer is split where its kernel can make some rows of the output. The replay of `split_replay` must prove that the rows may be
made one part after another in the memory that the layer has.
"""

from collections.abc import Mapping
from math import ceil, prod

from emitc.backends.partition import Partition
from emitc.ir import BoundNode, Tensor
from emitc.kernels.shared.windows import WINDOW_PARAMS
from emitc.layer import Layer
from emitc.program import FIRST_OUTPUT, Constant, Move, Operand, Program, RowSegment, Step
from emitc.program.stepping import Split, SplitOperand, SteppedStage, Stepping
from emitc.records import dataclass, replace
from emitc.schedule.row_streaming import OTHER_WINDOW_SHARE, PER_BYTE, PER_ROW, PORTABLE_WINDOW_SHARE, tail_waste
from emitc.schedule.split_replay import MemoryMap, conflict

_CHANNELS_AT_ONCE = 4
"""Channels that kernels compute together, at most. The parameters of a part change, so that no compiler knows them in the kernel.
Where a layer has fewer channels, GCC believes that the loop over four runs, and warns of reads after the end of the bias."""
_TOO_LONG = "its smallest part takes as long"
PRODUCT_ROWS = "rows"
"""The parameter of a product of matrices that counts its rows, which are the pixels of an image."""
OUTPUTS = ("out", "out_c")
"""The parameters of a product of matrices that count its outputs."""
_PIXELS = 4
"""Rows of a product of matrices that kernels compute together: fewer of them take nearly as long."""
_WORDS = 16
"""Elements of which the parts of a layer without rows are multiples, so that a kernel's loads of several stay aligned."""


def with_steps(
    program: Program,
    partition: Partition,
    cycles: Mapping[int, float],
    max_cycles: int | None = None,
) -> Program:
    """The program with begin, step and cancel. cycles: of each layer, by index; max_cycles: that a step is to take at most."""
    maker = _Stepping(program, partition, cycles, max_cycles)
    stages = tuple(map(maker.stage, program.schedule))
    split = {stage.split.step.index: stage.split.step for stage in stages if stage.split is not None}
    return replace(
        program,
        steps=tuple(split.get(step.index, step) for step in program.steps),
        schedule=tuple(stage.stage for stage in stages),
        stepping=Stepping(max_cycles, stages),
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """How a layer can be split. rows: of the output; each makes `per_row` of what the parameter `counted` counts."""

    rows: int
    counted: str = ""
    per_row: int = 1


class _Stepping:
    """Makes the stages of one program. Arguments: as of `with_steps`."""

    def __init__(
        self,
        program: Program,
        partition: Partition,
        cycles: Mapping[int, float],
        max_cycles: int | None,
    ) -> None:
        self._cycles, self._max_cycles = cycles, max_cycles
        self._layers = partition.layers
        self._nodes = {bound.node.index: bound for bound in partition.graph.bound()}
        self._memory = MemoryMap.of(program)

    def stage(self, stage: Step | Move | RowSegment) -> SteppedStage:
        """One stage of run()."""
        whole = self._whole_cycles(stage)
        limit = self._max_cycles
        if limit is None or whole <= limit:
            return SteppedStage(stage, None, 1, ceil(whole))
        if isinstance(stage, Move):
            return SteppedStage(stage, None, 1, ceil(whole), "a tensor is relocated in one piece")
        if isinstance(stage, RowSegment):
            return self._segment(stage, limit)
        split, why = self._split(stage, limit)
        if split is None:
            return SteppedStage(stage, None, 1, ceil(whole), why)
        if shared := conflict(split, self._layers[stage.index], self._memory):
            return SteppedStage(stage, None, 1, ceil(whole), shared, shares=True)
        longest = self._part_cycles(split, split.together)
        too_long = _TOO_LONG if longest > limit else ""
        return SteppedStage(split.step, split, split.calls, ceil(longest), too_long)

    def _segment(self, segment: RowSegment, limit: int) -> SteppedStage:
        """A segment that stops after as many rows as the limit allows, whichever layers make them."""
        layers = segment.calls
        rows = [self._cycles.get(call.step.index, 0.0) / call.makes.rows + PER_ROW for call in layers]
        costs = [rows[layer] for layer in segment.turns]
        together = max(1, int(limit // max(rows)))
        longest = max(sum(costs[first : first + together]) for first in range(0, len(costs), together))
        return SteppedStage(
            replace(segment, in_parts=True),
            None,
            ceil(len(costs) / together),
            ceil(longest),
            _TOO_LONG if longest > limit else "",
            rows_in_call=together,
        )

    def _whole_cycles(self, stage: Step | Move | RowSegment) -> float:
        if isinstance(stage, Move):
            return PER_BYTE * stage.size_bytes
        if isinstance(stage, RowSegment):
            rows = sum(call.makes.rows for call in stage.calls)
            return sum(self._cycles.get(call.step.index, 0.0) for call in stage.calls) + PER_ROW * rows
        return self._cycles.get(stage.index, 0.0)

    def _part_cycles(self, split: Split, rows: int) -> float:
        """Of a call that makes so many rows."""
        layer = self._layers[split.step.index]
        share = 0.0
        if layer.by_rows is not None and layer.by_rows.window:
            share = PORTABLE_WINDOW_SHARE if layer.variant == "portable" else OTHER_WINDOW_SHARE
            share += tail_waste(layer) + max(0.0, layer.by_rows.alone)
        if layer.by_rows is not None and (left_over := layer.by_rows.left_over):
            width = next(int(p.value) for p in layer.params if p.name == "out_w")
            share += _tiles(rows * width, left_over) * split.rows / (_tiles(split.rows * width, left_over) * rows) - 1
        return self._cycles.get(split.step.index, 0.0) * (1 + share) * rows / split.rows + PER_ROW

    def _split(self, step: Step, limit: int) -> tuple[Split | None, str]:
        """The layer in parts of as many rows as the limit allows; None and why not where it has to run whole.

        The memory is not looked at.
        """
        layer, bound = self._layers.get(step.index), self._nodes.get(step.index)
        form = layer.by_rows if layer is not None else None
        if layer is None or bound is None or form is None:
            return None, "its kernel makes the whole output"
        if layer.pins or layer.fallible or layer.reads_rows or layer.memory is not None or len(step.outputs) != 1:
            return None, "its kernel makes the whole output"
        step = _filled(step, bound.output.shape[-1]) if layer.macs and layer.tables and bound.output.shape else step
        rows = _rows_of(layer, bound)
        if rows is None or rows.rows < 2:
            parts = _outputs_of(step, layer, bound) if form.outputs else None
            if parts is None:
                return None, "its output is one row"
            return replace(parts, together=self._most_rows(parts, limit)), ""
        window = {p.name: int(p.value) for p in layer.params if p.name in WINDOW_PARAMS} if form.window else {}
        inputs = zip((bound.input(position) for position in layer.operands), step.inputs, strict=True)
        reads = tuple(_rows_in(tensor, operand, rows.rows, window) for tensor, operand in inputs)
        makes = _rows_in(bound.output, step.outputs[0], rows.rows, {})
        split = Split(replace(step, window=True), reads, makes, 1, rows.counted, rows.per_row)
        return replace(split, together=self._most_rows(split, limit)), ""

    def _most_rows(self, split: Split, limit: int) -> int:
        """The most rows that a call within the limit can make, one at least; in parts of about the same length."""
        row_cycles = self._part_cycles(split, 1) - PER_ROW
        most = min(max(1, int((limit - PER_ROW) // row_cycles)), split.rows) if row_cycles > 0 else split.rows
        grain = _PIXELS if split.counted == PRODUCT_ROWS else 1
        most = min(max(grain, most // grain * grain), split.rows)
        form = self._layers[split.step.index].by_rows
        if form is not None and form.left_over:  # fewer rows may take longer than more of them
            fitting = (rows for rows in range(split.rows, 0, -1) if self._part_cycles(split, rows) <= limit)
            return next(fitting, min(range(1, split.rows + 1), key=lambda rows: self._part_cycles(split, rows)))
        return min(ceil(split.rows / ceil(split.rows / most) / grain) * grain, most)


def _tiles(pixels: int, left_over: float) -> float:
    """Tiles that take as long as so many pixels. left_over: what a pixel that is left over takes of a tile's time.

    >>> _tiles(8, 0.5), _tiles(11, 0.5)
    (2.0, 3.5)
    """
    return pixels // _PIXELS + left_over * (pixels % _PIXELS)


def _filled(step: Step, channels: int) -> Step:
    """The step with a number for each of the channels that kernels compute together, where its layer has fewer channels."""
    if channels >= _CHANNELS_AT_ONCE:
        return step
    missing = (0,) * (_CHANNELS_AT_ONCE - channels)

    def filled(constant: Constant) -> Constant:
        table = constant.table
        if len(table.values) != channels:
            return constant
        comment = f"{table.comment}; zeros for the channels up to {_CHANNELS_AT_ONCE}"
        return replace(constant, table=replace(table, values=(*table.values, *missing), comment=comment))

    return replace(step, constants=tuple(map(filled, step.constants)))


def _rows_of(layer: Layer, bound: BoundNode) -> _Rows | None:
    """What the rows of a layer are that can make some of them: of an image, or of a product of matrices.

    None where they are not the same number of elements in each of its tensors.
    """
    assert layer.by_rows is not None
    tensors = [bound.output, *(bound.input(position) for position in layer.operands)]
    image = all(len(tensor.shape) == 4 and tensor.shape[0] == 1 and min(tensor.shape) > 0 for tensor in tensors)
    if layer.by_rows.window:
        return _Rows(bound.output.shape[1]) if image else None
    count = next((int(p.value) for p in layer.params if p.name == layer.by_rows.counted), 0)
    shape = bound.output.shape
    if layer.by_rows.counted == PRODUCT_ROWS and (len(tensors) == 2 or image):
        rows = count
    elif image:
        rows = shape[1] if all(tensor.shape[1:3] == shape[1:3] for tensor in tensors) else 1
    elif len(tensors) > 2 and any(tensor.elements != count for tensor in tensors):
        return None  # one of the operands may be weights, whose rows are none of the output's
    else:
        rows = prod(shape[:-1])
    if rows < 2 and not layer.tables and all(tensor.elements == count for tensor in tensors):
        rows = count // _WORDS if count % _WORDS == 0 else 1
    if rows < 1 or not count or count % rows or any(tensor.elements % rows for tensor in tensors):
        return None
    return _Rows(rows, layer.by_rows.counted, count // rows)


def _outputs_of(step: Step, layer: Layer, bound: BoundNode) -> Split | None:
    """A product with one row in parts of some outputs each; None where its tables do not start anew for each of them.

    The layer's function then takes the first output, at which its tables start. Every part reads the whole input.
    """
    assert layer.by_rows is not None
    count, together = bound.output.elements, layer.by_rows.outputs
    counted = next((p.name for p in layer.params if p.name in OUTPUTS and int(p.value) == count), "")
    sizes = {table.role: len(table.values) for table in layer.tables}
    if not counted or count % together or any(size % count for size in sizes.values() if size > 1):
        return None
    starts = {role: size // count for role, size in sizes.items() if size > 1 and role in step.table_names}
    whole = SplitOperand(step.inputs[0], 1, bound.input(layer.operands[0]).elements, 0)
    makes = SplitOperand(step.outputs[0], count // together, together)
    part = replace(step, window=True, leading=FIRST_OUTPUT, per_output=starts)
    return Split(part, (whole,), makes, 1, counted, together, True)


def _rows_in(tensor: Tensor, operand: Operand, rows: int, window: Mapping[str, int]) -> SplitOperand:
    """A tensor as its rows. rows: where row r of the output reads row r; window: of the kernel, where there is one."""
    if not window:
        return SplitOperand(operand, rows, tensor.elements // rows)
    extent = (window["kernel_h"] - 1) * window["dilation_h"] + 1
    height = tensor.shape[1]
    return SplitOperand(operand, height, tensor.elements // height, window["stride_h"], window["pad_top"], extent)
