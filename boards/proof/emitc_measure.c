/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
#include "emitc_measure.h"

#if defined(EMITC_TRACE)
void emitc_layer_hook(const char *model, uint32_t index, const void *output, size_t bytes);
#endif

#if defined(__arm__)

/* r4 function, r5 record, r6 floor, r7 stack pointer: all kept by the callee. Only instructions that a Cortex-M0 has. */
__asm__(".syntax unified\n"
        ".section .text.emitc_measured_call,\"ax\",%progbits\n"
        ".balign 4\n"
        ".thumb\n"
        ".thumb_func\n"
        ".global emitc_measured_call\n"
        ".type emitc_measured_call, %function\n"
        ".global emitc_count_begin\n"
        ".global emitc_count_end\n"
        "emitc_measured_call:\n"
        "    push {r3-r7, lr}\n"
        "    mov r4, r0\n"
        "    mov r5, r2\n"
        "    mov r6, r3\n"
        "    mov r7, sp\n"
        "    ldr r2, =0xC0DEFACE\n"
        "1:  cmp r3, r7\n"
        "    bhs 2f\n"
        "    stmia r3!, {r2}\n"
        "    b 1b\n"
        "2:  mov r0, r1\n"
        "emitc_count_begin:\n"
        "    nop\n"
        "    blx r4\n"
        "emitc_count_end:\n"
        "    nop\n"
        "    mov r1, r6\n"
        "    ldr r2, =0xC0DEFACE\n"
        "3:  cmp r1, r7\n"
        "    bhs 4f\n"
        "    ldr r3, [r1]\n"
        "    cmp r3, r2\n"
        "    bne 4f\n"
        "    adds r1, r1, #4\n"
        "    b 3b\n"
        "4:  subs r1, r7, r1\n"
        "    stmia r5!, {r0, r1}\n"
        "    pop {r3-r7, pc}\n"
        ".pool\n"
        ".size emitc_measured_call, . - emitc_measured_call\n"
        ".section .text.emitc_known_loop,\"ax\",%progbits\n"
        ".balign 4\n"
        ".thumb_func\n"
        ".global emitc_known_loop\n"
        ".type emitc_known_loop, %function\n"
        "emitc_known_loop:\n"
        "    ldr r0, =100000\n"
        "    nop\n"
        "1:  subs r0, r0, #1\n"
        "    bne 1b\n"
        "    bx lr\n"
        ".pool\n"
        ".size emitc_known_loop, . - emitc_known_loop\n"
#if defined(EMITC_TRACE)
        ".section .text.emitc_layer_hook,\"ax\",%progbits\n"
        ".balign 4\n"
        ".thumb_func\n"
        ".global emitc_layer_hook\n"
        ".type emitc_layer_hook, %function\n"
        ".global emitc_hook_end\n"
        "emitc_layer_hook:\n"
        "    push {r4, lr}\n"
        "    bl emitc_layer_seen\n"
        "emitc_hook_end:\n"
        "    pop {r4, pc}\n"
        ".size emitc_layer_hook, . - emitc_layer_hook\n"
#endif
        ".text\n");

#elif EMITC_MEASURES_STACK /* RV32 */

/* s0 function, s1 record, s2 floor. */
__asm__(".section .text.emitc_measured_call,\"ax\",%progbits\n"
        ".balign 4\n"
        ".global emitc_measured_call\n"
        ".type emitc_measured_call, %function\n"
        ".global emitc_count_begin\n"
        ".global emitc_count_end\n"
        "emitc_measured_call:\n"
        "    addi sp, sp, -16\n"
        "    sw ra, 12(sp)\n"
        "    sw s0, 8(sp)\n"
        "    sw s1, 4(sp)\n"
        "    sw s2, 0(sp)\n"
        "    mv s0, a0\n"
        "    mv s1, a2\n"
        "    mv s2, a3\n"
        "    li t1, 0xC0DEFACE\n"
        "1:  bgeu a3, sp, 2f\n"
        "    sw t1, 0(a3)\n"
        "    addi a3, a3, 4\n"
        "    j 1b\n"
        "2:  mv a0, a1\n"
        "emitc_count_begin:\n"
        "    nop\n"
        "    jalr ra, 0(s0)\n"
        "emitc_count_end:\n"
        "    nop\n"
        "    mv t0, s2\n"
        "    li t1, 0xC0DEFACE\n"
        "3:  bgeu t0, sp, 4f\n"
        "    lw t2, 0(t0)\n"
        "    bne t2, t1, 4f\n"
        "    addi t0, t0, 4\n"
        "    j 3b\n"
        "4:  sub t0, sp, t0\n"
        "    sw a0, 0(s1)\n"
        "    sw t0, 4(s1)\n"
        "    lw ra, 12(sp)\n"
        "    lw s0, 8(sp)\n"
        "    lw s1, 4(sp)\n"
        "    lw s2, 0(sp)\n"
        "    addi sp, sp, 16\n"
        "    ret\n"
        ".size emitc_measured_call, . - emitc_measured_call\n"
        ".section .text.emitc_known_loop,\"ax\",%progbits\n"
        ".balign 4\n"
        ".global emitc_known_loop\n"
        ".type emitc_known_loop, %function\n"
        "emitc_known_loop:\n"
        "    lui a0, 24\n" /* 98304 */
        "    addi a0, a0, 1696\n"
        "1:  addi a0, a0, -1\n"
        "    bnez a0, 1b\n"
        "    ret\n"
        ".size emitc_known_loop, . - emitc_known_loop\n"
#if defined(EMITC_TRACE)
        ".section .text.emitc_layer_hook,\"ax\",%progbits\n"
        ".balign 4\n"
        ".global emitc_layer_hook\n"
        ".type emitc_layer_hook, %function\n"
        ".global emitc_hook_end\n"
        "emitc_layer_hook:\n"
        "    addi sp, sp, -16\n"
        "    sw ra, 12(sp)\n"
        "    call emitc_layer_seen\n"
        "    lw ra, 12(sp)\n"
        "    addi sp, sp, 16\n"
        "emitc_hook_end:\n"
        "    ret\n"
        ".size emitc_layer_hook, . - emitc_layer_hook\n"
#endif
        ".text\n");

#else /* no assembly for this core: the call alone */

void emitc_measured_call(emitc_function function, void *argument, struct emitc_measurement *into, uintptr_t floor)
{
    (void)floor;
    into->result = ((uint32_t(*)(void *))function)(argument);
    into->stack_bytes = 0;
}

void emitc_known_loop(void)
{
    for (volatile uint32_t i = 0; i < EMITC_KNOWN_LOOP; i++) {
    }
}

#if defined(EMITC_TRACE)
void emitc_layer_hook(const char *model, uint32_t index, const void *output, size_t bytes)
{
    emitc_layer_seen(model, index, output, bytes);
}
#endif

#endif
