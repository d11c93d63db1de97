"""A package's self test on the host, with faults: flipped bits of its constants, and layers that compute something else."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from emitc.compiled import Compiled
from emitc.verify.build import WARNINGS, build_support, run_compiler, sources

DRIVER = """
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "@name@.c"

static uint32_t wrong_layer = UINT32_MAX;

void emitc_layer_hook(const char *model, uint32_t index, const void *output, size_t output_bytes)
{
    (void)model;
    if (index == wrong_layer) {
        ((unsigned char *)(uintptr_t)output)[output_bytes / 2u] ^= 1u;
    }
}

@memory@

static emitc_status tested(emitc_test_fault *fault)
{
    for (size_t i = 0; i < sizeof arena; i++) {
        arena[i] = 0xA5;
    }
    return @name@_self_test(@arguments@, fault);
}

static void say(const char *what, long number, emitc_status status, const emitc_test_fault *fault)
{
    printf("%s %ld %d %d %u %u %s\\n", what, number, (int)status, (int)fault->part, (unsigned)fault->index,
        (unsigned)fault->input, fault->layer);
}

static uint32_t part_of(uint32_t constant)
{
    uint32_t part = 0;
    while (self_test_parts[part].end <= constant) {
        part++;
    }
    return part;
}

int main(int count, char **words)
{
    const long every = count > 1 ? atol(words[1]) : 0;
    emitc_test_fault fault;
    say("plain", 0, tested(&fault), &fault);
    for (uint32_t i = 0; i < SELF_TEST_CHECKS; i++) {
        wrong_layer = self_test_parts[self_test_layers[i]].index;
        const emitc_status status = tested(&fault);
        say("layer", (long)wrong_layer, status, &fault);
    }
    wrong_layer = UINT32_MAX;
    long flipped = 0;
    long missed = 0;
    long bit = 0;
    for (uint32_t i = 0; every > 0 && i < sizeof self_test_constants / sizeof *self_test_constants; i++) {
        const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        volatile unsigned char *const at = (volatile unsigned char *)(uintptr_t)self_test_constants[i].data;
        const uintptr_t start = (uintptr_t)at / page * page;
        if (mprotect((void *)start, (uintptr_t)at + self_test_constants[i].bytes - start, PROT_READ | PROT_WRITE) != 0) {
            return 2;
        }
        for (; bit < 8l * self_test_constants[i].bytes; bit += every) {
            at[bit / 8] = (unsigned char)(at[bit / 8] ^ (1u << (bit % 8)));
            const emitc_status status = tested(&fault);
            at[bit / 8] = (unsigned char)(at[bit / 8] ^ (1u << (bit % 8)));
            flipped++;
            missed += status != EMITC_SELF_TEST_FAILED || fault.part != EMITC_TEST_CONSTANTS
                || fault.index != self_test_parts[part_of(i)].index;
        }
        bit -= 8l * self_test_constants[i].bytes;
    }
    say("plain", 1, tested(&fault), &fault);
    printf("flips %ld %ld\\n", flipped, missed);
    return 0;
}
"""


@dataclass(frozen=True, slots=True)
class Line:
    """What one self test said. number: of the layer that was made wrong."""

    number: int
    status: int
    part: int
    index: int
    input: int
    layer: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """plain: without a fault, before and after the others. layers: with one wrong layer each. flips, missed: bits."""

    plain: list[Line]
    layers: list[Line]
    flips: int
    missed: int


def self_tested(compiled: Compiled, folder: Path, every: int = 0, flags: tuple[str, ...] = ("-O2",)) -> Outcome:
    """The package's self test, compiled with a driver and run. every: one of so many bits is flipped, 0 for none."""
    name, upper = compiled.program.name, compiled.program.upper
    package = folder / "package"
    compiled.write(package)
    regions = [region for region in compiled.program.regions if region.plan.arena_bytes]
    memory = f"static _Alignas({upper}_ARENA_ALIGN) unsigned char arena[{max(1, compiled.program.plan.arena_bytes)}];\n"
    arguments = "arena, sizeof arena"
    if compiled.program.regions:
        fields = "".join(
            f"    .{r.lower} = arena + {r.start_bytes}, .{r.lower}_bytes = {r.plan.arena_bytes},\n" for r in regions
        )
        memory += f"static const {name}_arenas_t arenas = {{\n{fields}}};\n"
        arguments = "&arenas"
    state = compiled.program.state_bytes
    if state:
        memory += f"static _Alignas({upper}_ARENA_ALIGN) unsigned char state_block[{state}];\n"
    memory += f"#define STATE {'state_block, sizeof state_block' if state else 'NULL, 0'}\n"
    weights = compiled.files.get(f"{name}.weights.bin", b"")
    if weights:
        memory += f"static const _Alignas(16) unsigned char file[] = {{{', '.join(map(str, weights))}}};\n"
    driver = folder / "driver.c"
    arguments += ", STATE, file, sizeof file" if weights else ", STATE"
    text = DRIVER.replace("@name@", name).replace("@memory@", memory).replace("@arguments@", arguments)
    driver.write_text(text, encoding="ascii")
    files, includes = sources(package)
    others = [str(path) for path in files if path.name != f"{name}.c"]
    library = build_support(compiled.support("host"), folder)
    warnings = [flag for flag in WARNINGS if flag != "-std=c11"]
    options = ["-std=gnu11", "-DEMITC_TRACE", "-DEMITC_NO_TARGET_CHECK", *(f"-I{path}" for path in includes)]
    program = folder / "driver"
    run_compiler([*warnings, *flags, *options, *library, str(driver), *others, "-o", str(program), "-lm"])
    done = subprocess.run([program, str(every)], capture_output=True, text=True, check=True, timeout=600)
    words = [line.split(maxsplit=6) for line in done.stdout.splitlines()]
    lines = [
        (what, Line(*map(int, rest[:5]), rest[5] if len(rest) == 6 else "")) for what, *rest in words if what != "flips"
    ]
    flips, missed = (int(word) for word in next(rest for what, *rest in words if what == "flips"))
    plain, layers = ([line for what, line in lines if what == kind] for kind in ("plain", "layer"))
    return Outcome(plain, layers, flips, missed)
