"""The model's interface under --io and --input-rows: without float ends, or with an input that is asked for by rows."""

from dataclasses import replace

from emitc.errors import CannotCompile, Where
from emitc.ir import BoundNode, DType, Graph, Node, Shape, Tensor
from emitc.kernels import kernel_of
from emitc.kernels.quantization.quantize import Dequantize, Quantize
from emitc.kernels.state.state_variables import InputRows
from emitc.passes.rewriter import GraphRewriter, views_of
from emitc.passes.verify_graph import verify_graph

INTERFACES = ("keep", "int8")


def with_interface(graph: Graph, io: str) -> Graph:
    """The graph under the interface asked for: `keep` changes nothing; `int8` drops a QUANTIZE that alone reads a float
    input and a DEQUANTIZE that writes a float output, so that the caller passes quantized values.
    """
    if io == "keep":
        return graph
    for node in graph.nodes:
        source, target = (node.inputs or ("",))[0], node.outputs[0]
        if not source:
            continue
        root = graph.root(source).name
        if isinstance(node.op, Quantize) and root in graph.inputs and graph.tensor(root).dtype is DType.FLOAT32:
            # The input may be read through a view of it, which then goes with it.
            views = views_of(graph, root)
            readers = [reader for name in (root, *views) for reader in graph.consumers(name)]
            if readers == [node] and not {root, *views} & set(graph.outputs):
                inputs = tuple(target if name == root else name for name in graph.inputs)
                nodes = tuple(n for n in graph.nodes if n is not node)
                tensors = tuple(t for t in graph.tensors if t.name not in (root, *views))
                return with_interface(replace(graph, inputs=inputs, nodes=nodes, tensors=tensors), io)
        float_out = target in graph.outputs and graph.tensor(target).dtype is DType.FLOAT32
        if isinstance(node.op, Dequantize) and float_out and not graph.consumers(target):
            outputs = tuple(source if name == target else name for name in graph.outputs)
            nodes = tuple(n for n in graph.nodes if n is not node)
            return with_interface(replace(graph, outputs=outputs, nodes=nodes), io)
    return graph


OP_TYPE = "INPUT_ROWS"


def with_input_rows(graph: Graph) -> Graph:
    """The graph whose input lies nowhere: its readers read the output of an InputRows, an image [1, H, W, C].

    Raises CannotCompile where the graph has another number of inputs than one, or the input is an output too. It also raises
    that where the readers do not see the input as one image, and where none of them can work row by row.
    """
    if len(graph.inputs) != 1:
        why = "one input can be asked for row by row, in step with the layers"
        raise _refused(f"the model has {len(graph.inputs)} inputs", why)
    model_input = graph.tensor(graph.inputs[0])
    names = {model_input.name, *views_of(graph, model_input.name)}
    if names & set(graph.outputs):
        raise _refused("the input is an output too", "it has to be in memory as a whole", model_input)
    shape = _seen_as(graph, model_input, names)
    readers = [bound for bound in graph.bound() if names & set(bound.node.inputs)]
    if not any(_works_by_rows(bound) for bound in readers):
        listed = ", ".join(bound.node.describe() for bound in readers)
        raise _refused("nothing that reads the input works row by row", f"it is read by {listed}", model_input)
    work = GraphRewriter.of(graph)
    rows = work.tensor(model_input, ":rows", shape, quantization=model_input.quantization)
    node = Node(InputRows(shape), OP_TYPE, (model_input.name,), (rows.name,), work.next_index, model_input.label)

    def now(tensor: Tensor) -> Tensor:
        return replace(tensor, alias_of=rows.name) if tensor.alias_of == model_input.name else tensor

    def reading(other: Node) -> Node:
        return replace(other, inputs=tuple(rows.name if name == model_input.name else name for name in other.inputs))

    tensors = (*(now(tensor) for tensor in graph.tensors), rows)
    streamed = replace(
        graph, tensors=tensors, nodes=(node, *map(reading, graph.nodes)), streamed_inputs=(model_input.name,)
    )
    verify_graph(streamed)
    return streamed


def _works_by_rows(bound: BoundNode) -> bool:
    """Whether emitc's own kernel of the operator can make a row of an image from some rows of another."""
    form, output = kernel_of(bound).lower(bound).by_rows, bound.output
    image = len(output.shape) == 4 and output.shape[0] == 1
    return form is not None and image and (form.window or output.shape[1:3] == bound.input(0).shape[1:3])


def _seen_as(graph: Graph, source: Tensor, names: set[str]) -> Shape:
    """The one image as which all readers see the input."""
    shapes = sorted({graph.tensor(name).shape for name in names if graph.consumers(name)})
    listed = " and ".join(str(list(shape)) for shape in shapes)
    if len(shapes) != 1:
        raise _refused(f"the input is read as {listed or 'nothing'}", "its readers must agree on the rows", source)
    (shape,) = shapes
    if len(shape) != 4 or shape[0] != 1 or min(shape) < 1 or shape[1] < 2:
        why = "rows are those of one image [1, height, width, channels]"
        raise _refused(f"the input is read as {listed}", why, source)
    return shape


def _refused(what: str, why: str, tensor: Tensor | None = None) -> CannotCompile:
    where = Where(option="--input-rows", tensor=tensor.describe() if tensor else "")
    real = tensor is not None and tensor.dtype is DType.FLOAT32
    hint = ", or add --io int8 where a converter has put the float end there" if real else ""
    return CannotCompile(what, where, why, f"leave --input-rows out{hint}")
