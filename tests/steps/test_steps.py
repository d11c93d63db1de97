"""`--steps` and `--max-step-cycles`: an inference in steps has the bits of run, and can be ended between any two of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.planner.region_assignment import Region
from emitc.program import Program
from emitc.verify.build import HostModel, MemoryFault, build_shared
from emitc.verify.golden_run import interface_of
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, TensorSpec, write_tflite
from tests.support.models import control_flow, streaming
from tests.support.models.image_nets import random_net
from tests.support.models.tiny import MODELS, Net, camera

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "models"
NOT_READY, FAILED = 1, 6


def built(folder: Path, spec: ModelSpec, **options: Any) -> Compiled:
    """The model, compiled."""
    path = folder / "net.tflite"
    path.write_bytes(write_tflite(spec))
    return compile_model(path, **options)


def stepping(program: Program) -> Any:
    """How the program runs in steps."""
    assert program.stepping is not None
    return program.stepping


def proven(compiled: Compiled, *, sanitize: bool = False) -> None:
    """The host runs each case in steps and whole, and refuses a difference."""
    proof = verify(compiled, samples=2, layers=True, sanitize=sanitize)
    assert proof.match and proof.memory_errors == ()


class Stepped(HostModel):
    """A model on the host with the calls of its functions. calls: steps of the last inference."""

    calls = 0

    @classmethod
    def of(cls, compiled: Compiled, folder: Path) -> Stepped:
        """The package, built in `folder`."""
        compiled.write(folder / "package")
        library = build_shared(folder / "package", folder, trace=False)
        return cls(library, interface_of(compiled))

    def status(self, what: str, *arguments: Any) -> int:
        """What one of the public functions returns."""
        return int(self._function(what)(self._self, *arguments))

    def in_steps(self, inputs: tuple[np.ndarray[Any, Any], ...], stop: int = -1) -> list[bytes]:
        """The outputs of an inference in steps; it is left after `stop` steps where that is not negative."""
        self.write_inputs(inputs)
        self.rows_asked, self.calls = 0, 0
        self.begin()
        while self.calls != stop:
            self.calls += 1
            if not self.step():
                break
        return [output.tobytes() for output in self._outputs()]


def drawn(compiled: Compiled, seed: int = 3) -> tuple[np.ndarray[Any, Any], ...]:
    """Random inputs."""
    rng = np.random.default_rng(seed)
    return tuple(
        rng.integers(-128, 128, p.shape).astype(p.dtype)
        if "int" in p.dtype
        else rng.normal(size=p.shape).astype(p.dtype)
        for p in compiled.program.inputs
    )


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("cycles", [None, 1, 3000])
@pytest.mark.parametrize("target", ["generic32", "cortex-m0", "cortex-m4f", "cortex-m55", "rv32imac"])
@pytest.mark.parametrize("model", ["kws_ref_int8.tflite", "digits_qdq.onnx", "mww_hey_jarvis_v2.tflite"])
def test_steps_have_the_bits_of_run(model: str, target: str, cycles: int | None) -> None:
    proven(compile_model(EXAMPLES / model, target=target, steps=True, max_step_cycles=cycles))


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("budget", [None, "min"])
def test_steps_of_random_nets(seed: int, budget: str | None, tmp_path: Path) -> None:
    target = ["generic32", "cortex-m4f", "cortex-m55"][seed % 3]
    made = built(tmp_path, random_net(seed), target=target, max_step_cycles=1, ram_budget=budget)
    proven(made, sanitize=seed % 4 == 0)


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("name", sorted(set(MODELS) - {"unsupported"}))
def test_steps_of_tiny_models(name: str, tmp_path: Path) -> None:
    made = built(tmp_path, MODELS[name](), max_step_cycles=1)
    model = Stepped.of(made, tmp_path)
    model.run(drawn(made))
    model.in_steps(drawn(made))
    assert model.calls == stepping(made.program).calls


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_a_sum_of_several_operands_makes_some_rows_in_each_step(dtype: str, tmp_path: Path) -> None:
    scale, zero = ((), ()) if dtype == "float32" else ((0.05,), (3,))
    net = Net(1)
    *read, y = (net.tensor(TensorSpec(name, dtype, (1, 9, 5, 2), None, scale, zero)) for name in ("a", "b", "c", "y"))
    net.op("ADD_N", tuple(read), (y,))
    compiled = built(tmp_path, net.spec(tuple(read), (y,)), max_step_cycles=300)
    assert [split.rows for split in stepping(compiled.program).splits] == [9]
    proven(compiled)


def products(dtype: str = "int8") -> ModelSpec:
    """Fully connected layers of 24 and 21 outputs, each with a scale per channel."""
    net, sums = Net(3), {"int8": "int32", "int16": "int64"}[dtype]
    values, depth = net.tensor(TensorSpec("in", dtype, (1, 40), None, (0.05,), (0,))), 40
    first = values
    for count in (24, 21):
        scales = tuple(0.01 + 0.001 * channel for channel in range(count))
        of_sums = tuple(0.05 * scale for scale in scales)
        weights, bias = net.weights(f"w{count}", (count, depth), scales), net.rng.integers(-2000, 2000, count)
        constant = TensorSpec(f"b{count}", sums, (count,), bias.astype(sums).tobytes(), of_sums)
        made = net.tensor(TensorSpec(f"y{count}", dtype, (1, count), None, (0.05,), (0,)))
        net.op("FULLY_CONNECTED", (values, weights, net.tensor(constant)), (made,), fused_activation_function="NONE")
        values, depth = made, count
    return net.spec((first,), (values,))


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize(
    ("target", "dtype", "calls"),
    [
        ("generic32", "int8", 6),
        ("cortex-m0", "int8", 6),
        ("cortex-m3", "int8", 6),
        ("cortex-m4f", "int8", 6),
        ("cortex-m4f", "int16", 6),
        ("cortex-m55", "int8", 3),
    ],
)
def test_a_product_makes_some_outputs_in_each_step(target: str, dtype: str, calls: int, tmp_path: Path) -> None:
    """Its blocks of outputs, where it has whole ones alone; the last layer runs whole, since 21 are no blocks of 4 or 8."""
    made = built(tmp_path, products(dtype), target=target, max_step_cycles=1)
    stages = stepping(made.program).stages
    assert [stage.calls for stage in stages if stage.layers] == [calls, 1]
    proven(made)


@pytest.mark.parametrize("target", ["cortex-m4f", "cortex-m55"])
def test_external_weights_are_divided_by_outputs_too(target: str, tmp_path: Path) -> None:
    made = built(tmp_path, products(), target=target, max_step_cycles=1, weights="external")
    assert [split.outputs for split in stepping(made.program).splits] == [True]
    proven(made)


@pytest.mark.parametrize("make", [streaming.rows, streaming.swap, streaming.twice])
def test_steps_of_models_with_state(make: Callable[[], ModelSpec], tmp_path: Path) -> None:
    proven(built(tmp_path, make(), max_step_cycles=1))


@pytest.mark.parametrize("make", [control_flow.choice, control_flow.count, control_flow.loop_if])
def test_control_flow_is_one_step(make: Callable[[], ModelSpec], tmp_path: Path) -> None:
    made = built(tmp_path, make(), max_step_cycles=1)
    proven(made)
    flow = [s for s in stepping(made.program).stages if s.layers and s.layers[0].parts]
    assert flow and all(stage.calls == 1 for stage in flow)


@pytest.mark.parametrize(
    "options",
    [
        {"regions": (Region("FAST", 700, 1), Region("SLOW", 9000, 4))},
        {
            "regions": (Region("FAST", 2000, 1), Region("SLOW", 9000, 4)),
            "stage_weights": "FAST",
            "target": "cortex-m4f",
        },
        {"input_rows": True},
        {"input_rows": True, "disabled": frozenset({"streaming"})},
        {"ram_budget": "min"},
        {"split_weights": True},
        {"optimize": "size"},
    ],
    ids=["regions", "staged", "input-rows", "rows-whole", "streamed", "split-weights", "size"],
)
def test_steps_with_other_options(options: dict[str, Any], tmp_path: Path) -> None:
    proven(built(tmp_path, camera(), max_step_cycles=1, **options), sanitize=True)


@pytest.fixture(scope="module")
def spotter(tmp_path_factory: pytest.TempPathFactory) -> tuple[Compiled, Stepped]:
    """A keyword spotter in short steps."""
    made = compile_model(EXAMPLES / "kws_ref_int8.tflite", max_step_cycles=80_000)
    return made, Stepped.of(made, tmp_path_factory.mktemp("spotter"))


def test_an_inference_can_be_ended_after_every_step(spotter: tuple[Compiled, Stepped]) -> None:
    made, model = spotter
    first, second = drawn(made, 1), drawn(made, 2)
    expected = [output.tobytes() for output in model.run(second)]
    assert expected != [output.tobytes() for output in model.run(first)]
    steps = stepping(made.program).calls
    for stop in range(steps):
        model.in_steps(first, stop)
        assert model.status("run") == model.status("begin") == NOT_READY, "an inference is in progress"
        assert model.status("cancel") == 0
        assert model.status("step") == NOT_READY
        if stop % 16 == 0:
            assert model.in_steps(second) == expected and model.calls == steps
        elif stop % 16 == 8:
            assert [output.tobytes() for output in model.run(second)] == expected
    model.check_guards()


def test_run_in_the_middle_changes_nothing(spotter: tuple[Compiled, Stepped]) -> None:
    made, model = spotter
    inputs = drawn(made)
    expected = model.in_steps(inputs)
    model.in_steps(inputs, 5)
    assert model.status("run") == model.status("begin") == NOT_READY
    while model.step():
        pass
    assert [output.tobytes() for output in model._outputs()] == expected


@pytest.mark.parametrize("what", ["reset", "cancel"])
def test_what_ends_an_inference(what: str, spotter: tuple[Compiled, Stepped]) -> None:
    made, model = spotter
    for stop in (0, 1, 30):
        model.in_steps(drawn(made), stop)
        assert model.status(what) == 0 and model.status("step") == NOT_READY
    assert model.status(what) == 0, "where none is in progress, nothing happens"
    model.run(drawn(made))


def test_no_step_before_init_and_after_the_last(spotter: tuple[Compiled, Stepped]) -> None:
    made, model = spotter
    null, fresh = model._ffi.NULL, model._ffi.new(f"{made.program.name}_t *")
    for what in ("begin", "step", "cancel"):
        assert int(model._function(what)(null)) == int(model._function(what)(fresh)) == NOT_READY
    model.in_steps(drawn(made))
    assert model.status("step") == NOT_READY


def test_init_ends_an_inference(tmp_path: Path) -> None:
    made = built(tmp_path, camera(), steps=True)
    model = Stepped.of(made, tmp_path)
    model.in_steps(drawn(made), 1)
    address = model._ffi.cast("void *", model._arenas[0].address)
    assert model.status("init", address, model.interface.arena_bytes, model._ffi.NULL, 0) == 0
    assert model.status("step") == NOT_READY
    model.run(drawn(made))


def test_a_cancelled_inference_and_the_state(tmp_path: Path) -> None:
    """Reset starts anew, and a copy of the state block from before goes on from there."""
    made = built(tmp_path, streaming.rows(), max_step_cycles=1)
    model = Stepped.of(made, tmp_path)
    inputs = [drawn(made, seed) for seed in range(3)]
    fresh = [[output.tobytes() for output in model.run(case)] for case in inputs]
    for stop in range(stepping(made.program).calls):
        model.reset()
        assert [output.tobytes() for output in model.run(inputs[0])] == fresh[0]
        kept = model.state.copy()
        model.in_steps(inputs[2], stop)
        model.cancel()
        model.state[:] = kept
        assert model.in_steps(inputs[1]) == fresh[1]
        model.in_steps(inputs[2], stop)
        model.reset()
        assert model.in_steps(inputs[0]) == fresh[0]


def test_a_reader_that_fails_ends_the_inference(tmp_path: Path) -> None:
    made = built(tmp_path, camera(), input_rows=True, disabled=frozenset({"streaming"}), steps=True)
    model = Stepped.of(made, tmp_path)
    model.write_inputs(drawn(made))
    model.begin()
    model.rows_asked = 5  # the next row that the model asks for is another one, which the host refuses
    assert model.status("step") != 0
    assert model.status("step") == NOT_READY
    model.run(drawn(made))


def test_an_instance_that_was_overwritten_does_not_run(spotter: tuple[Compiled, Stepped]) -> None:
    made, model = spotter
    model.in_steps(drawn(made), 1)
    model._self.step = 4711
    assert model.status("step") == NOT_READY == model.status("step")
    model.run(drawn(made))


def test_wrong_rows_are_noticed(tmp_path: Path) -> None:
    """A part that makes another row than its own gives other bits, which the host refuses."""
    made = compile_model(EXAMPLES / "kws_ref_int8.tflite", max_step_cycles=1)
    source = made.files["kws_ref_int8.c"].decode()
    wrong = source.replace("p.pad_top = first - (row * 2 - 4);", "p.pad_top = first - (row * 2 - 3);")
    assert wrong != source
    broken = replace(made, files=made.files | {"kws_ref_int8.c": wrong.encode()})
    model = Stepped.of(broken, tmp_path)
    with pytest.raises(MemoryFault, match="step gave other bits"):
        model.run(drawn(made))


def test_the_replay_refuses_what_would_give_other_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a convolution over its own input is split, although a part writes over rows that the next one reads."""
    options: dict[str, Any] = {"target": "cortex-m4f", "max_step_cycles": 1, "ram_budget": "min"}
    made = compile_model(EXAMPLES / "kws_ref_int8.tflite", **options)
    assert any(stage.shares and stage.calls == 1 for stage in stepping(made.program).stages)
    monkeypatch.setattr("emitc.lower.stepping.conflict", lambda *_: "")
    unproven = compile_model(EXAMPLES / "kws_ref_int8.tflite", **options)
    with pytest.raises(MemoryFault, match="step gave other bits"):
        Stepped.of(unproven, tmp_path).run(drawn(made))


def test_long_layers_get_room_to_run_in_parts() -> None:
    """A depthwise convolution in place keeps rows in scratch, which no part finds again: it moves away from its input."""
    plain = compile_model(EXAMPLES / "kws_ref_int8.tflite", target="cortex-m4f")
    made = compile_model(EXAMPLES / "kws_ref_int8.tflite", target="cortex-m4f", max_step_cycles=100_000)
    assert not any(stage.whole for stage in stepping(made.program).stages)
    before, after = plain.program.plan.arena_bytes, made.program.plan.arena_bytes
    assert before < after < 1.1 * before
    tight = compile_model(
        EXAMPLES / "kws_ref_int8.tflite", target="cortex-m4f", max_step_cycles=100_000, ram_budget=before
    )
    assert tight.program.plan.arena_bytes == before
    assert any(stage.shares for stage in stepping(tight.program).stages), "the budget has no room for it"


def test_a_segment_stops_after_some_rows(tmp_path: Path) -> None:
    """The number of steps is known before, and every one of them makes rows."""
    made = built(tmp_path, random_net(21), max_step_cycles=700, ram_budget="min")
    steps = stepping(made.program)
    assert steps.kept and max(stage.calls for stage in steps.stages if stage.rows_in_call) > 5
    model = Stepped.of(made, tmp_path)
    expected = [output.tobytes() for output in model.run(drawn(made))]
    for stop in range(steps.calls):
        model.in_steps(drawn(made, 4), stop)
        model.cancel()
        assert model.in_steps(drawn(made)) == expected and model.calls == steps.calls


def test_the_longest_step_shrinks_with_the_limit() -> None:
    longest = []
    for cycles in (None, 400_000, 100_000):
        program = compile_model(EXAMPLES / "person_detect_int8.tflite", steps=True, max_step_cycles=cycles).program
        steps = stepping(program)
        over = [stage for stage in steps.stages if cycles and stage.cycles > cycles]
        assert all(stage.whole for stage in over), "what is longer than asked for says why"
        longest.append(steps.longest.cycles)
    assert longest == sorted(longest, reverse=True) and longest[-1] < longest[0] / 4


def test_manifest_and_header_say_how_long_steps_are() -> None:
    made = compile_model(EXAMPLES / "kws_ref_int8.tflite", target="cortex-m4f", max_step_cycles=60_000)
    stated = json.loads(made.files["manifest.json"])["steps"]
    steps = stepping(made.program)
    assert stated["calls"] == sum(stage["calls"] for stage in stated["stages"]) == steps.calls
    assert stated["longest_cycles"] == max(stage["cycles"] for stage in stated["stages"])
    header = made.files["kws_ref_int8.h"].decode()
    assert f"#define KWS_REF_INT8_STEPS {steps.calls}u" in header
    assert f"takes {steps.longest.cycles} cycles" in header.replace("\n * ", " ")


def test_without_the_option_nothing_of_it_is_printed() -> None:
    files = compile_model(EXAMPLES / "kws_ref_int8.tflite").files
    text = (files["kws_ref_int8.c"] + files["kws_ref_int8.h"]).decode()
    assert not any(word in text for word in ("_begin", "_cancel", "EMITC_MORE", "self->step", "_STEPS"))
    assert "steps" not in json.loads(files["manifest.json"])


def test_a_limit_that_is_no_number_of_cycles() -> None:
    with pytest.raises(EmitcError, match="a step cannot be that short"):
        compile_model(EXAMPLES / "kws_ref_int8.tflite", max_step_cycles=0)


def test_layers_of_cmsis_nn_are_one_step_each() -> None:
    from tests.support.cmsis.library import SKIPPED, trees

    found = trees()
    if not found:
        pytest.skip(SKIPPED)
    options = {"kernels": "cmsis-nn", "backends": {"cmsis-nn": str(found[-1].root)}}
    made = compile_model(EXAMPLES / "kws_ref_int8.tflite", target="cortex-m4f", max_step_cycles=1000, **options)
    proven(made)
    theirs = [s for s in stepping(made.program).stages if s.layers and s.layers[0].backend == "cmsis-nn"]
    assert theirs and all(stage.calls == 1 for stage in theirs)
    assert any(stage.whole == "its kernel makes the whole output" for stage in theirs)


def test_what_an_npu_runs_is_one_step() -> None:
    pytest.importorskip("ethosu", reason="ethos-u-vela, which compiles for the NPU, is not installed")
    made = compile_model(
        EXAMPLES / "kws_ref_int8.tflite",
        target="cortex-m55",
        max_step_cycles=1000,
        backends={"npu": "ethos-u55-128", "npu-always": "yes"},
    )
    proven(made)
    theirs = [s for s in stepping(made.program).stages if s.layers and s.layers[0].backend == "ethos-u"]
    assert theirs and all(stage.calls == 1 for stage in theirs)
