"""Does a model fit the board at all? Asked before anything is built."""

from emitc.errors import CannotCompile, Where
from emitc.target import Board

STACK_BYTES = 1024
"""RAM that is kept for the stack; the linker scripts of the QEMU platform ask for the same."""


def check_fits(board: Board, flash_bytes: int, ram_bytes: int, peak: str) -> None:
    """Raises CannotCompile where the model alone is too much for the board's largest contiguous flash or RAM.

    flash_bytes: constants and code of the model. ram_bytes: arena and state. peak: text that names the tensors alive at
    the arena's peak. Necessary, not sufficient: what the board's framework needs comes on top and is not known here.
    """
    over_flash = flash_bytes - board.flash_bytes
    over_ram = ram_bytes + STACK_BYTES - board.ram_bytes
    if over_flash <= 0 and over_ram <= 0:
        return
    parts = []
    hints = []
    if over_ram > 0:
        parts.append(
            f"RAM is exceeded by {over_ram} bytes: {ram_bytes} for arena and state and {STACK_BYTES} kept for the "
            f"stack, of {board.ram_bytes}; at the peak: {peak}"
        )
        hints.append("shrink the tensors at the peak")
    if over_flash > 0:
        parts.append(f"flash is exceeded by {over_flash} bytes: {flash_bytes} of {board.flash_bytes}")
        hints.append("shrink the weights")
    why = "; ".join(parts)
    hint = f"{' and '.join(hints)}, or choose a larger board (`emitc boards`)"
    raise CannotCompile(f"the model does not fit {board.title}", Where(option=f"--board {board.name}"), why, hint)
