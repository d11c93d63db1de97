"""What a file may ask for: bounds on the work and memory of compiling, so that a small file cannot ask for endless ones.

All of them are far above what fits a microcontroller. A file over one of them is refused before the work is done.
"""

from emitc.errors import EmitcError, Where
from emitc.source import SourceModel

MAX_TENSORS = 1 << 14
MAX_OPERATORS = 1 << 12
"""Several times what the largest published networks have."""
MAX_PAIRS = 1 << 20
"""Pairs of tensors that are alive together: the planner looks at each. About 1 400 tensors alive at once reach it."""
MAX_FOLD_WORK = 1 << 27
"""Steps of one operator whose operands are all constants, which is computed while compiling."""
_FREE_CONSTANT_BYTES = 4 << 20
_CONSTANT_COPIES = 4


class ConstantBudget:
    """Bytes of constants that the layers of a model may print together.

    Every layer prints the constants that it reads, and operators on constants make new ones. A file that is what its
    writer meant brings these bytes along; four times its size and 4 MiB is the limit.
    """

    def __init__(self, file_bytes: int) -> None:
        self.limit = _FREE_CONSTANT_BYTES + _CONSTANT_COPIES * file_bytes
        self._left = self.limit

    def spend(self, count: int, where: Where) -> None:
        """Raises EmitcError when the budget is used up."""
        self._left -= count
        if self._left < 0:
            what = "the constants of the layers take more room than the file explains"
            hint = "the file is damaged, or operators on constants blow it up: fold them before the export"
            raise EmitcError(what, where, f"with this layer they are over {self.limit} bytes", hint)


def require_few_alive(model: SourceModel) -> None:
    """Refuses a model that keeps so many tensors alive at once that planning them would take too long."""
    end = len(model.nodes)
    last: dict[int, int] = {}
    for step, node in enumerate(model.nodes):
        last |= {tensor.index: step for tensor in (*node.inputs, *node.outputs) if tensor is not None}
    last |= dict.fromkeys(model.outputs, end)
    dying = [0] * (end + 2)
    alive = pairs = 0
    for step, node in enumerate(model.nodes):
        alive -= dying[step]
        for tensor in node.outputs:
            pairs += alive
            alive += 1
            dying[last[tensor.index] + 1] += 1
        if pairs > MAX_PAIRS:
            why = f"planning their memory would compare more than {MAX_PAIRS} pairs"
            hint = "the file is damaged, or the model is not meant for a microcontroller"
            raise EmitcError(f"{alive} tensors are alive at once", node.where(), why, hint)
