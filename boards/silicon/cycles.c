/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* Core cycles on silicon, by core:
     Cortex-M3 and up   DWT CYCCNT, 32 bits; where the part lacks it, the framework's microseconds
     Cortex-M0, M0+     the framework's microseconds (its scheduler may own SysTick)
     RISC-V             mcycle
     Espressif          what ESP-IDF reads: CCOUNT, mcycle, or the counter that the C3 and C6 have instead, 32 bits
     Xtensa             CCOUNT, 32 bits
   A 32-bit counter wraps after 2^32 cycles: 9 s at 480 MHz, 7 s at 600 MHz. */
#include "emitc_board.h"

uint32_t emitc_microseconds(void); /* from the framework's main */

#if defined(ESP_PLATFORM)

#include "esp_cpu.h"

static uint32_t start;

void emitc_timer_start(void)
{
    start = esp_cpu_get_cycle_count();
}

uint64_t emitc_timer_read(void)
{
    return (uint32_t)(esp_cpu_get_cycle_count() - start);
}

const char *emitc_timer_name(void)
{
    return "cycles";
}

#elif defined(__riscv)

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

const char *emitc_timer_name(void)
{
    return "cycles";
}

#elif defined(__XTENSA__)

static uint32_t start;

static uint32_t cycles(void)
{
    uint32_t count;
    __asm__ volatile("rsr.ccount %0" : "=r"(count));
    return count;
}

void emitc_timer_start(void)
{
    start = cycles();
}

uint64_t emitc_timer_read(void)
{
    return cycles() - start;
}

const char *emitc_timer_name(void)
{
    return "cycles";
}

#else

static uint32_t start;
static uint8_t has_cycles;

#if defined(__ARM_ARCH) && __ARM_ARCH >= 7 && !defined(__ARM_ARCH_8M_BASE__)

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define DEMCR REGISTER(0xE000EDFCu)
#define DWT_CTRL REGISTER(0xE0001000u)
#define DWT_CYCCNT REGISTER(0xE0001004u)
#define DWT_LAR REGISTER(0xE0001FB0u)

static uint32_t cycles(void)
{
    return DWT_CYCCNT;
}

static void find_cycles(void)
{
    DEMCR |= 1u << 24; /* TRCENA */
#if __ARM_ARCH == 7
    DWT_LAR = 0xC5ACCE55u; /* some Cortex-M7 lock the unit */
#endif
    if (DWT_CTRL != 0u && (DWT_CTRL & 1u << 25) == 0u) { /* there, and NOCYCCNT clear */
        DWT_CTRL |= 1u;
        const uint32_t before = DWT_CYCCNT;
        __asm__ volatile("nop\nnop\nnop\nnop");
        has_cycles = DWT_CYCCNT != before;
    }
}

#else

static uint32_t cycles(void)
{
    return 0;
}

static void find_cycles(void)
{
}

#endif

void emitc_timer_start(void)
{
    find_cycles();
    start = has_cycles ? cycles() : emitc_microseconds();
}

uint64_t emitc_timer_read(void)
{
    return has_cycles ? cycles() - start : emitc_microseconds() - start;
}

const char *emitc_timer_name(void)
{
    find_cycles();
    return has_cycles ? "cycles" : "microseconds";
}

#endif

uint64_t emitc_timer_in_units(uint64_t ticks)
{
    return ticks;
}
