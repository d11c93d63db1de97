/* The stand-in for FreeRTOS: it runs one task to its end. Another task is pretended, which sends one message when it has run for
 * the tenth time. */
#include "queue.h"
#include "task.h"

#include <stddef.h>

enum { SENDS_AT = 9 };

struct standin_queue {
    int full;
};

static struct standin_queue only_queue;
static TaskFunction_t only_task;
static void *only_parameters;
static unsigned yields;

void standin_yield(void)
{
    yields++;
    only_queue.full = yields == SENDS_AT;
}

BaseType_t xTaskCreate(TaskFunction_t code, const char *name, uint32_t stack_words, void *parameters, UBaseType_t priority,
                       TaskHandle_t *created)
{
    (void)name;
    (void)stack_words;
    (void)priority;
    (void)created;
    only_task = code;
    only_parameters = parameters;
    return pdPASS;
}

void vTaskStartScheduler(void)
{
    only_task(only_parameters);
}

void vTaskDelete(TaskHandle_t task)
{
    (void)task;
}

QueueHandle_t xQueueCreate(UBaseType_t length, UBaseType_t item_bytes)
{
    return length == 1 && item_bytes == 1 ? &only_queue : NULL;
}

BaseType_t xQueueReceive(QueueHandle_t queue, void *item, TickType_t ticks)
{
    (void)ticks;
    if (!queue->full) {
        return pdFALSE;
    }
    queue->full = 0;
    *(uint8_t *)item = 1;
    return pdTRUE;
}
