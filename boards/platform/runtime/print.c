/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* Numbers as text, without a division, so that no libgcc routine is linked on the board's behalf. */
#include "emitc_board.h"

void emitc_print(const char *text)
{
    uint32_t length = 0;
    while (text[length] != '\0') {
        length++;
    }
    emitc_write(text, length);
}

void emitc_print_u64(uint64_t value)
{
    static const uint64_t power[] = {
        10000000000000000000u, 1000000000000000000u, 100000000000000000u, 10000000000000000u, 1000000000000000u,
        100000000000000u,      10000000000000u,      1000000000000u,      100000000000u,      10000000000u,
        1000000000u,           100000000u,           10000000u,           1000000u,           100000u,
        10000u,                1000u,                100u,                10u,                1u,
    };
    char digits[20];
    uint32_t length = 0;
    for (uint32_t i = 0; i < 20u; i++) {
        char digit = '0';
        while (value >= power[i]) {
            value -= power[i];
            digit++;
        }
        if (length > 0u || digit != '0' || i == 19u) {
            digits[length++] = digit;
        }
    }
    emitc_write(digits, length);
}

void emitc_print_u32(uint32_t value)
{
    emitc_print_u64(value);
}

void emitc_print_hex(const uint8_t *bytes, uint32_t length)
{
    static const char digit[] = "0123456789abcdef";
    char text[64];
    uint32_t filled = 0;
    for (uint32_t i = 0; i < length; i++) {
        text[filled++] = digit[bytes[i] >> 4];
        text[filled++] = digit[bytes[i] & 15u];
        if (filled == sizeof text || i + 1u == length) {
            emitc_write(text, filled);
            filled = 0;
        }
    }
}
