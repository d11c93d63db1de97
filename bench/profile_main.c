/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* Runs a model with emitc_profile.h on an emulated board: each measured call after the first is as many runs as share a record.
 * Without EMITC_TRACE nothing is recorded, and the same calls are counted. */
#include "emitc_board.h"
#include "emitc_measure.h"
#include "emitc_profile.h"
#include "emitc_vectors.h"

#include "@name@.h"

#include <string.h>

enum { RECORDS = @records@, RUNS = @runs@, INTERVAL = @interval@ };

EMITC_PROFILE_HOOK;

void emitc_proof(void);

static @name@_t model;
static _Alignas(@NAME@_ARENA_ALIGN) uint8_t arena[@NAME@_ARENA_BYTES];
#if @NAME@_STATE_BYTES > 0
static _Alignas(@NAME@_ARENA_ALIGN) uint8_t state[@NAME@_STATE_BYTES];
#define STATE state, sizeof state
#else
#define STATE NULL, 0
#endif
static emitc_profile_record ring[RECORDS];
static emitc_profile profile;

static uint32_t ticks(void)
{
    return (uint32_t)emitc_timer_read();
}

static void write_text(void *context, const char *text, size_t bytes)
{
    (void)context;
    emitc_write(text, (uint32_t)bytes);
}

/* What an application does in its loop. */
static uint32_t recorded_runs(void *context)
{
    uint32_t failed = 0;
    (void)context;
    for (uint32_t run = 0; run < INTERVAL; run++) {
        memcpy(@name@_input_0(&model), emitc_in_0[0], @NAME@_INPUT_0_BYTES);
#if defined(EMITC_TRACE)
        emitc_profile_begin(&profile);
#endif
        const emitc_status status = @name@_run(&model);
#if defined(EMITC_TRACE)
        emitc_profile_end(&profile);
#endif
        failed |= (uint32_t)status;
    }
    return failed;
}

void emitc_proof(void)
{
    struct emitc_measurement seen;
    const uintptr_t floor = emitc_stack_floor();
    emitc_timer_start();
    emitc_profile_init(&profile, "@name@", @NAME@_MODEL_SHA256, ring, RECORDS, ticks, 0);
    emitc_profile_interval(&profile, INTERVAL);
    emitc_measured_call(emitc_known_loop, NULL, &seen, floor);
    for (uint32_t run = 0; run < RUNS; run++) {
        if (@name@_init(&model, arena, sizeof arena, STATE) != EMITC_OK) {
            emitc_print("init failed\n");
            return;
        }
        emitc_measured_call(recorded_runs, NULL, &seen, floor);
        if (seen.result != 0) {
            emitc_print("run failed\n");
        }
        if (memcmp(@name@_output_0(&model), emitc_out_0[0], @NAME@_OUTPUT_0_BYTES) != 0) {
            emitc_print("the output differs\n");
        }
    }
    emitc_profile_write(&profile, write_text, NULL);
}
