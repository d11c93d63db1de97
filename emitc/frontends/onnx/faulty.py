"""The error for a file that no sound exporter writes. This module imports no `onnx`, which takes a tenth of a second."""

from emitc.errors import EmitcError, Where

AGAIN = "the file is damaged or was written by a faulty exporter: export the model again"


def faulty(what: str, where: Where, why: str) -> EmitcError:
    """The error, with the hint to export the model again."""
    return EmitcError(what, where, why, AGAIN)
