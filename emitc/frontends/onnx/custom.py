"""ONNX operators of other domains that a plugin brings along: the rule that gives their outputs' shapes is the plugin's."""

from collections.abc import Mapping
from dataclasses import replace

import onnx
import onnx.defs
import onnx.helper

from emitc.errors import CannotCompile, Where
from emitc.frontends.onnx.file import dtype_name
from emitc.frontends.onnx.numbers import faulty
from emitc.ir import DType, Shape, Tensor
from emitc.kernels.contract import KernelDef
from emitc.source import SourceNode, SourceTensor

_DTYPES = frozenset(dtype.value for dtype in DType)


def require_defined(op_type: str, opset: int, where: Where) -> None:
    """Refuses an operator of the standard domain that came with a later opset than the model's, or that has no definition."""
    if onnx.defs.has(op_type, opset, ""):
        return
    if onnx.defs.has(op_type, ""):
        first = min(
            schema.since_version for schema in onnx.defs.get_all_schemas_with_history() if schema.name == op_type
        )
        raise faulty(f"{op_type} is no operator of opset {opset}", where, f"it came with opset {first}")
    raise no_kernel(op_type, where)


def no_kernel(op_type: str, where: Where, domain: str = "") -> CannotCompile:
    """The error for an operator that nothing is known of."""
    hint = "replace the operator; `emitc ops` lists what there is"
    if domain:
        hint = f"bring {domain}.{op_type} along with --plugin (docs/custom-operators.md), or replace it"
    return CannotCompile(f"{op_type} is not supported", where, "emitc has no kernel for this operator", hint)


def custom_types(kernel: KernelDef, node: SourceNode, outputs: Mapping[str, int]) -> dict[str, onnx.TypeProto]:
    """Types of the outputs of a node, by name; outputs: their element types, as ONNX counts them.

    Raises CannotCompile for element types that the graph does not have, and what the operator's own functions raise.
    """

    def tensor(name: str, dtype: str, shape: Shape, source: SourceTensor | None = None) -> Tensor:
        if dtype not in _DTYPES:
            why = f"there is code for {', '.join(sorted(_DTYPES))}"
            raise node.unsupported(f"with element type {dtype} is not supported", why, "cast it")
        return Tensor(name, DType(dtype), shape, None, source.data if source else None, name)

    inputs = tuple(None if t is None else tensor(t.name, t.dtype, t.shape, t) for t in node.inputs)
    named = {name: dtype_name(kind) for name, kind in outputs.items()}
    made = tuple(tensor(name, dtype, ()) for name, dtype in named.items())
    unshaped = tuple(SourceTensor(-1, name, dtype, (), None, None) for name, dtype in named.items())
    parsed = kernel.parse(replace(node, outputs=unshaped))
    bound = node.bound(parsed.op, tuple(inputs[i] if i < len(inputs) else None for i in parsed.operands), made)
    kernel.check(bound)
    shapes = kernel.output_shapes(bound)
    if len(shapes) != len(outputs):
        raise node.unsupported(f"has {len(outputs)} outputs", f"{len(shapes)} are expected", "export again")
    return dict(zip(outputs, map(onnx.helper.make_tensor_type_proto, outputs.values(), shapes), strict=True))
