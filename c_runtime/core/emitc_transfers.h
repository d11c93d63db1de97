/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* Weights that the application copies to faster memory while layers run. A package has this file with --load-ahead. */
#ifndef EMITC_TRANSFERS_H
#define EMITC_TRANSFERS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "emitc_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Starts the copy of `bytes` bytes, and may return before it is made. from: where a layer's weights lie, at a multiple
 * of 4. to: a multiple of 16. Nobody reads or writes the bytes at `to` until wait() has said that the copy is made.
 * Earlier copies may be under way: they are made in the order of the calls. Returns EMITC_OK, or what the run is to end
 * with. */
typedef emitc_status (*emitc_transfer_load)(void *context, void *to, const void *from, size_t bytes);

/* Returns once at most `left` of the copies that were started are under way: all others are made, and the core reads
 * the new bytes. It may wait for more of them. Returns EMITC_OK, or what the run is to end with. */
typedef emitc_status (*emitc_transfer_wait)(void *context, uint32_t left);

/* Who makes the copies: memcpy() where load is NULL. wait is NULL where every copy is made before load() returns. */
struct emitc_transfers {
    emitc_transfer_load load;
    emitc_transfer_wait wait;
    void *context;
};

static inline emitc_status emitc_transfers_load(
    const struct emitc_transfers *transfers, void *to, const void *from, size_t bytes)
{
    if (transfers->load != NULL) {
        return transfers->load(transfers->context, to, from, bytes);
    }
    memcpy(to, from, bytes);
    return EMITC_OK;
}

static inline emitc_status emitc_transfers_wait(const struct emitc_transfers *transfers, uint32_t left)
{
    return transfers->load != NULL && transfers->wait != NULL ? transfers->wait(transfers->context, left) : EMITC_OK;
}

/* The end of a run before its last layer: returns `status` when no copy is under way any more. */
static inline emitc_status emitc_transfers_stop(const struct emitc_transfers *transfers, emitc_status status)
{
    (void)emitc_transfers_wait(transfers, 0u);
    return status;
}

#ifdef __cplusplus
}
#endif

#endif
