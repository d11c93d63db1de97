"""Arrays in which numbers between the weights say where a kernel reads next, and the room that a file of weights keeps for them.

Their length follows from the weights. So a file keeps room for more, up to a number that follows from shapes alone: a network
that was trained again then fits. Zeros fill what it does not need.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from emitc.layer import KernelSpec, Param

FOURS = "fours"
"""What the spec of a kernel says whose weights are as c_runtime/scalar/emitc_scalar_fours.h has them."""
_PARTS_OF_FOURS = 8
"""A file has room for a part in one of so many fours of weights, and for one in each filter. Layers of the main nets use up
to three quarters of that."""


@dataclass(frozen=True, slots=True)
class Stream:
    """An array whose runs of parts a file of weights may lengthen.

    check: the end of the name of the C function that follows it. filters: of the layer. fours: of the weights of each filter.
    """

    check: str
    filters: int
    fours: int

    @property
    def room_bytes(self) -> int:
        """Bytes that a file keeps: the weights, two for each part, and one for each run of parts and for the end of each filter.

        A run has two parts or more unless it is a filter's last: two parts always fit, whose magnitudes are 127 at most.
        """
        parts = self.filters * self.fours // _PARTS_OF_FOURS + self.filters
        runs = (parts + self.filters) // 2
        return 4 * self.filters * self.fours + 2 * parts + runs + self.filters


def stream_of(spec: KernelSpec, params: Sequence[Param]) -> Stream | None:
    """How the weights of a layer with that kernel and those parameters are followed, None where their values lead nowhere."""
    if spec.window != FOURS:
        return None
    numbers = {param.name: int(param.value) for param in params}
    return Stream(FOURS, numbers["out_c"], numbers["pairs"] // 2)
