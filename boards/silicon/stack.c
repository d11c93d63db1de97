/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* How far down a stack measurement may paint where nothing says where the stack ends: not at all, unless the project
   states how many bytes below the caller are surely free (-DEMITC_FREE_STACK_BYTES=4096). */
#include "emitc_board.h"

uintptr_t emitc_stack_floor(void)
{
#if defined(EMITC_FREE_STACK_BYTES)
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    return (here - EMITC_FREE_STACK_BYTES) & ~(uintptr_t)15u;
#else
    return UINTPTR_MAX;
#endif
}
