"""The model's inputs, outputs and state variables."""

from emitc.ir import Graph
from emitc.layer import Table
from emitc.program import Address, Block, Constant, Port, StateSlot
from emitc.program.c_names import identifier, unique
from emitc.schedule.slots import Slots, text_of


def ports(
    graph: Graph, tensors: tuple[str, ...], slots: Slots, *, output: bool, prefix: str = ""
) -> tuple[tuple[Port, ...], tuple[Constant, ...]]:
    """The interface, and the arrays of outputs that are constants. prefix: of the names of these."""
    taken = {str(i) for i in range(len(tensors))}
    result: list[Port] = []
    constants: list[Constant] = []
    for i, name in enumerate(tensors):
        tensor, root = graph.tensor(name), graph.root(name)
        address: Address | None = None
        if root.is_constant:
            values = tuple(root.array().reshape(-1).tolist())
            table = Table(f"output_{i}", tensor.dtype.c_type, values, f"constant output {i}")
            address = Address(Block.CONSTANT, f"{prefix}output_{i}_value")
            constants.append(Constant(address.variable, table))
        elif name not in slots.state_args and name not in graph.streamed_inputs:
            address = slots.address(root.name)
        alias = identifier(tensor.label, "")
        quantization = tensor.quantization
        result.append(
            Port(
                index=i,
                label=tensor.label,
                alias="" if not alias or alias in taken else unique(alias, taken),
                c_type=tensor.dtype.c_type,
                text=text_of(tensor),
                shape=tensor.shape,
                dtype=tensor.dtype.value,
                size_bytes=tensor.size_bytes,
                elements=tensor.elements,
                scale=quantization.scale if quantization else None,
                zero_point=quantization.zero_point if quantization else None,
                address=address,
                const=output,
                tensor=tensor.name,
                source=tensor.source,
                rows=_streamed_rows(graph, name) if address is None else 0,
            )
        )
    return tuple(result), tuple(constants)


def _streamed_rows(graph: Graph, name: str) -> int:
    """Rows of an input that the model asks the application for, 0 for every other one."""
    if name not in graph.streamed_inputs:
        return 0
    return next(graph.tensor(node.outputs[0]).shape[1] for node in graph.consumers(name))


def state_slots(graph: Graph, slots: Slots, alignment: int) -> tuple[StateSlot, ...]:
    """The state block: every variable at a multiple of the alignment, in the order of the graph."""
    result: list[StateSlot] = []
    offset = 0
    for i, tensor in enumerate(graph.states):
        assert tensor.initial is not None
        distinct = set(tensor.initial)
        constant = None
        if len(distinct) > 1:
            values = tuple(tensor.initial_array().reshape(-1).tolist())
            table = Table(f"state_{i}", tensor.dtype.c_type, values, f"state {i} before the first run")
            constant = Constant(f"state_{i}_initial", table)
        named = slots.states[tensor.name]
        result.append(
            StateSlot(
                name=named.name,
                offset_bytes=offset,
                size_bytes=tensor.size_bytes,
                what=named.what,
                tensor=tensor.name,
                fill=0 if constant else min(distinct),
                initial=constant,
            )
        )
        offset += -(-tensor.size_bytes // alignment) * alignment
    return tuple(result)
