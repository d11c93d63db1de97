/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* What the self test of a model says. A package has this file where it was compiled with --self-test. */
#ifndef EMITC_SELF_TEST_H
#define EMITC_SELF_TEST_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum emitc_test_part {
    EMITC_TEST_NOTHING = 0,   /* no fault */
    EMITC_TEST_CONSTANTS = 1, /* constants in memory are not those that were generated */
    EMITC_TEST_RESULT = 2     /* a layer, whose constants are right, computes another output */
} emitc_test_part;

/* The first fault of a self test. */
typedef struct emitc_test_fault {
    emitc_test_part part;
    const char *layer; /* the layer's C function, or what else the constants are; "" for no fault */
    uint32_t index;    /* of its operator in the model file; UINT32_MAX for constants of no layer, and for no fault */
    uint32_t input;    /* number of the stored input, from 0 on; 0 for constants */
    uint32_t expected; /* the CRC32 that was generated (IEEE 802.3) */
    uint32_t actual;   /* the one of this device */
} emitc_test_fault;

/* A run under test; private. */
typedef struct emitc_test_run {
    const uint32_t *expected;
    uint32_t checked;
    uint32_t wrong;
    uint32_t crc;
} emitc_test_run;

#ifdef __cplusplus
}
#endif

#endif
