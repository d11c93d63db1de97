/* A loop without an operating system: one step of the inference, then the watchdog, then everything else. */
#include "kws.h"

#include <stdio.h>

static _Alignas(KWS_ARENA_ALIGN) unsigned char arena[KWS_ARENA_BYTES];
static kws_t kws;
static unsigned fed;

/* On a board: the write to the watchdog's register. */
static void feed_watchdog(void)
{
    fed++;
}

/* On a board: read the buttons, send what waits in a buffer, and so on. It must be short, and must leave the arena alone. */
static void do_other_work(void)
{
}

static void write_input(void)
{
    int8_t *const input = kws_input_0(&kws);
    for (unsigned i = 0; i < KWS_INPUT_0_ELEMENTS; i++) {
        input[i] = (int8_t)((int)(i * 37u % 256u) - 128);
    }
}

int main(void)
{
    unsigned steps = 0;
    int8_t expected[KWS_OUTPUT_0_ELEMENTS];
    if (kws_init(&kws, arena, sizeof arena, NULL, 0) != EMITC_OK) {
        return 1;
    }
    write_input();
    if (kws_run(&kws) != EMITC_OK) {
        return 1;
    }
    memcpy(expected, kws_output_0(&kws), sizeof expected);

    write_input();
    emitc_status status = kws_begin(&kws);
    while (status == EMITC_OK || status == EMITC_MORE) {
        status = kws_step(&kws);
        steps++;
        feed_watchdog();
        do_other_work();
        if (status == EMITC_OK) {
            break; /* the outputs are there */
        }
    }
    if (status != EMITC_OK) {
        printf("%s\n", emitc_status_string(status));
        return 1;
    }
    const bool same = memcmp(expected, kws_output_0(&kws), sizeof expected) == 0;
    printf("%s: %u steps, and the watchdog was fed %u times\n", same ? "MATCH" : "MISMATCH", steps, fed);
    return same && steps == KWS_STEPS ? 0 : 1;
}
