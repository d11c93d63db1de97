/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* From reset to main(): vectors, static data, constructors; a fault prints where it happened and exits with 70. */
#include "emitc_board.h"

enum { EXIT_FAULT = 70 };

extern uint32_t __stack_top[], __data_load[], __data_start[], __data_end[], __bss_start[], __bss_end[];
extern void (*__init_array_start[])(void);
extern void (*__init_array_end[])(void);

int main(void);
void Reset_Handler(void);

static void start(void)
{
    const uint32_t *from = __data_load;
    for (uint32_t *to = __data_start; to < __data_end;) {
        *to++ = *from++;
    }
    for (uint32_t *to = __bss_start; to < __bss_end;) {
        *to++ = 0;
    }
    for (void (**constructor)(void) = __init_array_start; constructor < __init_array_end; constructor++) {
        (*constructor)();
    }
    emitc_exit(main());
}

#if defined(__riscv)

__attribute__((used)) static void trap(void)
{
    uint32_t cause, pc;
    __asm__ volatile("csrr %0, mcause\ncsrr %1, mepc" : "=r"(cause), "=r"(pc));
    emitc_print("\nemitc fault mcause ");
    emitc_print_u32(cause);
    emitc_print(" pc ");
    emitc_print_u32(pc);
    emitc_print("\n");
    emitc_exit(EXIT_FAULT);
}

/* The stack may be what failed: the handler starts on a fresh one. */
__attribute__((naked, used, aligned(4))) static void trap_entry(void)
{
    __asm__ volatile("la sp, __stack_top\nj trap");
}

__attribute__((used)) static void begin(void)
{
    __asm__ volatile("csrw mtvec, %0" ::"r"(trap_entry));
#if defined(__riscv_flen)
    __asm__ volatile("csrs mstatus, %0\ncsrw fcsr, zero" ::"r"(1u << 13));
#endif
#if defined(__riscv_vector) || defined(__riscv_v_elen)
    __asm__ volatile("csrs mstatus, %0" ::"r"(1u << 9)); /* VS: the vector unit is on */
#endif
    start();
}

__attribute__((naked, section(".vectors"), used)) void Reset_Handler(void)
{
    __asm__ volatile(".option push\n.option norelax\nla gp, __global_pointer$\n.option pop\n"
                     "la sp, __stack_top\nla tp, __tls_base\nj begin");
}

#else

__attribute__((used)) static void fault(const uint32_t *frame, uint32_t exception)
{
    emitc_print("\nemitc fault exception ");
    emitc_print_u32(exception);
    if ((uintptr_t)frame < (uintptr_t)__stack_top) {
        emitc_print(" pc ");
        emitc_print_u32(frame[6]);
    }
    emitc_print("\n");
    emitc_exit(EXIT_FAULT);
}

__attribute__((naked)) static void fault_entry(void)
{
    __asm__ volatile(".syntax unified\nmov r0, sp\nmrs r1, ipsr\nldr r2, =__stack_top\nmov sp, r2\n"
                     "ldr r2, =fault\nbx r2\n.pool");
}

void SysTick_Handler(void);

typedef void (*vector)(void);

__attribute__((section(".vectors"), used)) static const union {
    uint32_t *stack;
    vector handler;
} vectors[16] = {
    {.stack = __stack_top},      {.handler = Reset_Handler}, {.handler = fault_entry}, {.handler = fault_entry},
    {.handler = fault_entry},    {.handler = fault_entry},   {.handler = fault_entry}, {.handler = fault_entry},
    {.handler = 0},              {.handler = 0},             {.handler = 0},           {.handler = fault_entry},
    {.handler = fault_entry},    {.handler = 0},             {.handler = fault_entry}, {.handler = SysTick_Handler},
};

__attribute__((used)) void Reset_Handler(void)
{
#if __ARM_ARCH >= 7 && (defined(__ARM_FP) || defined(__ARM_FEATURE_MVE))
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* CPACR: FPU and MVE on */
    __asm__ volatile("dsb\nisb");
#if defined(__ARM_FEATURE_MVE)
    const uint32_t fpscr = 4u << 16; /* LTPSIZE 4: no tail predication outside of loops */
#else
    const uint32_t fpscr = 0;
#endif
    __asm__ volatile("vmsr fpscr, %0" ::"r"(fpscr));
#endif
    start();
}

#endif
