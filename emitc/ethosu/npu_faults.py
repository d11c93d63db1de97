"""What the host model refuses: a stream that is wrong, and a stream that asks for what the model does not compute."""

from emitc.errors import CannotCompile, EmitcError, Where


class NpuFault(EmitcError):
    """The payload, its command stream or a memory access of it is wrong: no NPU may be given it."""


class NpuUnsupported(CannotCompile):
    """The stream is well formed, but the host model does not compute what it asks for."""


_COMPILE_AGAIN = "compile the model again with vela; if it stays, report it with the file"


def fault(what: str, why: str, place: str = "payload") -> NpuFault:
    """An error that says the stream is wrong. place: the command, `command 3 CONV (word 120)`."""
    return NpuFault(what, Where(op=place), why, _COMPILE_AGAIN)


def unsupported(what: str, why: str, place: str = "payload") -> NpuUnsupported:
    """An error that says the host model has no code for it."""
    hint = "compile for Ethos-U55 or Ethos-U65 with up to 256 MACs, int8 or int16"
    return NpuUnsupported(what, Where(op=place), why, hint)
