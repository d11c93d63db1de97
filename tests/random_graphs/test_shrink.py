"""Cutting random graphs down: what is kept computes what it did, and the node that fails is found."""

from __future__ import annotations

from bench.random_graphs import Case, Description, generate, shrink


def graphs_of(seed: int, count: int) -> list[Case]:
    """Cases of TFLite with several nodes."""
    found = [generate("tflite", seed, index) for index in range(count)]
    return [case for case in found if len(case.description.nodes) > 3]


def closed(description: Description) -> bool:
    """Whether every operand is a constant, state, given, or computed before it is read."""
    known = {value.name for value in description.values if value.constant or value.variable} | set(description.inputs)
    for node in description.nodes:
        if not {name for name in node.inputs if name} <= known:
            return False
        known |= set(node.outputs)
    return set(description.outputs) <= known


def test_equal_arguments_give_equal_bytes() -> None:
    assert generate("tflite", 3, 5).model == generate("tflite", 3, 5).model
    assert generate("tflite", 3, 5).model != generate("tflite", 3, 6).model


def test_any_nodes_make_a_graph() -> None:
    for case in graphs_of(1, 40):
        assert closed(case.description)
        for step in (2, 3):
            kept = case.description.keeping(range(0, len(case.description.nodes), step))
            assert closed(kept)
            assert kept.outputs


def test_the_node_that_fails_is_found() -> None:
    for case in graphs_of(2, 40):
        nodes = [node for node in case.description.nodes if node.outputs]  # CALL_ONCE has none
        guilty = nodes[len(nodes) // 2].outputs[0]

        def fails(candidate: Case, guilty: str = guilty) -> bool:
            return any(guilty in node.outputs for node in candidate.description.nodes)

        small = shrink(case, fails)
        assert [guilty in node.outputs for node in small.description.nodes] == [True]
        assert len(small.description.outputs) == 1


def test_a_failure_of_two_nodes_keeps_both() -> None:
    case = graphs_of(4, 40)[0]
    pair = {case.description.nodes[0].outputs[0], case.description.nodes[-1].outputs[0]}

    def fails(candidate: Case) -> bool:
        return pair <= {name for node in candidate.description.nodes for name in node.outputs}

    assert len(shrink(case, fails).description.nodes) == 2
