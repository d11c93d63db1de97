"""Whole networks compiled by vela for every configuration, memory mode and goal: host model = tflite_micro, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.verify.npu_check import check_vela_file
from tests.support.npu.vela import ALL, VelaOptions, compiled

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

SHIPPED = Path(__file__).resolve().parents[2] / "examples" / "models"
NETS = ("digits_int8", "kws_ref_int8", "person_detect_int8")
CORPUS = (
    "ad01_int8", "hello_world_int8", "ic_resnet_int8", "kws_ref_int8", "micro_speech_int8", "person_detect_int8", "vww_96_int8",
    "aww_int8", "ic_resnet_int16x8", "micro_kws_m_int8", "mnist_dw_int16x8", "mnist_resnet_int8", "mobilenet_v1_0.25_128_uint8",
    "tinymaix_cifar10_int8",
)  # fmt: skip
DENSE = {"ad01_int8": 5}
"""vela forms the multiplier of FULLY_CONNECTED from a float32 product: elements of 4 x 640 that may be 1 off. emitc hands such
layers over as convolutions, which are exact."""
SAMPLES = 4


def combinations(names: tuple[str, ...]) -> list[object]:
    """Every network with every combination."""
    return [pytest.param(name, options, id=f"{name}-{options.id}") for name in names for options in ALL]


def check(model: Path, options: VelaOptions, tolerated: int = 0) -> None:
    found = check_vela_file(compiled(model.read_bytes(), options), model, SAMPLES, seed=0)
    assert found.differing <= tolerated and found.max_abs_diff <= (tolerated > 0)
    assert found.accelerator == options.config and found.on_cpu == ()
    assert found.elements > 0 and found.distinct > 1, "the outputs say too little"
    assert (found.fast_bytes > 0) == (options.memory == "Dedicated_Sram")


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize(("name", "options"), combinations(NETS))
def test_shipped_networks(name: str, options: VelaOptions) -> None:
    check(SHIPPED / f"{name}.tflite", options)


@pytest.mark.corpus
@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize(("name", "options"), combinations(CORPUS))
def test_networks_of_the_corpus(name: str, options: VelaOptions, shared_models: Path) -> None:
    check(shared_models / "tflite" / f"{name}.tflite", options, DENSE.get(name, 0))


def test_every_configuration_and_memory_mode_is_there() -> None:
    """Four U55 configurations with two memory modes, one U65 with three, each for speed and size."""
    assert len(set(ALL)) == 4 * 2 * 2 + 3 * 2
