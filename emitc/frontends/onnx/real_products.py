"""QGemm of ONNX Runtime without a scale of its output: an integer product whose sums become float32.

y = float32((A - a_zero) @ (B - b_zero) + C) * (alpha * a_scale * b_scale), the factor in float32 and one for each column
where B has as many scales. It becomes MatMulInteger, Add, Cast and Mul, which have code for computed matrices too.
"""

import numpy as np

from emitc.frontends.source_rewriter import ABSENT, RewriterNode, SourceRewriter
from emitc.source import SourceTensor

_A, _A_SCALE, _A_ZERO, _B, _B_SCALE, _B_ZERO, _C, _Y_SCALE = range(8)
_FLOAT = 1
"""float32 among the element types of ONNX."""


def is_real_product(node: RewriterNode) -> bool:
    """Whether it is a QGemm that states no scale of its output."""
    return node.kind == "QGemm" and node.input(_Y_SCALE) == ABSENT


def real_product(rewriter: SourceRewriter, node: RewriterNode) -> list[RewriterNode]:
    """The operators in its place. Raises CannotCompile for a computed scale."""
    why, hint = "the factor of a float32 output is computed while compiling", "export the model with constant scales"
    a_scale, b_scale = (rewriter.known(node, node.input(at), "scale", why, hint) for at in (_A_SCALE, _B_SCALE))
    alpha = rewriter.source_node(node).real("alpha", 1.0)
    with np.errstate(all="ignore"):
        factor = np.asarray(np.float32(alpha) * a_scale.astype(np.float32).reshape(()) * b_scale.astype(np.float32))
    nodes: list[RewriterNode] = []
    matrices = [
        _turned(rewriter, node, node.input(position), nodes) if node.attributes.get(turn) else node.input(position)
        for position, turn in ((_A, "transA"), (_B, "transB"))
    ]
    (output,) = node.outputs
    y = rewriter.tensors[output]

    def step(kind: str, inputs: list[int], dtype: str, **attributes: int) -> int:
        made = output if kind == "Mul" else rewriter.tensor(f"{y.name}_{kind.lower()}", dtype, y.shape)
        nodes.append(rewriter.node(kind, node.name, inputs, [made], **attributes))
        return made

    zeros = [node.input(position) for position in (_A_ZERO, _B_ZERO)]
    operands = [*matrices, *zeros]
    while operands[-1] == ABSENT:
        operands.pop()
    sums = step("MatMulInteger", operands, "int32")
    if node.input(_C) != ABSENT:
        sums = step("Add", [sums, node.input(_C)], "int32")
    reals = step("Cast", [sums], "float32", to=_FLOAT)
    step("Mul", [reals, rewriter.tensor(f"{y.name}_factor", "float32", factor.shape, data=factor)], "float32")
    return nodes


def _turned(rewriter: SourceRewriter, node: RewriterNode, index: int, nodes: list[RewriterNode]) -> int:
    """A transposed matrix: a constant, or what a Transpose gives."""
    tensor: SourceTensor = rewriter.tensors[index]
    shape = tensor.shape[::-1]
    if tensor.data is not None:
        return rewriter.tensor(tensor.name, tensor.dtype, shape, data=np.ascontiguousarray(tensor.array().T))
    turned = rewriter.tensor(f"{tensor.name}_turned", tensor.dtype, shape)
    nodes.append(rewriter.node("Transpose", node.name, [index], [turned], perm=(1, 0)))
    return turned
