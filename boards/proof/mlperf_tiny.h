/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* The serial protocol of MLPerf Tiny, and what it asks of the board. */
#ifndef MLPERF_TINY_H
#define MLPERF_TINY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void emitc_mlperf_start(void);         /* once, when the serial port works: greets the runner */
void emitc_mlperf_receive(char c);     /* with every character that arrives */
uint32_t emitc_microseconds(void);     /* from the framework's main; wraps after 71 minutes */

#ifdef __cplusplus
}
#endif

#endif
