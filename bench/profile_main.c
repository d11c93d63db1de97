/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* Runs a model with emitc_profile.h on an emulated board: the second measured call is a run that is recorded. */
#include "emitc_board.h"
#include "emitc_measure.h"
#include "emitc_profile.h"
#include "emitc_vectors.h"

#include "@name@.h"

#include <string.h>

enum { RECORDS = @records@, RUNS = @runs@ };

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

static emitc_status recorded_run(void)
{
    emitc_profile_begin(&profile);
    const emitc_status status = @name@_run(&model);
    emitc_profile_end(&profile);
    return status;
}

void emitc_proof(void)
{
    struct emitc_measurement seen;
    const uintptr_t floor = emitc_stack_floor();
    emitc_timer_start();
    emitc_profile_init(&profile, "@name@", @NAME@_MODEL_SHA256, ring, RECORDS, ticks, 0);
    emitc_measured_call(emitc_known_loop, NULL, &seen, floor);
    for (uint32_t run = 0; run < RUNS; run++) {
        if (@name@_init(&model, arena, sizeof arena, STATE) != EMITC_OK) {
            emitc_print("init failed\n");
            return;
        }
        memcpy(@name@_input_0(&model), emitc_in_0[0], @NAME@_INPUT_0_BYTES);
        emitc_measured_call((emitc_function)recorded_run, NULL, &seen, floor);
        if (seen.result != 0) {
            emitc_print("run failed\n");
        }
        if (memcmp(@name@_output_0(&model), emitc_out_0[0], @NAME@_OUTPUT_0_BYTES) != 0) {
            emitc_print("the output differs\n");
        }
    }
    emitc_profile_write(&profile, write_text, NULL);
}
