"""`--input-rows`: the model asks for the rows of its input, once and in order, and the whole input is never in memory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emitc.boards import verify as prove
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import CannotCompile
from emitc.lower.layers import lower_nodes
from emitc.options import Options
from emitc.planner import PlanError
from emitc.planner.region_assignment import Region
from emitc.schedule.arenas import ALIGNMENT
from emitc.schedule.check import check_schedule
from emitc.schedule.search import SMALLEST, best_schedule
from emitc.verify.build import HostModel, build_shared
from emitc.verify.golden_run import interface_of
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, write_tflite
from tests.support.models.image_nets import ImageNet, random_net
from tests.support.models.tiny import Net, branches, camera, spotter, wires

NETS = range(24)
FAILED, INVALID, NOT_READY = 6, 2, 1


def _written(folder: Path, spec: ModelSpec, name: str = "net") -> Path:
    file = folder / f"{name}.tflite"
    file.write_bytes(write_tflite(spec))
    return file


def _proven(compiled: Compiled, *, sanitize: bool = False) -> None:
    proof = verify(compiled, samples=2, layers=True, sanitize=sanitize)
    assert proof.match and proof.differing == 0 and proof.memory_errors == ()
    assert proof.arena_observed == proof.arena_planned == compiled.program.plan.arena_bytes


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("seed", NETS)
def test_rows_of_the_input_give_the_engines_bits(seed: int, tmp_path: Path) -> None:
    """The host's reader refuses a row that is not the next one."""
    model = _written(tmp_path, random_net(seed))
    rows = compile_model(model, Options(ram_budget="min", input_rows=True))
    assert (
        rows.program.plan.arena_bytes <= compile_model(model, Options(ram_budget="min")).program.plan.arena_bytes + 64
    )
    _proven(rows, sanitize=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"disabled": frozenset({"streaming"})},
        {"optimize": "size"},
        {"regions": (Region("FAST", 700, 1), Region("SLOW", 9000, 4))},
        {"target": "cortex-m4f", "ram_budget": "min"},
    ],
    ids=["whole", "size", "regions", "m4"],
)
def test_whoever_makes_the_rows_they_give_the_engines_bits(changes: dict[str, Any], tmp_path: Path) -> None:
    compiled = compile_model(_written(tmp_path, camera()), Options(input_rows=True), **changes)
    whole = not compiled.program.segments
    assert whole == ("disabled" in changes or "regions" in changes)
    assert ("static emitc_status op3_input_rows(" in compiled.files["net.c"].decode()) == whole
    _proven(compiled)


def test_the_input_is_never_whole_in_memory(tmp_path: Path) -> None:
    """By default too: the segment that starts with the rows costs little."""
    model = _written(tmp_path, camera())
    for budget in (None, "min"):
        without, rows = (compile_model(model, Options(ram_budget=budget, input_rows=pull)) for pull in (False, True))
        assert without.program.plan.arena_bytes >= without.program.inputs[0].size_bytes
        assert rows.program.plan.arena_bytes < rows.program.inputs[0].size_bytes / 2
        (segment,) = rows.program.segments
        assert segment.source is None and segment.reads_rows and segment.calls[0].makes.capacity == 3
        assert not any(slot.name == "AT_INPUT_0" for slot in rows.program.slots)
        assert json.loads(rows.files["manifest.json"])["options"]["input_rows"] is True


def test_an_image_under_another_shape_comes_in_the_rows_that_its_readers_see(tmp_path: Path) -> None:
    net = ImageNet(1)
    flat = net.activation("flat", (1, 12 * 5 * 2), 0.05, 1)
    image = net.activation("image", (1, 12, 5, 2), 0.05, 1)
    net.op("RESHAPE", (flat, net.integers("shape", (1, 12, 5, 2))), (image,), new_shape=(1, 12, 5, 2))
    y, _ = net.window(image, (1, 12, 5, 2), 3, 3, 2, "SAME", depthwise=False)
    compiled = compile_model(_written(tmp_path, net.spec((flat,), (y,))), Options(input_rows=True, ram_budget="min"))
    assert (compiled.program.inputs[0].rows, compiled.program.inputs[0].row_bytes) == (12, 10)
    _proven(compiled)


class _Asked(HostModel):
    """A host model whose reader notes what it is asked for, and fails at a row."""

    def __init__(self, *arguments: Any) -> None:
        self.rows: list[tuple[int, int]] = []
        self.fails_at = -1
        super().__init__(*arguments)

    def _give_row(self, context: Any, row: int, to: Any, row_bytes: int) -> int:
        self.rows.append((row, row_bytes))
        return FAILED if row == self.fails_at else super()._give_row(context, row, to, row_bytes)

    def call(self, name: str, *arguments: Any) -> int:
        """The status of one of the model's functions, called on the instance."""
        return int(self._function(name)(self._self, *arguments))


@pytest.fixture
def asking(tmp_path: Path) -> tuple[_Asked, Any]:
    compiled = compile_model(_written(tmp_path, camera()), Options(input_rows=True, ram_budget="min"))
    compiled.write(tmp_path / "package")
    model = _Asked(build_shared(tmp_path / "package", tmp_path, trace=False), interface_of(compiled))
    image = np.random.default_rng(0).integers(-128, 128, (1, 24, 24, 3)).astype(np.int8)
    return model, image


def test_rows_are_asked_for_once_and_in_order(asking: tuple[_Asked, Any]) -> None:
    """The last row is after the last window, so that nobody asks for it."""
    model, image = asking
    for _ in range(2):
        model.rows = []
        model.run([image])
        assert model.rows == [(row, 72) for row in range(23)]


def test_a_reader_that_fails_ends_the_run_which_returns_its_status(asking: tuple[_Asked, Any]) -> None:
    model, image = asking
    expected = model.run([image])[0]
    for row in (0, 5, 22):
        model.rows, model.rows_asked, model.fails_at = [], 0, row
        assert model.call("run") == FAILED
        assert [number for number, _ in model.rows] == list(range(row + 1))
        model.check_guards()
    model.fails_at = -1
    assert (model.run([image])[0] == expected).all()


def test_without_a_reader_there_is_no_run(asking: tuple[_Asked, Any]) -> None:
    """NULL is refused and leaves the reader that there was; init takes it away."""
    model, image = asking
    null = model._ffi.NULL
    assert model.call("set_reader", null, null) == INVALID
    model.run([image])
    address = model._ffi.cast("void *", model._arenas[0].address)
    assert model.call("init", address, model.interface.arena_bytes, null, 0) == 0
    assert model.call("run") == NOT_READY
    assert model.call("set_reader", null, null) == INVALID and model.call("run") == NOT_READY
    assert model.call("init", null, 0, null, 0) == INVALID
    assert model.call("set_reader", model._reader, null) == NOT_READY
    assert int(model._function("set_reader")(null, model._reader, null)) == NOT_READY


def test_a_line_buffer_that_is_one_row_shorter_does_not_do(tmp_path: Path) -> None:
    compiled = compile_model(_written(tmp_path, camera()), Options(input_rows=True))
    graph = compiled.partition.graph
    found = best_schedule(graph, lower_nodes(compiled.partition), ALIGNMENT, SMALLEST)
    offsets = {p.name: p.offset_bytes for p in found.plan.placements}
    check_schedule(graph, found.stages, offsets, {}, found.plan.arena_bytes)
    (stage,) = found.stages
    assert stage.segment is not None and stage.segment.source == ""
    capacities = (stage.segment.capacities[0] - 1, *stage.segment.capacities[1:])
    short = replace(stage, segment=replace(stage.segment, capacities=capacities))
    with pytest.raises((PlanError, ValueError)):
        check_schedule(graph, (short,), offsets, {}, found.plan.arena_bytes)


def _flat() -> ModelSpec:
    net = Net(1)
    x, y = net.activation("x", (1, 2, 2, 3)), net.activation("y", (1, 4), 0.1)
    w, b = net.weights("w", (4, 12), (0.01,)), net.bias("b", 4, (0.0005,))
    net.op("FULLY_CONNECTED", (x, w, b), (y,), fused_activation_function="NONE")
    return net.spec((x,), (y,))


def _two_shapes() -> ModelSpec:
    net = ImageNet(1)
    x, shape = net.image(6, 4, 2)
    y, _ = net.window(x, shape, 2, 3, 1, "SAME", depthwise=False)
    other = net.activation("other", (1, 4, 6, 2), 0.06, -2)
    net.op("RESHAPE", (x, net.integers("shape", (1, 4, 6, 2))), (other,), new_shape=(1, 4, 6, 2))
    z, _ = net.window(other, (1, 4, 6, 2), 2, 3, 1, "SAME", depthwise=False)
    return net.spec((x,), (y, z))


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (branches, "the model has 2 inputs"),
        (wires, "is an output too"),
        (_flat, "works row by row"),
        (_two_shapes, r"is read as \[1, 4, 6, 2\] and \[1, 6, 4, 2\]"),
    ],
)
def test_what_has_no_rows_is_refused(spec: Callable[[], ModelSpec], says: str, tmp_path: Path) -> None:
    with pytest.raises(CannotCompile, match=says) as caught:
        compile_model(_written(tmp_path, spec()), Options(input_rows=True))
    assert caught.value.where.option == "--input-rows" and caught.value.why and caught.value.hint


def test_the_header_says_what_the_rows_are(tmp_path: Path) -> None:
    files = compile_model(_written(tmp_path, spotter(), "spotter"), Options(input_rows=True)).files
    header = files["spotter.h"].decode()
    assert "#define SPOTTER_INPUT_0_ROWS 8u\n#define SPOTTER_INPUT_0_ROW_BYTES 12u" in header
    assert "spotter_set_reader(spotter_t *self, emitc_row_reader read, void *context);" in header
    assert "spotter_input_0(" not in header and "emitc compile spotter.tflite -o DIR --input-rows" in header


def test_a_board_proves_it(tmp_path: Path) -> None:
    """Traced too, with guard bytes round the arena; the board's reader refuses a row that is not the next one."""
    pytest.importorskip("platformio", reason="PlatformIO, which builds for the boards, is not installed")
    for tool in ("qemu-system-arm", "arm-none-eabi-gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    options = Options(target="cortex-m4", package="platformio", input_rows=True, ram_budget="min")
    made = compile_model(_written(tmp_path, camera()), options)
    result = prove.on_emulator(
        made, "qemu_m4", reference="auto", samples=2, seed=1, layers=True, workdir=tmp_path / "work"
    )
    assert result.match and result.cases == 2
    assert result.arena_bytes == made.program.plan.arena_bytes < made.program.inputs[0].size_bytes
