"""Streaming wake words: every bit over a thousand frames of speech and of noise, in less memory than the interpreter's.

One of them is shipped; the others are the corpus'. What they hear is the wake word example's sound, through its front end:
random bytes alone would leave most of them at a probability of 0.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.ir import Array
from emitc.kernels.state.state_variables import Append
from emitc.verify.build import HostModel, build_shared
from emitc.verify.engines.run import run_isolated
from emitc.verify.golden_run import interface_of
from emitc.verify.verification import verify

pytest.importorskip("tflite_micro", reason="the golden engine of TFLite models is not installed")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
CORPUS = ROOT.parent / "shared" / "models"
MEMORY = {"mww_hey_jarvis_v2": 3600, "mww_okay_nabu_v2": 5100, "mww_vad_v2": 1700, "mww_alexa_v1": 22448}
"""Bytes that state and arena may take together."""
FRAMES = 1000
Inputs = tuple[Array, ...]


def file(name: str, suffix: str) -> Path:
    """The model or its vectors: as shipped, or of the corpus."""
    folders = {".tflite": CORPUS / "tflite", ".npz": CORPUS / "vectors" / "tflite"}
    for folder in (EXAMPLES / "models", folders[suffix]):
        if (folder / f"{name}{suffix}").is_file():
            return folder / f"{name}{suffix}"
    pytest.skip("the model corpus ../shared/models is not next to the checkout")


@cache
def compiled(name: str) -> Compiled:
    return compile_model(file(name, ".tflite"))


@pytest.fixture(scope="session")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., HostModel]:
    """A new instance of a model; `sharing` as for HostModel."""

    @cache
    def library(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        compiled(name).write(folder / "package")
        return build_shared(folder / "package", folder, trace=False)

    def of(name: str, sharing: HostModel | None = None) -> HostModel:
        return HostModel(library(name), interface_of(compiled(name)), sharing=sharing)

    return of


@pytest.fixture(scope="session")
def features(instance: Callable[..., HostModel]) -> Array:
    """int8[n,40]: the front end's features of the example's clips, in a row, at falling volumes."""
    clips = runpy.run_path(str(EXAMPLES / "wake_word" / "make_sound.py"))["clips"]()
    sound = np.concatenate([clip // quieter for quieter in (1, 2, 3, 5, 8, 13) for clip in clips.values()])
    front_end = instance("audio_preprocessor_int8")
    windows = [sound[at : at + 480].reshape(1, 480) for at in range(0, len(sound) - 479, 160)]
    return np.stack([front_end.run((window,))[0].reshape(40) for window in windows])


@pytest.fixture(scope="session")
def speech(features: Array) -> Callable[..., list[Inputs]]:
    """Inputs of a wake word, from the features on that are `start` runs of it from the beginning."""

    def of(name: str, count: int, start: int = 0) -> list[Inputs]:
        (shape,) = (compiled(name).graph.tensor(tensor).shape for tensor in compiled(name).graph.inputs)
        rows = shape[1]
        wanted = np.arange(start * rows, (start + count) * rows) % len(features)
        return [(frame,) for frame in features[wanted].reshape(count, *shape)]

    return of


@pytest.mark.parametrize("name", MEMORY)
def test_a_thousand_frames_of_speech_equal_the_engines(
    name: str, instance: Callable[..., HostModel], speech: Callable[..., list[Inputs]]
) -> None:
    sequence = speech(name, FRAMES)
    golden = run_isolated(file(name, ".tflite").read_bytes(), sequence, engine="tflm").outputs
    probabilities = [int(outputs[0].item()) for outputs in golden]
    assert len(set(probabilities)) > 4, "what the model hears says nothing"
    assert max(probabilities) > 240 or name not in ("mww_hey_jarvis_v2", "mww_vad_v2")
    host, touched = instance(name), 0
    for number, (inputs, expected) in enumerate(zip(sequence, golden, strict=True)):
        host.fill(0x5A if number % 2 else 0xA5)  # nothing in the arena lasts; guard bytes are checked by run
        assert np.array_equal(host.run(inputs)[0].reshape(-1), expected[0].reshape(-1)), f"frame {number}"
        touched = max(touched, *host.touched_bytes())
    plan = compiled(name).program.plan
    assert plan.arena_bytes - plan.alignment < touched <= plan.arena_bytes


@pytest.mark.parametrize("name", MEMORY)
def test_a_thousand_random_frames_are_bit_exact(name: str) -> None:
    made = compiled(name)
    proof = verify(made, samples=FRAMES, vectors=file(name, ".npz"))
    assert proof.match, proof
    assert proof.reference == "tflm" and proof.samples > FRAMES and proof.differing == 0


@pytest.mark.parametrize("name", MEMORY)
def test_layers_and_memory_accesses_are_right(name: str) -> None:
    proof = verify(compiled(name), samples=25, layers=True, sanitize=True)
    assert proof.match, proof
    assert proof.layers_checked >= 25 * 10


@pytest.mark.parametrize("name", MEMORY)
def test_state_lies_in_its_concatenations_and_memory_stays_small(name: str) -> None:
    made = compiled(name)
    assert made.program.state_bytes + made.program.plan.arena_bytes <= MEMORY[name]
    types = {node.op_type for node in made.partition.graph.nodes}
    assert not types & {"READ_VARIABLE", "ASSIGN_VARIABLE"}
    appends = sum(isinstance(node.op, Append) for node in made.partition.graph.nodes)
    assert appends == len(made.program.states)


def steps(host: HostModel, sequence: list[Inputs]) -> list[tuple[int, bytes]]:
    """Of every run: the probability and what the state is then."""
    return [(int(host.run(inputs)[0].item()), host.state.tobytes()) for inputs in sequence]


@pytest.mark.parametrize("name", MEMORY)
def test_a_reset_starts_over(
    name: str, instance: Callable[..., HostModel], speech: Callable[..., list[Inputs]]
) -> None:
    host, sequence = instance(name), speech(name, 60)
    fresh, first = host.state.tobytes(), steps(host, sequence)
    assert host.state.tobytes() != fresh
    host.reset()
    assert host.state.tobytes() == fresh
    assert steps(host, sequence) == first


@pytest.mark.parametrize("name", MEMORY)
def test_two_streams_that_share_an_arena_do_not_hear_each_other(
    name: str, instance: Callable[..., HostModel], speech: Callable[..., list[Inputs]]
) -> None:
    sequences = [speech(name, 200), speech(name, 200, 77)]
    alone = [steps(instance(name), sequence) for sequence in sequences]
    assert alone[0] != alone[1]
    owner = instance(name)
    streams = [owner, instance(name, owner)]
    found: list[list[tuple[int, bytes]]] = [[], []]
    for turn in np.random.default_rng(0).permutation(np.repeat([0, 1], 200)):
        found[turn] += steps(streams[turn], [sequences[turn][len(found[turn])]])
    assert found == alone
    assert streams[0].arena.ctypes.data == streams[1].arena.ctypes.data


@pytest.mark.parametrize("name", MEMORY)
def test_a_copied_state_goes_on_in_another_instance(
    name: str, instance: Callable[..., HostModel], speech: Callable[..., list[Inputs]]
) -> None:
    sequence, host = speech(name, 120), instance(name)
    steps(host, sequence[:50])
    saved = host.state.copy()
    expected = steps(host, sequence[50:])
    other = instance(name)
    steps(other, speech(name, 9, 300))
    other.state[:] = saved
    other.fill(0)
    assert steps(other, sequence[50:]) == expected
