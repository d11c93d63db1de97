"""The cutting of regions: disjoint, convex, no cycle between them; over random graphs, against a search by definition."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

import pytest

from emitc.backends.ethos_u.backend import convex_regions, cut, in_order
from emitc.ir import DType, Graph, Node, Op, Tensor

KIND = Op()


def graph(reads: Iterable[tuple[int, ...]], outputs: tuple[int, ...] = ()) -> Graph:
    """Node i writes tensor "i" and reads those of the nodes that are given; -1 is the graph's input."""
    lists = list(reads)
    nodes = tuple(
        Node(KIND, "OP", tuple("x" if r < 0 else str(r) for r in read) or ("x",), (str(i),), i)
        for i, read in enumerate(lists)
    )
    tensors = (Tensor("x", DType.INT8, (4,)), *(Tensor(str(i), DType.INT8, (4 + i,)) for i in range(len(lists))))
    found = tuple(str(i) for i in outputs) or (str(len(lists) - 1),)
    return Graph("g", tensors, nodes, ("x",), found)


def readers_after(found: Graph) -> dict[int, set[int]]:
    """Every node's descendants."""
    after: dict[int, set[int]] = {node.index: set() for node in found.nodes}
    for node in reversed(found.nodes):
        for reader in found.consumers(node.outputs[0]):
            after[node.index] |= {reader.index} | after[reader.index]
    return after


def convex(found: Graph, region: Iterable[int]) -> bool:
    """By definition: no node outside lies on a path between two inside."""
    after, inside = readers_after(found), set(region)
    return not any(
        outside in after[a] and b in after[outside]
        for a, b in itertools.product(inside, inside)
        for outside in set(after) - inside
    )


def test_a_chain_is_one_region() -> None:
    chain = graph([(-1,), (0,), (1,), (2,)])
    assert convex_regions(chain, frozenset(range(4))) == ((0, 1, 2, 3),)


def test_a_node_that_stays_splits_a_chain() -> None:
    chain = graph([(-1,), (0,), (1,), (2,), (3,)])
    assert convex_regions(chain, frozenset([0, 1, 3, 4])) == ((0, 1), (3, 4))


def test_a_detour_through_the_core_splits_where_it_comes_back() -> None:
    """0 -> 1 (core) -> 2 and 0 -> 2: 2 may not join 0."""
    assert convex_regions(graph([(-1,), (0,), (0, 1)]), frozenset([0, 2])) == ((0,), (2,))


def test_two_sets_never_need_each_other() -> None:
    """Each is convex by itself: 0 and 4 need 1 through the core's 2, and 1 and 5 would need 0 through its 3."""
    crossed = graph([(-1,), (-1,), (1,), (0,), (0, 2), (1, 3)], outputs=(4, 5))
    assert convex_regions(crossed, frozenset([0, 1, 4, 5])) == ((0, 4), (1,), (5,))


def test_branches_that_meet_become_one() -> None:
    diamond = graph([(-1,), (0,), (0,), (1, 2)])
    assert convex_regions(diamond, frozenset(range(4))) == ((0, 1, 2, 3),)


def test_separate_branches_from_the_input_meet_and_become_one() -> None:
    assert convex_regions(graph([(-1,), (-1,), (0, 1)]), frozenset(range(3))) == ((0, 1, 2),)


def test_nothing_is_eligible() -> None:
    assert convex_regions(graph([(-1,), (0,)]), frozenset()) == ()


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        size = rng.randint(1, 14)
        reads = [tuple(sorted(rng.sample(range(-1, i), min(i + 1, rng.randint(1, 3))))) for i in range(size)]
        made = graph(reads, tuple(rng.sample(range(size), rng.randint(1, size))))
        eligible = frozenset(i for i in range(size) if rng.random() < rng.choice([0.5, 0.8, 1.0]))
        regions = convex_regions(made, eligible)
        flat = [index for region in regions for index in region]
        assert sorted(flat) == sorted(eligible)
        for region in regions:
            assert convex(made, region), (reads, sorted(eligible), regions)
        replaced = [n for n in made.nodes if n.index not in eligible]
        for region in regions:
            part = cut(made, region)
            inside = {str(i) for i in region}
            assert set(part.inputs) == {r for i in region for r in made.nodes[i].inputs} - inside
            outside = {r for n in made.nodes if n.index not in region for r in n.inputs} | set(made.outputs)
            assert set(part.outputs) == inside & outside
            assert part.edge_bytes == sum(made.tensor(n).size_bytes for n in (*part.inputs, *part.outputs))
            replaced.append(Node(KIND, "NPU", part.inputs, part.outputs, region[0]))
        ordered = in_order(made, replaced)
        ready = {"x"}
        for node in ordered:
            assert set(node.inputs) <= ready, (reads, regions)
            ready |= set(node.outputs)
        assert len(ordered) == len(replaced)
