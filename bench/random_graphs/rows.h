/* Rows of an input that the model asks for, one after the other. Only the programs that run models include it. */
#ifndef EMITC_HARNESS_ROWS_H
#define EMITC_HARNESS_ROWS_H

#include "harness.h"

#include <string.h>

struct rows {
    const struct harness_model *model;
    const unsigned char *image;
    uint32_t asked;
};

static emitc_status give_row(void *context, uint32_t row, void *to, size_t row_bytes)
{
    struct rows *const rows = (struct rows *)context;
    if (row != rows->asked++ || row_bytes != rows->model->row_bytes) {
        return EMITC_INVALID_ARGUMENT;
    }
    memcpy(to, rows->image + row * row_bytes, row_bytes);
    return EMITC_OK;
}

#endif
