"""TFLite models of few bytes whose branches lead to much work, or nowhere."""

from __future__ import annotations

from emitc.writers.tflite import ModelSpec, OperatorSpec, SubgraphSpec, TensorSpec

X = TensorSpec("x", "int8", (1, 4), None, (0.5,), (5,))
TRUE = TensorSpec("true", "bool", (), b"\1")


def choice(then: int, other: int, x: int, y: int) -> OperatorSpec:
    """IF of tensor 0, which is a condition."""
    return OperatorSpec("IF", (0, x), (y,), {"then_subgraph_index": then, "else_subgraph_index": other})


def model(*operators: OperatorSpec, subgraphs: tuple[SubgraphSpec, ...]) -> ModelSpec:
    """One of them after the other, on a condition that is an input."""
    condition = TensorSpec("c", "bool", (1,))
    tensors = (condition, *(TensorSpec(f"t{i}", "int8", (1, 4), None, (0.5,), (5,)) for i in range(len(operators) + 1)))
    return ModelSpec(tensors, operators, (0, 1), (len(operators) + 1,), subgraphs=subgraphs)


def leaf(kept_bytes: int = 0) -> SubgraphSpec:
    """x -> relu(x), which assigns a variable of so many bytes to itself."""
    tensors = [X, TensorSpec("y", "int8", (1, 4), None, (0.5,), (5,))]
    operators = [OperatorSpec("RELU", (0,), (1,))]
    if kept_bytes:
        tensors += [TensorSpec("h", "resource", ()), TensorSpec("v", "int8", (1, kept_bytes), None, (0.5,), (5,))]
        operators += [
            OperatorSpec("VAR_HANDLE", (), (2,), {"container": "", "shared_name": "s"}),
            OperatorSpec("READ_VARIABLE", (2,), (3,)),
            OperatorSpec("ASSIGN_VARIABLE", (2, 3), ()),
        ]
    return SubgraphSpec(tuple(tensors), tuple(operators), (0,), (1,))


def inner(then: int, other: int, count: int = 1) -> SubgraphSpec:
    """x -> IF on x, again and again; all but the last for nothing."""
    results = tuple(TensorSpec(f"y{i}", "int8", (1, 4), None, (0.5,), (5,)) for i in range(count))
    operators = tuple(choice(then, other, 1, 2 + i) for i in range(count))
    return SubgraphSpec((TRUE, X, *results), operators, (1,), (1 + count,))


def fans(kept_bytes: int) -> ModelSpec:
    """Seven subgraphs, each of which runs the next one forty times."""
    subgraphs = tuple(inner(number + 1, number + 1, 40) for number in range(1, 7))
    return model(choice(1, 1, 1, 2), subgraphs=(*subgraphs, leaf(kept_bytes)))


def ring(kept_bytes: int) -> ModelSpec:
    """A branch runs a subgraph that runs the branch."""
    return model(choice(1, 3, 1, 2), subgraphs=(inner(2, 3), inner(3, 1), leaf(kept_bytes)))


def beyond(index: int) -> ModelSpec:
    """A branch in a branch that is not there."""
    return model(choice(1, 2, 1, 2), subgraphs=(inner(2, index), leaf()))


def two_types() -> ModelSpec:
    """Branches in a branch, one of which gives floats."""
    real = SubgraphSpec((X, TensorSpec("y", "float32", (1, 4))), (OperatorSpec("DEQUANTIZE", (0,), (1,)),), (0,), (1,))
    return model(choice(1, 2, 1, 2), subgraphs=(inner(2, 3), leaf(), real))


def large_variable(count: int = 40, kept_bytes: int = 3 << 20) -> ModelSpec:
    """Operators that all run one subgraph, with a large variable."""
    operators = (choice(1, 1, i + 1, i + 2) for i in range(count))
    return model(*operators, subgraphs=(leaf(kept_bytes),))
