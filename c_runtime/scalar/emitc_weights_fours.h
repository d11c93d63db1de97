/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc: whether weights from a file are as emitc_scalar_fours.h reads them.
 *
 * Part of a package that was compiled with --weights external and has such layers. Their weights have numbers between
 * them that lead to addresses: the length of each run of parts, and how far each part's weight comes after the one
 * before. This follows them as the kernel does, once, when a file is accepted.
 */
#ifndef EMITC_WEIGHTS_FOURS_H
#define EMITC_WEIGHTS_FOURS_H

#include "emitc_runtime.h"

/* Whether all runs of all filters end within the array, each part belongs to a weight of its filter, and zeros follow
 * the last run. w: at least one of `bytes` bytes. fours: of the weights of each filter. Each byte is read at most
 * once. */
static inline bool emitc_weights_fours_fit(const int8_t *w, uint32_t bytes, uint32_t filters, uint32_t fours)
{
    uint32_t at = 0;
    for (uint32_t filter = 0; filter < filters; filter++) {
        /* Weights of two filters come before the parts of both; a last filter may be alone. */
        if (filter % 2u == 0u) {
            at += 4u * fours * (filters - filter > 1u ? 2u : 1u);
        }
        uint32_t place = 0;
        for (bool more = true; more;) {
            if (at >= bytes) {
                return false;
            }
            uint32_t run = (uint8_t)w[at++];
            more = run != 0u;
            if (2u * run > bytes - at) {
                return false;
            }
            for (; run > 0u; run--) {
                place += (uint8_t)w[at];
                if (place >= 4u * fours) {
                    return false;
                }
                at += 2u;
            }
        }
    }
    while (at < bytes && w[at] == 0) {
        at++;
    }
    return at == bytes;
}

#endif /* EMITC_WEIGHTS_FOURS_H */
