"""Several models and several instances of one, run interleaved in one process: each computes what it computes alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.ir import Array
from emitc.verify.build import HostModel, run_compiler, sources
from emitc.verify.golden_run import interface_of
from emitc.verify.reference import random_samples


@pytest.fixture(scope="module")
def library(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Compiled]]:
    """Two models linked into one library with one runtime, as a firmware links them."""
    folder = tmp_path_factory.mktemp("instances")
    models = {name: compile_model(tiny / f"{name}.tflite") for name in ("spotter", "branches")}
    files: dict[str, str] = {}
    for name, compiled in models.items():
        compiled.write(folder / name)
        files.update((path.name, str(path)) for path in sources(folder / name)[0])
    includes = [f"-I{folder / name}" for name in models]
    hook = folder / "no_hook.c"
    hook.write_text("void host_set_hook(void *f);\nvoid host_set_hook(void *f)\n{\n    (void)f;\n}\n", encoding="ascii")
    run_compiler(
        ["-std=c11", "-O2", "-shared", "-fPIC", *includes, *files.values(), str(hook), "-o", str(folder / "two.so")]
    )
    assert len(files) == 3
    return folder / "two.so", models


def test_interleaved_runs_equal_separate_runs(library: tuple[Path, dict[str, Compiled]]) -> None:
    path, models = library
    instances = [("spotter", 1), ("branches", 2), ("spotter", 3)]
    inputs = {seed: random_samples(models[name].graph, 5, seed) for name, seed in instances}

    separate: dict[int, list[list[Array]]] = {}
    for name, seed in instances:
        model = HostModel(path, interface_of(models[name]))
        separate[seed] = [model.run(sample) for sample in inputs[seed]]

    side_by_side = {seed: HostModel(path, interface_of(models[name])) for name, seed in instances}
    for k in range(5):
        # All inputs are written before anything runs, and outputs are read when everything has run.
        for _, seed in instances:
            side_by_side[seed].write_inputs(inputs[seed][k])
        outputs = {seed: side_by_side[seed].invoke() for _, seed in reversed(instances)}
        for _, seed in instances:
            side_by_side[seed].check_guards()
            for found, expected in zip(outputs[seed], separate[seed][k], strict=True):
                assert np.array_equal(found, expected)
    assert any(not np.array_equal(a, b) for a, b in zip(separate[1][0], separate[3][0], strict=True))


def test_outputs_survive_the_run_of_another_instance(library: tuple[Path, dict[str, Compiled]]) -> None:
    path, models = library
    graph = models["spotter"].graph
    first, second = (HostModel(path, interface_of(models["spotter"])) for _ in range(2))
    samples = random_samples(graph, 2, 7)
    expected = first.run(samples[0])[0]
    before = first.arena.copy()
    second.run(samples[1])
    assert np.array_equal(first.arena, before)
    assert np.array_equal(first.run(samples[0])[0], expected)
