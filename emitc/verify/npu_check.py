"""A file compiled by vela, run on the host model and compared with the original network in the framework's interpreter.

vela writes each part of the network that the NPU runs as a custom operator `ethos-u`. Its inputs are the payload, the
constants (region 0), the scratch memory (region 1), the fast scratch memory (region 2), then the real inputs. Both scratch
memories are the same tensor, unless the memory mode is Dedicated_Sram. The metadata entry OfflineMemoryAllocation has an offset
in the scratch memory for every tensor, -1 for those without one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emitc.errors import CannotCompile, EmitcError, Refusals, Where, with_model
from emitc.ethosu.simulator import HostModel, decoded, mask, scratch_effects, spans
from emitc.frontends.build import build_graph
from emitc.frontends.tflite.npu import require_scratch, tensor_bytes, tensor_offsets
from emitc.frontends.tflite.npu_memory import places_of
from emitc.frontends.tflite.reader import read_tflite
from emitc.ir import DType, Graph, Tensor
from emitc.kernels import tflite_registry
from emitc.records import asdict, dataclass, replace
from emitc.source import SourceModel, SourceNode, SourceTensor
from emitc.verify.engines.contract import Array
from emitc.verify.engines.run import run_isolated
from emitc.verify.reference import random_samples, run_reference
from emitc.verify.tolerances import Tally, finite

_MAX_FILE_BYTES = 1 << 28
_UNTOUCHED = 0xA5
"""What scratch memory holds before a run."""


@dataclass(frozen=True, slots=True)
class NpuCheck:
    """What `check_vela_file` saw.

    accelerator: the chip that the payloads were made for. operators, commands: driver calls of one inference, and the
    operations in them. on_cpu: types of the operators that vela left to the CPU; their numpy references ran. constant_bytes,
    scratch_bytes, fast_bytes: regions 0, 1 and 2 (the largest of any call; 0 where region 2 is region 1). samples: inputs
    run; distinct: different outputs among them. reference: the engine that ran the original, "" without one.
    elements, differing, max_abs_diff: the outputs against it, by their bits (None where a difference is not finite). match:
    None without the original.
    """

    accelerator: str
    operators: int
    commands: int
    on_cpu: tuple[str, ...]
    constant_bytes: int
    scratch_bytes: int
    fast_bytes: int
    samples: int
    distinct: int
    reference: str
    elements: int
    differing: int
    max_abs_diff: float | None
    match: bool | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"on_cpu": list(self.on_cpu)}


class VelaNetwork:
    """A vela file ready to run. Raises what decoding refuses, and Refusals for CPU operators that emitc has no reference for."""

    def __init__(self, file: VelaFile) -> None:
        self.file = file
        self.streams = tuple(decoded(operator.payload) for operator in file.npu_operators)
        self._npu = HostModel()
        self._cpu: dict[int, Graph] = {}
        errors: list[EmitcError] = []
        for node in file.cpu_operators:
            if any(tensor is not None and tensor.is_variable for tensor in node.inputs):
                errors.append(
                    node.unsupported(
                        "keeps state",
                        "a tensor of it holds its value between inferences, which the check does not follow",
                        "check a network without recurrent layers; `emitc verify --npu` runs state",
                    )
                )
                continue
            try:
                self._cpu[node.index] = build_graph(_alone(file.model, node), tflite_registry(), "cpu")
            except EmitcError as error:
                errors += error.errors if isinstance(error, Refusals) else (error,)
        if errors:
            raise Refusals(tuple(errors))

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs of one inference, in the file's order; inputs in the file's order. Nothing is kept between runs.

        All operators share one memory, in which every tensor lies where the file says, as in TFLite Micro.
        """
        model, arena = self.file.model, _Arena(self.file)
        for index, value in zip(model.inputs, inputs, strict=True):
            arena.put(model.tensors[index], value)
        for operator in self.file.operators:
            if isinstance(operator, NpuOperator):
                self._invoke(operator, arena)
            else:
                graph = self._cpu[operator.index]
                outputs = run_reference(graph, [arena.value(model.tensors[i]) for i in _computed(operator)])
                for tensor, name in zip(operator.outputs, graph.outputs, strict=True):
                    arena.put(tensor, outputs[name])
        return [arena.value(model.tensors[i]) for i in model.outputs]

    def _invoke(self, operator: NpuOperator, arena: _Arena) -> None:
        for tensor in operator.inputs:
            arena.value(tensor)  # refuses one that is not there
        scratch, fast_bytes = arena.bytes[: operator.scratch_bytes], operator.fast_bytes or 0
        fast = np.full(fast_bytes, _UNTOUCHED, np.uint8) if fast_bytes else scratch
        known = spans(arena.known[: operator.scratch_bytes])
        written = tuple(zip(known[::2], known[1::2], strict=True))
        self._npu.invoke(operator.payload, (operator.constants, scratch, fast), initialised={1: written})
        effects = scratch_effects(operator.payload, operator.scratch_bytes, fast_bytes)
        assert effects is not None, "a stream that has run is not understood"
        arena.known[: operator.scratch_bytes] |= mask(effects.writes, operator.scratch_bytes)


class _Arena:
    """The tensors of one inference: in the shared memory, or by themselves where the file gives them no place there."""

    def __init__(self, file: VelaFile) -> None:
        size = max(operator.scratch_bytes for operator in file.npu_operators)
        self.bytes = np.full(size, _UNTOUCHED, np.uint8)
        self.known = np.zeros(size, bool)
        self._places = file.places
        self._others: dict[int, Array] = {}

    def _range(self, tensor: SourceTensor) -> slice:
        return slice(self._places[tensor.index], self._places[tensor.index] + tensor_bytes(tensor))

    def put(self, tensor: SourceTensor, value: Array) -> None:
        if tensor.index not in self._places:
            self._others[tensor.index] = value
            return
        self.bytes[self._range(tensor)] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        self.known[self._range(tensor)] = True

    def value(self, tensor: SourceTensor) -> Array:
        """A tensor's value. Raises EmitcError where nothing has written it."""
        if tensor.index not in self._places:
            return _value(tensor, self._others)
        if not self.known[self._range(tensor)].all():
            raise _unwritten(tensor)
        return self.bytes[self._range(tensor)].copy().view(tensor.dtype).reshape(tensor.shape)


def _value(tensor: SourceTensor, values: Mapping[int, Array]) -> Array:
    """A tensor's value. Raises EmitcError where nothing has computed it."""
    if tensor.index in values:
        return values[tensor.index]
    if tensor.data is not None:
        return tensor.array()
    if tensor.is_variable:
        why = "the tensor holds its value between inferences, which the check does not follow"
        hint = "check a network without recurrent layers"
        raise CannotCompile("an NPU operator keeps state", Where(tensor=tensor.describe()), why, hint)
    raise _unwritten(tensor)


def _unwritten(tensor: SourceTensor) -> EmitcError:
    why = "operators must come in execution order"
    hint = "compile the model again with vela"
    return EmitcError("a tensor is read that nothing has written", Where(tensor=tensor.describe()), why, hint)


def _computed(node: SourceNode) -> list[int]:
    return list(dict.fromkeys(t.index for t in node.inputs if t is not None and t.data is None))


def _alone(model: SourceModel, node: SourceNode) -> SourceModel:
    outputs = tuple(tensor.index for tensor in node.outputs)
    return replace(model, nodes=(node,), inputs=tuple(_computed(node)), outputs=outputs, blockers=())


def _interface(model: SourceModel) -> Graph:
    """A graph of the model's inputs alone, to draw samples for."""
    tensors = [model.tensors[i] for i in model.inputs]
    ports = tuple(Tensor(f"#{t.index}", DType(t.dtype), t.shape, t.quantization) for t in tensors)
    return Graph("inputs", ports, (), tuple(t.name for t in ports), ())


def check_vela_file(
    vela_path: Path,
    original_path: Path | None = None,
    samples: int = 20,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> NpuCheck:
    """Runs a .tflite file that vela has compiled on the host model; with the original, compares every output element.

    samples: random inputs. Raises EmitcError for files that cannot be read, and NpuFault for a stream that is wrong. Raises
    NpuUnsupported and other CannotCompile for what has no host model, no reference or no engine.
    """
    try:
        network = VelaNetwork(read_vela(_read(vela_path)))
        cases = random_samples(_interface(network.file.model), samples, seed)
        results = []
        for number, case in enumerate(cases):
            results.append(network.run(case))
            if progress is not None:
                progress(number + 1, samples)
    except EmitcError as error:
        raise with_model(error, vela_path.name) from error
    tally, reference = Tally(), ""
    if original_path is not None:
        try:
            data = _read(original_path)
            _require_same(network.file.model, read_tflite(data))
            golden = run_isolated(data, cases, engine="auto")
        except EmitcError as error:
            raise with_model(error, original_path.name) from error
        reference = golden.engine
        for outputs, expected in zip(results, golden.outputs, strict=True):
            for a, b in zip(outputs, expected, strict=True):
                tally.add(a, b.reshape(a.shape))
    operators = network.file.npu_operators
    return NpuCheck(
        accelerator=network.streams[0].accelerator.name,
        operators=len(operators),
        commands=sum(len(stream.commands) for stream in network.streams),
        on_cpu=tuple(sorted({node.op_type for node in network.file.cpu_operators})),
        constant_bytes=max(len(operator.constants) for operator in operators),
        scratch_bytes=max(operator.scratch_bytes for operator in operators),
        fast_bytes=max(operator.fast_bytes or 0 for operator in operators),
        samples=samples,
        distinct=len({tuple(output.tobytes() for output in outputs) for outputs in results}),
        reference=reference,
        elements=tally.elements,
        differing=tally.differing,
        max_abs_diff=finite(tally.max_abs_diff),
        match=None if original_path is None else tally.differing == 0,
    )


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            why = f"more than {_MAX_FILE_BYTES} bytes"
            raise EmitcError("the file is too large", Where(path.name), why, "give a smaller one")
        return path.read_bytes()
    except OSError as error:
        why = error.strerror or str(error)
        raise EmitcError("the file cannot be read", Where(path.name), why, "give the path of a .tflite file") from error


def _require_same(vela: SourceModel, original: SourceModel) -> None:
    for what in ("inputs", "outputs"):
        sides = [[model.tensors[i] for i in getattr(model, what)] for model in (vela, original)]
        stated, expected = ([f"{t.dtype}{[max(d, 1) for d in t.shape]}" for t in side] for side in sides)
        # vela may write a shape with further ones in it.
        ours, theirs = ([(t.dtype, math.prod(max(d, 1) for d in t.shape)) for t in side] for side in sides)
        if ours != theirs:
            why = f"{what} {', '.join(stated)} against {', '.join(expected)}"
            hint = "give the file that vela has compiled"
            raise EmitcError("the two files are not the same network", Where(option="--original"), why, hint)


OPERATOR = "CUSTOM:ethos-u"
_PAYLOAD, _CONSTANTS, _SCRATCH, _FAST, _FIRST_INPUT = range(5)
_AGAIN = "compile the model again with vela"


@dataclass(frozen=True, slots=True)
class NpuOperator:
    """One driver call. fast_bytes: size of region 2, None where it is the scratch memory itself."""

    node: SourceNode
    payload: bytes
    constants: bytes
    scratch_bytes: int
    fast_bytes: int | None
    inputs: tuple[SourceTensor, ...]
    outputs: tuple[SourceTensor, ...]


@dataclass(frozen=True, slots=True)
class VelaFile:
    """The file's operators in order; a SourceNode is one that vela has left on the CPU.

    places: by index of each tensor that lies in the scratch memory, whoever computes it, its first byte there.
    """

    model: SourceModel
    operators: tuple[NpuOperator | SourceNode, ...]
    places: Mapping[int, int]

    @property
    def npu_operators(self) -> tuple[NpuOperator, ...]:
        return tuple(operator for operator in self.operators if isinstance(operator, NpuOperator))

    @property
    def cpu_operators(self) -> tuple[SourceNode, ...]:
        return tuple(operator for operator in self.operators if isinstance(operator, SourceNode))


def read_vela(data: bytes) -> VelaFile:
    """The NPU operators of a .tflite file.

    Raises EmitcError for a file that is damaged or contradicts itself, and for one that vela has not compiled.
    """
    model = _with_closed_dimensions(read_tflite(data))
    kinds = sorted({node.op_type for node in model.nodes})
    if OPERATOR not in kinds:
        named = ", ".join((*kinds[:8], *(["..."] if len(kinds) > 8 else []))) or "none at all"
        why = f"vela writes what the NPU runs as custom operators ethos-u; here are {named}"
        hint = "compile it first: vela MODEL.tflite --accelerator-config ethos-u55-128; or give MODEL_vela.tflite"
        raise EmitcError("the file has no NPU operator", Where(), why, hint)
    offsets = tensor_offsets(data, len(model.tensors))
    operators = tuple(_operator(node, offsets) if node.op_type == OPERATOR else node for node in model.nodes)
    file = VelaFile(model, operators, {})
    scratch = (name for operator in file.npu_operators for name in operator.node.inputs[_SCRATCH:_FIRST_INPUT])
    memory = frozenset(tensor.index for tensor in scratch if tensor is not None)
    size = max(operator.scratch_bytes for operator in file.npu_operators)
    return replace(file, places=places_of(model, offsets, memory, size))


def _with_closed_dimensions(model: SourceModel) -> SourceModel:
    """The model with every open dimension 1, which is what vela compiles it for."""
    tensors = tuple(replace(tensor, shape=tuple(1 if d < 0 else d for d in tensor.shape)) for tensor in model.tensors)
    nodes = tuple(
        replace(
            node,
            inputs=tuple(None if t is None else tensors[t.index] for t in node.inputs),
            outputs=tuple(tensors[t.index] for t in node.outputs),
        )
        for node in model.nodes
    )
    return replace(model, tensors=tensors, nodes=nodes)


def _operator(node: SourceNode, offsets: tuple[int, ...]) -> NpuOperator:
    node.counts((_FIRST_INPUT, 64), (0, 64))
    payload = node.input(_PAYLOAD)
    if payload.data is None:
        raise node.refusal("has no payload", "its first input is no constant", _AGAIN, payload)
    scratch, fast = node.input(_SCRATCH), node.input(_FAST)
    require_scratch(node, scratch, fast, offsets)
    return NpuOperator(
        node,
        payload.data,
        node.input(_CONSTANTS).data or b"",
        scratch.elements,
        None if fast.index == scratch.index else fast.elements,
        tuple(_inside(node, tensor, offsets, scratch) for tensor in node.inputs[_FIRST_INPUT:]),
        tuple(_inside(node, tensor, offsets, scratch) for tensor in node.outputs),
    )


def _inside(
    node: SourceNode, tensor: SourceTensor | None, offsets: tuple[int, ...], scratch: SourceTensor
) -> SourceTensor:
    """An operand of an NPU operator; refused where it leaves the scratch memory."""
    if tensor is None or tensor.dtype not in ("int8", "uint8", "int16", "int32"):
        raise node.refusal("has an operand that it cannot have", "integers are expected", _AGAIN, tensor)
    first = offsets[tensor.index]
    end = first + tensor_bytes(tensor)
    if first < 0 or end > scratch.elements:
        why = f"bytes {first} to {end} of {scratch.elements}"
        raise node.refusal("has a tensor outside the scratch memory", why, _AGAIN, tensor)
    return tensor
