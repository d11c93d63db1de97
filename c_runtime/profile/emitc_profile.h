/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc_profile.h: when each layer of a model ended, kept in a ring and written as text for `emitc profile`.
 *
 * In one file of the application, for a model `kws`, with EMITC_TRACE defined for the whole program:
 *
 *   EMITC_PROFILE_HOOK;                          defines the layer hook
 *   static emitc_profile_record ring[256];
 *   static emitc_profile profile;
 *   static uint32_t cycles(void) { return DWT->CYCCNT; }
 *
 *   emitc_profile_init(&profile, "kws", KWS_MODEL_SHA256, ring, 256, cycles, 180000000u);
 *   emitc_profile_begin(&profile);
 *   status = kws_run(&kws);
 *   emitc_profile_end(&profile);
 *   emitc_profile_write(&profile, write_to_uart, NULL);
 *
 * Short layers share a record. A run takes two more, for its beginning and its end. Of short runs
 * emitc_profile_interval(&profile, KWS_PROFILE_INTERVAL) records one of many. A full ring loses its oldest records.
 * Without EMITC_TRACE the times of whole runs are recorded. No heap; the only static data is the pointer that
 * EMITC_PROFILE_HOOK defines. One run is recorded at a time: begin and end of two models must not overlap. */
#ifndef EMITC_PROFILE_H
#define EMITC_PROFILE_H

#include "emitc_runtime.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when the text changes; `emitc profile` refuses another one. */
#define EMITC_PROFILE_FORMAT 1u

/* Values of `layer` that stand for the beginning and the end of a run. */
#define EMITC_PROFILE_BEGIN 0xFFFFFFFFu
#define EMITC_PROFILE_END 0xFFFFFFFEu

enum { EMITC_PROFILE_RECORDS_PER_LINE = 6, EMITC_PROFILE_LINE_BYTES = 256, EMITC_PROFILE_NAME_BYTES = 64 };

/* `layer` (the operator's index in the source model) had ended when the clock said `ticks`. */
typedef struct emitc_profile_record {
    uint32_t layer;
    uint32_t ticks;
} emitc_profile_record;

/* Says the time in ticks, which go on with 0 after 2^32 - 1. A layer takes fewer than 2^32 of them. */
typedef uint32_t (*emitc_profile_clock)(void);

/* Writes `bytes` characters to wherever the text goes. context: what was given to emitc_profile_write(). */
typedef void (*emitc_profile_writer)(void *context, const char *text, size_t bytes);

/* The members are private. */
typedef struct emitc_profile {
    const char *name;
    const char *model_sha256;
    emitc_profile_record *ring;
    emitc_profile_clock clock;
    uint32_t capacity;
    uint32_t next; /* where the next record goes */
    uint32_t laps; /* how often the ring has been full */
    uint32_t ticks_per_second;
    uint32_t interval; /* one run of so many is recorded */
    uint32_t left_out; /* runs that still come before the next one that is recorded */
    uint32_t recording; /* 1 between begin and end of a run that is recorded */
} emitc_profile;

/* The profile between its begin and its end, else null. EMITC_PROFILE_HOOK defines it. */
extern emitc_profile *emitc_profile_active;

/* Makes *profile ready and empty. name, model_sha256: C name of the model and <M>_MODEL_SHA256; the texts stay the
 * caller's. ring: memory for `capacity` records. ticks_per_second: 0 where that is not known. */
static inline void emitc_profile_init(emitc_profile *profile, const char *name, const char *model_sha256,
                                      emitc_profile_record *ring, uint32_t capacity, emitc_profile_clock clock,
                                      uint32_t ticks_per_second)
{
    profile->name = name;
    profile->model_sha256 = model_sha256;
    profile->ring = ring;
    profile->clock = clock;
    profile->capacity = capacity;
    profile->next = 0;
    profile->laps = 0;
    profile->ticks_per_second = ticks_per_second;
    profile->interval = 1;
    profile->left_out = 0;
    profile->recording = 0;
}

/* Records one run of `runs`, the next one first; 0 and 1 stand for every run. <M>_PROFILE_INTERVAL keeps the cost of
 * recording below 2 % of the instructions of all runs. */
static inline void emitc_profile_interval(emitc_profile *profile, uint32_t runs)
{
    profile->interval = runs > 0u ? runs : 1u;
    profile->left_out = 0;
}

/* Forgets all records. */
static inline void emitc_profile_clear(emitc_profile *profile)
{
    profile->next = 0;
    profile->laps = 0;
}

static inline void emitc_profile_add(emitc_profile *profile, uint32_t layer)
{
    const uint32_t next = profile->next;
    if (next < profile->capacity) { /* else it is a ring of no records */
        emitc_profile_record *const record = &profile->ring[next];
        record->layer = layer;
        record->ticks = profile->clock();
        profile->next = next + 1u;
        if (next + 1u == profile->capacity) {
            profile->next = 0;
            profile->laps += profile->laps < UINT32_MAX ? 1u : 0u;
        }
    }
}

/* Before a run. */
static inline void emitc_profile_begin(emitc_profile *profile)
{
    if (profile->left_out > 0u) {
        profile->left_out--;
        return;
    }
    profile->left_out = profile->interval - 1u;
    profile->recording = 1;
    emitc_profile_active = profile;
    emitc_profile_add(profile, EMITC_PROFILE_BEGIN);
}

/* After a run. */
static inline void emitc_profile_end(emitc_profile *profile)
{
    if (profile->recording == 0u) {
        return;
    }
    profile->recording = 0;
    emitc_profile_add(profile, EMITC_PROFILE_END);
    emitc_profile_active = NULL;
}

/* What the layer hook does. A layer hook of the application's own calls it; EMITC_PROFILE_POINTER then replaces
 * EMITC_PROFILE_HOOK. */
static inline void emitc_profile_layer(uint32_t index)
{
    if (emitc_profile_active != NULL) {
        emitc_profile_add(emitc_profile_active, index);
    }
}

#define EMITC_PROFILE_POINTER emitc_profile *emitc_profile_active = NULL
#if defined(EMITC_TRACE)
#define EMITC_PROFILE_HOOK \
    void emitc_layer_hook(const char *model, uint32_t index, const void *output, size_t output_bytes) \
    { \
        (void)model; \
        (void)output; \
        (void)output_bytes; \
        emitc_profile_layer(index); \
    } \
    EMITC_PROFILE_POINTER
#else
#define EMITC_PROFILE_HOOK EMITC_PROFILE_POINTER
#endif

/* A line that is being made. */
struct emitc_profile_line {
    char text[EMITC_PROFILE_LINE_BYTES];
    size_t length;
};

/* CRC-32 (polynomial 0xEDB88320, as in Ethernet and zlib) of more bytes. */
static inline uint32_t emitc_profile_crc(uint32_t crc, const char *bytes, size_t count)
{
    crc = ~crc;
    for (size_t i = 0; i < count; i++) {
        crc ^= (unsigned char)bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ ((crc & 1u) != 0u ? 0xEDB88320u : 0u);
        }
    }
    return ~crc;
}

/* Appends at most EMITC_PROFILE_NAME_BYTES characters of a text; blanks and the like become '?'. */
static inline void emitc_profile_word(struct emitc_profile_line *line, const char *text)
{
    line->text[line->length++] = ' ';
    for (size_t i = 0; i < EMITC_PROFILE_NAME_BYTES && text[i] != '\0'; i++) {
        line->text[line->length++] = text[i] > ' ' && text[i] <= '~' ? text[i] : '?';
    }
}

/* Appends eight hexadecimal digits. */
static inline void emitc_profile_hex(struct emitc_profile_line *line, uint32_t value)
{
    for (int right = 28; right >= 0; right -= 4) {
        line->text[line->length++] = "0123456789abcdef"[(value >> right) & 15u];
    }
}

static inline void emitc_profile_number(struct emitc_profile_line *line, uint32_t value)
{
    line->text[line->length++] = ' ';
    emitc_profile_hex(line, value);
}

static inline void emitc_profile_start(struct emitc_profile_line *line, const char *what)
{
    line->length = 0;
    for (const char *at = "emitc-profile"; *at != '\0'; at++) {
        line->text[line->length++] = *at;
    }
    emitc_profile_word(line, what);
}

/* Writes the line with the checksum of its text. */
static inline void emitc_profile_finish(struct emitc_profile_line *line, emitc_profile_writer write, void *context)
{
    const uint32_t crc = emitc_profile_crc(0u, line->text, line->length);
    line->text[line->length++] = ' ';
    line->text[line->length++] = '*';
    emitc_profile_hex(line, crc);
    line->text[line->length++] = '\n';
    write(context, line->text, line->length);
}

/* Writes everything that is kept, the oldest record first. Call it outside of begin and end. The lines are
 *
 *   emitc-profile begin <format> <name> <sha256> <ticks per second> <records> <lost>
 *   emitc-profile data <number of the first record> <layer and ticks of up to six records>
 *   emitc-profile end <records> <checksum of all records>
 *
 * with a checksum at the end of each; numbers have eight hexadecimal digits. The checksum of all records is that of
 * their digits. */
static inline void emitc_profile_write(const emitc_profile *profile, emitc_profile_writer write, void *context)
{
    struct emitc_profile_line line;
    const uint32_t kept = profile->laps > 0u ? profile->capacity : profile->next;
    const uint64_t written = (uint64_t)profile->laps * profile->capacity + profile->next;
    const uint64_t lost = written - kept;
    uint32_t at = profile->laps > 0u ? profile->next : 0u;
    uint32_t crc = 0;
    emitc_profile_start(&line, "begin");
    emitc_profile_number(&line, EMITC_PROFILE_FORMAT);
    emitc_profile_word(&line, profile->name);
    emitc_profile_word(&line, profile->model_sha256);
    emitc_profile_number(&line, profile->ticks_per_second);
    emitc_profile_number(&line, kept);
    emitc_profile_number(&line, lost < UINT32_MAX ? (uint32_t)lost : UINT32_MAX);
    emitc_profile_finish(&line, write, context);
    for (uint32_t first = 0; first < kept; first += EMITC_PROFILE_RECORDS_PER_LINE) {
        emitc_profile_start(&line, "data");
        emitc_profile_number(&line, first);
        line.text[line.length++] = ' ';
        const size_t digits = line.length;
        for (uint32_t i = first; i < kept && i - first < EMITC_PROFILE_RECORDS_PER_LINE; i++) {
            emitc_profile_hex(&line, profile->ring[at].layer);
            emitc_profile_hex(&line, profile->ring[at].ticks);
            at = at + 1u == profile->capacity ? 0u : at + 1u;
        }
        crc = emitc_profile_crc(crc, line.text + digits, line.length - digits);
        emitc_profile_finish(&line, write, context);
    }
    emitc_profile_start(&line, "end");
    emitc_profile_number(&line, kept);
    emitc_profile_number(&line, crc);
    emitc_profile_finish(&line, write, context);
}

#ifdef __cplusplus
}
#endif

#endif
