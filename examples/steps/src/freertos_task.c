/* A task of FreeRTOS that runs an inference in steps: others run between two steps, and a message ends it. */
#include "kws.h"

#include <FreeRTOS.h>
#include <queue.h>
#include <task.h>

#include <stdio.h>

static _Alignas(KWS_ARENA_ALIGN) unsigned char arena[KWS_ARENA_BYTES];
static kws_t kws;
static QueueHandle_t stop_requests;
static unsigned fed;
static unsigned steps;
static unsigned yielded;

/* On a board: the write to the watchdog's register. */
static void feed_watchdog(void)
{
    fed++;
}

static void write_input(void)
{
    int8_t *const input = kws_input_0(&kws);
    for (unsigned i = 0; i < KWS_INPUT_0_ELEMENTS; i++) {
        input[i] = (int8_t)((int)(i * 37u % 256u) - 128);
    }
}

/* One inference on the inputs that are there. EMITC_MORE where a message has ended it. */
static emitc_status infer(void)
{
    uint8_t request;
    steps = 0;
    yielded = 0;
    emitc_status status = kws_begin(&kws);
    if (status != EMITC_OK) {
        return status;
    }
    for (;;) {
        status = kws_step(&kws);
        steps++;
        feed_watchdog();
        if (status != EMITC_MORE) {
            return status;
        }
        if (xQueueReceive(stop_requests, &request, 0) == pdTRUE) {
            return kws_cancel(&kws) == EMITC_OK ? EMITC_MORE : EMITC_NOT_READY;
        }
        taskYIELD();
        yielded++;
    }
}

/* The task. The stand-in sends a message while the first inference is in progress. */
static void inference_task(void *parameters)
{
    int8_t expected[KWS_OUTPUT_0_ELEMENTS];
    (void)parameters;
    if (kws_init(&kws, arena, sizeof arena, NULL, 0) == EMITC_OK) {
        write_input();
        if (infer() == EMITC_MORE) {
            printf("cancelled after %u steps\n", steps);
        }
        write_input();
        if (kws_run(&kws) == EMITC_OK) {
            memcpy(expected, kws_output_0(&kws), sizeof expected);
            write_input();
            const bool same = infer() == EMITC_OK && fed >= steps && memcmp(expected, kws_output_0(&kws), sizeof expected) == 0;
            printf("%s: %u steps, and other tasks ran %u times\n", same ? "MATCH" : "MISMATCH", steps, yielded);
        }
    }
    vTaskDelete(NULL);
}

int main(void)
{
    enum { STACK_WORDS = 1024 };
    stop_requests = xQueueCreate(1, sizeof(uint8_t));
    if (stop_requests == NULL
        || xTaskCreate(inference_task, "inference", STACK_WORDS, NULL, tskIDLE_PRIORITY + 1, NULL) != pdPASS) {
        return 1;
    }
    vTaskStartScheduler();
    return 0;
}
