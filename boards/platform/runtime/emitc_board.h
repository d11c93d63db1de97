/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* What firmware may ask of a board: print, count, stop. No libc. */
#ifndef EMITC_BOARD_H
#define EMITC_BOARD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void emitc_write(const char *text, uint32_t length);
void emitc_print(const char *text);
void emitc_print_u32(uint32_t value);
void emitc_print_u64(uint64_t value);
void emitc_print_hex(const uint8_t *bytes, uint32_t length);

void emitc_timer_start(void);
uint64_t emitc_timer_read(void);               /* ticks since emitc_timer_start() */
uint64_t emitc_timer_in_units(uint64_t ticks); /* so many ticks in units of emitc_timer_name() */
const char *emitc_timer_name(void);            /* "instructions", "cycles" or "microseconds" */

/* Lowest address that a stack measurement may paint; UINTPTR_MAX where the stack's end is not known. */
uintptr_t emitc_stack_floor(void);

void emitc_exit(int code); /* does not return on an emulated board */

#ifdef __cplusplus
}
#endif

#endif
