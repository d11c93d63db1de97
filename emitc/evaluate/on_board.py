"""Samples of a data set on an emulated board: whether it computes what the generated C computes on this machine."""

import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from emitc.boards.measurement import Measurement
from emitc.boards.project import Case
from emitc.boards.verify import require_fit, run_cases
from emitc.compiled import Compiled
from emitc.compiler import recompiled
from emitc.errors import EmitcError, Where
from emitc.evaluate.dataset import DataSet
from emitc.evaluate.session import Session
from emitc.ir import Array

HOST = "the C on this machine"


def spread(count: int, most: int) -> list[int]:
    """The positions of at most `most` of `count` samples, evenly spread.

    >>> spread(10, 3), spread(2, 3)
    ([0, 3, 6], [0, 1])
    """
    return [position * count // min(most, count) for position in range(min(most, count))]


def on_board(compiled: Compiled, board: str, data: DataSet, most: int = 4) -> Measurement:
    """At most `most` samples of a data set on an emulated board, against the outputs of the generated C on this machine.

    A model with state runs them as one sequence. Raises what `run_on_board` raises, and EmitcError for a model that runs
    functions of this machine.
    """
    if compiled.host_hooks():
        why = "its accelerator is played back for random inputs only"
        what = "the model cannot run samples on a board"
        raise EmitcError(what, Where(option=f"--on {board}"), why, "leave --on out")
    require_fit(compiled, board)
    samples = [data.samples[position] for position in spread(len(data.samples), most)]
    cases: list[Case] = list(
        zip((_bytes(sample) for sample in samples), _through_the_c(compiled, samples), strict=True)
    )
    with tempfile.TemporaryDirectory(prefix="emitc-on-") as folder:
        package = Path(folder) / "package"
        firmware = recompiled(compiled, package="platformio")
        firmware.write(package)
        return run_cases(firmware, board, package, (HOST, cases))


def _bytes(arrays: Sequence[Array]) -> tuple[bytes, ...]:
    return tuple(array.tobytes() for array in arrays)


def _through_the_c(compiled: Compiled, samples: Sequence[tuple[Array, ...]]) -> list[tuple[bytes, ...]]:
    """Every output of every sample, in one sequence of runs."""
    with closing(Session(compiled)) as session:
        return [_bytes(session.run_one(sample)) for sample in samples]
