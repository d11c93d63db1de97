"""ESP-NN as a backend: opened with `--kernels esp-nn` or `auto` and the path of a tree."""

from pathlib import Path

from emitc.backends.contract import Backend
from emitc.backends.esp_nn.definition import NAME
from emitc.backends.esp_nn.lowering import layer_of, refusal
from emitc.backends.esp_nn.scratch import FOLDERS, Chip, chip_of, read_tree
from emitc.backends.kernel_library import cost_of
from emitc.ir import BoundNode
from emitc.layer import Layer
from emitc.program import Guard, Program, Requirement
from emitc.target import BuildSupport, Target

_COSTS = Path(__file__).with_name("costs.toml")
_S3, _P4 = "defined(CONFIG_IDF_TARGET_ESP32S3)", "defined(CONFIG_IDF_TARGET_ESP32P4)"
_GUARDS = {
    Chip.GENERIC: f"!{_S3} && !{_P4}",
    Chip.S3: f"{_S3} || !defined(CONFIG_NN_OPTIMIZED)",
    Chip.P4: f"{_P4} || !defined(CONFIG_NN_OPTIMIZED)",
}
"""By chip: where the sizes of its scratch hold. The functions of plain C take less."""
_EXACT = Guard(
    "!defined(SKIP_NUDGE) && !defined(CONFIG_NN_SKIP_NUDGE)",
    "ESP-NN promises the interpreter's bits without CONFIG_NN_SKIP_NUDGE only: switch it off",
)
_HEADER = """\
/* ESP-NN's functions. Its header chooses them by the options of ESP-IDF's sdkconfig.h, which it does not include. */
#ifndef EMITC_ESP_NN_H
#define EMITC_ESP_NN_H
#if defined(ESP_PLATFORM)
#include "sdkconfig.h"
#endif
#include "esp_nn.h"
#endif
"""


class EspNn(Backend):
    """Calls of the functions in one tree, for one target."""

    name = NAME

    def __init__(self, path: Path, target: Target) -> None:
        self._target = target
        self._chip = chip_of(target)
        self._tree = read_tree(path)

    def supports(self, bound: BoundNode) -> str:
        return refusal(bound)

    def cost(self, bound: BoundNode) -> float:
        return cost_of(_COSTS, bound, self._chip.value)

    def lower(self, bound: BoundNode) -> Layer:
        return layer_of(self._chip, bound)

    def _sources(self, program: Program) -> tuple[str, ...]:
        calls = [step.call for step in program.steps if step.backend == NAME and step.call is not None]
        return self._tree.sources(call.function for call in calls)

    def requirement(self, program: Program) -> Requirement:
        """The header, and the chip that the scratch sizes are those of."""
        message = f"the scratch is that of ESP-NN for {self._chip.value}: compile for {program.origin.target}, "
        message += "or run emitc with another --target"
        return Requirement(
            NAME,
            "ESP-NN",
            self._tree.version,
            "Apache-2.0",
            ("emitc_esp_nn.h",),
            (Guard(_GUARDS[self._chip], message), _EXACT),
            cmake="esp-nn",
            variable="ESP_NN_PATH",
            sources=self._sources(program),
            folders=FOLDERS,
            idf=("espressif/esp-nn", f"=={self._tree.version}"),
        )

    def files(self, program: Program) -> dict[str, str]:
        return {"emitc_esp_nn.h": _HEADER}

    def runs_on(self, target: Target) -> bool:
        """Where the library takes the same versions of its functions: the sizes of their scratch differ."""
        return chip_of(target) is self._chip

    def support(self, program: Program, target: Target) -> BuildSupport:
        """The C files that define the functions in use. They are those that run on chips without vector instructions."""
        root = self._tree.root
        sources = tuple(root / file for file in self._sources(program))
        return BuildSupport(sources, tuple(root / folder for folder in FOLDERS), ("CONFIG_NN_OPTIMIZED=1",))
