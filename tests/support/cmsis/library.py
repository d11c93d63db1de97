"""CMSIS-NN trees on this machine, compiled with the driver of this folder, for the host or an emulated board.

A tree is found by the environment variable EMITC_CMSIS_NN (paths, as in PATH) and in the installed wheel of bakenn, which
carries a part of 4.0.0. Nothing of them is copied.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emitc.backends.cmsis_nn.buffer_sizes import BUFFER_SIZES, Call, Dims
from emitc.backends.cmsis_nn.sources import source_index, sources_of
from emitc.backends.cmsis_nn.versions import InstructionSet, Tree, read_tree
from emitc.boards.run import boot
from emitc.errors import EmitcError
from emitc.target import boards_dir, load_board

HERE = Path(__file__).resolve().parent
VARIABLE = "EMITC_CMSIS_NN"
BOARDS = {InstructionSet.DSP: "qemu_m4", InstructionSet.MVE: "qemu_m55"}
SKIPPED = f"no CMSIS-NN: neither {VARIABLE} nor the wheel of bakenn"
HEADER_WORDS = 64
BATCH_BYTES = 300_000
"""Records that one image of the smallest board holds."""
PRINTED_BYTES = 50_000
"""Text that one image prints: less than a pipe holds, so that the emulator never waits for its reader."""
UNKNOWN, BROKEN_GUARD = -100, -101

OPERATORS = {
    "conv_s8": (1, ("arm_convolve_wrapper_s8",)),
    "depthwise_s8": (2, ("arm_depthwise_conv_wrapper_s8",)),
    "fully_connected_s8": (3, ("arm_fully_connected_s8",)),
    "average_s8": (4, ("arm_avgpool_s8",)),
    "max_s8": (5, ("arm_max_pool_s8",)),
    "add_s8": (6, ("arm_elementwise_add_s8",)),
    "mul_s8": (7, ("arm_elementwise_mul_s8",)),
    "softmax_s8": (8, ("arm_softmax_s8",)),
    "transpose_conv_s8": (9, ("arm_transpose_conv_s8", "arm_transpose_conv_wrapper_s8")),
    "conv_s16": (10, ("arm_convolve_wrapper_s16",)),
    "depthwise_s16": (11, ("arm_depthwise_conv_wrapper_s16",)),
    "fully_connected_s16": (12, ("arm_fully_connected_s16",)),
    "average_s16": (13, ("arm_avgpool_s16",)),
    "max_s16": (14, ("arm_max_pool_s16",)),
    "add_s16": (15, ("arm_elementwise_add_s16",)),
    "mul_s16": (16, ("arm_elementwise_mul_s16",)),
    "svdf_s8": (17, ("arm_svdf_state_s16_s8",)),
    "fully_connected_channels_s8": (18, ("arm_fully_connected_per_channel_s8",)),
    "conv_general_s8": (19, ("arm_convolve_s8",)),
    "depthwise_general_s8": (20, ("arm_depthwise_conv_s8",)),
    "conv_s4": (21, ("arm_convolve_wrapper_s4",)),
    "depthwise_s4": (22, ("arm_depthwise_conv_wrapper_s4",)),
    "conv_general_s4": (24, ("arm_convolve_s4",)),
    "fully_connected_s4": (23, ("arm_fully_connected_s4",)),
}
SIZES = {name: 100 + i for i, name in enumerate(BUFFER_SIZES)}

NOT_BUILT = {("4.0.0", InstructionSet.MVE, "arm_softmax_s8")}
"""GCC 12.2 ends with an internal error in these."""


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One call. operator: a key of OPERATORS, or a size function. numbers: header words by place; arrays: by place."""

    operator: str
    call: Call
    output_bytes: int
    numbers: dict[str, int] = field(default_factory=dict)
    arrays: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    scratch_bytes: int = 0


_PLACES = [
    "BYTES", "OP", *(f"{t}_{d}" for t in ("INPUT", "FILTER", "OUTPUT") for d in "NHWC"), "STRIDE_W", "STRIDE_H", "PAD_W",
    "PAD_H", "DILATION_W", "DILATION_H", "INPUT_OFFSET", "FILTER_OFFSET", "OUTPUT_OFFSET", "LOW", "HIGH",
    "CHANNEL_MULTIPLIER", "MULTIPLIER", "SHIFT", "SCRATCH_BYTES", "OUTPUT_BYTES", *(f"P{i}" for i in range(10)), "X", "W", "B",
    "MULTIPLIERS", "SHIFTS", "A", "SUMS", "SCRATCH_2_BYTES", "STATE_BYTES", "X_BYTES", "W_BYTES", "B_BYTES", "A_BYTES",
    "ARRAY_CHANNELS", "IN_PLACE",
]  # fmt: skip
PLACE = {name: i for i, name in enumerate(_PLACES)}


def _dims(prefix: str, d: Dims) -> dict[str, int]:
    return {f"{prefix}_N": d.n, f"{prefix}_H": d.h, f"{prefix}_W": d.w, f"{prefix}_C": d.c}


def encoded(record: Record) -> bytes:
    """The record as driver.c reads it."""
    c = record.call
    words = _dims("INPUT", c.input) | _dims("FILTER", c.filter) | _dims("OUTPUT", c.output)
    words |= {"STRIDE_W": c.stride_w, "STRIDE_H": c.stride_h, "PAD_W": c.pad_w, "PAD_H": c.pad_h}
    words |= {"DILATION_W": c.dilation_w, "DILATION_H": c.dilation_h, "LOW": -128, "HIGH": 127}
    words["CHANNEL_MULTIPLIER"] = c.output.c // max(1, c.input.c)
    words |= {"SCRATCH_BYTES": record.scratch_bytes, "OUTPUT_BYTES": record.output_bytes} | record.numbers
    words["OP"] = OPERATORS[record.operator][0] if record.operator in OPERATORS else SIZES[record.operator]
    arrays = b""
    for place, values in record.arrays.items():
        data = np.ascontiguousarray(values).tobytes()
        words[place] = HEADER_WORDS * 4 + len(arrays)
        if place in ("X", "W", "B", "A"):
            words[f"{place}_BYTES"] = len(data)
        elif place in ("MULTIPLIERS", "SHIFTS", "SUMS"):
            words["ARRAY_CHANNELS"] = len(data)
        arrays += data + bytes(-len(data) % 16)
    words["BYTES"] = HEADER_WORDS * 4 + len(arrays)
    header = [0] * HEADER_WORDS
    for name, value in words.items():
        header[PLACE[name]] = value
    return struct.pack(f"<{HEADER_WORDS}i", *header) + arrays


@cache
def trees() -> tuple[Tree, ...]:
    """Every CMSIS-NN that the tests may use."""
    sources = [read_tree(Path(path)) for path in os.environ.get(VARIABLE, "").split(os.pathsep) if path]
    spec = importlib.util.find_spec("bakenn")
    if spec is not None and spec.submodule_search_locations:
        sources.append(read_tree(Path(next(iter(spec.submodule_search_locations)))))
    return tuple(sources)


def missing_tools(instructions: InstructionSet) -> str:
    """What is needed and not installed; "" where all is there."""
    tools = ["gcc"] if instructions is InstructionSet.PORTABLE else ["arm-none-eabi-gcc", "qemu-system-arm"]
    return ", ".join(tool for tool in tools if shutil.which(tool) is None)


@cache
def _complete(root: Path, instructions: InstructionSet) -> frozenset[str]:
    tree = read_tree(root)
    index, host = source_index(tree, instructions), instructions is InstructionSet.PORTABLE
    complete = set()
    for name in {*(f for _, names_of in OPERATORS.values() for f in names_of), *BUFFER_SIZES}:
        if name not in tree.functions or (tree.version.name, instructions, name) in NOT_BUILT:
            continue
        try:
            sources_of(tree, [name], instructions, host=host, index=index)
        except EmitcError:
            continue
        complete.add(name)
    return frozenset(complete)


def complete(tree: Tree, instructions: InstructionSet) -> frozenset[str]:
    """Functions that the driver can call and the tree has with all that they use."""
    return _complete(tree.root, instructions)


def _size_cases(tree: Tree, available: Sequence[str]) -> str:
    """sizes.h: a case for each size function, its arguments by their names in the tree's own prototype."""
    arguments = {
        "conv_params": "&conv", "dw_conv_params": "&dw", "input_dims": "&in", "filter_dims": "&filter", "output_dims": "&out",
        "out_dims": "&out", "dim_dst_width": "out.w", "ch_src": "in.c", "transposed_conv_params": "&transposed",
        "transpose_conv_params": "&transposed", "output_x": "out.w", "weights_feature_dims": "&filter",
    }  # fmt: skip
    lines = []
    for name in available:
        if name in SIZES:
            passed = ", ".join(arguments[argument.name] for argument in tree.functions[name])
            before = (
                "const cmsis_nn_transpose_conv_params transposed = {.stride = stride}; "
                if "transposed" in passed
                else ""
            )
            lines.append(f"case {SIZES[name] - 100}: {{ {before}size = {name}({passed}); break; }}")
    return "\n".join(lines) + "\n"


class Library:
    """A tree compiled for an instruction set, with the driver."""

    def __init__(
        self, tree: Tree, instructions: InstructionSet, folder: Path, functions: Iterable[str] | None = None
    ) -> None:
        self.tree, self.instructions, self.folder = tree, instructions, folder
        self.host = instructions is InstructionSet.PORTABLE
        wanted = complete(tree, instructions)
        self.available = sorted(wanted if functions is None else wanted.intersection(functions))
        needed = sources_of(tree, self.available, instructions, host=self.host)
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"#define HAVE_{name} 1" for name in self.available]
        if "cmsis_nn_bias_data" in tree.structures:
            lines.append("#define WITH_BIAS_DATA 1")
        if tree.takes("arm_convolve_s8", "upscale_dims"):
            lines.append("#define WITH_UPSCALE 1")
        (folder / "available.h").write_text("\n".join(lines) + "\n", encoding="ascii")
        (folder / "sizes.h").write_text(_size_cases(tree, self.available), encoding="ascii")
        self._objects: list[Path] = []
        if self.host:
            self._compiler = ["gcc", "-O1", "-DON_HOST", "-fno-strict-aliasing"]
            self._compiler += ["-fsanitize=address", "-fno-omit-frame-pointer"]
        else:
            self._manifest = json.loads(
                (boards_dir() / "platform" / "boards" / f"{BOARDS[instructions]}.json").read_text(encoding="utf-8")
            )
            self._compiler = ["arm-none-eabi-gcc", "--specs=nano.specs", *self._manifest["build"]["arch_flags"], "-O2"]
            self._compiler += [
                "-DF_CPU=1000000L",
                "-DEMITC_ICOUNT_SHIFT=6",
                f"-I{boards_dir() / 'platform' / 'runtime'}",
            ]
        self._compiler += ["-std=gnu11", "-w", "-ffunction-sections", "-fdata-sections", f"-I{folder}"]
        self._compiler += [f"-I{include}" for include in needed.includes] + [f"-D{define}" for define in needed.defines]
        before = [f"-include{header}" for header in needed.headers]
        files = [*needed.sources, HERE / "driver.c"]
        if not self.host:
            files += sorted((boards_dir() / "platform" / "runtime").glob("*.c"))
        for number, source in enumerate(files):
            target = folder / f"{number}_{source.stem}.o"
            self._run(
                [*self._compiler, *before, "-fno-tree-loop-distribute-patterns", "-c", str(source), "-o", str(target)]
            )
            self._objects.append(target)

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[-3000:]}"

    def has(self, operator: str) -> bool:
        """Whether the library has what an operator needs."""
        return OPERATORS[operator][1][0] in self.available

    def run(self, records: Sequence[Record]) -> list[tuple[int, bytes, bytes]]:
        """Status, output and state of each record, in order."""
        results: list[tuple[int, bytes, bytes]] = []
        batch: list[bytes] = []
        printed = 0
        for record in records:
            data, text = encoded(record), 2 * (record.output_bytes + record.numbers.get("STATE_BYTES", 0)) + 40
            if batch and (sum(map(len, batch)) + len(data) > BATCH_BYTES or printed + text > PRINTED_BYTES):
                results += self._batch(batch)
                batch, printed = [], 0
            batch.append(data)
            printed += text
        return results + (self._batch(batch) if batch else [])

    def _batch(self, batch: Sequence[bytes]) -> list[tuple[int, bytes, bytes]]:
        (self.folder / "cases.bin").write_bytes(b"".join(batch))
        assembly = '.section .rodata.cases,"a"\n.balign 16\n.global cases, cases_end\ncases:\n.incbin "cases.bin"\ncases_end:\n'
        note = '.section .note.GNU-stack,"",%progbits\n' if self.host else ""
        (self.folder / "cases.S").write_text(assembly + note, encoding="ascii")
        image = self.folder / "image.elf"
        link = [*self._compiler, "-Wl,--gc-sections", "cases.S", *map(str, self._objects), "-lm", "-o", str(image)]
        if self.host:
            self._run(link)
            done = subprocess.run([str(image)], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-4000:] + f"\n{len(done.stdout.splitlines())} records done"
            printed = done.stdout
        else:
            memory = self._manifest["build"]["memory"]
            symbols = [
                f"-Wl,--defsym=__{region}_{what}={value}"
                for region, bounds in memory.items()
                for what, value in zip(("org", "len"), bounds, strict=True)
            ]
            scripts = boards_dir() / "platform" / "ldscripts"
            link += [
                "-nostartfiles",
                "-Wl,--no-warn-rwx-segments",
                *symbols,
                f"-L{scripts}",
                f"-T{scripts / 'cortex_m.ld'}",
            ]
            self._run(link)
            printed = boot(load_board(BOARDS[self.instructions]), image, (), timeout=300)
        results: list[tuple[int, bytes, bytes]] = []
        for line in printed.splitlines():
            parts = line.split(" ")
            if len(parts) != 3 or not parts[0].isdigit():
                continue
            number, status, data = int(parts[0]), int(parts[1]), bytes.fromhex(parts[2])
            if number == len(results):
                results.append((status, data, b""))
            elif status == BROKEN_GUARD:
                results[number] = (BROKEN_GUARD, results[number][1], results[number][2])
            else:
                results[number] = (results[number][0], results[number][1], data)
        assert len(results) == len(batch), f"{len(results)} of {len(batch)} records came back\n{printed[-500:]}"
        return results


LibraryOf = Callable[[Tree, InstructionSet], Library]
"""The fixture `library_of`."""
