"""A hand-written package with the interface of a generated one: 4 bytes in, 4 bytes out, two layers.

Layer 0 adds 3 to every byte (wrapping), layer 1 reverses them. `run` may be replaced, to hang, fault or be counted.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from emitc.boards.project import RunLayer, RunModel, RunTensor

Test = Callable[..., None]
TOOLS = ("arm-none-eabi-gcc", "riscv64-unknown-elf-gcc", "qemu-system-arm", "qemu-system-riscv32")


def needs_boards(test: Test) -> Test:
    """Marks a test that builds for and boots emulated boards."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    skipped: Test = pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")(test)
    marked: Test = pytest.mark.board(skipped)
    return marked


MODEL = RunModel(
    name="standin",
    inputs=(RunTensor(4, "int8_t"),),
    outputs=(RunTensor(4, "int8_t"),),
    arena_bytes=32,
    layers=(RunLayer(0, "ADD", "plus/three", 4), RunLayer(1, "REVERSE", "mirror", 0)),
)

CASES = [
    ([bytes([1, 2, 3, 4])], [bytes([7, 6, 5, 4])]),
    ([bytes([253, 0, 127, 128])], [bytes([131, 130, 3, 0])]),
]

RUNTIME_H = """\
#ifndef EMITC_RUNTIME_H
#define EMITC_RUNTIME_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
typedef enum { EMITC_OK = 0, EMITC_NOT_READY, EMITC_ARENA_TOO_SMALL, EMITC_MISALIGNED } emitc_status;
#ifdef EMITC_TRACE
void emitc_layer_hook(const char *model, uint32_t index, const void *output, size_t output_bytes);
#endif
void emitc_add_s8(const int8_t *x, int8_t *y, size_t n, int32_t addend);
#ifdef __cplusplus
}
#endif
#endif
"""

RUNTIME_C = """\
#include "emitc_runtime.h"
void emitc_add_s8(const int8_t *x, int8_t *y, size_t n, int32_t addend)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = (int8_t)(uint8_t)((uint32_t)x[i] + (uint32_t)addend);
    }
}
"""

HEADER = """\
#ifndef STANDIN_H
#define STANDIN_H
#include "emitc_runtime.h"
#ifdef __cplusplus
extern "C" {
#endif
#define STANDIN_ARENA_BYTES @ARENA@u
#define STANDIN_ARENA_ALIGN 16u
#define STANDIN_STATE_BYTES 0u
#define STANDIN_INPUT_0_BYTES 4u
#define STANDIN_OUTPUT_0_BYTES 4u
typedef struct standin {
    uint8_t *arena;
} standin_t;
emitc_status standin_init(standin_t *self, void *arena, size_t arena_bytes, void *state, size_t state_bytes);
int8_t *standin_input_0(standin_t *self);
emitc_status standin_run(standin_t *self);
const int8_t *standin_output_0(const standin_t *self);
#ifdef __cplusplus
}
#endif
#endif
"""

SOURCE = """\
#include "standin.h"

static const int8_t addends[64] = {3, 3, 3, 3};

emitc_status standin_init(standin_t *self, void *arena, size_t arena_bytes, void *state, size_t state_bytes)
{
    (void)state;
    if (arena_bytes < STANDIN_ARENA_BYTES || state_bytes != 0u) {
        return EMITC_ARENA_TOO_SMALL;
    }
    if ((uintptr_t)arena % STANDIN_ARENA_ALIGN != 0u) {
        return EMITC_MISALIGNED;
    }
    self->arena = arena;
    return EMITC_OK;
}

int8_t *standin_input_0(standin_t *self)
{
    return (int8_t *)self->arena;
}

const int8_t *standin_output_0(const standin_t *self)
{
    return (const int8_t *)self->arena + 16;
}

@RUN@
"""

RUN = """\
emitc_status standin_run(standin_t *self)
{
    int8_t *const x = (int8_t *)self->arena;
    int8_t *const y = x + 16;
    const volatile int8_t *const addend = addends;
    emitc_add_s8(x, x, 4, addend[2]);
#ifdef EMITC_TRACE
    emitc_layer_hook("standin", 0, x, 4);
#endif
    for (int i = 0; i < 4; i++) {
        y[i] = x[3 - i];
    }
#ifdef EMITC_TRACE
    emitc_layer_hook("standin", 1, y, 4);
#endif
    return EMITC_OK;
}
"""

COUNTED_TURNS = 1000
COUNTED_INSTRUCTIONS = {
    "arm": 1 + 1 + 2 * COUNTED_TURNS + 1 + 1 + 1,
    "riscv": 1 + 1 + 1 + 2 * COUNTED_TURNS + 1 + 1 + 1,
}
COUNTED_STACK = {"arm": 8, "riscv": 16}
"""Arm: push, ldr, 1000 x (subs, bne), str, movs, pop. RISC-V: addi, sw, li, 1000 x (addi, bnez), li, addi, ret."""

RUN_COUNTED = """\
__attribute__((naked)) emitc_status standin_run(standin_t *self)
{
    (void)self;
#if defined(__arm__)
    __asm__ volatile(".syntax unified\\n"
                     "push {r4, lr}\\n"
                     "ldr r1, =1000\\n"
                     "1: subs r1, r1, #1\\n"
                     "bne 1b\\n"
                     "str r1, [sp]\\n"
                     "movs r0, #0\\n"
                     "pop {r4, pc}\\n"
                     ".pool\\n");
#else
    __asm__ volatile("addi sp, sp, -16\\n"
                     "sw ra, 0(sp)\\n"
                     "li a1, 1000\\n"
                     "1: addi a1, a1, -1\\n"
                     "bnez a1, 1b\\n"
                     "li a0, 0\\n"
                     "addi sp, sp, 16\\n"
                     "ret\\n");
#endif
}
"""

RUN_HANGING = """\
emitc_status standin_run(standin_t *self)
{
    for (volatile uint8_t *at = self->arena;; at[0] = 0) {
    }
}
"""

RUN_FAULTING = """\
emitc_status standin_run(standin_t *self)
{
    (void)self;
    __builtin_trap();
}
"""

RUN_REFUSING = """\
emitc_status standin_run(standin_t *self)
{
    (void)self;
    return EMITC_NOT_READY;
}
"""

RUN_STRAYING = """\
emitc_status standin_run(standin_t *self)
{
    volatile uint8_t *const at = self->arena;
    at[STANDIN_ARENA_BYTES] = 0;
    at[STANDIN_ARENA_BYTES + 63u] = 0;
    at[-1] = 0;
    return EMITC_OK;
}
"""

RUN_DEEP = """\
emitc_status standin_run(standin_t *self)
{
    volatile uint8_t deep[80000];
    for (uint32_t i = 0; i < sizeof deep; i++) {
        deep[i] = self->arena[0];
    }
    return EMITC_OK;
}
"""


def write_package(folder: Path, run: str = RUN, arena: int = 32) -> Path:
    """Writes the package and returns its folder."""
    files = {
        "library.json": json.dumps(
            {
                "name": "standin",
                "version": "0.1.0",
                "frameworks": "*",
                "platforms": "*",
                "headers": "standin.h",
                "build": {"includeDir": "include", "srcDir": "src"},
            }
        ),
        "manifest.json": "{}",
        "include/emitc_runtime.h": RUNTIME_H,
        "include/standin.h": HEADER.replace("@ARENA@", str(arena)),
        "src/emitc_runtime.c": RUNTIME_C,
        "src/standin.c": SOURCE.replace("@RUN@", run),
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
