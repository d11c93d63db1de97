"""State over long sequences: against the golden engine, after resets, in several streams, and saved and restored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.ir import Array
from emitc.verify.build import GUARD_BYTES, HostModel, MemoryFault
from emitc.verify.engines.run import run_isolated
from emitc.verify.reference import random_samples, run_reference
from emitc.verify.verification import verify
from tests.support.models.streaming import MODELS

pytest.importorskip("tflite_micro", reason="the golden engine of TFLite models is not installed")

FRAMES = 1000
Load = Callable[[str], Compiled]
Instance = Callable[..., HostModel]


def same(found: Sequence[Array], expected: Sequence[Array]) -> bool:
    return all(np.array_equal(a, b.reshape(a.shape)) for a, b in zip(found, expected, strict=True))


def frames(compiled: Compiled, count: int, seed: int = 1) -> list[tuple[Array, ...]]:
    return random_samples(compiled.graph, count, seed)


@pytest.mark.parametrize("name", MODELS)
def test_a_sequence_equals_the_engine_layer_by_layer_and_under_sanitizers(name: str, compiled: Load) -> None:
    proof = verify(compiled(name), samples=30, layers=True, sanitize=True)
    assert proof.match, proof
    assert (proof.reference, proof.differing, proof.numpy_differing) == ("tflm", 0, 0)
    assert proof.elements > 0


@pytest.mark.parametrize(
    ("name", "target", "kernel"),
    [
        ("rows", "cortex-m4", "emitc_append("),
        ("blocks", "cortex-m4", "emitc_append_words("),
        ("blocks", "cortex-m55", "emitc_append_mve("),
    ],
)
def test_rows_are_moved_as_their_sizes_and_the_core_allow(
    name: str, target: str, kernel: str, compiled: Load, tmp_path: Path
) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(compiled(name).model_bytes)
    made = compile_model(path, target=target)
    made.write(tmp_path / "package")
    assert kernel in (tmp_path / "package" / "model.c").read_text(encoding="ascii")
    assert verify(made, samples=30, layers=True, sanitize=True).match


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("name", MODELS)
def test_a_thousand_frames_equal_the_engine_and_the_reference(name: str, compiled: Load, instance: Instance) -> None:
    model, sequence = compiled(name), frames(compiled(name), FRAMES)
    golden = run_isolated(model.model_bytes, sequence, engine="tflm").outputs
    host, state = instance(name), dict[str, Array]()
    for number, (inputs, expected) in enumerate(zip(sequence, golden, strict=True)):
        host.fill(number % 251)  # nothing in the arena lasts
        assert same(host.run(inputs), expected), f"frame {number}"
        values = run_reference(model.graph, inputs, state)
        assert same([values[output] for output in model.graph.outputs], expected), f"reference, frame {number}"


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("name", MODELS)
def test_without_passes_over_state_the_answers_are_the_same(name: str, compiled: Load, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(compiled(name).model_bytes)
    copying = compile_model(path, disabled=frozenset({"state-in-place"}))
    assert len(copying.program.steps) >= len(compiled(name).program.steps)
    assert verify(copying, samples=30, layers=True).match


@pytest.mark.parametrize("name", MODELS)
def test_a_reset_gives_the_first_answers_again(name: str, compiled: Load, instance: Instance) -> None:
    sequence, host = frames(compiled(name), 8), instance(name)
    first = [host.run(inputs) for inputs in sequence]
    assert not all(same(host.run(i), f) for i, f in zip(sequence, first, strict=True)), "the state makes no difference"
    host.reset()
    assert all(same(host.run(i), f) for i, f in zip(sequence, first, strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_streams_with_states_of_their_own_share_an_arena(name: str, compiled: Load, instance: Instance) -> None:
    sequences = [frames(compiled(name), 20, seed) for seed in (1, 2, 3)]
    alone = []
    for sequence in sequences:
        host = instance(name)
        alone.append([host.run(inputs) for inputs in sequence])
    owner = instance(name)
    streams = [owner, instance(name, owner), instance(name, owner)]
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(3), 20))
    position = [0, 0, 0]
    for which in order:
        k = position[which]
        assert same(streams[which].run(sequences[which][k]), alone[which][k]), f"stream {which}, frame {k}"
        position[which] += 1
    assert len({stream.state.ctypes.data for stream in streams}) == 3
    assert len({stream.arena.ctypes.data for stream in streams}) == 1


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_state_goes_on_where_it_was_in_any_instance(name: str, compiled: Load, instance: Instance) -> None:
    sequence, host = frames(compiled(name), 20), instance(name)
    for inputs in sequence[:9]:
        host.run(inputs)
    saved = host.state.copy()
    expected = [host.run(inputs) for inputs in sequence[9:]]
    other = instance(name)
    for inputs in frames(compiled(name), 5, 77):
        other.run(inputs)
    other.state[:] = saved
    other.fill(0)
    assert all(same(other.run(i), e) for i, e in zip(sequence[9:], expected, strict=True))


def test_the_block_is_as_large_as_stated_and_init_says_when_it_is_not(compiled: Load, instance: Instance) -> None:
    host = instance("rows")
    program = compiled("rows").program
    assert len(host.state) == program.state_bytes > 0
    assert f"#define ROWS_STATE_BYTES {program.state_bytes}u" in compiled("rows").files["rows.h"].decode()
    init, ffi = host._function("init"), host._ffi
    arena, state = ffi.cast("void *", host._arenas[0].address), ffi.cast("void *", host._state.address)
    size = (host.interface.arena_bytes, program.state_bytes)
    assert init(host._self, arena, size[0], state, size[1] - 1) == 4  # EMITC_STATE_TOO_SMALL
    assert init(host._self, arena, size[0], ffi.NULL, size[1]) == 2  # EMITC_INVALID_ARGUMENT
    assert (
        init(host._self, arena, size[0], ffi.cast("void *", host._state.address + 1), size[1]) == 5
    )  # EMITC_MISALIGNED
    assert host._function("reset")(host._self) == 1  # EMITC_NOT_READY
    assert host._function("reset")(ffi.NULL) == 1


def test_a_write_outside_the_state_block_is_found(instance: Instance, compiled: Load) -> None:
    host = instance("rows")
    inputs = frames(compiled("rows"), 1)[0]
    host.run(inputs)
    host._state._memory[host._state._start + len(host.state)] ^= 1
    with pytest.raises(MemoryFault, match="of a state block of"):
        host.run(inputs)
    assert GUARD_BYTES > 0


def test_two_sequences_of_a_proof_start_from_the_first_state(compiled: Load, tmp_path: Path) -> None:
    """Given vectors are one sequence, random inputs another: the engine and the C begin both anew."""
    model = compiled("sum")
    sequence = frames(model, 6)
    golden = run_isolated(model.model_bytes, sequence, engine="tflm").outputs
    arrays = {f"in0_{k}": inputs[0] for k, inputs in enumerate(sequence)}
    arrays |= {f"out0_{k}": outputs[0] for k, outputs in enumerate(golden)}
    np.savez(tmp_path / "vectors.npz", **arrays)
    proof = verify(model, samples=10, vectors=tmp_path / "vectors.npz", layers=True, sanitize=True)
    assert proof.match and proof.samples == 16
    arrays["out0_5"] = arrays["out0_5"] ^ 1
    np.savez(tmp_path / "vectors.npz", **arrays)
    assert verify(model, samples=0, vectors=tmp_path / "vectors.npz").differing > 0


def test_a_reset_that_forgets_a_variable_is_found(compiled: Load) -> None:
    model = compiled("rows")
    source = model.files["rows.c"].decode()
    line = next(line for line in source.splitlines() if "memcpy(state + STATE_1" in line)
    broken = source.replace(line, "    if (state[0] == 0) {\n    " + line + "\n    }")
    files = model.files | {"rows.c": broken.encode()}
    proof = verify(replace(model, files=files), samples=3)
    assert not proof.match
