"""What holds for every package that wraps the C for another language: what it refuses, its golden vectors, its names."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.emit.package_kinds import KINDS
from emitc.emit.package_kinds.languages import language_name
from emitc.errors import EmitcError
from emitc.planner.region_assignment import Region
from emitc.program import Requirement
from emitc.verify.build import HostModel, build_shared, sources
from emitc.verify.example import example_sequence
from emitc.verify.golden_run import interface_of
from emitc.verify.verification import verify
from tests.support.emit.wrapped_models import wrapped

FILES = {"rust": "src/lib.rs", "zig": "src/spotter.zig"}
"""The file of a package that states the members of the C's struct."""
MORE: list[dict[str, Any]] = [{}, {"self_test": 1}, {"ram_budget": "min", "max_step_cycles": 1}]
"""Options with which it has more of them."""
WRAPPED = [name for name, kind in KINDS.items() if kind.sequence]


def test_there_is_such_a_package() -> None:
    assert {"micropython", "rust", "zig"} <= set(WRAPPED)


@pytest.mark.parametrize("package", WRAPPED)
def test_several_arenas_are_refused(package: str, tiny: Path) -> None:
    regions = (Region("DTCM", 24 << 10, 1.0), Region("SRAM", 64 << 10, 3.0))
    with pytest.raises(EmitcError) as refused:
        compile_model(tiny / "spotter.tflite", package=package, regions=regions)
    assert refused.value.exit_code == 2
    assert str(refused.value).splitlines()[:4] == [
        "error: spotter has several arenas",
        f"  at:    --package {package}",
        "  why:   the wrapper of this package takes one arena, and --regions makes several",
        "  try:   choose --package cmake or plain, or leave the option out that asks for this",
    ]


@pytest.mark.parametrize(
    ("package", "file", "more"),
    [
        *((package, file, more) for package, file in FILES.items() for more in MORE),
        ("rust", FILES["rust"], {"weights": "external", "self_test": 1}),
    ],
)
def test_an_instance_has_the_members_of_the_c(package: str, file: str, more: dict[str, Any], tiny: Path) -> None:
    """Otherwise init would write past its end."""
    made = compile_model(tiny / "spotter.tflite", package=package, **more)
    header = made.files["c/spotter.h"].decode()
    own = re.findall(r"(\w+)(?:\[\d+\])?;", header.partition("typedef struct spotter {")[2].partition("}")[0])
    (struct,) = re.findall(
        r"(?:extern struct|pub struct Instance) \{(.*?)\n? *\}", made.files[file].decode(), re.DOTALL
    )
    assert [name.removesuffix("_run") for name in re.findall(r"(\w+): ", struct)] == own
    assert ("test" in own, "kept" in own, "weights" in own) == tuple(
        option in more for option in ("self_test", "ram_budget", "weights")
    )


@pytest.mark.parametrize("package", WRAPPED)
def test_rows_on_request_are_refused(package: str, tiny: Path) -> None:
    with pytest.raises(EmitcError, match="asks for the rows of its input"):
        compile_model(tiny / "camera.tflite", package=package, input_rows=True)


@pytest.mark.parametrize("package", WRAPPED)
def test_a_library_that_its_build_does_not_compile_is_refused(package: str, tiny: Path) -> None:
    program = compile_model(tiny / "spotter.tflite").program
    needing = replace(program, requirements=(Requirement("fast", "Fast-NN", "1.0", "MIT"),))
    with pytest.raises(EmitcError, match="spotter needs Fast-NN"):
        KINDS[package].require(needing, package)


@pytest.mark.parametrize("name", ["edges", "sums", "branches"])
def test_the_golden_vectors_are_what_the_c_computes(name: str, tmp_path: Path) -> None:
    """The numpy references have made them; the second run of a model with state goes on from the first."""
    compiled = wrapped(name, "plain", tmp_path)
    runs = example_sequence(compiled.partition.graph, compiled.source.format)
    assert len(runs) == 2
    assert runs[0] != runs[1]
    compiled.write(tmp_path / "package")
    host = HostModel(build_shared(tmp_path / "package", tmp_path, trace=False), interface_of(compiled))
    for run in runs:
        inputs = zip(compiled.program.inputs, run.inputs, strict=True)
        sample = [np.frombuffer(stored.data, port.dtype).reshape(port.shape) for port, stored in inputs]
        assert tuple(value.tobytes() for value in host.run(sample)) == tuple(output.data for output in run.outputs)


@pytest.mark.parametrize("package", WRAPPED)
def test_the_proof_and_the_stack_find_the_c(package: str, tmp_path: Path) -> None:
    """Its folder has the C alone: none of it is the wrapper's."""
    compiled = wrapped("sums", package, tmp_path)
    compiled.write(tmp_path / "package")
    files, folders = sources(tmp_path / "package")
    assert [path.name for path in files] == ["emitc_runtime.c", "sums.c"]
    assert folders == (tmp_path / "package" / "c",)
    assert verify(compiled, samples=2, reference="numpy").match


def test_a_name_of_the_language_is_not_taken() -> None:
    taken = frozenset({"match", "self"})
    assert [language_name(name, taken) for name in ("kws", "match", "SELF", "KWS")] == [
        "kws", "match_model", "self_model", "kws",
    ]  # fmt: skip
    assert language_name("a" * 31 + "_bcd", taken, 32) == "a" * 31
