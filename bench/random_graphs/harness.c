/* Runs many models, one after the other, in exactly sized memory, so that a sanitizer sees any stray access.
 *
 * PROGRAM inputs outputs status first: models from number `first` on read their cases and write their outputs at places that
 * the table has. status gets one byte for each model that came to its end: '0', or the letter of the call that failed. */
#include "harness.h"
#include "rows.h"

#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SECONDS_FOR_ONE = 20 };

static const struct harness_model *current;
static void *arenas[HARNESS_ARENAS];
static unsigned layer, outputs_seen;

/* Leaves the model the buffers that are alive during the layer; after the last one, all there is. */
static void enter(unsigned next)
{
    layer = next;
    outputs_seen = 0;
    for (unsigned i = 0; i < current->arenas; i++) {
        if (next < current->layers) {
            ASAN_POISON_MEMORY_REGION(arenas[i], current->arena_bytes[i]);
        } else {
            ASAN_UNPOISON_MEMORY_REGION(arenas[i], current->arena_bytes[i]);
        }
    }
    for (size_t i = 0; i < current->alive_count; i++) {
        const struct harness_span *const span = &current->alive[i];
        if (span->layer == layer) {
            ASAN_UNPOISON_MEMORY_REGION((unsigned char *)arenas[span->arena] + span->offset, span->bytes);
        }
    }
}

void emitc_layer_hook(const char *model, uint32_t index, const void *output, size_t output_bytes)
{
    (void)model;
    (void)index;
    (void)output;
    (void)output_bytes;
    outputs_seen++;
    if (layer < current->layers && outputs_seen == current->outputs_of[layer]) {
        enter(layer + 1);
    }
}

/* One case; '0' or the letter of what failed. */
static char run_case(void *self, struct rows *rows, int in, int out, long long *from, long long *to)
{
    for (unsigned i = 0; i < current->inputs; i++) {
        void *const place = current->set_reader ? (void *)(uintptr_t)rows->image : current->input(self, i);
        if (pread(in, place, current->input_bytes[i], *from) != (ssize_t)current->input_bytes[i]) {
            return 'i';
        }
        *from += (long long)current->input_bytes[i];
    }
    rows->asked = 0;
    enter(0);
    if (current->run(self) != EMITC_OK) {
        return 'r';
    }
    if (layer != current->layers) {
        return 'l';
    }
    for (unsigned i = 0; i < current->outputs; i++) {
        if (pwrite(out, current->output(self, i), current->output_bytes[i], *to) != (ssize_t)current->output_bytes[i]) {
            return 'w';
        }
        *to += (long long)current->output_bytes[i];
    }
    return '0';
}

/* All cases, and after a reset the first one again; '0' or the letter of what failed. */
static char run_model(const struct harness_model *model, int in, int out)
{
    void *self = NULL, *state = NULL;
    struct rows rows = { model, NULL, 0 };
    char found = '0';
    current = model;
    for (unsigned i = 0; i < model->arenas; i++) {
        if (posix_memalign(&arenas[i], model->alignment, model->arena_bytes[i]) != 0) {
            return 'm';
        }
        memset(arenas[i], 0xA5, model->arena_bytes[i]);
    }
    if (posix_memalign(&self, 64, model->self_bytes) != 0 || posix_memalign(&state, model->alignment, model->state_bytes) != 0) {
        return 'm';
    }
    if (model->init(self, arenas, state) != EMITC_OK) {
        return 'n';
    }
    if (model->set_reader != NULL) {
        rows.image = (const unsigned char *)malloc(model->input_bytes[0]);
        if (rows.image == NULL || model->set_reader(self, give_row, &rows) != EMITC_OK) {
            return 'p';
        }
    }
    long long from = model->read_at, to = model->write_at;
    for (unsigned n = 0; n < model->cases && found == '0'; n++) {
        found = run_case(self, &rows, in, out, &from, &to);
    }
    if (found == '0' && model->cases > 0) {
        from = model->read_at;
        found = model->reset(self) == EMITC_OK ? run_case(self, &rows, in, out, &from, &to) : 't';
    }
    for (unsigned i = 0; i < model->arenas; i++) {
        ASAN_UNPOISON_MEMORY_REGION(arenas[i], model->arena_bytes[i]);
        free(arenas[i]);
    }
    free(self);
    free(state);
    free((void *)(uintptr_t)rows.image);
    return found;
}

int harness_run(const struct harness_model *models, unsigned count, int argc, char **argv)
{
    if (argc != 5) {
        return 2;
    }
    const int in = open(argv[1], O_RDONLY), out = open(argv[2], O_WRONLY), status = open(argv[3], O_WRONLY);
    if (in < 0 || out < 0 || status < 0) {
        return 3;
    }
    for (unsigned i = (unsigned)atoi(argv[4]); i < count; i++) {
        alarm(SECONDS_FOR_ONE);
        const char found = run_model(&models[i], in, out);
        if (pwrite(status, &found, 1, (long long)i) != 1) {
            return 4;
        }
    }
    return 0;
}
