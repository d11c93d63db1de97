"""How good the packing is: buffers made up by chance, hard ones among them, against the bound and against an exact solver.

    python -m bench.packing [--instances 4] [--exact SECONDS] [--update]

Every family comes in 150, 300 and 450 buffers. `reached` counts plans that the planner itself proves minimal, `proven` those too
that only the solver certifies (no packing is 16 bytes lower). With --exact the solver gets that many seconds for the
question that the planner answers: whether the bound can be reached (0: it is only asked about the plans above the bound, with
10 seconds). It is OR-Tools' CP-SAT, one worker (`pip install emitc[prove]`). With --update the table goes into
bench/results_packing.json. Exit code 1 when fewer than 95 % of all are proven.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.exact_packing import Answer, certify
from bench.output import write_json
from emitc.planner import Buffer, Distance, LiveRange, Plan, Step, buffers_of, plan
from emitc.planner.problem import problem_of
from emitc.report.tables import table

RESULTS = Path(__file__).with_name("results_packing.json")
COUNTS = (150, 300, 450)
GRID = 16
_SECONDS_ABOVE = 10.0
_ENOUGH = 0.95
Instance = tuple[list[Buffer], list[Distance]]


@dataclass(slots=True)
class Row:
    """One family at one size.

    worst: of arena / bound. seconds: of processor time, of the slowest plan. exact: bounds that the solver reached in the time it
    had, -1 where it was not asked; exact_seconds: of its slowest yes.
    """

    family: str
    buffers: int
    instances: int = 0
    reached: int = 0
    proven: int = 0
    worst: float = 1.0
    seconds: float = 0.0
    exact: int = -1
    exact_seconds: float = 0.0


def _rectangles(rng: random.Random, count: int, steps: int, longest: int, size: Callable[[], int]) -> Instance:
    """Buffers that start at a random step and live 1 to `longest` steps; `size` draws 16-byte units."""
    buffers = []
    for i in range(count):
        first = rng.randrange(steps)
        buffers.append(Buffer(f"b{i}", GRID * size(), LiveRange(first, min(steps, first + rng.randint(1, longest)))))
    return buffers, []


def _cut(rng: random.Random, count: int, steps: int, units: int) -> Instance:
    """A rectangle of steps and units cut at random into `count`: not a byte is free at any step, and it all fits together."""
    parts = [(0, steps, 0, units)]
    while len(parts) < count:
        first, end, low, high = parts.pop(rng.randrange(len(parts)))
        if rng.random() < 0.5 and end - first > 1:
            at = rng.randrange(first + 1, end)
            parts += [(first, at, low, high), (at, end, low, high)]
        elif high - low > 1:
            at = rng.randrange(low + 1, high)
            parts += [(first, end, low, at), (first, end, at, high)]
        else:
            parts.append((first, end, low, high))
    rng.shuffle(parts)
    return [Buffer(f"b{i}", GRID * (p[3] - p[2]), LiveRange(p[0], p[1])) for i, p in enumerate(parts)], []


def _network(rng: random.Random, count: int, wiring: str, *, overlaps: bool) -> Instance:
    """The buffers of a made-up net; with `overlaps`, an output may trail the input that it is the last reader of."""
    names, sizes, steps = ["x"], {"x": rng.randrange(1000, 60000)}, []
    while len(names) < count:
        reads = [names[-1]]
        if wiring == "random":
            reads = rng.sample(names[-8:], min(len(names), rng.choice([1, 1, 2, 3])))
        elif wiring == "u_net" and len(names) > count // 2:
            reads.append(names[count - len(names)])
        elif wiring == "residual" and len(names) % 3 == 0:
            reads.append(names[-3])
        name = f"t{len(names)}"
        sizes[name] = rng.choice([16, 32, 48, 64, 96]) * rng.randrange(10, 1000)
        steps.append(Step(tuple(dict.fromkeys(reads)), (name,)))
        names.append(name)
    buffers = buffers_of(steps, sizes, ["x"], [names[-1]])
    if not overlaps:
        return list(buffers), []
    live = {buffer.name: buffer.live for buffer in buffers}
    distances = []
    for at, step in enumerate(steps):
        read, written = step.reads[0], step.writes[0]
        if live[read].end == at + 1:
            lowest = max(0, sizes[written] - sizes[read])
            distances.append(Distance(read, written, above=rng.randint(lowest, sizes[written])))
    return list(buffers), distances


FAMILIES: dict[str, Callable[[random.Random, int], Instance]] = {
    "short lives": lambda rng, n: _rectangles(rng, n, n, 12, lambda: rng.randrange(1, 1000)),
    "long lives": lambda rng, n: _rectangles(rng, n, n, n // 6, lambda: rng.randrange(1, 1000)),
    "crowded": lambda rng, n: _rectangles(rng, n, 60, 40, lambda: rng.randrange(1, 300)),
    "few large": lambda rng, n: _rectangles(rng, n, n, 30, lambda: min(60000, int(rng.paretovariate(0.8)))),
    "cut, few steps": lambda rng, n: _cut(rng, n, 20, 64),
    "cut, many steps": lambda rng, n: _cut(rng, n, n, 4096),
    "random net": lambda rng, n: _network(rng, n, "random", overlaps=False),
    "u-net": lambda rng, n: _network(rng, n, "u_net", overlaps=False),
    "residual net": lambda rng, n: _network(rng, n, "residual", overlaps=False),
    "random net, overlaps": lambda rng, n: _network(rng, n, "random", overlaps=True),
    "u-net, overlaps": lambda rng, n: _network(rng, n, "u_net", overlaps=True),
    "residual net, overlaps": lambda rng, n: _network(rng, n, "residual", overlaps=True),
}


def instance(family: str, count: int, seed: int) -> Instance:
    """The buffers and distances of a family; the same for the same arguments on every machine."""
    return FAMILIES[family](random.Random(f"{family} {count} {seed}"), count)


def _is_optimal(buffers: list[Buffer], distances: list[Distance], result: Plan) -> bool:
    problem = problem_of(buffers, distances, GRID)
    return certify(problem, result.arena_bytes - GRID, _SECONDS_ABOVE).answer is Answer.NO


def measure(instances: int, exact_seconds: float) -> Iterator[Row]:
    """One row per family and size."""
    for family in FAMILIES:
        for count in COUNTS:
            row = Row(family, count, exact=0 if exact_seconds else -1)
            for seed in range(instances):
                buffers, distances = instance(family, count, seed)
                start = time.process_time()
                result = plan(buffers, distances)
                row.seconds = max(row.seconds, round(time.process_time() - start, 2))
                row.instances += 1
                row.reached += result.proven
                row.proven += result.proven or _is_optimal(buffers, distances, result)
                row.worst = max(row.worst, round(result.arena_bytes / result.lower_bound_bytes, 4))
                if exact_seconds:
                    problem = problem_of(buffers, distances, GRID)
                    start = time.monotonic()
                    if certify(problem, result.lower_bound_bytes, exact_seconds).answer is Answer.YES:
                        row.exact += 1
                        row.exact_seconds = max(row.exact_seconds, round(time.monotonic() - start, 2))
            yield row


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.packing", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instances", type=int, default=4)
    parser.add_argument("--exact", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for row in measure(arguments.instances, arguments.exact):
        rows.append(row)
        print(f"{row.family}, {row.buffers}: {row.reached} of {row.instances} proven by the planner", flush=True)
    columns = (
        "family",
        "buffers>",
        "instances>",
        "reached>",
        "proven>",
        "worst>",
        "seconds>",
        "exact>",
        "exact seconds>",
    )
    print(table(columns, [tuple(asdict(row).values()) for row in rows]))
    total, reached, proven = (sum(getattr(row, name) for row in rows) for name in ("instances", "reached", "proven"))
    print(f"{reached} of {total} proven by the planner, {proven} with the solver's help ({100 * proven / total:.1f} %)")
    if arguments.update:
        content = {
            "instances": total,
            "reached": reached,
            "proven": proven,
            "exact_seconds": arguments.exact,
            "rows": [asdict(row) for row in rows],
        }
        write_json(RESULTS, content)
    return 0 if proven >= _ENOUGH * total else 1


if __name__ == "__main__":
    raise SystemExit(main())
