"""Files compiled by vela: what is read out of them, the check against the original, the command, and damaged files."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from emitc.cli.main import cli
from emitc.errors import EmitcError, Refusals
from emitc.ethosu.commands import NpuFault
from emitc.ethosu.driver import driver_call
from emitc.ethosu.simulator import HostModel
from emitc.frontends.tflite import npu
from emitc.ir import Array
from emitc.verify.npu_check import VelaNetwork, check_vela_file, read_vela
from emitc.writers.tflite import TensorSpec, write_tflite
from tests.support.models.tiny import Net
from tests.support.npu.vela import VelaOptions, compiled, compiled_with_own_regions

SHIPPED = Path(__file__).resolve().parents[2] / "examples" / "models"
DIGITS = SHIPPED / "digits_int8.tflite"
OPTIONS = VelaOptions("ethos-u55-128", "Shared_Sram", "Performance")


@pytest.fixture
def vela_digits() -> Path:
    """The shipped digits network, compiled."""
    return compiled(DIGITS.read_bytes(), OPTIONS)


def arrays(path: Path) -> dict[str, Array]:
    """All arrays of an .npz file."""
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def call(*arguments: object) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of `emitc npu-check`."""
    done = CliRunner().invoke(cli, ["npu-check", *map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_what_a_file_holds(vela_digits: Path) -> None:
    (operator,) = read_vela(vela_digits.read_bytes()).npu_operators
    assert operator.payload[:4] == b"COP1" and len(operator.constants) > 5000
    assert operator.fast_bytes is None and operator.scratch_bytes >= 256
    (image,), (result,) = operator.inputs, operator.outputs
    assert (image.shape, npu.tensor_bytes(image)) == ((1, 16, 16, 1), 256)
    assert (result.shape, npu.tensor_bytes(result)) == ((1, 10), 10)
    dedicated = compiled(DIGITS.read_bytes(), VelaOptions("ethos-u65-256", "Dedicated_Sram", "Performance"))
    (operator,) = read_vela(dedicated.read_bytes()).npu_operators
    assert operator.fast_bytes


def test_the_shipped_vectors(vela_digits: Path) -> None:
    """Real inputs, with the outputs that the package ships."""
    network, vectors = VelaNetwork(read_vela(vela_digits.read_bytes())), arrays(SHIPPED / "digits_int8.npz")
    cases = [k for k in range(1000) if f"in0_{k}" in vectors]
    assert len(cases) > 1
    for k in cases:
        assert np.array_equal(network.run([vectors[f"in0_{k}"]])[0], vectors[f"out0_{k}"])


def test_the_command_with_the_original(vela_digits: Path) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    code, out, err = call(vela_digits, "--original", DIGITS, "--samples", 3, "--json")
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert (content["match"], content["reference"], content["samples"], content["elements"]) == (True, "tflm", 3, 30)
    assert (content["accelerator"], content["operators"], content["on_cpu"]) == ("ethos-u55-128", 1, [])
    assert content["differing"] == content["max_abs_diff"] == content["fast_bytes"] == 0
    code, out, err = call(vela_digits, "--original", DIGITS, "--samples", 3)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "net_vela.tflite: MATCH on the host model of ethos-u55-128 (no hardware)"
    assert lines[-1] == "  outputs     0 of 30 elements differ from tflm (largest difference 0)"


def test_the_command_alone(vela_digits: Path) -> None:
    code, out, _ = call(vela_digits, "--samples", 2)
    assert code == 0
    assert out.startswith("net_vela.tflite: runs on the host model") and "not compared: give --original" in out
    code, out, _ = call(vela_digits, "--samples", 2, "--json")
    assert code == 0 and json.loads(out)["match"] is None


def test_a_file_that_computes_something_else(vela_digits: Path, tmp_path: Path) -> None:
    """One bit of the constants changed: a mismatch, exit code 1."""
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    data, images = vela_digits.read_bytes(), np.random.default_rng(4).integers(-128, 128, (4, 1, 16, 16, 1), np.int8)
    network = VelaNetwork(read_vela(data))
    right = [network.run([image])[0] for image in images]
    start, rng = data.index(network.file.npu_operators[0].constants), random.Random(3)
    for _ in range(200):  # most places are weights, where a changed bit is a damaged stream
        changed = bytearray(data)
        changed[start + rng.randrange(len(network.file.npu_operators[0].constants))] ^= 4
        try:
            other = VelaNetwork(read_vela(bytes(changed)))
            apart = [not np.array_equal(other.run([image])[0], out) for image, out in zip(images, right, strict=True)]
        except EmitcError:
            continue
        if all(apart):
            break
    else:
        pytest.fail("no change of a bit changes the outputs")
    (tmp_path / "wrong.tflite").write_bytes(bytes(changed))
    code, out, _ = call(tmp_path / "wrong.tflite", "--original", DIGITS, "--samples", 4)
    assert code == 1 and ": MISMATCH on the host model" in out


def test_refusals(vela_digits: Path, tmp_path: Path) -> None:
    code, out, err = call(DIGITS, "--json")
    assert code == 2 and "the file has no NPU operator" in err
    assert "ADD, AVERAGE_POOL_2D, CONV_2D" in json.loads(out)["error"][0]["why"]
    code, _, err = call(vela_digits, "--original", SHIPPED / "kws_ref_int8.tflite", "--samples", 1)
    assert code == 2
    assert "the two files are not the same network" in err and "kws_ref_int8.tflite, --original" in err
    assert "inputs int8[1, 16, 16, 1] against int8[1, 49, 10, 1]" in err
    code, _, err = call(tmp_path / "absent.tflite")
    assert code == 2 and "No such file" in err
    data = vela_digits.read_bytes()
    (tmp_path / "bare.tflite").write_bytes(data.replace(b"OfflineMemoryAllocation", b"OnlineMemoryAllocations"))
    code, _, err = call(tmp_path / "bare.tflite")
    assert code == 2 and "bare.tflite" in err and "the metadata OfflineMemoryAllocation is missing" in err
    (tmp_path / "forged.tflite").write_bytes(data.replace(b"COP1", b"COP2"))
    code, _, err = call(tmp_path / "forged.tflite")
    assert code == 2 and "forged.tflite" in err and "this is no driver payload" in err


def test_operators_that_stay_on_the_cpu(tmp_path: Path) -> None:
    """A network with a float interface: vela leaves QUANTIZE and DEQUANTIZE, the numpy references run them."""
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    net = Net(5)
    x, y = (net.tensor(TensorSpec(name, "float32", (1, 4, 4, 3))) for name in ("x", "y"))
    small, large = net.activation("small", (1, 4, 4, 3), 0.04, -9), net.activation("large", (1, 4, 4, 3), 0.09, 5)
    net.op("QUANTIZE", (x,), (small,))
    net.op("ADD", (small, small), (large,), fused_activation_function="RELU")
    net.op("DEQUANTIZE", (large,), (y,))
    model = tmp_path / "float_ends.tflite"
    model.write_bytes(write_tflite(net.spec((x,), (y,))))
    found = check_vela_file(compiled(model.read_bytes(), OPTIONS), model, 4)
    assert found.on_cpu == ("DEQUANTIZE", "QUANTIZE")
    assert found.match is True and found.distinct > 1 and found.elements == 4 * 48


def test_operators_without_a_reference_are_all_named(shared_models: Path) -> None:
    """A keyword spotter whose recurrent layers stay on the CPU; once they have kernels the state stops the check."""
    model = shared_models / "tflite" / "keyword_scrambled_svdf_state8.tflite"
    with pytest.raises((Refusals, EmitcError)) as caught:
        check_vela_file(compiled(model.read_bytes(), OPTIONS), model, 1)
    assert "SVDF" in str(caught.value) or "state" in str(caught.value)


def test_a_network_for_the_units_that_have_no_host_model(shared_models: Path) -> None:
    model = shared_models / "tflite" / "mnist_lstm_int8.tflite"
    with pytest.raises(EmitcError, match="the NPU's own tanh and sigmoid have no host model") as caught:
        check_vela_file(compiled(model.read_bytes(), OPTIONS), None, 1)
    assert caught.value.exit_code == 1 and "net_vela.tflite, command 3 ELEMENTWISE" in str(caught.value)


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("seed", range(30))
def test_damaged_files_are_refused_or_run(seed: int, vela_digits: Path, tmp_path: Path) -> None:
    rng = random.Random(seed)
    good = vela_digits.read_bytes()
    for _ in range(25):
        data = bytearray(good)
        if rng.random() < 0.2:
            del data[rng.randrange(16, len(data)) :]
        for _ in range(rng.choice((1, 2, 6))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (tmp_path / "damaged.tflite").write_bytes(bytes(data))
        text = "damaged.tflite"
        try:
            check_vela_file(tmp_path / "damaged.tflite", None, 1)
        except EmitcError as error:
            text = str(error)
        assert "damaged.tflite" in text


def test_inputs_and_outputs_in_regions_of_their_own(tmp_path: Path) -> None:
    """How emitc calls vela: five regions, the edge tensors in 3 and 4."""
    vectors = arrays(SHIPPED / "digits_int8.npz")
    made = arrays(compiled_with_own_regions(DIGITS.read_bytes(), tmp_path))
    assert made["places"].tolist() == [[3, 0, 256], [4, 0, 10]]
    scratch, result = np.full(int(made["scratch"]), 0xA5, np.uint8), np.zeros(10, np.int8)
    image = vectors["in0_0"].reshape(-1).view(np.uint8).copy()
    regions = [made["constants"], scratch, scratch, image, result.view(np.uint8)]
    HostModel().invoke(made["payload"].tobytes(), regions, initialised={3: [(0, 256)]})
    assert np.array_equal(result, vectors["out0_0"].reshape(-1))
    with pytest.raises(NpuFault, match="region 4 is used, and 4 are given"):
        HostModel().invoke(made["payload"].tobytes(), regions[:4])


def test_a_driver_call_routed_into_the_host_model(vela_digits: Path) -> None:
    """`ethosu_invoke_v3` as a C callback: addresses and sizes as the driver gets them, and what the driver refuses."""
    cffi = pytest.importorskip("cffi")
    ffi = cffi.FFI()
    file = read_vela(vela_digits.read_bytes())
    (operator,) = file.npu_operators
    vectors = arrays(SHIPPED / "digits_int8.npz")
    refusals: list[str] = []

    @ffi.callback("int(void *, const void *, int, uint64_t *, const size_t *, int, void *)")  # type: ignore[untyped-decorator]
    def invoke(
        _driver: object, payload: object, size: int, base: object, sizes: object, count: int, _user: object
    ) -> int:
        try:
            driver_call(int(ffi.cast("uintptr_t", payload)), size, list(base[0:count]), list(sizes[0:count]))  # type: ignore[index]
        except EmitcError as error:
            refusals.append(error.why)
            return -1
        return 0

    def aligned(data: bytes) -> object:
        block = ffi.new("uint8_t[]", len(data) + 16)
        keep.append(block)
        start = block + -int(ffi.cast("uintptr_t", block)) % 16
        ffi.memmove(start, data, len(data))
        return start

    keep: list[object] = []
    payload, constants = aligned(operator.payload), aligned(operator.constants)
    scratch = aligned(bytes(operator.scratch_bytes))
    (image,), (result,) = operator.inputs, operator.outputs
    ffi.memmove(scratch + file.places[image.index], vectors["in0_0"].tobytes(), npu.tensor_bytes(image))
    bases = ffi.new("uint64_t[9]", [int(ffi.cast("uintptr_t", p)) for p in (constants, scratch, scratch)])
    sizes = ffi.new("size_t[9]", [len(operator.constants), operator.scratch_bytes, operator.scratch_bytes])
    assert invoke(ffi.NULL, payload, len(operator.payload), bases, sizes, 3, ffi.NULL) == 0
    found = bytes(ffi.buffer(scratch + file.places[result.index], npu.tensor_bytes(result)))
    assert found == vectors["out0_0"].tobytes() and refusals == []

    assert invoke(ffi.NULL, payload, len(operator.payload), bases, sizes, 9, ffi.NULL) == -1
    assert invoke(ffi.NULL, payload, 30, bases, sizes, 3, ffi.NULL) == -1
    assert invoke(ffi.NULL, payload + 4, 32, bases, sizes, 3, ffi.NULL) == -1
    bases[1] += 8
    assert invoke(ffi.NULL, payload, len(operator.payload), bases, sizes, 3, ffi.NULL) == -1
    for part, why in zip(
        ("9 base addresses", "30 bytes", "the payload lies at", "base 1 lies at"), refusals, strict=True
    ):
        assert part in why


def test_places_of_tensors() -> None:
    """Version, subgraph and count, then the tensors of all subgraphs, the first one's first."""
    words = np.array([0, 0, 4, 16, -1, 32, 48], "<i4").tobytes()
    assert npu._allocation(words, 3) == (16, -1, 32)
    for damaged in (words[:-4], words + b"\0" * 4, b"", np.array([0, 0, 1, -2], "<i4").tobytes()):
        with pytest.raises(EmitcError, match="the places of the tensors are damaged"):
            npu._allocation(damaged, 1)
