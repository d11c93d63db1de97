"""What stands against compiling an operator of the source model."""

import difflib
from collections.abc import Mapping

from emitc.errors import CannotCompile, EmitcError
from emitc.kernels.contract import KernelDef
from emitc.records import dataclass
from emitc.source import DEFINED, SourceNode

_FLEX = "CUSTOM:Flex"


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Every reason against compiling an operator of the source, none where it has code."""

    index: int
    op_type: str
    name: str
    errors: tuple[EmitcError, ...]

    @property
    def supported(self) -> bool:
        return not self.errors


def unsupported_operator(node: SourceNode, kernels: Mapping[str, KernelDef]) -> CannotCompile:
    """The refusal of an operator for which there is no kernel, with a hint for where it comes from."""
    does, why = "is not supported", "emitc has no kernel for this operator"
    close = difflib.get_close_matches(node.op_type, kernels, 1, 0.8)
    hint = (
        f"replace it, for example by {close[0]}" if close else "replace the operator; `emitc ops` lists what there is"
    )
    if node.op_type.startswith(_FLEX):
        why = f"it is TensorFlow's own {node.op_type.removeprefix(_FLEX)}, which SELECT_TF_OPS has let through"
        hint = "convert with supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS] only, and replace what that refuses"
    elif node.op_type.startswith("CUSTOM:"):
        hint = "bring its definition along with --plugin (docs/custom-operators.md), or replace it"
    elif node.format == "onnx" and node.op_type in DEFINED:
        does += " here"
        why = "its definition by other operators depends on types that are not known inside of If, Loop and Scan, "
        why += "nor after operators of other domains"
        hint = "export the model with these other operators in its place"
    return node.unsupported(does, why, hint)
