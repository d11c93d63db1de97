"""vela, Arm's compiler for the Ethos-U: asked about one region at a time, in a child process.

It crashes on files that it dislikes and states no limits for attributes, so it is asked and not predicted: a crash, a
time-out and operators that it leaves on the core are answers like any other.
Source  the Python interface of ethos-u-vela 5.2 (format COP1, inputs and outputs in regions of their own).
"""

import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import tflite

from emitc.errors import EmitcError, Where, install_hint
from emitc.records import asdict, dataclass

PACKAGE = "ethos-u-vela"
SUPPORTED = ((5, 2), (6, 0))
"""From the first version on, below the second."""
TIMEOUT_SECONDS = 120
_OPERATOR = b"ethos-u"
_METADATA = b"OfflineMemoryAllocation"
_HEADER_WORDS = 3
_FIRST_INPUT = 4


@dataclass(frozen=True, slots=True)
class Configuration:
    """What to compile for. architecture: vela's name. macs: per cycle. system, memory: of vela's configuration file.

    optimize: Performance or Size. limit_bytes: of scratch, which Performance keeps where it can.
    """

    architecture: str
    macs: int
    system: str
    memory: str
    optimize: str
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """A region for the NPU.

    payload: what the driver gets. constants: region 0. scratch_bytes: region 1. fast_bytes: region 2, 0 where the
    scratch serves. offsets: first byte of each input and output by name, in regions 3 and 4 where they are separate, else in
    the scratch. cycles: estimated.
    """

    payload: bytes
    constants: bytes
    scratch_bytes: int
    fast_bytes: int
    offsets: dict[str, int]
    cycles: int
    separate: bool


@dataclass(frozen=True, slots=True)
class Declined:
    """vela's refusal of a region. names: tensors of operators that stay on the core; () where they are not known."""

    reason: str
    names: tuple[str, ...] = ()


@cache
def version() -> str:
    """The installed version. Raises EmitcError where there is none, or one whose interface is not known."""
    try:
        installed = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        why = f"the package {PACKAGE} is not installed"
        raise EmitcError("compiling for the NPU needs vela", Where(option="--npu"), why, install_hint("npu")) from error
    numbers = tuple(int(part) for part in re.findall(r"\d+", installed)[:2])
    if not SUPPORTED[0] <= numbers < SUPPORTED[1]:
        low, high = (".".join(map(str, bound)) for bound in SUPPORTED)
        why, hint = f"its interface is known from {low} on, below {high}", f'pip install "{PACKAGE}>={low},<{high}"'
        raise EmitcError(f"vela {installed} is not supported", Where(option="--npu"), why, hint)
    return installed


def compile_region(data: bytes, configuration: Configuration, *, separate: bool) -> Compiled | Declined:
    """A region's TFLite file for the NPU, or why not. separate: inputs and outputs in memory of their own, not in the scratch."""
    version()
    with tempfile.TemporaryDirectory(prefix="emitc-vela-") as folder:
        model, options, result = (Path(folder) / name for name in ("region.tflite", "options.json", "result.npz"))
        model.write_bytes(data)
        wanted = {**asdict(configuration), "separate": "true" if separate else "false"}
        options.write_text(json.dumps(wanted), encoding="utf-8")
        child = str(Path(__file__).with_name("vela_child.py"))
        command = [sys.executable, child, str(model), configuration.architecture, str(options), str(result)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", check=False, timeout=TIMEOUT_SECONDS
            )
        except subprocess.TimeoutExpired:
            return Declined(f"vela did not end within {TIMEOUT_SECONDS} seconds")
        if done.returncode or not result.is_file():
            return Declined(_failure(done))
        with np.load(result, allow_pickle=False) as answer:
            made, report = answer["model"].tobytes(), json.loads(str(answer["report"]))
    return _read(made, int(report["cycles"]), separate=separate)


def _failure(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        return f"vela crashed (signal {-done.returncode})"
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return f"vela failed: {lines[-1][:200]}" if lines else f"vela ended with {done.returncode}"


def _read(data: bytes, cycles: int, *, separate: bool) -> Compiled | Declined:
    """What vela's file says: one driver call, or the operators that it left over."""
    model = tflite.Model.GetRootAsModel(data, 0)
    graph = model.Subgraphs(0)
    names = [graph.Tensors(i).Name() for i in range(graph.TensorsLength())]
    operators = [graph.Operators(i) for i in range(graph.OperatorsLength())]
    codes = [model.OperatorCodes(operator.OpcodeIndex()) for operator in operators]
    ours = [code.CustomCode() == _OPERATOR for code in codes]
    if not all(ours) or len(operators) != 1:
        left = [operator for operator, mine in zip(operators, ours, strict=True) if not mine]
        outputs = {names[operator.Outputs(i)].decode() for operator in left for i in range(operator.OutputsLength())}
        if not outputs:
            return Declined(f"vela cuts the region into {len(operators)} parts")
        return Declined("vela leaves it on the core", tuple(sorted(outputs)))
    (operator,) = operators

    def constant(position: int) -> bytes:
        tensor = graph.Tensors(operator.Inputs(position))
        buffer = model.Buffers(tensor.Buffer())
        return b"" if buffer.DataLength() == 0 else buffer.DataAsNumpy().tobytes()

    def size(position: int) -> int:
        tensor = graph.Tensors(operator.Inputs(position))
        return int(tensor.Shape(0)) if tensor.ShapeLength() else 0

    places = _allocation(model)
    edges = [operator.Inputs(i) for i in range(_FIRST_INPUT, operator.InputsLength())]
    edges += [operator.Outputs(i) for i in range(operator.OutputsLength())]
    shared = operator.Inputs(2) == operator.Inputs(3)
    offsets = {names[index].decode(): places[index] for index in edges}
    return Compiled(constant(0), constant(1), size(2), 0 if shared else size(3), offsets, cycles, separate)


def _allocation(model: tflite.Model) -> list[int]:
    """First byte of each tensor in its region."""
    for i in range(model.MetadataLength()):
        entry = model.Metadata(i)
        if entry.Name() == _METADATA:
            words = np.frombuffer(model.Buffers(entry.Buffer()).DataAsNumpy().tobytes(), "<i4")
            return [int(word) for word in words[_HEADER_WORDS:]]
    return []
