"""A description as a TFLite file."""

from __future__ import annotations

from bench.random_graphs.case import Description, Node, Value
from emitc.writers.tflite import ModelSpec, OperatorSpec, OptionValue, SubgraphSpec, TensorSpec, sparse, write_tflite


def write(description: Description) -> bytes:
    """The file. Graphs inside operators become subgraphs 1, 2, ... in the order of their operators.

    Raises ValueError for what the format cannot express.
    """
    sources = [value for value in description.values if value.name in description.inputs]
    if any(value.dtype in ("resource", "int4") for value in sources):
        raise ValueError("handles and packed weights cannot be inputs")
    subgraphs: list[SubgraphSpec | None] = []
    main = _subgraph(description, subgraphs)
    inner = tuple(subgraph for subgraph in subgraphs if subgraph is not None)
    return write_tflite(ModelSpec(main.tensors, main.operators, main.inputs, main.outputs, "random graph", inner))


def _subgraph(description: Description, subgraphs: list[SubgraphSpec | None]) -> SubgraphSpec:
    index = {value.name: number for number, value in enumerate(description.values)}

    def named(names: tuple[str, ...]) -> tuple[int, ...]:
        missing = [name for name in names if name and name not in index]
        if missing:
            raise ValueError(f"the graph has no value {missing[0]}")
        return tuple(index[name] if name else -1 for name in names)

    operators = tuple(_operator(node, named(node.inputs), named(node.outputs), subgraphs) for node in description.nodes)
    tensors = tuple(_tensor(value) for value in description.values)
    return SubgraphSpec(tensors, operators, named(description.inputs), named(description.outputs))


def _operator(
    node: Node, inputs: tuple[int, ...], outputs: tuple[int, ...], subgraphs: list[SubgraphSpec | None]
) -> OperatorSpec:
    opcode, _, custom = node.op.partition(":")
    options: dict[str, OptionValue] = {}
    custom_options, version = b"", 1
    for name, value in node.attributes.items():
        if isinstance(value, Description):
            place = len(subgraphs)
            subgraphs.append(None)
            subgraphs[place] = _subgraph(value, subgraphs)
            options[name] = place + 1
        elif isinstance(value, bytes):
            custom_options = value
        elif name == "version" and isinstance(value, int):
            version = value
        else:
            options[name] = value  # type: ignore[assignment]
    return OperatorSpec(opcode, inputs, outputs, options, version, custom, custom_options)


def _tensor(value: Value) -> TensorSpec:
    data, sparsity = value.data, None
    if value.sparse:
        sparsity, data = sparse(value.array(), range(len(value.shape)), value.sparse)
    return TensorSpec(
        value.name,
        value.dtype,
        value.shape,
        data,
        value.scales,
        value.zero_points,
        value.axis,
        None,
        value.variable,
        sparsity,
    )
