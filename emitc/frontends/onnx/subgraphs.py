"""If, Loop and Scan of ONNX: their graphs are read with access to the values around them, and become subgraphs.

What an inner graph reads of the graph around it becomes an operand of the operator and an input of the subgraph;
constants are in both. A Loop is read once for all rounds. That is impossible where shapes follow from the number of the
round or change with it. If the number of rounds is known, its operators are then written out one round after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from emitc.errors import CannotCompile, EmitcError, Where
from emitc.frontends.limits import MAX_OPERATORS, ConstantBudget
from emitc.frontends.onnx.file import WrongUse, dims_of, graph_of
from emitc.frontends.onnx.functions import MAX_DEPTH
from emitc.frontends.onnx.numbers import faulty
from emitc.frontends.subgraphs import unfit_branch
from emitc.ir import Array
from emitc.records import dataclass
from emitc.source import Attribute, SourceNode, SourceSubgraph, SourceTensor

if TYPE_CHECKING:
    from emitc.frontends.onnx.reader import Reader

CONTROL_FLOW = ("If", "Loop", "Scan")
NO_LIMIT = 2**63 - 1
MAX_ROUNDS = 1 << 10
"""The most rounds of a loop whose operators are written out round after round."""
MAX_READ = 1 << 14
"""Operators inside of operators that are read in all, those of every round of such a loop counted."""
_GRAPH = onnx.AttributeProto.GRAPH
_FIXED = "export the model with fixed shapes, or with a number of rounds that is a constant"


@dataclass(slots=True)
class _Plan:
    """How a Loop is compiled. read: its body, as read for all rounds. rounds: at most, None where an operand says.

    begins: the first condition, None where an operand says. until: the body computes one. against: why no body serves all.
    """

    body: onnx.GraphProto
    read: Reader
    rounds: int | None
    begins: bool | None
    until: bool
    against: list[EmitcError]

    @property
    def known(self) -> bool:
        """Whether the rounds can be written out one after another."""
        return self.rounds is not None and self.begins is not None


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of CONTROL_FLOW that is read. index: its place in the file. name: its own, or its first output's."""

    index: int
    node: onnx.NodeProto
    name: str
    where: Where


class Inside:
    """What a reader knows of the graph around its own, and of those inside of its operators.

    captured: names of values that its graph takes from the graph around it.
    """

    def __init__(self, reader: Reader, outer: Reader | None) -> None:
        self.reader = reader
        self.outer = outer
        self.depth: int = 0 if outer is None else outer.inside.depth + 1
        self.subgraphs: list[SourceSubgraph] = [] if outer is None else outer.inside.subgraphs
        self.copies: list[int] = [0, 0] if outer is None else outer.inside.copies
        self.budget: ConstantBudget = ConstantBudget(reader.model.ByteSize()) if outer is None else outer.inside.budget
        self.captured: list[str] = []
        self.plans: dict[tuple[str, ...], _Plan] = {}

    @property
    def blocked(self) -> bool:
        """Whether something here or outside could not be read, so that values may be missing."""
        return bool(self.reader.blockers) or (self.outer is not None and self.outer.inside.blocked)

    def knows(self, name: str) -> bool:
        """Whether there is such a value; one of the graph outside becomes one of this graph."""
        if name in self.reader.values:
            return True
        if not name or self.outer is None or not self.outer.inside.knows(name):
            return False
        value = self.outer.values[name]
        tensor = self.outer.tensors[value.index]
        self.reader.add(name, tensor.dtype, tensor.shape, tensor.data, value.type, value.constant)
        if tensor.data is None:
            self.captured.append(name)
        return True

    def body(
        self, graph: onnx.GraphProto, inputs: Mapping[str, onnx.TypeProto], constants: Mapping[str, Array]
    ) -> Reader:
        """A graph inside, read. inputs: types of its inputs; constants: values of others."""
        self._spend(len(graph.node), graph.ByteSize())
        outer = self.reader
        reader = type(outer)(outer.model, {}, outer.custom, outer)
        if reader.inside.depth > MAX_DEPTH or len(graph.node) > MAX_OPERATORS:
            raise faulty("a graph lies too deep inside of operators", Where(), f"the limit is {MAX_DEPTH}")
        reader.folded, reader.read_elements = outer.folded, outer.read_elements
        reader.sizes_chosen = outer.sizes_chosen
        if len(graph.sparse_initializer):
            what = "a graph inside has sparse constants"
            reader.blockers.append(CannotCompile(what, Where(), "there is no code", "export it without"))
        for name, kind in inputs.items():
            reader.add_typed(name, kind, Where(tensor=name))
        for name, value in constants.items():
            reader.add_constant(onnx.numpy_helper.from_array(value, name), name)
        reader.initializers(graph)
        reader.operators(graph)
        outer.folded, outer.read_elements = reader.folded, reader.read_elements
        return reader

    def _spend(self, nodes: int, size_bytes: int) -> None:
        """Refuses a model whose graphs inside of operators, read again and again, are too much work."""
        self.copies[1] += 1 + nodes
        self.budget.spend(size_bytes, Where())
        if self.copies[1] > MAX_READ:
            raise faulty("graphs inside of operators are too large", Where(), f"the limit is {MAX_READ} operators read")

    # ---- the operators ----

    def add(self, read: Operator) -> None:
        """Reads one of CONTROL_FLOW. Raises CannotCompile for one that has no static shapes."""
        {"If": self._if, "Loop": self._loop, "Scan": self._scan}[read.node.op_type](read)

    def _if(self, op: Operator) -> None:
        node, where = op.node, op.where
        graphs = [graph for name in ("then_branch", "else_branch") if (graph := graph_of(node, name)) is not None]
        if len(node.input) != 1 or len(graphs) != 2 or any(len(graph.output) != len(node.output) for graph in graphs):
            raise faulty("an If does not fit its branches", where, "one has other outputs")
        present = [position for position, output in enumerate(node.output) if output]
        read = [self._branch(branch, part, where) for branch, part in zip(graphs, ("then", "else"), strict=True)]
        results = [[branch.output[position].name for position in present] for branch in graphs]
        if self._missing(op, list(zip(read, results, strict=True))):
            return
        names = list(dict.fromkeys(captured for branch in read for captured in branch.inside.captured))
        numbers = [self._registered(b, [], names, made) for b, made in zip(read, results, strict=True)]
        outputs = [(node.output[p], read[0].values[made].type) for p, made in zip(present, results[0], strict=True)]
        attributes = dict(zip(("then_subgraph_index", "else_subgraph_index"), numbers, strict=True))
        self._add(op, [node.input[0], *names], outputs, attributes)

    def _branch(self, branch: onnx.GraphProto, part: str, where: Where) -> Reader:
        """A branch of an If, read. Raises CannotCompile where it does not fit the sizes, since it need not be one that runs."""
        try:
            return self.body(branch, {}, {})
        except WrongUse as error:
            raise unfit_branch(error, f"in the {part} branch of {where.op}") from error

    def _loop(self, op: Operator) -> None:
        node = op.node
        plan = self.plans.pop(_key(node), None) or self._plan(node, op.where)
        values = list(node.input[2:])
        results = [output.name for output in plan.body.output]
        if self._missing(op, [(plan.read, results)]):
            return
        if plan.against:
            raise plan.against[0]
        number = plan.body.input[0].name
        present = [k for k, output in enumerate(node.output[len(values) :]) if output]
        slices = [results[1 + len(values) + k] for k in present]
        outputs = results[0:1] * plan.until + results[1 : 1 + len(values)] + slices
        numbered = number in outputs or any(
            t is not None and t.name == number for inner in plan.read.nodes for t in inner.inputs
        )
        counted, conditional = plan.rounds is None, plan.begins is None
        self._add_loop(
            op,
            plan.read,
            [number] * numbered + [value.name for value in plan.body.input[2:]],
            outputs,
            [node.input[0]] * counted + [node.input[1]] * conditional + values,
            [node.output[len(values) + k] for k in present],
            {
                "counted": int(counted), "conditional": int(conditional), "numbered": int(numbered),
                "until": int(plan.until), "rounds": NO_LIMIT if plan.rounds is None else plan.rounds,
                "carried": len(values), "backward": "0" * len(slices),
            },
        )  # fmt: skip

    def _scan(self, op: Operator) -> None:
        node, where = op.node, op.where
        body = graph_of(node, "body")
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if a.type != _GRAPH}
        count = int(attributes.get("num_scan_inputs", 0))
        values, scanned = list(node.input[: len(node.input) - count]), list(node.input[len(node.input) - count :])
        if self.reader.opset < 9:
            what, why = "Scan of opset 8 is not supported", "it has a batch of sequences"
            raise CannotCompile(what, where, why, "use opset 11")
        fits = body is not None and (len(body.input), len(body.output)) == (len(node.input), len(node.output))
        if body is None or not fits or not 0 < count <= len(node.input) or not all(node.input):
            raise faulty("a Scan does not fit its body", where, "it takes or gives other values")
        if any(attributes.get("scan_input_axes", ())) or any(attributes.get("scan_output_axes", ())):
            what = "Scan along another dimension than the first is not supported"
            why = "slices are read and written where they lie"
            raise CannotCompile(what, where, why, "transpose the tensors round it")
        tensors = [self._tensor(name) for name in scanned]
        lengths = {tensor.shape[0] if tensor.shape else 0 for tensor in tensors}
        if len(lengths) != 1 or 0 in lengths:
            raise faulty("a Scan has inputs of several lengths", where, str(sorted(lengths)))
        kinds = [self.reader.values[i].type for i in values]
        kinds += [_typed(self.reader.values[i].type, t.shape[1:]) for i, t in zip(scanned, tensors, strict=True)]
        leading = [value.name for value in body.input]
        read = self.body(body, dict(zip(leading, kinds, strict=True)), {})
        results = [output.name for output in body.output]
        if self._missing(op, [(read, results)]):
            return
        present = [k for k in range(len(values), len(results)) if node.output[k]]
        outputs = results[: len(values)] + [results[k] for k in present]
        turned = [bool(back) for back in attributes.get("scan_input_directions", ())] or [False] * count
        back = [bool(back) for back in attributes.get("scan_output_directions", ())]
        turned += [bool(back and back[k - len(values)]) for k in present]
        ends = [node.output[k] for k in present]
        backward = "".join("1" if back else "0" for back in turned)
        settings: dict[str, int | str] = {
            "scanned": count,
            "carried": len(values),
            "rounds": lengths.pop(),
            "backward": backward,
        }
        self._add_loop(op, read, leading, outputs, [*values, *scanned], ends, settings)

    # ---- what they have in common ----

    def _missing(self, op: Operator, read: Sequence[tuple[Reader, Sequence[str]]]) -> bool:
        """Whether something inside cannot be compiled; it stands against the model then."""
        errors = [error for reader, _ in read for error in reader.blockers]
        self.reader.blockers += [error.at(why=f"{error.why} (inside of {op.where.op})") for error in errors]
        self.reader.unread += [inner for reader, _ in read for inner in reader.unread]
        unknown = [made for reader, results in read for made in results if not reader.inside.knows(made)]
        if unknown and not self.blocked:
            raise faulty("nothing writes an output of a graph inside", op.where, f'"{unknown[0]}" is missing')
        if unknown and not errors:
            kind = op.node.op_type
            self.reader.unread.append(SourceNode(op.index, kind, op.name, (), (), {}, "onnx", kind))
        return bool(errors or unknown)

    def _registered(self, read: Reader, leading: Sequence[str], names: Sequence[str], results: Sequence[str]) -> int:
        """The number of a subgraph: a graph with the inputs `leading`, followed by values of the graph outside."""
        inputs = [read.values[name].index for name in leading]
        for name in names:
            if name in read.inside.captured:
                inputs.append(read.values[name].index)
                continue
            outside, index = self._tensor(name), len(read.tensors)  # another branch reads it
            inputs.append(index)
            read.tensors.append(SourceTensor(index, f"{name}#{index}", outside.dtype, outside.shape, None, None))
        outputs = tuple(read.values[name].index for name in results)
        self.subgraphs.append(SourceSubgraph(tuple(read.tensors), tuple(read.nodes), tuple(inputs), outputs))
        return len(self.subgraphs)

    def _tensor(self, name: str) -> SourceTensor:
        return self.reader.tensors[self.reader.values[name].index]

    def _add(
        self,
        op: Operator,
        inputs: Sequence[str],
        outputs: Sequence[tuple[str, onnx.TypeProto]],
        attributes: Mapping[str, Attribute],
    ) -> None:
        operands = tuple(self._tensor(name) for name in inputs)
        made = tuple(self.reader.tensors[self.reader.add_typed(o, kind, op.where)] for o, kind in outputs)
        stated = {**attributes, "opset": self.reader.opset, "outputs_present": tuple(range(len(made)))}
        kind = op.node.op_type
        self.reader.nodes.append(SourceNode(op.index, kind, op.name, operands, made, stated, "onnx", kind))

    def _add_loop(
        self, op: Operator, read: Reader, inputs: Sequence[str], results: Sequence[str], operands: Sequence[str],
        slices: Sequence[str], settings: Mapping[str, int | str],
    ) -> None:  # fmt: skip
        """Adds a loop whose body is read. inputs, results: names of values of the body. operands: names of values outside.

        slices: names outside of tensors to which each round adds a slice. settings: attributes. `carried` is how many operands
        the body computes anew in each round, `backward` whether the last round comes first, for each scanned operand and slice.
        """
        names, carried, rounds = read.inside.captured, int(settings["carried"]), int(settings["rounds"])
        subgraph = self._registered(read, inputs, names, results)
        kinds = [read.values[made].type for made in results[int(settings.get("until", 0)) :]]
        values = [o or f"{op.name}#value{k}" for k, o in enumerate(op.node.output[:carried])]
        outputs = list(zip(values, kinds[:carried], strict=True))
        for end, kind in zip(slices, kinds[carried:], strict=True):
            outputs.append((end, _typed(kind, (rounds, *dims_of(kind, 1)))))
        absent = dict.fromkeys(("counted", "conditional", "numbered", "until", "scanned"), 0)
        self._add(op, [*operands, *names], outputs, {"body_subgraph_index": subgraph, **absent, **settings})

    # ---- rounds ----

    def _plan(self, node: onnx.NodeProto, where: Where) -> _Plan:
        body = graph_of(node, "body")
        values = node.input[2:]
        fits = body is not None and (len(body.input), len(body.output)) == (2 + len(values), 1 + len(node.output))
        if body is None or not fits or len(node.output) < len(values) or not all(values):
            raise faulty("a Loop does not fit its body", where, "it takes or gives other values")
        limit, first = (self._scalar(name, where) if name else default for name, default in zip(
            (*node.input[:2], "", "")[:2], (NO_LIMIT, True), strict=True
        ))  # fmt: skip
        kinds = {value.name: self.reader.values[i].type for value, i in zip(body.input[2:], values, strict=True)}
        number = onnx.helper.make_tensor_type_proto(onnx.TensorProto.INT64, dims_of(body.input[0].type, 1))
        going = np.full(dims_of(body.input[1].type, 1), True)  # it is true in every round, or there were none
        count = len(self.subgraphs)
        read = self.body(body, {body.input[0].name: number, **kinds}, {body.input[1].name: going})
        goes_on = read.constant_of(body.output[0].name)
        rounds = None if limit is None else max(0, int(limit))
        begins = None if first is None else bool(first)
        if goes_on is not None and not onnx.numpy_helper.to_array(goes_on).any() and rounds is not None:
            rounds = min(rounds, 1)
        if begins is False:
            rounds = 0
        until = goes_on is None or (rounds is None and not onnx.numpy_helper.to_array(goes_on).any())
        plan = _Plan(body, read, rounds, begins, until, [])
        plan.against += self._against(node, plan, where)
        if read.blockers or plan.against:
            del self.subgraphs[count:]
        return plan

    def _against(self, node: onnx.NodeProto, plan: _Plan, where: Where) -> Iterator[EmitcError]:
        """Why there cannot be one body for all rounds."""
        read, values = plan.read, node.input[2:]
        if read.blockers or any(not read.inside.knows(output.name) for output in plan.body.output):
            return
        for value, result in zip(values, plan.body.output[1:], strict=False):
            before, after = self._tensor(value), read.tensors[read.values[result.name].index]
            if (before.dtype, before.shape) != (after.dtype, after.shape):
                why = f"{before.describe()} becomes {after.describe()}: sizes must be known at compile time"
                yield CannotCompile("Loop has a body that changes shapes", where, why, _FIXED)
        endless = plan.rounds == NO_LIMIT and not plan.until and plan.begins
        if endless:
            yield CannotCompile("a Loop has no end", where, "it has neither limit nor condition", "give it one")
        if plan.rounds == 0:
            yield CannotCompile("a Loop has no rounds", where, "its limit is 0, or its condition false", "leave it out")
        length_known = plan.known and not plan.until and plan.rounds != NO_LIMIT
        if any(node.output[len(values) :]) and not length_known and not endless:
            why = "the data decide how many rounds there are, each of which adds a slice"
            hint = "export the model with a constant number of rounds, and without a condition"
            yield CannotCompile("Loop has outputs of unknown length", where, why, hint)

    def _scalar(self, name: str, where: Where) -> int | bool | None:
        """The value of a limit or a condition, None where it is computed."""
        tensor = self._tensor(name)
        if tensor.elements != 1 or tensor.dtype not in ("int64", "bool"):
            raise faulty(f"a Loop takes {tensor.describe()} for a limit or condition", where, "one value")
        if tensor.data is None:
            return None
        scalar: int | bool = tensor.array().reshape(-1)[0].item()
        return scalar

    def unrolled(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto] | None:
        """The operators of all rounds of a Loop, where it cannot have one body for all of them; else None."""
        if node.op_type != "Loop" or node.domain not in ("", "ai.onnx"):
            return None
        if any(i and not self.knows(i) for i in node.input):
            return None  # what is missing is said when the Loop is read
        where = Where(op=f'Loop "{node.name or next(iter(node.output), "")}"')
        plan = self._plan(node, where)
        endless = plan.rounds == NO_LIMIT and not plan.until
        if plan.known and (plan.read.blockers or plan.against) and not endless and not self.blocked:
            return self._rounds(node, plan, where)
        self.plans[_key(node)] = plan
        return None

    def _rounds(self, node: onnx.NodeProto, plan: _Plan, where: Where) -> Iterator[onnx.NodeProto]:
        """The operators of one round after the other; reasons against them are noted on the way."""
        body, blockers = plan.body, self.reader.blockers
        current, slices = list(node.input[2:]), [list[str]() for _ in node.output[len(node.input) - 2 :]]
        base = {value.name: self._fresh(value.name) for value in body.initializer}
        for value in body.initializer:
            yield _constant(base[value.name], onnx.numpy_helper.to_array(value))
        base[body.input[1].name] = self._fresh(body.input[1].name)
        yield _constant(base[body.input[1].name], np.full(dims_of(body.input[1].type, 1), True))
        number, going, before = 0, True, len(blockers)
        size_bytes = sum(inner.ByteSize() for inner in body.node)
        while going and number < (plan.rounds or 0):
            if number >= MAX_ROUNDS or number * len(body.node) > MAX_OPERATORS:
                reason = [*plan.read.blockers, *plan.against][0]
                what = "a Loop has too many rounds to compile each by itself"
                why = f"they would have to be, since: {reason.what}, {reason.why}"
                blockers.append(CannotCompile(what, where, why, _FIXED))
                return
            names = base | dict(zip((value.name for value in body.input[2:]), current, strict=True))
            names[body.input[0].name] = self._fresh(body.input[0].name)
            yield _constant(names[body.input[0].name], np.full(dims_of(body.input[0].type, 1), number, np.int64))
            self._spend(len(body.node), size_bytes)
            suffix = self._fresh("")
            for inner in body.node:
                yield _renamed(inner, names, suffix)
            if len(blockers) > before:
                return
            results = [names.get(value.name, value.name) for value in body.output]
            goes_on = self.reader.constant_of(results[0])
            if goes_on is None:
                blockers += plan.read.blockers or plan.against
                return
            going = bool(onnx.numpy_helper.to_array(goes_on).any())
            current = results[1 : 1 + len(current)]
            for stacked, result in zip(slices, results[1 + len(current) :], strict=True):
                stacked.append(result)
            number += 1
        for inner_name, output in zip(current, node.output, strict=False):
            if output:
                yield onnx.helper.make_node("Identity", [inner_name], [output])
        for stacked, output in zip(slices, node.output[len(current) :], strict=True):
            if output and not stacked:
                blockers.append(CannotCompile("a Loop has an empty output", where, "it has no rounds", "leave it out"))
            elif output:
                yield from self._stacked(stacked, output)

    def _stacked(self, parts: Sequence[str], output: str) -> Iterator[onnx.NodeProto]:
        axes = self._fresh("axes")
        late = self.reader.opset >= 13
        if late:
            yield _constant(axes, np.array([0], np.int64))
        wide = [self._fresh(part) for part in parts]
        for part, name in zip(parts, wide, strict=True):
            inputs = [part, axes] if late else [part]
            yield onnx.helper.make_node("Unsqueeze", inputs, [name], axes=None if late else [0])
        yield onnx.helper.make_node("Concat", wide, [output], axis=0)

    def _fresh(self, name: str) -> str:
        self.copies[0] += 1
        return f"{name}#{self.copies[0]}"


def _key(node: onnx.NodeProto) -> tuple[str, ...]:
    return (node.name, *node.output)


def _typed(kind: onnx.TypeProto, shape: Sequence[int]) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(kind.tensor_type.elem_type, shape)


def _constant(name: str, value: Array) -> onnx.NodeProto:
    return onnx.helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(value, name))


def _renamed(node: onnx.NodeProto, names: dict[str, str], suffix: str) -> onnx.NodeProto:
    """A copy of a node under other names; what it writes gets the suffix, and is added to the names."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.name = node.name and node.name + suffix
    made.input[:] = [names.get(name, name) if name else "" for name in node.input]
    names |= {name: name + suffix for name in node.output if name}
    made.output[:] = [names[name] if name else "" for name in node.output]
    for attribute in made.attribute:
        if attribute.type == _GRAPH:
            _rename_graph(attribute.g, dict(names), suffix)
    return made


def _rename_graph(graph: onnx.GraphProto, names: dict[str, str], suffix: str) -> None:
    for value in (*graph.initializer, *graph.input):
        names[value.name] = value.name + suffix
        value.name += suffix
    nodes = [_renamed(node, names, suffix) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    for value in graph.output:
        value.name = names.get(value.name, value.name)
