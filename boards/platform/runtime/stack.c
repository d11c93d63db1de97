/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* How far down a stack measurement may paint: to the end of the static data, and no further than is ever of interest. */
#include "emitc_board.h"

enum { PAINTED_BYTES = 65536 };

extern uint32_t __heap_start[], __stack_top[];

uintptr_t emitc_stack_floor(void)
{
    const uintptr_t end_of_data = (uintptr_t)__heap_start;
    const uintptr_t enough = (uintptr_t)__stack_top - PAINTED_BYTES;
    return enough > end_of_data ? enough : end_of_data;
}
