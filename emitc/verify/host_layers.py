"""What each call of the layer hook shows on this machine, to be compared with a board that runs the same generated C."""

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emitc.compiled import Compiled
from emitc.ir import Array
from emitc.verify.build import HostModel, build_shared
from emitc.verify.golden_run import interface_of
from emitc.verify.samples import Sample
from emitc.verify.tolerances import EXACT, Tolerance, tolerances_of

_JUNK = 0xA5
"""In the arena before each run, as on the board."""


@dataclass(frozen=True, slots=True)
class HostLayer:
    """One output of a layer. data: its bytes. shape: without the rows that nobody reads, which a layer by rows does not make."""

    index: int
    op: str
    tensor: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes
    rule: Tolerance = EXACT

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def any_difference_counts(self) -> bool:
        """Whether other bits are always wrong; floats may be within a tolerance, and a NaN may have another sign."""
        return not self.dtype.startswith("float")


def host_layers(compiled: Compiled, samples: Sequence[Sample]) -> list[list[HostLayer]]:
    """The calls of the hook in each run of the samples, which are one sequence. A segment by rows is reported as its last layer.

    Raises CannotCompile where the host's compiler fails.
    """
    graph, program = compiled.partition.graph, compiled.program
    rule_of = tolerances_of(compiled)
    with tempfile.TemporaryDirectory(prefix="emitc-layers-") as temporary:
        folder = Path(temporary)
        compiled.write(folder / "package")
        library = build_shared(folder / "package", folder, trace=True, support=compiled.support("host"))
        model = HostModel(library, interface_of(compiled), compiled.host_hooks())
        written: dict[int, list[bytes]] = {}
        by_rows = {step.index for step in program.steps if step.by_rows}

        def hook(index: int, _: int, data: bytes) -> None:
            outputs = written.setdefault(index, [])
            if index in by_rows and outputs:
                outputs[0] += data
            else:
                outputs.append(data)

        model.set_hook(hook)
        runs: list[list[HostLayer]] = []
        for sample in samples:
            written.clear()
            model.fill(_JUNK)
            model.write_inputs(sample)
            model.invoke()
            layers = []
            for traced in program.traced:
                step = traced.step
                for output, data in zip(step.outputs, written.get(step.index, []), strict=True):
                    tensor = graph.tensor(output.tensor)
                    shape = _made(tensor.shape, len(data), tensor.size_bytes)
                    rule = rule_of.get(output.tensor, EXACT)
                    layers.append(
                        HostLayer(step.index, step.op_type, step.label, tensor.dtype.value, shape, data, rule)
                    )
            runs.append(layers)
        return runs


def _made(shape: tuple[int, ...], made: int, whole: int) -> tuple[int, ...]:
    """The shape of a tensor of which so many bytes were made: fewer rows, the last ones being missing."""
    if made == whole or len(shape) < 2:
        return shape
    return (shape[0], shape[1] * made // whole, *shape[2:])


def differing_elements(
    layer: HostLayer, data: bytes
) -> tuple[int, tuple[int, ...], str, str, float, tuple[int, ...]] | None:
    """The elements of a board's tensor that break the layer's rule; None where there are none.

    Gives their number, the index of the first one, and its value on the board and on the host. Gives also the largest
    difference, and the channels along the last axis that have one.
    """
    dtype = np.dtype(layer.dtype)
    actual, expected = (np.frombuffer(raw, dtype) for raw in (data, layer.data))
    wrong = _wrong(actual, expected, layer.rule)
    if not wrong.any():
        return None
    # Packed elements have no shape of their own.
    shape = layer.shape if wrong.size == layer.elements else wrong.shape
    places = np.argwhere(wrong.reshape(shape))
    at = int(np.flatnonzero(wrong)[0])
    channels = tuple(int(channel) for channel in np.unique(places[:, -1])) if places.shape[1] else ()
    gap = np.abs(actual[wrong].astype(np.float64) - expected[wrong].astype(np.float64))
    first = tuple(int(i) for i in places[0])
    largest = float(np.nan_to_num(gap, nan=np.inf).max())
    return int(wrong.sum()), first, str(actual[at]), str(expected[at]), largest, channels


def _wrong(actual: Array, expected: Array, rule: Tolerance) -> NDArray[np.bool_]:
    """Which elements break the rule, by the definition of `tolerances.compared` with `any_nan`."""
    width = actual.dtype.itemsize
    unequal = np.asarray(actual.view(f"u{width}") != expected.view(f"u{width}"), np.bool_)
    if actual.dtype.kind != "f":
        return unequal
    x, y = actual.astype(np.float64), expected.astype(np.float64)
    unequal &= ~(np.isnan(x) & np.isnan(y))
    if rule.zeros or not rule.exact:
        unequal &= (x != 0) | (y != 0)
    if not rule.exact:
        limit = rule.absolute + rule.relative * float(np.abs(y[np.isfinite(y)]).max(initial=0.0))
        with np.errstate(invalid="ignore"):
            unequal &= ~(np.abs(x - y) <= limit)
    return unequal
