"""Random options: the same graph has to give the same numbers under all of them."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from bench.random_graphs.case import Description
from emitc.compiled import Compiled
from emitc.kernels import registry
from emitc.options import Options
from emitc.passes import LATE_PASSES, PASSES
from emitc.planner.region_assignment import Region
from emitc.schedule.search import TECHNIQUES
from emitc.target import load_board

TARGETS = (
    "generic32", "cortex-m0", "cortex-m3", "cortex-m4", "cortex-m4f", "cortex-m7", "cortex-m33", "cortex-m55",
    "cortex-m85", "rv32imac", "rv32imafc", "cv32e40p", "rv32imac_zve32x",
)  # fmt: skip
NPUS = ("ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u55-256", "ethos-u65-256")
BOARDS = ("qemu_m0_big", "qemu_m3", "qemu_m4", "qemu_m7", "qemu_m33", "qemu_m55", "qemu_rv32", "qemu_rv32v")
SWITCHES = (*(name for name, _ in (*PASSES, *LATE_PASSES)), *TECHNIQUES)

Mode = Mapping[str, Any]
"""Options by their names in `Options`, as JSON can hold them; `variant` is a number that chooses kernels."""


LIBRARIES = {"cmsis-nn": ("cortex-m0", "cortex-m4", "cortex-m55"), "esp-nn": ("esp32c3", "esp32s3")}
"""Targets of kernel libraries, by the backend."""


def draw_mode(
    rng: np.random.Generator, description: Description, libraries: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """A target and up to a few more options. libraries: folders of kernel libraries, by the backend."""
    mode: dict[str, Any] = {"target": str(rng.choice(TARGETS))}

    def chance(probability: float) -> bool:
        return bool(rng.random() < probability)

    if chance(0.15):
        mode["optimize"] = "size"
    if chance(0.25):
        mode["ram_budget"] = "min"
    elif chance(0.15):
        mode["ram_budget"] = _budget(rng, description)
    if chance(0.25):
        count = int(rng.integers(1, 4))
        mode["disabled"] = sorted({str(rng.choice(SWITCHES)) for _ in range(count)})
    if chance(0.08):
        mode |= _regions(rng, description)
        mode.pop("ram_budget", None)
    # No engine runs another interface, and sums of floats that are quantized again are within a step of the references only.
    quantized = any(value.scales for value in description.values) or any("Quantize" in n.op for n in description.nodes)
    if chance(0.05) and quantized and (not description.opset or chance(0.3)):
        mode["io"] = "int8"
    if chance(0.05) and len(description.inputs) == 1:
        mode["input_rows"] = True
    if chance(0.06):
        mode["variant"] = int(rng.integers(1 << 30))
    if library := next((name for name in libraries if chance(0.05)), ""):
        mode["kernels"] = library
        mode["target"] = str(rng.choice(LIBRARIES[library]))
        mode["backends"] = {library: libraries[library]}
    elif _has_vela() and chance(NPU_CHANCE) and any(value.dtype == "int8" for value in description.values):
        mode = {"target": "cortex-m55", "backends": {"npu": str(rng.choice(NPUS)), "npu-always": "yes"}}
        if chance(0.3):
            mode["ram_budget"] = "min"
    elif not description.opset and chance(BOARD_CHANCE) and "regions" not in mode:
        mode["board"] = str(rng.choice(BOARDS))
        mode["target"] = load_board(mode["board"]).target
        mode.pop("io", None)
        if chance(0.5):  # a kernel for another core is the same C with other macros, which only the board compiles
            mode["variant"] = int(rng.integers(1 << 30))
    if chance(0.05):
        mode["split_weights"] = True
    if chance(0.1):
        constants = sum(len(value.data) for value in description.values if value.data is not None)
        mode["flash_budget"] = 1 << 24 if chance(0.4) else 64 + math.ceil(constants * rng.uniform(1, 3))
    if chance(0.12) and "board" not in mode:
        mode["max_step_cycles"] = int(rng.choice((1, 300, 5000)))
    if chance(0.06) and "split_weights" not in mode:
        mode["weights"] = "external"
    if "stage_weights" in mode and chance(0.5):
        mode["load_ahead"] = float(rng.choice((0.25, 2.0, 10.0)))
    return mode


NPU_CHANCE = 0.02
"""Vela takes about a second for a graph, and the proof with the model of the NPU another."""
BOARD_CHANCE = 0.003
"""PlatformIO and the emulator take about ten seconds for a graph."""


@cache
def _has_vela() -> bool:
    return importlib.util.find_spec("ethosu") is not None


def _regions(rng: np.random.Generator, description: Description) -> dict[str, Any]:
    """Two or three regions, and sometimes copies of weights in one of them, or places of tensors."""
    regions = [["FAST", int(rng.choice((256, 1024, 6 << 10))), 1.0], ["SLOW", 3 << 20, 4.0]]
    mode: dict[str, Any] = {"regions": regions}
    if rng.random() < 0.3:
        mode["stage_weights"] = "FAST"
    if rng.random() < 0.3:
        regions.insert(0, ["TINY", int(rng.choice((64, 300))), 0.5])
    if rng.random() < 0.4:
        mode["places"] = _places(rng, description, [str(name) for name, _, _ in regions])
    return mode


def _places(rng: np.random.Generator, description: Description, regions: Sequence[str]) -> list[list[str]]:
    """A region for each of one or two tensors, and sometimes for the weights."""
    names = [value.name for value in description.values if not value.constant and value.dtype != "resource"]
    chosen = rng.permutation(names)[: int(rng.integers(1, 3))]
    places = [[str(name), str(rng.choice(regions))] for name in chosen]
    return [*places, ["weights", "SLOW"]] if rng.random() < 0.2 else places


def _budget(rng: np.random.Generator, description: Description) -> int:
    """Bytes between a little and all of what the computed tensors take."""
    sizes = [v.elements * (1 if v.dtype in ("bool", "resource") else np.dtype(v.dtype).itemsize)
             for v in description.values if not v.constant and v.dtype != "int4"]  # fmt: skip
    return max(16, math.ceil(sum(sizes) * rng.uniform(0.2, 0.9)))


def options_of(mode: Mode, name: str) -> Options:
    """The options of a mode for a model of that name."""
    plain = {key: value for key, value in mode.items() if key not in ("variant", "board")}
    if "disabled" in plain:
        plain["disabled"] = frozenset(plain["disabled"])
    if "regions" in plain:
        plain["regions"] = tuple(Region(*region) for region in plain["regions"])
    if "places" in plain:
        plain["places"] = tuple((what, region) for what, region in plain["places"])
    return Options(name=name, **plain)


def variants_of(mode: Mode, compiled: Compiled) -> tuple[tuple[int, str], ...]:
    """For a mode that asks for other kernels than the cheapest: an operator and a variant that its definition has."""
    rng = np.random.default_rng(mode["variant"])
    kernels = registry()
    offered = [
        (node.index, name)
        for node in compiled.graph.nodes
        if type(node.op) in kernels
        for name in kernels[type(node.op)].variant_names
    ]
    if not offered:
        return ()
    first = offered[int(rng.integers(len(offered)))]
    return (first,)


def simpler(mode: Mode) -> list[dict[str, Any]]:
    """The mode with one option less, for each option that it has."""
    candidates = [{key: value for key, value in mode.items() if key != gone} for gone in mode if gone != "target"]
    if mode.get("target") != "generic32" and mode.get("kernels") not in LIBRARIES and "board" not in mode:
        candidates.append({**mode, "target": "generic32"})
    if len(mode.get("disabled", ())) > 1:
        candidates += [{**mode, "disabled": [item]} for item in mode["disabled"]]
    needs = {"stage_weights": "regions", "places": "regions", "load_ahead": "stage_weights"}
    return [item for item in candidates if all(what in item for name, what in needs.items() if name in item)]


def with_variants(options: Options, compiled: Compiled, mode: Mode) -> Options:
    """The options with what `variants_of` chooses."""
    return dataclasses.replace(options, variants=variants_of(mode, compiled))
