"""Which tensors can lie where vela has placed them in a scratch memory that several NPU operators share.

vela's plan is right for the operators of the file. emitc's passes move and merge those on the core, after which a tensor may
be needed for longer than vela planned. So one run is simulated with every tensor in its place. What would be overwritten before
it is read is taken out and gets bytes of its own, until nothing is overwritten.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Graph, Node

_NOBODY, _STREAM = 0, -1
_MOST_RUNS = 64
_MOST_BYTES = 1 << 32
"""Uses of tensors, each as large as the largest one."""


@dataclass(frozen=True, slots=True)
class Command:
    """What an NPU operator does to the shared memory.

    inputs: tensor (root), first byte and the byte after the last; outputs: tensor and first byte. carried, writes: as
    `NpuCommand` has them, as pairs.
    """

    inputs: tuple[tuple[str, int, int], ...]
    outputs: tuple[tuple[str, int], ...]
    carried: tuple[tuple[int, int], ...]
    writes: tuple[tuple[int, int], ...]


def preserved_tensors(graph: Graph, commands: Mapping[int, Command], wanted: Mapping[str, int]) -> dict[str, int]:
    """The tensors of `wanted` (by root, their first byte) that keep their value there. commands: by the node's index.

    None of them where it would take too long to tell, which no file of vela comes near.
    """
    inside = dict(wanted)
    uses = sum(len(node.inputs) + len(node.outputs) for node in graph.nodes)
    largest = max((graph.tensor(name).size_bytes for name in inside), default=0)
    for _ in range(_MOST_RUNS if uses * largest <= _MOST_BYTES else 0):
        bad = _Run(graph, commands, inside).overwritten()
        if not bad:
            return inside
        for name in bad:
            del inside[name]
    return {}


class _Run:
    """One inference, byte by byte: owners has 0 for nobody, -1 for what a stream has written, else the number of a tensor."""

    def __init__(self, graph: Graph, commands: Mapping[int, Command], inside: Mapping[str, int]) -> None:
        self.graph = graph
        self.commands = commands
        self.inside = inside
        self.numbers = {name: number for number, name in enumerate(inside, 1)}
        self.names = {number: name for name, number in self.numbers.items()}
        ends = [offset + graph.tensor(name).size_bytes for name, offset in inside.items()]
        ends += [end for command in commands.values() for _, end in (*command.writes, *command.carried)]
        ends += [end for command in commands.values() for _, _, end in command.inputs]
        self.owners: NDArray[np.int64] = np.zeros(max(ends, default=0), np.int64)
        self.streamed = np.zeros(len(self.owners), bool)

    def overwritten(self) -> set[str]:
        """Tensors that something has overwritten by the first time that somebody needs them, or that have done so themselves."""
        for name in self.graph.inputs:
            self._write(self.graph.root(name).name)
        for node in self.graph.nodes:
            command = self.commands.get(node.index)
            bad = self._on_core(node) if command is None else self._on_npu(command)
            if bad:
                return bad
        return {name for output in self.graph.outputs if not self._intact(name := self.graph.root(output).name)}

    def _range(self, name: str) -> slice:
        return slice(self.inside[name], self.inside[name] + self.graph.tensor(name).size_bytes)

    def _write(self, name: str) -> None:
        if name in self.inside:
            self.owners[self._range(name)] = self.numbers[name]
            self.streamed[self._range(name)] = False

    def _intact(self, name: str) -> bool:
        return name not in self.inside or bool((self.owners[self._range(name)] == self.numbers[name]).all())

    def _on_core(self, node: Node) -> set[str]:
        read = {self.graph.root(name).name for name in node.inputs if name}
        bad = {name for name in read if not self._intact(name)}
        for name in dict.fromkeys(self.graph.root(output).name for output in node.outputs):
            if name in self.inside:
                covered = set(np.unique(self.owners[self._range(name)]).tolist())
                if covered & {self.numbers[other] for other in read if other in self.inside and other != name}:
                    bad.add(name)  # no kernel is asked whether it may write over its input
            self._write(name)
        return bad

    def _on_npu(self, command: Command) -> set[str]:
        bad = {name for name, _, _ in command.inputs if not self._intact(name)}
        for name, first, end in command.inputs:
            if self.inside.get(name) != first:  # copied there
                self.owners[first:end] = _STREAM
                self.streamed[first:end] = True
        for first, end in command.carried:
            here = self.owners[first:end][~self.streamed[first:end]]
            bad |= {self.names[number] for number in np.unique(here).tolist() if number in self.names}
        bad |= {name for name, _, _ in command.inputs if not self._intact(name)}  # a copy has come over it
        for first, end in command.writes:
            self.owners[first:end] = _STREAM
            self.streamed[first:end] = True
        for name, first in command.outputs:
            if self.inside.get(name) == first:
                self.owners[self._range(name)] = self.numbers[name]
        return bad
