"""ONNX's images are NCHW and its matrices as they come; inside emitc images are NHWC, filters OHWI and matrices [O, I].

Every windowed operator is put between two Transposes, which `passes/transposes.py` then moves to the borders;
constant weights are rearranged at once, also where a DequantizeLinear stands between them and the operator. Rank 3 (one
spatial dimension) becomes an image of one row.
"""

from dataclasses import replace

import numpy as np

from emitc.frontends.source_rewriter import ABSENT, RewriterNode, SourceRewriter
from emitc.ir import Shape
from emitc.source import SourceModel

SPATIAL = frozenset((
    "Conv", "ConvTranspose", "ConvInteger", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool",
    "DepthToSpace", "SpaceToDepth",
))  # fmt: skip
_TO_NHWC, _TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
_FILTERS = frozenset(["Conv", "ConvTranspose", "ConvInteger"])
_PRODUCTS = frozenset(["Gemm", "MatMul"])


def _permuted(shape: Shape, permutation: tuple[int, ...]) -> Shape:
    return tuple(shape[i] for i in permutation)


def constant_or_dequantized(rewriter: SourceRewriter, producers: dict[int, RewriterNode], index: int) -> bool:
    """Whether a tensor is a constant, or one dequantized."""
    producer = producers.get(index)
    if producer is not None and producer.kind == "Dequantize":
        index = producer.inputs[0]
    return rewriter.tensors[index].data is not None


class _Layout:
    def __init__(self, rewriter: SourceRewriter) -> None:
        self.rewriter = rewriter
        self.producers = rewriter.producers()
        self.nodes: list[RewriterNode] = []  # those instead of the node that is being rewritten
        self.rearranged: dict[tuple[int, Shape, tuple[int, ...]], int] = {}

    def move(self, index: int, name: str, shape: Shape, permutation: tuple[int, ...] | None = None) -> int:
        """Adds a Transpose of a tensor, or a Reshape where there is no permutation; returns its output."""
        tensor = self.rewriter.tensors[index]
        kind = "reshape" if permutation is None else "transpose"
        output = self.rewriter.tensor(f"{tensor.name}_{kind}", tensor.dtype, shape, tensor.quantization)
        self.moved(index, output, name, permutation)
        return output

    def moved(self, source: int, target: int, name: str, permutation: tuple[int, ...] | None = None) -> None:
        """Adds the Transpose or Reshape from one tensor to another."""
        kind, attributes = ("Reshape", {"shape": self.rewriter.tensors[target].shape})
        if permutation is not None:
            kind, attributes = "Transpose", {"perm": permutation}
        self.nodes.append(self.rewriter.node(kind, name, [source], [target], **attributes))

    def weights(self, index: int, shape: Shape, permutation: tuple[int, ...], name: str) -> int:
        """Weights under `shape` (of the same rank or one more), permuted; constants at once."""
        key = (index, shape, permutation)
        if key not in self.rearranged:
            self.rearranged[key] = self._weights(index, shape, permutation, name)
        return self.rearranged[key]

    def _weights(self, index: int, shape: Shape, permutation: tuple[int, ...], name: str) -> int:
        tensor = self.rewriter.tensors[index]
        q = tensor.quantization
        if q is not None and not q.per_tensor and len(shape) > len(tensor.shape) and q.axis >= 2:
            q = replace(q, axis=q.axis + 1)
        if tensor.data is not None:
            data = np.transpose(tensor.array().reshape(shape), permutation)
            q = q if q is None or q.per_tensor else replace(q, axis=permutation.index(q.axis))
            return self.rewriter.tensor(f"{tensor.name}_weights", tensor.dtype, data.shape, q, data)
        producer = self.producers.get(index)
        if producer and producer.kind == "Dequantize" and constant_or_dequantized(self.rewriter, self.producers, index):
            inner = self.weights(producer.inputs[0], shape, permutation, name)
            output = self.rewriter.tensor(f"{tensor.name}_weights", tensor.dtype, _permuted(shape, permutation))
            self.nodes.append(self.rewriter.node("Dequantize", producer.name, [inner], [output]))
            return output
        if shape != tensor.shape:
            index = self.move(index, name, shape)
        return self.move(index, name, _permuted(shape, permutation), permutation)

    def spatial(self, node: RewriterNode) -> None:
        """A windowed operator between Transposes."""
        rewriter = self.rewriter
        x = rewriter.tensors[node.inputs[0]]
        rank = len(x.shape)
        if rank not in (3, 4):
            what = f"with {rank - 2} spatial dimensions is not supported"
            why, hint = "there is code for one and two", "export the model with 1-D or 2-D operators"
            raise rewriter.source_node(node).unsupported(what, why, hint, x)
        if rank == 3:
            n, c, length = x.shape
            inside = self.move(self.move(x.index, node.name, (n, length, c), (0, 2, 1)), node.name, (n, 1, length, c))
            for name, fill in (("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("output_padding", 0)):
                values = node.attributes.get(name)
                if isinstance(values, tuple):
                    node.attributes[name] = (fill, *(int(v) for v in values))
            pads = node.attributes.get("pads")
            if isinstance(pads, tuple) and len(pads) == 2:
                node.attributes["pads"] = (0, int(pads[0]), 0, int(pads[1]))
        else:
            inside = self.move(x.index, node.name, _permuted(x.shape, _TO_NHWC), _TO_NHWC)
        node.inputs[0] = inside
        if node.kind in _FILTERS and node.input(1) != ABSENT:
            self.filters(node, x.shape[1], rank)
        self.nodes.append(node)
        for position, index in enumerate(node.outputs):
            y = rewriter.tensors[index]
            if rank == 3:
                n, c, length = y.shape
                out = rewriter.tensor(f"{y.name}_nhwc", y.dtype, (n, 1, length, c), y.quantization)
                flat = rewriter.tensor(f"{y.name}_nlc", y.dtype, (n, length, c), y.quantization)
                self.moved(out, flat, node.name)
                self.moved(flat, index, node.name, (0, 2, 1))
            else:
                out = rewriter.tensor(f"{y.name}_nhwc", y.dtype, _permuted(y.shape, _TO_NHWC), y.quantization)
                self.moved(out, index, node.name, _TO_NCHW)
            node.outputs[position] = out

    def filters(self, node: RewriterNode, channels: int, rank: int) -> None:
        """Filters to OHWI; [1, H, W, O] where each input channel has its own (kind DepthwiseConv)."""
        w = self.rewriter.tensors[node.inputs[1]]
        if len(w.shape) != rank:
            what = f"has weights of rank {len(w.shape)}"
            raise self.rewriter.source_node(node).refusal(what, f"{rank} is expected", tensor=w)
        shape = w.shape if rank == 4 else (w.shape[0], w.shape[1], 1, w.shape[2])
        group = node.attributes.get("group", 1)
        depthwise = node.kind == "Conv" and group == channels and channels > 1 and w.shape[1] == 1
        if depthwise and constant_or_dequantized(self.rewriter, self.producers, w.index):
            node.kind = "DepthwiseConv"
            node.inputs[1] = self.weights(w.index, shape, (1, 2, 3, 0), node.name)
        else:
            node.inputs[1] = self.weights(w.index, shape, _TO_NHWC, node.name)

    def matrix(self, node: RewriterNode) -> None:
        """A product with a constant matrix becomes a fully connected layer, its matrix turned to [O, I]."""
        rewriter = self.rewriter
        a, b = (rewriter.tensors[node.inputs[i]] for i in (0, 1))
        constant = constant_or_dequantized(rewriter, self.producers, b.index)
        gemm = node.kind == "Gemm"
        plain = not gemm or (node.attributes.get("alpha", 1.0) == 1.0 and node.attributes.get("beta", 1.0) == 1.0)
        if not constant or not plain or len(b.shape) != 2 or len(a.shape) < 2:
            self.nodes.append(node)
            return
        if gemm and node.input(2) != ABSENT and not self.bias(node, b.shape[0 if node.attributes.get("transB") else 1]):
            self.nodes.append(node)
            return
        if gemm and node.attributes.get("transA"):
            node.inputs[0] = self.move(a.index, node.name, (a.shape[1], a.shape[0]), (1, 0))
        if not (gemm and node.attributes.get("transB")):
            node.inputs[1] = self.weights(b.index, b.shape, (1, 0), node.name)
        node.kind = "FullyConnected"
        self.nodes.append(node)

    def bias(self, node: RewriterNode, out: int) -> bool:
        """Makes the third input of a Gemm a vector [O]; False where it is none."""
        rewriter = self.rewriter
        c = rewriter.tensors[node.inputs[2]]
        if c.shape == (out,):
            return True
        producer = self.producers.get(c.index)
        inner = producer.inputs[0] if producer is not None and producer.kind == "Dequantize" else c.index
        value = rewriter.tensors[inner]
        # A column [out, 1] is added along the other dimension.
        row = value.elements == out and value.shape[-1:] == (out,)
        if value.data is None or not (row or value.elements == 1):
            return False
        q = value.quantization
        if q is not None and not q.per_tensor:
            q = replace(q, axis=0)
        data = np.broadcast_to(value.array().reshape(-1), (out,))
        vector = rewriter.tensor(f"{value.name}_bias", value.dtype, (out,), q, data)
        if inner != c.index and producer is not None:
            output = rewriter.tensor(f"{c.name}_bias", c.dtype, (out,))
            self.nodes.append(rewriter.node("Dequantize", producer.name, [vector], [output]))
            vector = output
        node.inputs[2] = vector
        return True

    def replaced(self, node: RewriterNode) -> tuple[RewriterNode, ...]:
        """Rewrites a node: what comes in its place is added to the nodes."""
        if node.kind in SPATIAL and node.input(0) != ABSENT:
            self.spatial(node)
        elif node.kind in _PRODUCTS and ABSENT not in (node.input(0), node.input(1)):
            self.matrix(node)
        else:
            return (node,)
        return ()


def channels_last(model: SourceModel) -> SourceModel:
    """The model with images in NHWC around every windowed operator, filters in OHWI, and matrices in [O, I]."""
    rewriter = SourceRewriter(model)
    layout = _Layout(rewriter)
    rewriter.replace_each(layout.replaced, layout.nodes)
    return rewriter.freeze()
