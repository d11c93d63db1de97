/* What the harness needs to know of each model. */
#ifndef HARNESS_H
#define HARNESS_H

#include "emitc_runtime.h"

enum { HARNESS_ARENAS = 4 };

/* A buffer that is alive during a layer. */
struct harness_span {
    unsigned layer;
    unsigned arena;
    size_t offset;
    size_t bytes;
};

struct harness_model {
    size_t self_bytes;
    size_t alignment;
    unsigned arenas;
    size_t arena_bytes[HARNESS_ARENAS];
    size_t state_bytes;
    unsigned layers;
    const unsigned *outputs_of;
    const struct harness_span *alive;
    size_t alive_count;
    unsigned inputs;
    const size_t *input_bytes;
    unsigned outputs;
    const size_t *output_bytes;
    emitc_status (*init)(void *self, void **arenas, void *state);
    emitc_status (*run)(void *self);
    emitc_status (*reset)(void *self);
    void *(*input)(void *self, unsigned index);
    const void *(*output)(void *self, unsigned index);
    emitc_status (*set_reader)(void *self, emitc_status (*read)(void *, uint32_t, void *, size_t), void *context);
    size_t row_bytes;
    unsigned cases;
    long long read_at;
    long long write_at;
};

/* Runs models[first] to the last one; see harness.c. */
int harness_run(const struct harness_model *models, unsigned count, int argc, char **argv);

#endif
