"""Stages to what run() does: calls, moved tensors, and segments row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from emitc.ir import Graph
from emitc.layer import Layer, Param
from emitc.program import Move, RowCall, RowSegment, RowTensor, RowUse, Step
from emitc.schedule.slots import Slots, cast, described
from emitc.schedule.stages import OUTSIDE, RowLayer, RowRead, Stage, buffer_name, lines_name, placed


def row_params(layer: Layer, rows: RowLayer) -> tuple[Param, ...]:
    """The layer's parameters for one row of its output; of a window that is cut, those of a whole one."""
    assert layer.by_rows is not None
    if layer.by_rows.window:
        changed = {"in_h": rows.reads[0].extent, "out_h": 1, "pad_top": 0}
    else:
        counted = layer.by_rows.counted
        changed = {p.name: int(p.value) // rows.rows for p in layer.params if p.name == counted}
    return tuple(replace(p, value=changed[p.name]) if p.name in changed else p for p in layer.params)


def _segment(graph: Graph, stage: Stage, moved: Mapping[str, int], steps: Sequence[Step], slots: Slots) -> RowSegment:
    segment = stage.segment
    assert segment is not None
    outer = None
    if segment.source:
        source, rows = graph.tensor(segment.source), segment.source_rows
        place = slots.place(buffer_name(segment.source, moved.get(segment.source, 0)))
        outer = RowTensor("x", place, source.size_bytes // rows, rows, rows, rows, described(source))
    tensors: list[RowTensor] = []
    for node, layer, room in zip(stage.nodes, segment.layers, segment.rooms, strict=True):
        output = node.bound.output
        last = node is stage.nodes[-1]
        start = slots.place(graph.root(output.name).name if last else lines_name(node)) if room else "NULL"
        tensors.append(
            RowTensor(f"op{node.bound.node.index}", start, layer.row_bytes, layer.rows, room, 0, described(output))
        )

    def seen(read: RowRead) -> RowTensor:
        found = outer if read.source == OUTSIDE else tensors[read.source]
        assert found is not None, "a segment that reads from outside has a source"
        return found

    def uses(position: int) -> tuple[RowUse, ...]:
        node, layer = stage.nodes[position], segment.layers[position]
        return tuple(
            RowUse(
                seen(read),
                read.stride,
                read.pad,
                read.extent,
                read.source != OUTSIDE,
                cast(tensor.dtype.c_type, const=True),
                read.source != OUTSIDE and segment.places[read.source] != read.source,
            )
            for read, tensor in zip(layer.reads, node.inputs, strict=True)
        )

    every = [uses(position) for position in range(len(tensors))]
    calls = []
    for position, step in enumerate(steps):
        target = tensors[segment.places[position]]
        readers = tuple((tensors[i], use) for i, found in enumerate(every) for use in found if use.tensor is target)
        to_output = cast(stage.nodes[position].bound.output.dtype.c_type, const=False)
        asked = position in segment.asked
        calls.append(RowCall(step, every[position], tensors[position], target, to_output, readers, asked))
    working = [operand.pointer.rpartition("(")[2] for step in steps for operand in step.scratch]
    copies = [staged.place for step in steps for staged in step.staged]
    pointers = [t.pointer for t in (outer, *tensors) if t is not None] + working + copies
    arenas = dict.fromkeys(pointer.split(" + ")[0] for pointer in pointers if pointer != "NULL")
    return RowSegment(f"rows_op{steps[0].index}_to_op{steps[-1].index}", outer, tuple(calls), tuple(arenas))


def schedule_of(
    graph: Graph, stages: Sequence[Stage], steps: Sequence[Step], slots: Slots
) -> tuple[Step | Move | RowSegment, ...]:
    """One entry for every stage. steps: of all layers, in the stages' order."""
    found: list[Step | Move | RowSegment] = []
    position = 0
    for stage, moved in placed(stages):
        if stage.moved:
            count = moved.get(stage.moved, 0)
            source, target = (slots.place(buffer_name(stage.moved, n)) for n in (count, count + 1))
            tensor = graph.tensor(stage.moved)
            found.append(Move(target, source, tensor.size_bytes, described(tensor)))
            continue
        here = steps[position : position + len(stage.nodes)]
        position += len(here)
        found.append(_segment(graph, stage, moved, here, slots) if stage.segment is not None else here[0])
    return tuple(found)
