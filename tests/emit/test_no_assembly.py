"""Assembly is in the runtime's headers only, and `EMITC_NO_ASM` leaves plain C, whose results are the same on every core."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.emit.package import runtime_files
from emitc.target import load_target
from tests.emit.test_compilers import RISCV_LIBRARY, run
from tests.support.emit.package_set import Packages
from tests.support.models.onnx_net import OnnxNet

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "examples" / "models"
ASSEMBLY = re.compile(r"\b(?:__)?asm(?:__)?\b")
PLAIN = "-DEMITC_NO_ASM"


def test_no_template_has_assembly() -> None:
    """The model's own source is plain C: what an instruction set needs is a function or a macro of its header."""
    found = [path.name for path in (ROOT / "emitc").rglob("*.j2") if ASSEMBLY.search(path.read_text(encoding="utf-8"))]
    assert found == []


def test_every_header_with_assembly_compiles_it_by_one_switch() -> None:
    """`EMITC_ASM` is the only macro that asks for the compiler's syntax of assembly."""
    texts = {name: path.read_text(encoding="ascii") for name, path in runtime_files().items()}
    assert {name for name, text in texts.items() if "__GNUC__" in text} <= {"emitc_runtime.h", "emitc_bits.h"}
    assert sum("defined(EMITC_NO_ASM)" in text for text in texts.values()) == 1


def of_the_packages(preprocessed: str) -> str:
    """The lines of a preprocessed source that come from packages, and not from the compiler's headers."""
    kept: list[str] = []
    own = False
    for line in preprocessed.splitlines():
        if marker := re.match(r'# \d+ "(.*?)"', line):
            own = "packages" in marker[1]
        elif own:
            kept.append(line)
    return "\n".join(kept)


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("core", ["cortex-m0", "cortex-m3", "cortex-m4f", "cortex-m55", "rv32imac"])
def test_plain_c_is_all_that_is_left(core: str, packages: Packages, tmp_path: Path) -> None:
    """Every kernel, as the compiler sees it after its preprocessor; without the option the cores have assembly."""
    described = load_target(core)
    more = [RISCV_LIBRARY] if core.startswith("rv") else []
    compiler = [f"{described.compiler_prefix}gcc", *described.compiler_flags, *more, "-std=c11", "-O2", "-E"]
    headers = [argument for name in packages.folders for argument in ("-include", f"{name}.c")]
    (tmp_path / "empty.c").touch()
    command = [*compiler, *packages.includes, *headers, "empty.c"]
    assert not ASSEMBLY.search(of_the_packages(run([*command, PLAIN], tmp_path)))
    assert ASSEMBLY.search(of_the_packages(run(command, tmp_path)))


def floats() -> bytes:
    """Sums, products, tanh and a convolution of float32: kernels for float units."""
    net = OnnxNet()
    x = net.input((1, 4, 8, 8))
    weights = net.constant(net.rng.standard_normal((8, 4, 3, 3)), "float32")
    total = net.op("Add", net.op("Conv", x, weights, pads=[1, 1, 1, 1]), net.constant(0.25, "float32"))
    net.output(net.op("Tanh", net.op("Mul", total, total)))
    return net.serialized()


CASES: dict[str, Callable[[], bytes]] = {
    "integers": lambda: (MODELS / "kws_ref_int8.tflite").read_bytes(),
    "factors": lambda: (MODELS / "digits_qdq.onnx").read_bytes(),
    "floats": floats,
}


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize(("target", "board"), [("cortex-m4f", "qemu_m4"), ("cortex-m55", "qemu_m55")])
@pytest.mark.parametrize("case", CASES)
def test_plain_c_has_the_same_results(case: str, target: str, board: str, tmp_path: Path) -> None:
    model = tmp_path / ("model.tflite" if case == "integers" else "model.onnx")
    model.write_bytes(CASES[case]())
    compiled = compile_model(model, target=target, package="platformio")
    library = json.loads(compiled.files["library.json"])
    library["build"]["flags"] += [PLAIN, "-ffp-contract=off"]
    plain = replace(compiled, files=compiled.files | {"library.json": json.dumps(library).encode("ascii")})
    (outcome, original) = (
        on_emulator(each, board, reference="numpy", samples=2, seed=1, layers=False, workdir=tmp_path / name)
        for each, name in ((plain, "plain"), (compiled, "assembly"))
    )
    assert outcome.match
    assert (outcome.instructions or 0) > (original.instructions or 0) > 0
