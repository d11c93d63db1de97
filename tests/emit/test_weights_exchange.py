"""Weights of a network that was trained again, for a package in use: made, exchanged on boards, refused where they must be."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest
from click.testing import CliRunner

from bench.weights import attack
from emitc.boards.run import boot
from emitc.cli.main import cli
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError
from emitc.explore.weights_exchange import Signature, exchange
from emitc.planner.region_assignment import Region
from emitc.program.weights import HEADER_BYTES, with_header
from emitc.target import load_board
from emitc.verify.build import HostModel, build_shared
from emitc.verify.golden_run import golden_run, interface_of
from emitc.verify.reference import random_samples
from emitc.writers.tflite import write_tflite
from tests.support.firmware import built
from tests.support.models.retrained import CLASSES, retrained

BOARDS = {
    "qemu_m0": "cortex-m0",
    "qemu_m3": "cortex-m3",
    "qemu_m4": "cortex-m4f",
    "qemu_m55": "cortex-m55",
    "qemu_rv32": "rv32imac",
}
FORMAT, TRUNCATED, DAMAGED, FOREIGN, OLDER, UNSIGNED = range(10, 16)
"""Values of emitc_status."""
NOT_READY, SELF_TEST_FAILED = 1, 8


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One architecture, trained three times: model0 to model2."""
    folder = tmp_path_factory.mktemp("nets")
    for seed in range(3):
        (folder / f"model{seed}.tflite").write_bytes(write_tflite(retrained(seed)))
    (folder / "wider.tflite").write_bytes(write_tflite(retrained(0, channels=12)))
    return folder


def package(nets: Path, folder: Path, **options: Any) -> Compiled:
    """The first training as a package with external weights, written to the folder."""
    made = compile_model(nets / "model0.tflite", name="net", weights="external", **options)
    made.write(folder)
    return made


def answers(model: Path) -> tuple[list[Any], list[Any]]:
    """Two inputs, and what the engine gives for them."""
    made = compile_model(model, name="net")
    inputs = random_samples(made.graph, 2, 0)
    return inputs, [outputs[0] for outputs in golden_run(made, "auto", inputs, preserve=False).outputs]


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("target", ["generic32", *BOARDS.values()])
def test_another_training_fits_the_code_of_every_target(nets: Path, tmp_path: Path, target: str) -> None:
    made = package(nets, tmp_path / "package", target=target)
    library = build_shared(tmp_path / "package", tmp_path, trace=False)
    face = interface_of(made)
    assert made.program.external is not None
    assert bool(made.program.external.streams) == (target == "rv32imac")
    for seed in (0, 1, 2):
        weights = exchange(nets / f"model{seed}.tflite", tmp_path / "package").data
        inputs, expected = answers(nets / f"model{seed}.tflite")
        model = HostModel(library, replace(face, weights=weights))
        for given, wanted in zip(inputs, expected, strict=True):
            assert model.run(given)[0].tobytes() == wanted.tobytes()


def test_the_file_in_the_package_is_the_one_that_the_command_makes(nets: Path, tmp_path: Path) -> None:
    made = package(nets, tmp_path / "package")
    own = made.files["net.weights.bin"]
    assert made.program.external is not None
    assert exchange(nets / "model0.tflite", tmp_path / "package", version=0).data == own
    assert len(own) == HEADER_BYTES + made.program.external.size_bytes
    assert json.loads(made.files["manifest.json"])["weights"]["bytes"] == len(own)


def self_test_of(folder: Path, made: Compiled) -> Callable[[bytes], tuple[int, str]]:
    """What the self test of the package in a folder returns for a file of weights, and the layer that it names."""
    face = interface_of(made)
    library = build_shared(folder / "package", folder, trace=False)
    ffi = cffi.FFI()
    ffi.cdef(
        "typedef struct { int part; const char *layer; uint32_t index, input, expected, actual; } fault;"
        "int net_self_test(void *, size_t, void *, size_t, const void *, size_t, fault *);"
    )
    arena = np.zeros(made.program.plan.arena_bytes + 64, np.uint8)

    def tested(data: bytes) -> tuple[int, str]:
        lib = ffi.dlopen(str(library))
        weights, fault = aligned(data), ffi.new("fault *")
        at = ffi.cast("void *", arena.ctypes.data + -arena.ctypes.data % 64)
        file = ffi.cast("void *", weights.ctypes.data)
        status = lib.net_self_test(at, made.program.plan.arena_bytes, ffi.NULL, 0, file, len(data), fault)
        return status, ffi.string(fault.layer).decode()

    assert face.self_test
    return tested


def test_other_weights_bring_the_results_of_their_self_test(nets: Path, tmp_path: Path) -> None:
    made = package(nets, tmp_path / "package", self_test=2, target="cortex-m4f")
    tested = self_test_of(tmp_path, made)
    weights = [exchange(nets / f"model{seed}.tflite", tmp_path / "package").data for seed in range(3)]
    assert [tested(data) for data in weights] == [(0, "")] * 3
    assert made.program.external is not None
    # The inputs are one member, the results another one; with those of another training a layer is wrong.
    payload, other = (data[HEADER_BYTES:] for data in weights[:2])
    start = made.program.external.offsets[-1]
    mixed = payload[:start] + other[start:]
    status, layer = tested(with_header(mixed, made.program.external.structure, 1))
    assert (status, layer) == (SELF_TEST_FAILED, "op0_conv_2d")
    for bit in range(0, 8 * len(weights[0]), 8 * len(weights[0]) // 97):
        damaged = bytearray(weights[0])
        damaged[bit // 8] ^= 1 << bit % 8
        assert tested(bytes(damaged))[0] in range(FORMAT, UNSIGNED)


def test_the_inputs_of_the_self_test_may_be_stated(nets: Path, tmp_path: Path) -> None:
    made = package(nets, tmp_path / "package", self_test=2)
    inputs, expected = answers(nets / "model1.tflite")
    named = {f"in0_{i}": given[0] for i, given in enumerate(inputs)}
    named |= {f"out0_{i}": wanted for i, wanted in enumerate(expected)}
    np.savez(tmp_path / "vectors.npz", **named)
    file = tmp_path / "net.bin"
    arguments = ["weights", nets / "model1.tflite", "--for", tmp_path / "package", "-o", file]
    arguments += ["--self-test-vectors", tmp_path / "vectors.npz"]
    assert CliRunner().invoke(cli, [*map(str, arguments)]).exit_code == 0
    assert all(given[0].tobytes() in file.read_bytes() for given in inputs)
    assert self_test_of(tmp_path, made)(file.read_bytes()) == (0, "")


def test_what_differs_is_named(nets: Path, tmp_path: Path) -> None:
    package(nets, tmp_path / "package")
    with pytest.raises(CannotCompile) as refused:
        exchange(nets / "wider.tflite", tmp_path / "package")
    assert refused.value.why == (
        "op0_conv_2d: its output is int8[1,10,8,8] in the package, and int8[1,10,8,12] in the new model"
    )
    package(nets, tmp_path / "package", target="cortex-m4f")
    manifest = json.loads((tmp_path / "package" / "manifest.json").read_text(encoding="ascii"))
    manifest["options"]["target"] = "cortex-m3"
    (tmp_path / "other.json").write_text(json.dumps(manifest), encoding="ascii")
    with pytest.raises(CannotCompile, match="its kernel is conv_2d_span_dsp_up_joined_4x6x2 in the package"):
        exchange(nets / "model1.tflite", tmp_path / "other.json")


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"weights": 1}', '{"weights": {}, "options": {}}', "[" * 100_000, '{"a": "\\ud800"}']
)
def test_a_damaged_manifest_is_an_error(nets: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_text(content, encoding="ascii")
    with pytest.raises(EmitcError):
        exchange(nets / "model0.tflite", tmp_path)


@pytest.mark.parametrize("broken", ["shapes", "backends", "regions", "variants", "disabled"])
def test_options_of_a_damaged_manifest_are_an_error(nets: Path, tmp_path: Path, broken: str) -> None:
    manifest = json.loads(package(nets, tmp_path / "package").files["manifest.json"])
    manifest["options"][broken] = 7
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="ascii")
    with pytest.raises(EmitcError, match="the manifest is damaged"):
        exchange(nets / "model0.tflite", tmp_path / "manifest.json")


MAIN = """
#include "emitc_board.h"
#include "net.c"
static const _Alignas(16) unsigned char first[] = {%(first)s};
static const int8_t given[] = {%(given)s};
static _Alignas(NET_ARENA_ALIGN) unsigned char arena[NET_ARENA_BYTES];
static net_t model;
static void answer(void)
{
    for (unsigned i = 0; i < sizeof given; i++) {
        net_input_0(&model)[i] = given[i];
    }
    emitc_print_u32((uint32_t)net_run(&model));
    for (unsigned i = 0; i < NET_OUTPUT_0_BYTES; i++) {
        emitc_print(" ");
        emitc_print_u32((uint8_t)net_output_0(&model)[i]);
    }
    emitc_print("\\n");
}
int main(void)
{
    emitc_print_u32((uint32_t)net_init(&model, arena, sizeof arena, NULL, 0, first, sizeof first));
    emitc_print("\\n");
    answer();
    emitc_print_u32((uint32_t)net_exchange_weights(&model, (const void *)%(slot)sUL, %(bytes)s));
    emitc_print("\\n");
    answer();
    return 0;
}
"""


def printed(model: Path, given: Any) -> str:
    """What the firmware prints of an inference with the weights of a model."""
    made = compile_model(model, name="net")
    (wanted,) = golden_run(made, "auto", [(given,)], preserve=False).outputs
    return "0 " + " ".join(str(int(v)) for v in wanted[0].reshape(-1).view(np.uint8))


@pytest.mark.parametrize("board", list(BOARDS))
def test_a_board_gets_new_weights_without_a_new_image(nets: Path, tmp_path: Path, board: str) -> None:
    made = package(nets, tmp_path / "package", target=BOARDS[board])
    described = load_board(board)
    ram = next(region for region in described.memory if region.kind == "ram")
    slot = ram.start + ram.size_bytes // 2 // 16 * 16
    new = exchange(nets / "model1.tflite", tmp_path / "package").data
    given = np.random.default_rng(3).integers(-128, 128, (1, 10, 8, 2)).astype(np.int8)
    listed = {"first": made.files["net.weights.bin"], "given": given.reshape(-1).tolist()}
    values = {name: ",".join(map(str, value)) for name, value in listed.items()}
    source = MAIN % {**values, "slot": hex(slot), "bytes": len(new)}
    (tmp_path / "build").mkdir()
    image = built(source, board, (f"-I{tmp_path / 'package'}",), tmp_path / "build")
    old_answer, new_answer = (printed(nets / f"model{seed}.tflite", given) for seed in (0, 1))
    assert old_answer != new_answer
    damaged = bytearray(new)
    damaged[1000] ^= 1
    foreign = with_header(new[HEADER_BYTES:], "0" * 32, 1)
    files = {0: new, DAMAGED: bytes(damaged)}
    if board == "qemu_m4":
        files |= {FOREIGN: foreign, FORMAT: bytes(len(new))}
    for status, data in files.items():
        (tmp_path / "slot.bin").write_bytes(data)
        extra = ("-device", f"loader,file={tmp_path / 'slot.bin'},addr={slot:#x},force-raw=on")
        lines = boot(described, image, extra, timeout=60).splitlines()
        assert [line.strip() for line in lines[:4]] == [
            "0",
            old_answer,
            str(status),
            old_answer if status else new_answer,
        ]


@pytest.fixture(scope="module")
def host(nets: Path, tmp_path_factory: pytest.TempPathFactory) -> HostModel:
    """The package on this machine, with its own weights at version 5."""
    folder = tmp_path_factory.mktemp("host")
    made = package(nets, folder / "package")
    library = build_shared(folder / "package", folder, trace=False)
    weights = exchange(nets / "model0.tflite", folder / "package", version=5).data
    return HostModel(library, replace(interface_of(made), weights=weights))


def status_of(host: HostModel, data: bytes, stated: int | None = None) -> int:
    """What the exchange of weights returns, of an instance that has its own afterwards unless they were accepted."""
    host._ffi.cdef("int net_exchange_weights(net_t *self, const void *weights, size_t weights_bytes);", override=True)
    memory = np.zeros(len(data) + 16, np.uint8)
    start = -memory.ctypes.data % 16
    memory[start : start + len(data)] = np.frombuffer(data, np.uint8)
    pointer = host._ffi.cast("void *", memory.ctypes.data + start)
    status: int = host._lib.net_exchange_weights(host._self, pointer, len(data) if stated is None else stated)
    assert status != 0, "an accepted file would have to stay in memory"
    return status


def test_older_and_cut_files_are_refused_and_the_old_weights_go_on(host: HostModel, nets: Path, tmp_path: Path) -> None:
    package(nets, tmp_path / "package")
    inputs, expected = answers(nets / "model0.tflite")
    older = exchange(nets / "model1.tflite", tmp_path / "package", version=4).data
    newer = exchange(nets / "model1.tflite", tmp_path / "package", version=6).data
    assert status_of(host, older) == OLDER
    assert status_of(host, newer[:-1]) == TRUNCATED
    assert status_of(host, newer[:40]) == TRUNCATED
    assert status_of(host, b"") == TRUNCATED
    assert status_of(host, newer[:8] + newer[11:7:-1] + newer[12:]) == FORMAT
    assert host.run(inputs[0])[0].tobytes() == expected[0].tobytes()


def test_an_inference_in_steps_reads_the_same_weights_in_all_of_them(nets: Path, tmp_path: Path) -> None:
    made = package(nets, tmp_path / "package", max_step_cycles=1)
    library = build_shared(tmp_path / "package", tmp_path, trace=False)
    weights = made.files["net.weights.bin"]
    model = HostModel(library, replace(interface_of(made), weights=weights))
    newer = exchange(nets / "model1.tflite", tmp_path / "package").data
    inputs, expected = answers(nets / "model0.tflite")
    model.write_inputs(inputs[0])
    model.begin()
    while model.step():
        assert status_of(model, newer) == NOT_READY
    assert model._outputs()[0].tobytes() == expected[0].tobytes()


def test_no_changed_file_is_accepted_and_no_content_leads_outside(nets: Path, tmp_path: Path) -> None:
    for target, checked in (("generic32", False), ("cortex-m4f", False), ("rv32imac", True)):
        seen = attack(package(nets, tmp_path / target, target=target), mutants=2000, hostile=60, seed=11)
        assert (seen.accepted, seen.refused + seen.ran) == (0, 60)
        assert (seen.refused > 0) == checked
        assert seen.ran > 10
        assert seen.slowest_us < 1_000_000


def test_a_signature_is_part_of_the_file(nets: Path, tmp_path: Path, host: HostModel) -> None:
    package(nets, tmp_path / "package")
    room = exchange(nets / "model1.tflite", tmp_path / "package", signature=Signature(room=64))
    signed = exchange(nets / "model1.tflite", tmp_path / "package", signature=Signature(bytes(range(64))))
    assert room.data[: room.covered_bytes] == signed.data[: signed.covered_bytes]
    assert len(room.data) == len(signed.data) == room.covered_bytes + 68
    assert signed.data[room.covered_bytes :][:64] == bytes(range(64))
    changed = bytearray(signed.data)
    changed[room.covered_bytes + 3] ^= 4
    assert status_of(host, bytes(changed)) == DAMAGED


KEY = b"of the product"


def aligned(data: bytes) -> np.ndarray[Any, Any]:
    """The bytes at a multiple of 16."""
    memory = np.zeros(len(data) + 16, np.uint8)
    start = -memory.ctypes.data % 16
    memory[start : start + len(data)] = np.frombuffer(data, np.uint8)
    return memory[start : start + len(data)]


def test_only_a_signature_that_the_application_accepts_is_right(nets: Path, tmp_path: Path) -> None:
    """With the target whose files are followed after their sums: a signed file that leads outside is refused too."""
    made = package(nets, tmp_path / "package", target="rv32imac")
    host = HostModel(build_shared(tmp_path / "package", tmp_path, trace=False), interface_of(made))
    ffi = host._ffi
    verifier = "int (*verify)(void *, const void *, size_t, const void *, size_t)"
    ffi.cdef(f"int net_check_signed_weights(const void *weights, size_t bytes, {verifier}, void *context);")

    def accepted(_: Any, data: Any, count: int, signature: Any, length: int) -> int:
        covered, given = bytes(ffi.buffer(data, count)), bytes(ffi.buffer(signature, length))
        return 0 if hmac.compare_digest(hmac.digest(KEY, covered, "sha256"), given) else 1

    verify = ffi.callback("int(void *, const void *, size_t, const void *, size_t)", accepted)

    def status(data: bytes) -> int:
        memory = aligned(data)
        pointer = ffi.cast("void *", memory.ctypes.data)
        return int(host._lib.net_check_signed_weights(pointer, len(data), verify, ffi.NULL))

    def signed(payload: bytes) -> bytes:
        structure = json.loads(made.files["manifest.json"])["weights"]["structure"]
        covered = with_header(payload, structure, 1, room=32)[: HEADER_BYTES + len(payload)]
        return with_header(payload, structure, 1, hmac.digest(KEY, covered, "sha256"))

    unsigned = exchange(nets / "model1.tflite", tmp_path / "package").data
    payload = unsigned[HEADER_BYTES:]
    forged = exchange(nets / "model1.tflite", tmp_path / "package", signature=Signature(bytes(32))).data
    assert [status(signed(payload)), status(unsigned), status(forged)] == [0, UNSIGNED, UNSIGNED]
    assert made.program.external is not None
    stream = made.program.external.streams[0]
    at = made.program.external.offsets[made.program.external.members.index(stream)]
    leading = payload[:at] + b"\xff" * stream.size_bytes + payload[at + stream.size_bytes :]
    assert status(signed(leading)) == DAMAGED


def test_the_command_writes_the_file_and_refuses_others(nets: Path, tmp_path: Path) -> None:
    package(nets, tmp_path / "package")
    out = tmp_path / "new.bin"
    arguments = ["weights", str(nets / "model1.tflite"), "--for", str(tmp_path / "package"), "-o", str(out), "--json"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["version"] == 1
    assert out.read_bytes() == exchange(nets / "model1.tflite", tmp_path / "package").data
    done = CliRunner().invoke(cli, arguments[:-1])
    assert done.exit_code == 0 and "signature   none; one would cover the first" in done.output
    done = CliRunner().invoke(cli, [*arguments[:-1], "--signature-bytes", "64"])
    assert "signature   covers the first" in done.output
    out.write_text("mine", encoding="ascii")
    assert CliRunner().invoke(cli, arguments).exit_code == 2
    assert out.read_text(encoding="ascii") == "mine"
    assert CLASSES == 5


def test_a_loader_decrypts_what_is_copied_to_faster_memory(nets: Path, tmp_path: Path) -> None:
    regions = (Region("DTCM", 24 << 10, 1.0), Region("SRAM", 64 << 10, 3.0), Region("QSPI", 0, 9.0))
    options = {"regions": regions, "places": (("weights", "QSPI"),), "stage_weights": "DTCM"}
    made = package(nets, tmp_path / "package", target="cortex-m7", **options)
    stated = json.loads(made.files["manifest.json"])["weights"]
    assert stated["loaded"]
    payload = bytearray(made.files["net.weights.bin"][HEADER_BYTES:])
    for part in stated["loaded"]:
        for at in range(part["offset"] - HEADER_BYTES, part["offset"] - HEADER_BYTES + part["bytes"]):
            payload[at] ^= 0x5A
    encrypted = with_header(bytes(payload), stated["structure"], 0)
    library = build_shared(tmp_path / "package", tmp_path, trace=False)
    model = HostModel(library, replace(interface_of(made), weights=encrypted))
    ffi = model._ffi
    ffi.cdef(
        "int net_set_weights_loader(net_t *self, int (*load)(void *, void *, const void *, size_t), void *context);"
    )
    loaded: list[int] = []

    def decrypt(_: Any, to: Any, source: Any, count: int) -> int:
        ffi.memmove(to, bytes(value ^ 0x5A for value in bytes(ffi.buffer(source, count))), count)
        loaded.append(count)
        return 0

    callback = ffi.callback("int(void *, void *, const void *, size_t)", decrypt)
    inputs, expected = answers(nets / "model0.tflite")
    assert model.run(inputs[0])[0].tobytes() != expected[0].tobytes()
    assert model._lib.net_set_weights_loader(model._self, callback, ffi.NULL) == 0
    assert model.run(inputs[0])[0].tobytes() == expected[0].tobytes()
    assert loaded == [part["bytes"] for part in stated["loaded"]]
    refusing = ffi.callback("int(void *, void *, const void *, size_t)", lambda *_: 6)
    assert model._lib.net_set_weights_loader(model._self, refusing, ffi.NULL) == 0
    with pytest.raises(RuntimeError, match="status 6"):
        model.run(inputs[0])
