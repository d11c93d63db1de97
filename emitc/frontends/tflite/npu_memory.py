"""The scratch memory that the NPU operators of one file share, as tensors.

vela states which tensors its command streams share with the operators on the core. It does not state what one stream leaves
in the scratch memory for a later one, nor that several streams write parts of one tensor. Both follow from the bytes that
the streams read and write. So every NPU operator here returns the content of the scratch memory as its last output. The
next one takes it as its first input; a tensor becomes an output of the operator that completes it.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from emitc.errors import EmitcError
from emitc.ethosu.simulator import mask, spans
from emitc.frontends.tflite.npu import tensor_bytes
from emitc.records import dataclass, replace
from emitc.source import SourceModel, SourceNode, SourceTensor

_AGAIN = "compile the model again with vela"
_NOBODY, _STREAM = 0, -1
"""Owners of bytes other than tensors, which have their index plus one."""

Mask = NDArray[np.bool_]
Runs = tuple[int, ...]
_MOST_PAIRS = 1 << 22
"""Of outputs and streams: about 2 000 of each reach it."""


@dataclass(frozen=True, slots=True)
class StreamUse:
    """An NPU operator of the file. reads, writes: bytes of the scratch memory that are read before they are written, and written.

    They are runs: first byte and the byte after the last, in turn. Both are None for a stream that is not understood.
    """

    inputs: tuple[SourceTensor, ...]
    outputs: tuple[SourceTensor, ...]
    reads: Runs | None
    writes: Runs | None


@dataclass(frozen=True, slots=True)
class SharedUse:
    """The same with what the file leaves out. carried, writes: runs of bytes; the former are what earlier streams must have left.

    Of a stream that is not understood carried is all that they have left, and writes is what no later reader needs.
    """

    inputs: tuple[SourceTensor, ...]
    outputs: tuple[SourceTensor, ...]
    carried: Runs
    writes: Runs


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """The operators of the file with their tensors replaced where several streams write one; uses by position of the node.

    tensors: of the file, and further ones that stand for a tensor before it is complete. places: first byte, by index.
    """

    tensors: tuple[SourceTensor, ...]
    nodes: tuple[SourceNode, ...]
    uses: Mapping[int, SharedUse]
    places: Mapping[int, int]


def places_of(model: SourceModel, offsets: Sequence[int], scratch: frozenset[int], size: int) -> dict[int, int]:
    """By index of each computed tensor that lies in the scratch memory: its first byte. scratch: tensors that stand for it."""
    return {
        t.index: offsets[t.index]
        for t in model.tensors
        if t.index not in scratch
        and t.data is None
        and not t.is_variable
        and offsets[t.index] >= 0
        and 0 < tensor_bytes(t) <= size - offsets[t.index]
    }


def shared_memory(
    model: SourceModel, uses: Mapping[int, StreamUse], places: Mapping[int, int], size: int
) -> SharedMemory:
    """What the streams of a file do for each other. uses: by position of the NPU operators; places: see `places_of`.

    Raises EmitcError for a stream that reads bytes which nothing has written, or leaves bytes of an output unwritten.
    """
    return _Reader(model, uses, places, size).shared_memory()


class _Reader:
    def __init__(self, model: SourceModel, uses: Mapping[int, StreamUse], places: Mapping[int, int], size: int) -> None:
        self.model = model
        self.uses = uses
        self.places = dict(places)
        self.size = size
        self.tensors = list(model.tensors)
        self.nodes = list(model.nodes)
        self.inputs: dict[int, tuple[SourceTensor, ...]] = {at: use.inputs for at, use in uses.items()}
        self.outputs: dict[int, list[SourceTensor]] = {at: list(use.outputs) for at, use in uses.items()}
        self.readers = self._readers()
        self.writes = {at: self._written(at) for at in uses}

    def shared_memory(self) -> SharedMemory:
        stated: dict[int, list[int]] = {}
        for at, use in self.uses.items():
            for index in dict.fromkeys(t.index for t in use.outputs):
                stated.setdefault(index, []).append(at)
        if len(stated) * len(self.uses) > _MOST_PAIRS:
            what = f"the file has {len(self.uses)} NPU operators with {len(stated)} outputs"
            why = f"each output would be compared with each operator, more than {_MOST_PAIRS} times"
            hint = "the file is damaged, or the model is not meant for a microcontroller"
            raise EmitcError(what, self.nodes[min(self.uses)].where(), why, hint)
        for index, writers in stated.items():
            self._complete(self.tensors[index], writers)
        owners = np.zeros(self.size, np.int32)
        for index in self.model.inputs:
            self._own(owners, index)
        shared: dict[int, SharedUse] = {}
        for at, node in enumerate(self.nodes):
            if at in self.uses:
                shared[at] = self._use(at, owners)
                owners[mask(self.writes[at], self.size)] = _STREAM
            else:
                for tensor in node.outputs:
                    self._own(owners, tensor.index)
        return SharedMemory(tuple(self.tensors), tuple(self.nodes), shared, self.places)

    def _range(self, index: int) -> slice:
        return slice(self.places[index], self.places[index] + tensor_bytes(self.tensors[index]))

    def _own(self, owners: NDArray[np.int32], index: int) -> None:
        if index in self.places:
            owners[self._range(index)] = index + 1

    def _mask(self, tensors: Iterable[SourceTensor]) -> Mask:
        result = np.zeros(self.size, bool)
        for tensor in tensors:
            result[self._range(tensor.index)] = True
        return result

    def _readers(self) -> dict[int, list[int]]:
        """By tensor: positions of the nodes that read it; after the last one where it is an output of the model."""
        readers: dict[int, list[int]] = {}
        for at, node in enumerate(self.nodes):
            read = self.inputs[at] if at in self.uses else node.inputs
            for index in dict.fromkeys(t.index for t in read if t is not None):
                readers.setdefault(index, []).append(at)
        for index in dict.fromkeys(self.model.outputs):
            readers.setdefault(index, []).append(len(self.nodes))
        return readers

    def _written(self, at: int) -> Runs:
        """What a stream may write: of one that is not understood everything but tensors that are there before and read later."""
        writes = self.uses[at].writes
        if writes is not None:
            return writes
        made = {t.index: n for n, node in enumerate(self.nodes) for t in node.outputs}
        kept = [i for i, readers in self.readers.items() if i in self.places and made.get(i, -1) < at < readers[-1]]
        return spans(~self._mask(self.tensors[i] for i in kept))

    def _touches(self, at: int, where: slice) -> bool:
        runs = self.writes[at]
        return any(first < where.stop and end > where.start for first, end in zip(runs[::2], runs[1::2], strict=True))

    def _complete(self, tensor: SourceTensor, stated: Sequence[int]) -> None:
        """Makes a tensor an output of the last stream that writes any of it before it is read, for each time that it is read.

        stated: the streams of which the file says that they write it.
        """
        index, where = tensor.index, self._range(tensor.index)
        readers = self.readers.get(index, [])
        last = max(readers, default=-1)
        writers = {
            at
            for at, use in self.uses.items()
            if at not in stated and stated[0] < at < last and use.writes is not None and self._touches(at, where)
        }
        writers |= set(stated)
        before = {reader: max((w for w in writers if w < reader), default=-1) for reader in readers}
        wanted = sorted({writer for writer in before.values() if writer >= 0}) or list(stated[:1])
        for at in writers:
            self.outputs[at] = [t for t in self.outputs[at] if t.index != index]
        for at in wanted[:-1]:
            version = replace(tensor, index=len(self.tensors), name=f"{tensor.name} before op {wanted[-1]}")
            self.tensors.append(version)
            self.places[version.index] = self.places[index]
            self.outputs[at].append(version)
            for reader in (r for r, writer in before.items() if writer == at and r < len(self.nodes)):
                self._read_instead(reader, index, version)
        self.outputs[wanted[-1]].append(tensor)

    def _read_instead(self, at: int, index: int, version: SourceTensor) -> None:
        if at in self.uses:
            self.inputs[at] = tuple(version if t.index == index else t for t in self.inputs[at])
            return
        node = self.nodes[at]
        inputs = tuple(version if t is not None and t.index == index else t for t in node.inputs)
        self.nodes[at] = replace(node, inputs=inputs)

    def _use(self, at: int, owners: NDArray[np.int32]) -> SharedUse:
        inputs, outputs = self.inputs[at], tuple(self.outputs[at])
        reads, writes = self.uses[at].reads, self.writes[at]
        if reads is None:
            return SharedUse(inputs, outputs, spans((owners == _STREAM) & ~self._mask(inputs)), writes)
        read = mask(reads, self.size)
        wanted = (read | (self._mask(outputs) & ~mask(writes, self.size))) & ~self._mask(inputs)
        if (owners[wanted] == _NOBODY).any():
            raise self._unwritten(at, outputs, wanted & (owners == _NOBODY), read)
        left_out = [self.tensors[int(i) - 1] for i in np.unique(owners[wanted]) if i > _NOBODY]
        for tensor in left_out:
            if (owners[self._range(tensor.index)] != tensor.index + 1).any():
                raise self._unwritten(at, outputs, wanted & (owners == tensor.index + 1), read)
        inputs = (*inputs, *left_out)
        return SharedUse(inputs, outputs, spans(wanted & ~self._mask(inputs)), writes)

    def _unwritten(self, at: int, outputs: Sequence[SourceTensor], missing: Mask, reads: Mask) -> EmitcError:
        node, first = self.nodes[at], int(np.flatnonzero(missing)[0])
        if reads[first]:
            why = f"byte {first} of the scratch memory is read, and nothing has written it before"
            return node.refusal("reads what is not there", why, _AGAIN)
        tensor = next(t for t in outputs if first in range(self.size)[self._range(t.index)])
        why = f"byte {first} of the scratch memory, where it lies, is written by nothing"
        return node.refusal("leaves an output incomplete", why, _AGAIN, tensor)
