/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* Console and exit through semihosting, which QEMU answers itself. */
#include "emitc_board.h"

enum {
    SYS_OPEN = 0x01,
    SYS_WRITE = 0x05,
    SYS_EXIT_EXTENDED = 0x20,
    APPLICATION_EXIT = 0x20026,
    MODE_W = 4, /* on the special name ":tt": standard output */
};

static intptr_t semihost(intptr_t operation, const void *arguments)
{
#if defined(__riscv)
    register intptr_t a0 __asm__("a0") = operation;
    register const void *a1 __asm__("a1") = arguments;
    /* The three instructions must be uncompressed and on one page: that is how the emulator knows the call. */
    __asm__ volatile(".balign 16\n.option push\n.option norvc\n"
                     "slli x0, x0, 0x1f\nebreak\nsrai x0, x0, 7\n.option pop"
                     : "+r"(a0)
                     : "r"(a1)
                     : "memory");
    return a0;
#else
    register intptr_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = arguments;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
#endif
}

void emitc_write(const char *text, uint32_t length)
{
    static intptr_t console; /* 0 until it is open: zeroed data costs no flash */
    if (console == 0) {
        const uintptr_t open[3] = {(uintptr_t)":tt", MODE_W, 3};
        console = semihost(SYS_OPEN, open);
    }
    const uintptr_t write[3] = {(uintptr_t)console, (uintptr_t)text, length};
    (void)semihost(SYS_WRITE, write);
}

void emitc_exit(int code)
{
    const uintptr_t exit[2] = {APPLICATION_EXIT, (uintptr_t)code};
    (void)semihost(SYS_EXIT_EXTENDED, exit);
    for (;;) {
    }
}
