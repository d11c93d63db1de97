/* Part of the stand-in for FreeRTOS: one task, which vTaskStartScheduler() calls. */
#ifndef STANDIN_TASK_H
#define STANDIN_TASK_H

#include "FreeRTOS.h"

typedef void *TaskHandle_t;
typedef void (*TaskFunction_t)(void *parameters);

#define tskIDLE_PRIORITY ((UBaseType_t)0)
#define taskYIELD() standin_yield()

void standin_yield(void);
BaseType_t xTaskCreate(TaskFunction_t code, const char *name, uint32_t stack_words, void *parameters, UBaseType_t priority,
                       TaskHandle_t *created);
void vTaskStartScheduler(void);
void vTaskDelete(TaskHandle_t task);

#endif
