"""Estimated cycles and milliseconds: executed instructions by kind, times what each kind costs on a core.

    python -m bench.cycles --models ../shared/models/tflite --json bench/results_cycles.json

The counting plugin says how often each instruction ran, the disassembly what it is. This is a model, not a measurement: it knows
no order of instructions, so that what overlaps or stalls is an average: a load counts as 1.5 cycles, half of them after another
one, and a branch as 2.5, most of them taken. The stored mixes of TensorFlow Lite Micro do not tell how many registers an
instruction moves, so that the factor is fitted with one each. What flash costs is one factor per board, fitted to published times
of other code, and `fit` says how far that is off.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emitc.boards import counter
from emitc.boards.boot import boot, emulator
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.options import Options
from emitc.report.tables import table
from emitc.target import load_board, load_target

HERE = Path(__file__).resolve().parent
NETS = ("kws_ref_int8", "vww_96_int8", "ic_resnet_int8", "ad01_int8")
CLOCK_HZ = 120e6
"""Of the NUCLEO-L4R5ZI, which the published times are of."""
BOARD = "qemu_m4"

_CONDITION = r"(eq|ne|cs|cc|hs|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)?$"
KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "load",
        re.compile(r"(ldr(b|h|sb|sh|d|ex)?|ldm(ia|db)?|pop|vldr[bhwd]?[te]?|vldm(ia)?|vpop|l[bhw]u?|flw)" + _CONDITION),
    ),
    (
        "store",
        re.compile(r"(str(b|h|d|ex)?|stm(ia|db)?|push|vstr[bhwd]?[te]?|vstm(ia)?|vpush|s[bhw]|fsw)" + _CONDITION),
    ),
    (
        "multiply",
        re.compile(r"(mul|mla|mls|smla|smlal|smull|smul|smmul|smmla|smuad|smlad|umull|umlal|umaal|vml|vmul|vfma|fmul)"),
    ),
    ("divide", re.compile(r"(sdiv|udiv|div|rem|vdiv|fdiv)")),
    (
        "branch",
        re.compile(
            r"(b|bl|blx|bx|cbz|cbnz|tbb|tbh|le|letp|wls|wlstp|dls|dlstp|j|jr|jal|jalr|ret|b(eq|ne|lt|ge|le|gt)z|b(lt|ge)u)"
            + _CONDITION
        ),
    ),
    ("vector or float", re.compile(r"v|f(add|sub|cvt|mv|madd)")),
)
"""Kinds of instructions by mnemonic, the first that matches; what matches none is "other"."""
FURTHER = "further register"
"""Not an instruction: a register that an LDM, LDRD, POP, STM, STRD or PUSH moves besides its first one."""
_RANGE = re.compile(r"([rsd])(\d+)(?:-[rsd](\d+))?")


@dataclass(frozen=True, slots=True)
class Core:
    """Cycles of one instruction of each kind, code and data in memory without wait states; where that is from.

    published: whether the designer publishes timings; where not, the costs are an assumption.
    """

    costs: Mapping[str, float]
    source: str
    published: bool = True


_ARMV7M = {
    "load": 1.5,
    "store": 1.0,
    "multiply": 1.0,
    "divide": 7.0,
    "branch": 2.5,
    "vector or float": 1.0,
    "other": 1.0,
    FURTHER: 1.0,
}
CORES = {
    "Cortex-M0+": Core(
        {
            "load": 2.0,
            "store": 2.0,
            "multiply": 1.0,
            "divide": 1.0,
            "branch": 2.0,
            "vector or float": 1.0,
            "other": 1.0,
            FURTHER: 1.0,
        },
        "Arm Cortex-M0+ Technical Reference Manual (DDI 0484), table 3.1: LDM and STM 1 + registers, a branch 2 if taken;"
        " with the multiplier of one cycle (the other: 32)",
    ),
    "Cortex-M3": Core(
        _ARMV7M | {"multiply": 2.0},
        "Arm Cortex-M3 Technical Reference Manual (DDI 0337), table 3.1 and Load/store timings: a load 2 cycles, 1"
        " after another one; MLA 2, SMULL 3 to 5; a branch 1, and 1 to 3 more where it is taken",
    ),
    "Cortex-M4": Core(
        _ARMV7M,
        "Arm Cortex-M4 Technical Reference Manual (100166), table 3-1 and Load/store timings: a load 2 cycles, 1"
        " after another one, LDM 1 + registers; a store with an immediate offset 1; all multiplications 1; a branch 1, and 1"
        " to 3 more where it is taken; a division 2 to 12",
    ),
    "Cortex-M7": Core(
        {kind: cost / 1.5 for kind, cost in _ARMV7M.items()} | {"branch": 1.0, FURTHER: 1.0},
        "two instructions at once where they do not depend on each other: assumed for every other one",
        published=False,
    ),
    "Cortex-M33": Core(_ARMV7M | {"branch": 2.0}, "as Cortex-M4, with shorter branches", published=False),
    "Cortex-M55": Core(
        _ARMV7M | {"branch": 1.5, "vector or float": 1.5},
        "a vector instruction takes 2 cycles, of which one overlaps with the next where they use different units",
        published=False,
    ),
    "RV32IMAC": Core(
        {
            "load": 1.5,
            "store": 1.0,
            "multiply": 2.0,
            "divide": 20.0,
            "branch": 2.0,
            "vector or float": 1.0,
            "other": 1.0,
            FURTHER: 1.0,
        },
        "a pipeline of five stages: a load stalls the next instruction where that needs it",
        published=False,
    ),
}

PUBLISHED = {
    "ST Edge AI 10.2 (MLPerf Tiny v1.3)": {
        "kws_ref_int8": 43.42,
        "vww_96_int8": 89.44,
        "ic_resnet_int8": 165.67,
        "ad01_int8": 4.79,
    },
    "Plumerai 2023.05 (MLPerf Tiny v1.1)": {
        "kws_ref_int8": 47.78,
        "vww_96_int8": 98.76,
        "ic_resnet_int8": 167.76,
        "ad01_int8": 4.05,
    },
}
"""Milliseconds of one inference on a NUCLEO-L4R5ZI at 120 MHz, as the submitters measured them."""
CALIBRATION = {"kws_ref_int8": 99.81, "vww_96_int8": 300.84, "ic_resnet_int8": 389.56, "ad01_int8": 8.60}
"""Likewise of microTVM with CMSIS-NN (v1.0), whose kernels are those of the stored mixes of TFLite Micro, in another version."""


def kind_of(mnemonic: str) -> str:
    """The kind of an instruction.

    >>> [kind_of(m) for m in ("ldrd", "smlad", "bne.n", "vmul.f32", "ssat", "strb.w")]
    ['load', 'multiply', 'branch', 'multiply', 'other', 'store']
    """
    name = mnemonic.split(".")[0]
    return next((kind for kind, pattern in KINDS if pattern.match(name)), "other")


def further_registers(mnemonic: str, operands: str) -> int:
    """Registers that one instruction loads or stores besides its first one.

    >>> further_registers("ldmia.w", "r0!, {r1, r4-r6, lr}"), further_registers("ldrd", "r2, r3, [sp, #8]")
    (4, 1)
    >>> further_registers("ldr.w", "r2, [r3, r4]"), further_registers("add", "r1, r2")
    (0, 0)
    """
    name = mnemonic.split(".")[0]
    if name in ("ldrd", "strd"):
        return 1
    if "{" not in operands or not re.match(r"ldm|stm|push|pop|vldm|vstm|vpush|vpop", name):
        return 0
    listed = operands[operands.index("{") + 1 : operands.index("}")]
    count = 0
    for word in listed.split(","):
        match = _RANGE.fullmatch(word.strip())
        count += 1 if match is None or match[3] is None else int(match[3]) - int(match[2]) + 1
    return count - 1


def cycles(mix: Mapping[str, int], core: Core) -> float:
    """Of that many instructions of each kind, without wait states."""
    return sum(count * core.costs[kind] for kind, count in mix.items())


def mix_of(places: Mapping[int, int], disassembly: str) -> dict[str, int]:
    """Executed instructions by kind, and what they move besides their first registers.

    places: how often the instruction at each address ran. disassembly: objdump's.
    """
    lines = re.findall(r"^\s*([0-9a-f]+):\t(\S+)[ \t]*(.*)", disassembly, re.M)
    words = {int(at, 16): (name, operands) for at, name, operands in lines}
    found: Counter[str] = Counter()
    for at, count in places.items():
        name, operands = words[at]
        found[kind_of(name)] += count
        found[FURTHER] += count * further_registers(name, operands)
    return dict(found.most_common())


def measure(model: Path, board_name: str = BOARD) -> dict[str, int]:
    """Executed instructions of one inference by kind, on an emulated board."""
    board = load_board(board_name)
    compiled = compile_model(model, Options(target=board.target, package="platformio"))
    with tempfile.TemporaryDirectory(prefix="emitc-mix-") as folder:
        work = Path(folder)
        result = on_emulator(compiled, board_name, reference="auto", samples=1, seed=0, layers=False, workdir=work)
        image = next((work / "board" / "project" / ".pio" / "build").glob("*/firmware.elf"))
        library = counter.plugin(emulator(board), work / "board" / "cache")
        assert library is not None
        counts = work / "places.txt"
        plugin, options = counter.arguments(library, image, counts)
        boot(board, image, [plugin, f"{options},places=1"], timeout=120.0)
        places = last_places(counts.read_text(encoding="ascii").splitlines())
        tool = f"{load_target(board.target).compiler_prefix}objdump"
        listing = subprocess.run(
            [tool, "-d", "--no-show-raw-insn", str(image)], capture_output=True, text=True, check=True
        )
    mix = mix_of(places, listing.stdout)
    assert sum(count for kind, count in mix.items() if kind != FURTHER) - counter.CALL_INSTRUCTIONS == result.count
    return mix


def last_places(lines: Iterable[str]) -> dict[int, int]:
    """How often each instruction ran in the last window that the plugin wrote."""
    found: dict[int, int] = {}
    for line in lines:
        word, *numbers = line.split()
        if word == "begin":
            found = {}
        elif word == "at":
            found[int(numbers[0])] = int(numbers[1])
    return found


def fit(estimated: Mapping[str, float], measured: Mapping[str, float]) -> tuple[float, float]:
    """The factor that brings the estimates nearest to what was measured, and the largest relative error that is left.

    >>> factor, error = fit({"a": 2.0, "b": 8.0}, {"a": 2.0, "b": 16.0})
    >>> round(factor, 3), round(error, 3)
    (1.414, 0.414)
    """
    ratios = {name: measured[name] / estimated[name] for name in measured}
    factor = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    return factor, max(abs(factor / ratio - 1) for ratio in ratios.values())


def milliseconds(mix: Mapping[str, int], factor: float = 1.0) -> float:
    """On a Cortex-M4 at 120 MHz."""
    return factor * cycles(mix, CORES["Cortex-M4"]) / CLOCK_HZ * 1e3


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.cycles", description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=HERE.parent.parent / "shared" / "models" / "tflite")
    parser.add_argument(
        "--json", type=Path, default=HERE / "results_cycles.json", help="kept: the mixes of TFLite Micro in it"
    )
    arguments = parser.parse_args()
    if not arguments.models.is_dir():
        parser.error(f"{arguments.models} is not there: pass --models DIR with the .tflite files")
    content: dict[str, Any] = json.loads(arguments.json.read_text(encoding="utf-8"))
    content["emitc"] = {}
    for net in NETS:
        print(net, file=sys.stderr)
        content["emitc"][net] = measure(arguments.models / f"{net}.tflite")
    arguments.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    factor, error = fit({net: milliseconds(mix) for net, mix in content["tflm_cmsis_nn"].items()}, CALIBRATION)
    rows = [
        (net, f"{milliseconds(mix, factor):.1f}", *(f"{times[net]:.1f}" for times in PUBLISHED.values()))
        for net, mix in content["emitc"].items()
    ]
    print(table(("model", "estimated ms>", *(f"{name}>" for name in PUBLISHED)), rows))
    print(f"wait states: factor {factor:.2f}, off by up to {100 * error:.0f} % where it was fitted")


if __name__ == "__main__":
    main()
