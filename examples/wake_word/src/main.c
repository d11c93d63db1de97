/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* Wake word: sound in, "hey jarvis" out.
 *
 *     16 kHz samples
 *       -> front end, every 10 ms over the last 30 ms: window, FFT, filter bank, noise reduction, gain control, logarithm
 *       -> 40 features, int8
 *       -> wake word model, every 30 ms over three frames of features: a probability
 *       -> mean of the last five probabilities, and a threshold
 *
 * Front end and model are two libraries that `emitc compile` makes before a build, in generated/BOARD/. Both keep state between runs: the front end the
 * level of the noise, the model what it needs of the sound before. What the application owes them: an arena and a state
 * block each, every sample in its order, and a look at every status. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "emitc_board.h" /* print and timer */
#include "frontend.h"
#include "wake_word.h"

#include "sound.h" /* after <stdint.h>: arrays of int16_t */

enum {
    SAMPLE_RATE = 16000,
    WINDOW = FRONTEND_INPUT_0_ELEMENTS,   /* 480 samples, 30 ms: what the front end looks at */
    HOP = SAMPLE_RATE / 100,              /* 160 samples, 10 ms: how far it moves on, as in the model's training */
    FEATURES = FRONTEND_OUTPUT_0_ELEMENTS,
    FRAMES = WAKE_WORD_INPUT_0_ELEMENTS / FEATURES, /* 3: features that the model takes at a time */
    MEAN_OVER = 5
};
static const float threshold = 0.97f; /* this and MEAN_OVER: what the model's authors publish with it, see README.md */

_Static_assert(FEATURES * FRAMES == WAKE_WORD_INPUT_0_BYTES, "the model takes whole frames of the front end's features");
_Static_assert(WAKE_WORD_INPUT_0_ZERO_POINT == -128, "the least feature of the front end means 0 to the model");

/* All memory that the models write to. */
static _Alignas(FRONTEND_ARENA_ALIGN) uint8_t frontend_arena[FRONTEND_ARENA_BYTES];
static _Alignas(FRONTEND_ARENA_ALIGN) uint8_t frontend_state[FRONTEND_STATE_BYTES];
static _Alignas(WAKE_WORD_ARENA_ALIGN) uint8_t wake_word_arena[WAKE_WORD_ARENA_BYTES];
static _Alignas(WAKE_WORD_ARENA_ALIGN) uint8_t wake_word_state[WAKE_WORD_STATE_BYTES];

struct listener {
    frontend_t frontend;
    wake_word_t model;
    int16_t window[WINDOW];    /* the last 30 ms */
    uint32_t frames;           /* of features in the model's input */
    uint8_t recent[MEAN_OVER]; /* probabilities, quantized: the newest replaces the oldest */
    uint32_t newest;
};

int hear_all(void);

/* 0 when the call succeeded; otherwise says what happened and what to do. No default: the compiler names a new status. */
static int failed(const char *call, emitc_status status)
{
    const char *advice = "";
    switch (status) {
    case EMITC_OK:
        return 0;
    case EMITC_NOT_READY:
        advice = "call init first, and check what it returns";
        break;
    case EMITC_INVALID_ARGUMENT:
        advice = "a pointer is null";
        break;
    case EMITC_ARENA_TOO_SMALL:
        advice = "give it as many bytes as its ..._ARENA_BYTES says";
        break;
    case EMITC_STATE_TOO_SMALL:
        advice = "give it as many bytes of state as its ..._STATE_BYTES says";
        break;
    case EMITC_MISALIGNED:
        advice = "align arena and state to its ..._ARENA_ALIGN";
        break;
    case EMITC_BACKEND_FAILED:
        advice = "a kernel library or an accelerator failed: reset it and init again";
        break;
    case EMITC_VERSION_MISMATCH:
        advice = "compile the models again, or delete the old emitc_runtime.c";
        break;
    case EMITC_SELF_TEST_FAILED:
        advice = "the flash is damaged, or the compiler made wrong code: replace the image";
        break;
    case EMITC_MORE:
        advice = "call the next step";
        break;
    }
    emitc_print(call);
    emitc_print(": ");
    emitc_print(emitc_status_string(status));
    emitc_print(": ");
    emitc_print(advice);
    emitc_print("\n");
    return 1;
}

static int listener_init(struct listener *self)
{
    return failed("frontend_init", frontend_init(&self->frontend, frontend_arena, sizeof frontend_arena, frontend_state,
                                                 sizeof frontend_state)) ||
           failed("wake_word_init", wake_word_init(&self->model, wake_word_arena, sizeof wake_word_arena, wake_word_state,
                                                   sizeof wake_word_state));
}

/* What is heard from now on has nothing to do with what was heard before. */
static int listener_reset(struct listener *self)
{
    memset(self->window, 0, sizeof self->window);
    memset(self->recent, 0, sizeof self->recent);
    self->frames = 0;
    self->newest = 0;
    return failed("frontend_reset", frontend_reset(&self->frontend)) ||
           failed("wake_word_reset", wake_word_reset(&self->model));
}

/* Takes the next 10 ms: the features of the last 30 ms go straight into the model's input, the model runs when it is full. */
static int listener_take(struct listener *self, const int16_t *samples)
{
    memmove(self->window, self->window + HOP, (WINDOW - HOP) * sizeof self->window[0]);
    memcpy(self->window + WINDOW - HOP, samples, HOP * sizeof self->window[0]);

    /* The input lies in the arena and the run overwrites it: write all of it before each run. */
    memcpy(frontend_input_0(&self->frontend), self->window, sizeof self->window);
    if (failed("frontend_run", frontend_run(&self->frontend))) {
        return 1;
    }
    memcpy(wake_word_input_0(&self->model) + self->frames * FEATURES, frontend_output_0(&self->frontend), FEATURES);
    self->frames++;
    if (self->frames < FRAMES) {
        return 0;
    }

    self->frames = 0;
    if (failed("wake_word_run", wake_word_run(&self->model))) {
        return 1;
    }
    self->newest = (self->newest + 1) % MEAN_OVER;
    self->recent[self->newest] = *wake_word_output_0(&self->model);
    return 0;
}

/* The mean of the last probabilities: real = (quantized - zero point) * scale. */
static float listener_mean(const struct listener *self)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < MEAN_OVER; i++) {
        sum += self->recent[i] - WAKE_WORD_OUTPUT_0_ZERO_POINT;
    }
    return (float)sum * (WAKE_WORD_OUTPUT_0_SCALE / (float)MEAN_OVER);
}

static void print_percent(float probability)
{
    const uint32_t per_mille = (uint32_t)(probability * 1000.0f + 0.5f);
    emitc_print_u32(per_mille / 10u);
    emitc_print(".");
    emitc_print_u32(per_mille % 10u);
    emitc_print(" %\n");
}

/* Plays one clip. In a product the samples come from the microphone, and this loop never ends. */
static int hear(struct listener *listener, const char *name, const int16_t *samples, uint32_t count)
{
    float highest = 0.0f, heard = 0.0f;
    uint32_t heard_ms = 0;
    if (listener_reset(listener)) {
        return 1;
    }
    for (uint32_t at = 0; at + HOP <= count; at += HOP) {
        if (listener_take(listener, samples + at)) {
            return 1;
        }
        const float mean = listener_mean(listener);
        if (mean > highest) {
            highest = mean;
        }
        if (mean > threshold && heard_ms == 0) {
            heard = mean;
            heard_ms = (at + HOP) / (SAMPLE_RATE / 1000);
        }
    }
    emitc_print(name);
    if (heard_ms != 0) {
        emitc_print(": wake word after ");
        emitc_print_u32(heard_ms);
        emitc_print(" ms, ");
        print_percent(heard);
    } else {
        emitc_print(": nothing, at most ");
        print_percent(highest);
    }
    return 0;
}

int hear_all(void)
{
    static struct listener listener;
    uint32_t hops = 0;
    if (listener_init(&listener)) {
        return 1;
    }
    emitc_timer_start();
    for (size_t i = 0; i < sizeof clips / sizeof clips[0]; i++) {
        if (hear(&listener, clips[i].name, clips[i].samples, clips[i].count)) {
            return 1;
        }
        hops += clips[i].count / HOP;
    }
    /* What 30 ms of sound cost on average: three runs of the front end and one of the model. */
    emitc_print("time: ");
    emitc_print_u64(emitc_timer_in_units(emitc_timer_read()) * FRAMES / hops);
    emitc_print(" ");
    emitc_print(emitc_timer_name());
    emitc_print("\n");
    return 0;
}

#if !defined(ARDUINO) /* where Arduino's own main calls setup(), in arduino.cpp */
int main(void)
{
    return hear_all();
}
#endif
