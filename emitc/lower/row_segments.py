"""Stages to what run() does: calls, moved tensors, and segments row by row."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from emitc.ir import Graph
from emitc.layer import Layer, Param
from emitc.program import Move, RowCall, RowSegment, RowTensor, RowUse, Step
from emitc.schedule.slots import Slots, described
from emitc.schedule.stages import OUTSIDE, RowLayer, RowRead, Stage, buffer_name, lines_name, placed, turns


def row_params(layer: Layer, rows: RowLayer) -> tuple[Param, ...]:
    """The layer's parameters for one row of its output; of a window that is cut, those of a whole one."""
    assert layer.by_rows is not None
    if layer.by_rows.window:
        changed = {"in_h": rows.reads[0].extent, "out_h": 1, "pad_top": 0}
    else:
        counted = layer.by_rows.counted
        changed = {p.name: int(p.value) // rows.rows for p in layer.params if p.name == counted}
    return tuple(replace(p, value=changed[p.name]) if p.name in changed else p for p in layer.params)


def _source(graph: Graph, stage: Stage, moved: Mapping[str, int], slots: Slots) -> RowTensor | None:
    """The tensor that is whole before the segment, None where the first layer asks the application for its rows."""
    segment = stage.segment
    assert segment is not None
    if not segment.source:
        return None
    source, rows = graph.tensor(segment.source), segment.source_rows
    return RowTensor(
        name="x",
        start=slots.address(buffer_name(segment.source, moved.get(segment.source, 0))),
        row_bytes=source.size_bytes // rows,
        rows=rows,
        capacity=rows,
        made=rows,
        what=described(source),
    )


def _made(graph: Graph, stage: Stage, slots: Slots) -> tuple[RowTensor, ...]:
    segment = stage.segment
    assert segment is not None
    tensors: list[RowTensor] = []
    for node, layer, capacity in zip(stage.nodes, segment.layers, segment.capacities, strict=True):
        output = node.bound.output
        last = node is stage.nodes[-1]
        start = slots.address(graph.root(output.name).name if last else lines_name(node)) if capacity else None
        tensors.append(
            RowTensor(
                name=f"op{node.bound.node.index}",
                start=start,
                row_bytes=layer.row_bytes,
                rows=layer.rows,
                capacity=capacity,
                made=0,
                what=described(output),
            )
        )
    return tuple(tensors)


def _uses(stage: Stage, position: int, source: RowTensor | None, made: Sequence[RowTensor]) -> tuple[RowUse, ...]:
    """How the layer at a position reads the rows of each of its operands."""
    segment = stage.segment
    assert segment is not None

    def seen(read: RowRead) -> RowTensor:
        rows = source if read.source == OUTSIDE else made[read.source]
        assert rows is not None, "a segment that reads from outside has a source"
        return rows

    return tuple(
        RowUse(
            tensor=seen(read),
            stride=read.stride,
            pad=read.pad,
            extent=read.extent,
            waits=read.source != OUTSIDE,
            c_type=tensor.dtype.c_type,
            in_place=read.source != OUTSIDE and segment.in_place_of[read.source] != read.source,
        )
        for read, tensor in zip(segment.layers[position].reads, stage.nodes[position].inputs, strict=True)
    )


def _segment(graph: Graph, stage: Stage, moved: Mapping[str, int], steps: Sequence[Step], slots: Slots) -> RowSegment:
    segment = stage.segment
    assert segment is not None
    source, made = _source(graph, stage, moved, slots), _made(graph, stage, slots)
    every = [_uses(stage, position, source, made) for position in range(len(made))]
    calls = []
    for position, step in enumerate(steps):
        target = made[segment.in_place_of[position]]
        readers = tuple((made[i], use) for i, uses in enumerate(every) for use in uses if use.tensor is target)
        calls.append(
            RowCall(
                step=step,
                uses=every[position],
                makes=made[position],
                in_place_of=target,
                c_type=stage.nodes[position].bound.output.dtype.c_type,
                readers=readers,
                on_demand=position in segment.on_demand,
            )
        )
    rows_at = [tensor.start for tensor in (source, *made) if tensor is not None]
    working = [operand.address for step in steps for operand in step.scratch]
    copies = [staged.address for step in steps for staged in step.staged]
    arenas = dict.fromkeys(slot.variable for slot in (*rows_at, *working, *copies) if slot is not None)
    name = f"rows_op{steps[0].index}_to_op{steps[-1].index}"
    order = turns(segment.layers, segment.on_demand)
    assert order is not None, "a segment whose output is complete"
    return RowSegment(name=name, source=source, calls=tuple(calls), arenas=tuple(arenas), turns=order)


def schedule_of(
    graph: Graph, stages: Sequence[Stage], steps: Sequence[Step], slots: Slots
) -> tuple[Step | Move | RowSegment, ...]:
    """One entry for every stage. steps: of all layers, in the stages' order."""
    schedule: list[Step | Move | RowSegment] = []
    position = 0
    for stage, moved in placed(stages):
        if stage.moved:
            count = moved.get(stage.moved, 0)
            source, target = (slots.address(buffer_name(stage.moved, n)) for n in (count, count + 1))
            tensor = graph.tensor(stage.moved)
            move = Move(destination=target, source=source, size_bytes=tensor.size_bytes, what=described(tensor))
            schedule.append(move)
            continue
        here = steps[position : position + len(stage.nodes)]
        position += len(here)
        schedule.append(_segment(graph, stage, moved, here, slots) if stage.segment is not None else here[0])
    return tuple(schedule)
