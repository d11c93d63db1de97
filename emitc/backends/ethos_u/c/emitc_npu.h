/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc_npu.h: the one function through which generated code calls the NPU. Written by emitc. */
#ifndef EMITC_NPU_H
#define EMITC_NPU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs one command stream to its end; 0 on success, anything else on failure.
 *
 * payload: commands, payload_bytes of them, aligned to 16. base: address of each memory region of the commands (constants,
 * scratch, fast scratch, inputs, outputs), aligned to 16; base_bytes: their sizes; bases: how many. The function may change
 * base. Before the NPU reads and after it has written, caches have to be cleaned and invalidated over these regions;
 * Arm's driver calls ethosu_flush_dcache and ethosu_invalidate_dcache of the application for that.
 *
 * emitc_npu.c does this with Arm's driver. An application with another one leaves that file out and defines the function
 * itself. */
int emitc_npu_invoke(const void *payload, size_t payload_bytes, uint64_t *base, const size_t *base_bytes, int bases);

/* With EMITC_NPU_ASYNC defined, emitc_npu.c starts the NPU and calls this function of the application again and again until
 * it has ended: other work can be done meanwhile, or the core put to sleep. */
void emitc_npu_while_running(void);

#ifdef __cplusplus
}
#endif

#endif
