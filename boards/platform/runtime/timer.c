/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* Instructions under QEMU's -icount, where virtual time is a function of what was executed.

   RISC-V has mcycle, exactly one a instruction. Cortex-M has SysTick: with -icount shift=s an instruction takes 2^s ns
   and a tick 1e9 / F_CPU ns, so that with s = 6 ticks outnumber instructions and the quotient is exact to about one. Its
   interrupt counts the wraps: the handler's few instructions are then part of the count, once in 2^24 ticks. */
#include "emitc_board.h"

#if defined(__riscv)

static uint64_t start;

static uint64_t cycles(void)
{
    uint32_t low, high, again;
    do {
        __asm__ volatile("csrr %0, mcycleh\ncsrr %1, mcycle\ncsrr %2, mcycleh" : "=r"(high), "=r"(low), "=r"(again));
    } while (high != again);
    return (uint64_t)high << 32 | low;
}

void emitc_timer_start(void)
{
    start = cycles();
}

uint64_t emitc_timer_read(void)
{
    return cycles() - start;
}

uint64_t emitc_timer_in_units(uint64_t ticks)
{
    return ticks;
}

#else

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define SYST_CSR REGISTER(0xE000E010u)
#define SYST_RVR REGISTER(0xE000E014u)
#define SYST_CVR REGISTER(0xE000E018u)

static volatile uint32_t wraps;

void SysTick_Handler(void);
void SysTick_Handler(void)
{
    wraps++;
}

void emitc_timer_start(void)
{
    SYST_CSR = 0;
    wraps = 0;
    SYST_RVR = 0xFFFFFFu;
    SYST_CVR = 0;
    SYST_CSR = 7u; /* core clock, interrupt, enable */
}

uint64_t emitc_timer_read(void)
{
    uint32_t high, low;
    do {
        high = wraps;
        low = SYST_CVR;
    } while (high != wraps);
    return (uint64_t)high << 24 | (0xFFFFFFu - low);
}

/* ticks * 1e9 / (F_CPU << shift), by long division in base two: libgcc's would be counted as the model's code. */
uint64_t emitc_timer_in_units(uint64_t ticks)
{
    const uint64_t divisor = (uint64_t)F_CPU << EMITC_ICOUNT_SHIFT;
    const uint64_t dividend = ticks * 1000000000u;
    uint64_t quotient = 0, remainder = 0;
    for (int bit = 63; bit >= 0; bit--) {
        remainder = remainder << 1 | (dividend >> bit & 1u);
        if (remainder >= divisor) {
            remainder -= divisor;
            quotient |= (uint64_t)1 << bit;
        }
    }
    return quotient;
}

#endif

const char *emitc_timer_name(void)
{
    return "instructions";
}
