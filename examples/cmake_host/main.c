/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* A drawn digit through one model, a flat sound through another, in turn: each with its own arena, one runtime. */
#include <stdio.h>

#include "digits.h"
#include "kws.h"

static const char drawing[16][17] = {
    "                ", "                ", "   ##########   ", "   ##########   ", "          ###   ", "         ###    ",
    "         ###    ", "        ###     ", "        ###     ", "       ###      ", "       ###      ", "      ###       ",
    "      ###       ", "      ###       ", "                ", "                ",
};
static const char *const words[] = {"down",  "go",   "left", "no",  "off",     "on",
                                    "right", "stop", "up",   "yes", "silence", "unknown"};

static _Alignas(DIGITS_ARENA_ALIGN) unsigned char digits_arena[DIGITS_ARENA_BYTES];
static _Alignas(KWS_ARENA_ALIGN) unsigned char kws_arena[KWS_ARENA_BYTES];

static size_t largest(const int8_t *scores, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        best = scores[i] > scores[best] ? i : best;
    }
    return best;
}

int main(void)
{
    digits_t digits;
    kws_t kws;
    emitc_status status = digits_init(&digits, digits_arena, sizeof digits_arena, NULL, 0);
    if (status == EMITC_OK) {
        status = kws_init(&kws, kws_arena, sizeof kws_arena, NULL, 0);
    }
    if (status == EMITC_OK) {
        for (size_t i = 0; i < DIGITS_INPUT_0_ELEMENTS; i++) {
            digits_input_0(&digits)[i] = drawing[i / 16][i % 16] == '#' ? 127 : -128; /* bright on dark */
        }
        for (size_t i = 0; i < KWS_INPUT_0_ELEMENTS; i++) {
            kws_input_0(&kws)[i] = KWS_INPUT_0_ZERO_POINT; /* 0.0 in every coefficient */
        }
        status = digits_run(&digits);
    }
    if (status == EMITC_OK) {
        status = kws_run(&kws);
    }
    if (status != EMITC_OK) {
        fprintf(stderr, "%s\n", emitc_status_string(status));
        return 1;
    }
    const int8_t *const digit = digits_output_0(&digits);
    const int8_t *const word = kws_output_0(&kws);
    const size_t d = largest(digit, DIGITS_OUTPUT_0_ELEMENTS), w = largest(word, KWS_OUTPUT_0_ELEMENTS);
    printf("digit: %zu %.1f %%\n", d, 100.0 * (digit[d] - DIGITS_OUTPUT_0_ZERO_POINT) * (double)DIGITS_OUTPUT_0_SCALE);
    printf("keyword: %s %.1f %%\n", words[w], 100.0 * (word[w] - KWS_OUTPUT_0_ZERO_POINT) * (double)KWS_OUTPUT_0_SCALE);
    return 0;
}
