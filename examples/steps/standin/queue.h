/* Part of the stand-in for FreeRTOS: a queue that holds one message of one byte. */
#ifndef STANDIN_QUEUE_H
#define STANDIN_QUEUE_H

#include "FreeRTOS.h"

typedef struct standin_queue *QueueHandle_t;

QueueHandle_t xQueueCreate(UBaseType_t length, UBaseType_t item_bytes);
BaseType_t xQueueReceive(QueueHandle_t queue, void *item, TickType_t ticks);

#endif
