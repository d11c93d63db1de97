"""What the header's functions between real values and quantized elements need to know."""

from dataclasses import dataclass

from emitc.program import Port, Program

_ENDS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1)}


@dataclass(frozen=True, slots=True)
class Limits:
    """Ends of a quantized type: the elements low and high, and their quotients of real value and scale."""

    low: int
    high: int
    lowest: float
    highest: float


def limits(port: Port) -> Limits | None:
    """Of a quantized tensor of 8 or 16 bits with one scale; None for every other one."""
    ends = _ENDS.get(port.dtype)
    if ends is None or port.zero_point is None:
        return None
    low, high = ends
    return Limits(low, high, float(low - port.zero_point), float(high - port.zero_point))


def halves_to_even(program: Program) -> bool:
    """Whether the model's format rounds halves to the even neighbour when it quantizes: ONNX; TFLite away from zero."""
    return program.origin.format == "onnx"
