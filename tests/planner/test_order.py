"""The order of the steps: never worse than given, always legal, and the best of all on nets small enough to try them all."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emitc.planner
from emitc.planner import Distance, OrderProblem, ScratchRequest, Step, best_order, buffers_of
from emitc.planner.lower_bound import lower_bound
from emitc.planner.problem import problem_of


@dataclass
class Net:
    """The arguments of `best_order`."""

    steps: list[Step]
    sizes: dict[str, int]
    inputs: list[str]
    outputs: list[str]
    precedes: list[tuple[int, int]] = field(default_factory=list)
    overlaps: dict[int, list[Distance]] = field(default_factory=dict)

    def best(self, max_states: int = 40_000) -> tuple[int, ...]:
        problem = OrderProblem(self.steps, self.sizes, self.inputs, self.outputs, self.precedes, self.overlaps)
        return best_order(problem, max_states)

    def peak(self, order: Sequence[int]) -> int:
        """The bound of the arena in this order, with every overlap that is usable in it."""
        steps = [self.steps[i] for i in order]
        buffers = buffers_of(steps, self.sizes, self.inputs, self.outputs)
        live = {buffer.name: buffer.live for buffer in buffers}
        usable = [
            distance
            for at, index in enumerate(order)
            for distance in self.overlaps.get(index, [])
            if live[distance.buffer].end == at + 1 and live[distance.other].first == at
            if distance.buffer not in self.outputs
        ]
        return lower_bound(problem_of(buffers, usable, 16)).size_bytes

    def legal(self) -> Iterator[tuple[int, ...]]:
        """All orders in which every read finds what it finds in the given order."""
        before = [set(range(i)) - self._free(i) for i in range(len(self.steps))]

        def extend(done: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            if len(done) == len(self.steps):
                yield done
            for i in range(len(self.steps)):
                if i not in done and before[i] <= set(done):
                    yield from extend((*done, i))

        return extend(())

    def _free(self, later: int) -> set[int]:
        """Earlier steps that may also come after the step `later`."""
        return {i for i in range(later) if (i, later) not in self.precedes and not self._conflict(i, later)}

    def _conflict(self, first: int, second: int) -> bool:
        a, b = self.steps[first], self.steps[second]
        pairs = [(x, y) for x in a.writes for y in (*b.reads, *b.writes)] + [(x, y) for x in a.reads for y in b.writes]
        return any(x == y for x, y in pairs)


@st.composite
def nets(draw: st.DrawFn) -> Net:
    """Up to seven steps; some names are updated in place, some overlaps hold."""
    names = [f"x{i}" for i in range(draw(st.integers(1, 2)))]
    net = Net([], {}, list(names), [])
    count = draw(st.integers(1, 7))
    for index in range(count):
        reads = tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)))
        scratch = (ScratchRequest(f"s{index}", draw(st.integers(0, 60))),) if draw(st.integers(0, 3)) == 0 else ()
        written = draw(st.sampled_from(reads)) if draw(st.integers(0, 5)) == 0 else f"t{index}"
        net.steps.append(Step(reads, (written,), scratch))
        if written not in names:
            names.append(written)
    for name in names:
        net.sizes.setdefault(name, draw(st.integers(1, 200)))
    for index, step in enumerate(net.steps):
        read, written = draw(st.sampled_from(step.reads)), step.writes[0]
        if read != written and draw(st.booleans()):
            net.overlaps[index] = [Distance(read, written, above=draw(st.integers(-20, net.sizes[written])))]
    net.outputs = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    if count > 1 and draw(st.booleans()):
        earlier = draw(st.integers(0, count - 2))
        net.precedes = [(earlier, draw(st.integers(earlier + 1, count - 1)))]
    return net


@settings(max_examples=400, derandomize=True, deadline=None, database=None)
@given(nets())
def test_no_legal_order_is_better(net: Net) -> None:
    given_order = tuple(range(len(net.steps)))
    orders = list(net.legal())
    assert given_order in orders
    found = net.best()
    assert found in orders
    peaks = {order: net.peak(order) for order in orders}
    assert peaks[found] == min(peaks.values())
    assert found == given_order or peaks[found] < peaks[given_order]
    assert net.best(max_states=1) in orders


def streaming(branches: int, taps: int, frame: int) -> Net:
    """A net over a stream: every block reads a variable, appends the new frame, keeps the tail for the next run.

    In the given order all variables are read first, and all tails are assigned last, as exporters leave it.
    """
    steps = [Step((), (f"old{b}",)) for b in range(branches)]
    net = Net(steps, {"x": frame}, ["x"], [f"y{branches - 1}"])
    before = "x"
    for b in range(branches):
        size = (taps + b) * frame
        net.sizes |= {f"old{b}": size - frame, f"joined{b}": size, f"tail{b}": size - frame, f"y{b}": frame}
        steps.append(Step((f"old{b}", before), (f"joined{b}",)))
        steps.append(Step((f"joined{b}",), (f"tail{b}",)))
        steps.append(Step((f"joined{b}",), (f"y{b}",)))
        before = f"y{b}"
    for b in range(branches):
        net.precedes.append((b, len(steps)))
        steps.append(Step((f"tail{b}",), ()))
    return net


def test_a_streaming_net_handles_one_variable_at_a_time() -> None:
    net = streaming(branches=5, taps=8, frame=32)
    order = net.best()
    # In the given order the variables 1..4 wait while block 0 runs, and all tails wait after the last block. At best
    # only the widest block is alive: its joined frames, the tail or the variable, and one frame.
    assert net.peak(range(len(net.steps))) == sum((7 + b) * 32 for b in range(4)) + (12 + 11 + 1) * 32
    assert net.peak(order) == (12 + 11 + 1) * 32
    for b in range(5):
        assert order.index(b) < order.index(net.precedes[b][1])


def test_an_assignment_waits_for_the_read_of_its_variable() -> None:
    # Without the pair the assignment, which frees the large x, would run first.
    steps = [Step((), ("old",)), Step(("old",), ("z",)), Step(("x",), ()), Step(("z",), ("y",))]
    net = Net(steps, {"x": 512, "old": 256, "z": 16, "y": 16}, ["x"], ["y"])
    assert net.best()[0] == 2
    net.precedes = [(0, 2)]
    assert net.best() == (0, 2, 1, 3)


def test_branches_that_are_reduced_run_one_after_the_other() -> None:
    branches = 4
    steps = [Step(("x",), (f"wide{b}",)) for b in range(branches)]
    steps += [Step((f"wide{b}",), (f"narrow{b}",)) for b in range(branches)]
    steps += [Step(tuple(f"narrow{b}" for b in range(branches)), ("y",))]
    sizes = {"x": 64, "y": 64}
    for b in range(branches):
        sizes |= {f"wide{b}": 640, f"narrow{b}": 16}
    net = Net(steps, sizes, ["x"], ["y"])
    assert net.peak(range(9)) == 64 + 4 * 640
    assert net.best() == (0, 4, 1, 5, 2, 6, 3, 7, 8)
    assert net.peak(net.best()) == 64 + 640 + 3 * 16


def test_an_overlap_decides_who_is_last() -> None:
    # Two readers of x: the one that may write over x has to be the second.
    steps = [Step(("x",), ("a",)), Step(("x",), ("b",)), Step(("a", "b"), ("y",))]
    net = Net(steps, {"x": 256, "a": 256, "b": 16, "y": 16}, ["x"], ["y"])
    assert net.best() == (0, 1, 2)
    net.overlaps = {0: [Distance("x", "a", above=0)]}
    assert net.best() == (1, 0, 2)
    assert (net.peak((0, 1, 2)), net.peak((1, 0, 2))) == (528, 288)


def test_an_output_is_not_overlapped() -> None:
    # If y could be overlapped at step 1, its place would not matter; as it cannot, step 1 is best when it is alone.
    steps = [Step(("x",), ("y",)), Step(("w", "y"), ("a",)), Step(("x",), ("b",)), Step(("b",), ("c",))]
    sizes = {"x": 16, "w": 16, "y": 16, "a": 32, "b": 16, "c": 16}
    net = Net(steps, sizes, ["x", "w"], ["y"], overlaps={1: [Distance("y", "a", above=0)]})
    assert (net.peak((0, 1, 2, 3)), net.peak(net.best())) == (80, 64)


def test_an_input_that_nobody_reads_is_held_at_the_first_step() -> None:
    steps = [Step(("x",), ("a",)), Step(("x",), ("b",)), Step(("a", "b"), ("y",))]
    net = Net(steps, {"x": 16, "unread": 128, "a": 256, "b": 16, "y": 16}, ["x", "unread"], ["y"])
    assert net.best() == (1, 0, 2)
    assert (net.peak((0, 1, 2)), net.peak((1, 0, 2))) == (400, 288)


@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_a_chain_stays_as_it_is(count: int) -> None:
    steps = [Step((f"t{i}",), (f"t{i + 1}",)) for i in range(count)]
    net = Net(steps, {f"t{i}": 16 * (i % 7 + 1) for i in range(count + 1)}, ["t0"], [f"t{count}"])
    assert net.best() == tuple(range(count))


def test_equal_branches_stay_as_they_are() -> None:
    steps = [Step(("x",), ("a",)), Step(("x",), ("b",)), Step(("a", "b"), ("y",))]
    assert Net(steps, dict.fromkeys("xaby", 64), ["x"], ["y"]).best() == (0, 1, 2)


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("count", [50, 150, 500])
@pytest.mark.parametrize("reach", [4, 40, 500])
def test_large_nets_get_a_legal_order_that_is_no_worse(reach: int, count: int) -> None:
    net = random_net(count, reach)
    order = net.best()
    assert sorted(order) == list(range(len(net.steps)))
    done = set(net.inputs)
    for i in order:
        assert done.issuperset(net.steps[i].reads)
        done.update(net.steps[i].writes)
    assert net.peak(order) <= net.peak(range(len(net.steps)))
    if reach > 4:
        assert net.peak(order) < 0.98 * net.peak(range(len(net.steps)))


def random_net(count: int, reach: int) -> Net:
    """Steps that each read one to three of the last `reach` tensors; what nobody reads is an output."""
    rng = random.Random(f"{count} {reach}")
    names, sizes, steps = ["t0"], {"t0": 3000}, []
    while len(names) < count:
        written = f"t{len(names)}"
        reads = rng.sample(names[-reach:], min(len(names), rng.choice([1, 1, 2, 3])))
        steps.append(Step(tuple(reads), (written,)))
        sizes[written] = rng.randrange(100, 60000)
        names.append(written)
    read = {name for step in steps for name in step.reads}
    return Net(steps, sizes, ["t0"], [name for name in names if name not in read])


@pytest.mark.parametrize("pair", [(1, 1), (1, 0), (-1, 1), (0, 2)])
def test_a_pair_that_the_given_order_breaks_is_refused(pair: tuple[int, int]) -> None:
    net = Net([Step(("x",), ("a",)), Step(("a",), ("y",))], {"x": 1, "a": 1, "y": 1}, ["x"], ["y"], precedes=[pair])
    with pytest.raises(ValueError, match=f"^step {pair[0]} does not stand in front of step {pair[1]}$"):
        net.best()


def test_a_given_order_that_is_none_is_refused() -> None:
    net = Net([Step(("a",), ("y",)), Step(("x",), ("a",))], {"x": 1, "a": 1, "y": 1}, ["x"], ["y"])
    with pytest.raises(ValueError, match=r"^step 0: 'a' is read before it is written$"):
        net.best()


def test_the_same_steps_give_the_same_order_under_any_hash_seed() -> None:
    program = (
        "import random\n"
        "from emitc.planner import OrderProblem, Step, best_order\n"
        "r = random.Random(5)\n"
        "s = [Step(tuple({f't{r.randrange(i + 1)}' for _ in range(3)}), (f't{i + 1}',)) for i in range(60)]\n"
        "s = [Step(tuple(sorted(x.reads)), x.writes) for x in s]\n"
        "z = {f't{i}': r.randrange(1, 900) for i in range(61)}\n"
        "o = best_order(OrderProblem(s, z, ['t0'], ['t60', 't59']))\n"
        "assert o != tuple(range(60))\n"
        "print(o)\n"
    )
    checkout = str(Path(emitc.planner.__file__).parents[2])
    outputs = []
    for hash_seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": checkout}
        run = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        outputs.append(run.stdout)
    assert outputs == [outputs[0]] * 3
