"""What makes a Graph legal; runs after the frontend and after every pass. A violation is a bug in emitc."""

from emitc.ir import Graph
from emitc.kernels import kernel_of


def verify_graph(graph: Graph) -> None:
    """Asserts the graph's invariants.

    Names are unique and known. Tensors are written once and before they are read. Shapes are as computed, aliases have the size
    of what they share, and every operator passes its own checks. State variables may be read and written anywhere; one among
    the inputs, which the operator round a graph hands it, is among the outputs, too.
    """
    names = [tensor.name for tensor in graph.tensors]
    assert len(set(names)) == len(names), "tensor names are not unique"
    for tensor in graph.tensors:
        assert tensor.data is None or len(tensor.data) == tensor.size_bytes, f"{tensor.describe()} has other data"
        if tensor.initial is not None:
            assert len(tensor.initial) == tensor.size_bytes and tensor.data is None and not tensor.alias_of, (
                f"{tensor.describe()} is no state variable"
            )
        if tensor.alias_of:
            assert graph.tensor(tensor.alias_of).size_bytes == tensor.size_bytes, (
                f"{tensor.describe()} aliases another size"
            )
            assert tensor.data is None and graph.producer(tensor.name) is None, (
                f"{tensor.describe()} is written and an alias"
            )
    indices = [node.index for node in graph.nodes]
    assert len(set(indices)) == len(indices), "indices of operators are not unique"
    ready = set(graph.inputs) | {t.name for t in graph.tensors if t.is_constant or t.is_state}
    handed = {name for name in graph.inputs if graph.tensor(name).is_state}
    assert handed <= set(graph.outputs), "a state variable goes in, and not out"
    for bound in graph.bound():
        for operand in bound.inputs:
            assert operand is None or graph.root(operand.name).name in ready, (
                f"{bound.node.describe()} reads {operand} too early"
            )
        for output in bound.outputs:
            assert output.name not in ready or output.is_state, f"{output.describe()} is written twice"
            ready.add(output.name)
        kernel = kernel_of(bound)
        kernel.check(bound)
        shapes = kernel.output_shapes(bound)
        assert shapes == tuple(t.shape for t in bound.outputs), f"{bound.node.describe()} gives {shapes}"
    for name in graph.outputs:
        assert graph.root(name).name in ready, f"nothing writes {name}"
