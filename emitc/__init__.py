"""emitc: a quantized neural network (TFLite, ONNX) to standalone C for a microcontroller, proven on the host.

import emitc
emitc.compile_model("model.tflite", target="cortex-m4").write("out")
"""

from typing import TYPE_CHECKING

from emitc._version import __version__
from emitc.errors import CannotCompile, EmitcError

if TYPE_CHECKING:
    from emitc.api import Model, compile_model, cost, quantize
    from emitc.explore.cost import Cost
    from emitc.options import Options

__all__ = [
    "CannotCompile",
    "Cost",
    "EmitcError",
    "Model",
    "Options",
    "__version__",
    "compile_model",
    "cost",
    "quantize",
]
_LOADED_LATE = frozenset(__all__) - {"CannotCompile", "EmitcError", "__version__"}


def __getattr__(name: str) -> object:
    """The compiler's names, imported on first use: `emitc --help` must not load numpy."""
    if name in _LOADED_LATE:
        import emitc.api

        return getattr(emitc.api, name)
    raise AttributeError(f"module 'emitc' has no attribute {name!r}")
