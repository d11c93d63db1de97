"""How a float model is quantized: where the ranges come from, and which operators are not to be int8."""

from emitc.records import dataclass

METHODS = ("minmax", "percentile", "entropy", "mse")
"""minmax: the extremes that the samples show. percentile, entropy: those of ONNX Runtime's calibrators. mse: the part
of the extremes whose 8-bit codes have the least mean square error."""
REMEDIES = ("heads", "equalize", "bias")
"""heads: an output whose channels need two scales gets two. equalize: channels between two layers get ranges of one
size. bias: the mean error of rounded weights is taken off. In the order in which they are applied."""


@dataclass(frozen=True, slots=True)
class QuantizeSettings:
    """method: one of METHODS. remedies: some of REMEDIES, which change the float model. excluded: names of operators
    that stay in float32. int16: of those whose activations get 16 bits.

    A ReLU that reads an operator of `int16` gets 16 bits too.
    """

    method: str = "minmax"
    excluded: tuple[str, ...] = ()
    int16: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
