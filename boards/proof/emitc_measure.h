/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* One call, measured: painted stack, and two addresses between which an emulator counts instructions. */
#ifndef EMITC_MEASURE_H
#define EMITC_MEASURE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__arm__) || (defined(__riscv) && __riscv_xlen == 32)
#define EMITC_MEASURES_STACK 1
#else
#define EMITC_MEASURES_STACK 0
#endif

struct emitc_measurement {
    uint32_t result;      /* what the function returned */
    uint32_t stack_bytes; /* that the function used below its caller's stack pointer, exact to the word */
};

typedef void (*emitc_function)(void);

/* Calls `function(argument)`. Everything from `floor` up to the stack pointer is painted before and scanned after; no
   frame of the measurement is part of what is measured. A function that never writes to the bottom of its frame may read
   low. stack_bytes is 0 where EMITC_MEASURES_STACK is 0. */
void emitc_measured_call(emitc_function function, void *argument, struct emitc_measurement *into, uintptr_t floor);

/* Executes EMITC_KNOWN_LOOP instructions (Arm, RISC-V) and uses no stack: what a counter must show. */
void emitc_known_loop(void);
#define EMITC_KNOWN_LOOP 200003u

#if defined(EMITC_TRACE)
/* What emitc_layer_hook() calls: a layer of the model has written `bytes` bytes at `output`. */
void emitc_layer_seen(const char *model, uint32_t index, const void *output, size_t bytes);
#endif

#endif
