"""The registries of operators: looking one up loads the module that defines it, and no other; listing them loads all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import emitc.kernels as kernels
from emitc.kernels import onnx_registry, registry, tflite_registry

ROOT = Path(__file__).resolve().parents[2]


def loaded_after(code: str, folder: Path) -> set[str]:
    """The modules of operators that are loaded when a new process has run the code."""
    text = f"from emitc.kernels import *\nimport emitc.kernels as kernels\n{code}\nimport sys\nprint(*sys.modules)"
    command = [sys.executable, "-c", text]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=env)
    prefix = "emitc.kernels."
    loaded = {name.removeprefix(prefix) for name in done.stdout.split() if name.startswith(prefix)}
    return loaded & set(kernels._modules())


def test_a_look_up_loads_one_operator(tmp_path: Path) -> None:
    found = loaded_after(
        "kernel = kernels.tflite_registry()['SVDF']\nassert kernel is kernels.registry()[kernel.op]", tmp_path
    )
    assert "recurrent.svdf" in found
    assert {"recurrent.lstm", "recurrent.gru", "resize.resize", "control_flow.control_flow"}.isdisjoint(found)


@pytest.mark.parametrize(
    "code",
    [
        "assert kernels.onnx_registry()['ReduceMax'].op.__name__ == 'ReduceMax'",
        "kernels._sources = dict\nassert kernels.tflite_registry()['SVDF'].op.__name__ == 'Svdf'",
    ],
    ids=["its module puts the name together", "there are no sources"],
)
def test_an_operator_that_no_source_names_is_found(code: str, tmp_path: Path) -> None:
    assert kernels._modules()[0] in loaded_after(code, tmp_path)  # the modules are loaded in turn


@pytest.mark.parametrize(
    "code",
    ["assert 'NO_SUCH_OPERATOR' not in kernels.tflite_registry()", "assert len(kernels.registry()) > 100"],
    ids=["an unknown name", "a list"],
)
def test_all_operators_are_loaded_where_that_is_asked_for(code: str, tmp_path: Path) -> None:
    assert loaded_after(code, tmp_path) == set(kernels._modules())


def test_every_operator_is_found_under_each_of_its_keys() -> None:
    for kernel in registry().values():
        assert all(tflite_registry()[name] is kernel for name in kernel.tflite)
        assert all(onnx_registry()[name] is kernel for name in kernel.onnx)
    assert len(registry()) == sum(len(kernels._kernels(module)) for module in kernels._modules())


def test_an_operator_that_is_defined_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_modules", lambda: ("recurrent.svdf", "recurrent.svdf"))
    with pytest.raises(AssertionError, match="an operator is defined twice"):
        len(kernels._Registry(lambda kernel: kernel.tflite, kernels._naming))


def test_the_registries_are_read_only() -> None:
    with pytest.raises(TypeError):
        tflite_registry()["SVDF"] = tflite_registry()["CONV_2D"]  # type: ignore[index]
