/* A stand-in for FreeRTOS on this machine: the few names that the example uses. On a board FreeRTOS's own headers are included. */
#ifndef STANDIN_FREERTOS_H
#define STANDIN_FREERTOS_H

#include <stdint.h>

typedef long BaseType_t;
typedef unsigned long UBaseType_t;
typedef uint32_t TickType_t;

#define pdFALSE ((BaseType_t)0)
#define pdTRUE ((BaseType_t)1)
#define pdPASS pdTRUE

#endif
