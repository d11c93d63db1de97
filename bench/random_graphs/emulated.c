/* Runs many models on an emulated board, one after the other, and prints what they give.
 *
 * For each model a line "model", then for each case "0" and the bytes of its outputs in hexadecimal, or the letter of the
 * call that failed. The file is the end of a translation unit that has the table of models and their inputs. */
#include "emitc_board.h"
#include "rows.h"

extern unsigned char __heap_start[];
extern unsigned char __stack_top[];

enum { STACK_BYTES = 16384 };

static const struct harness_model *current;
static unsigned char *free_memory;

/* Bytes that no model has written, or NULL. */
static void *take(size_t bytes, size_t alignment)
{
    unsigned char *const start = (unsigned char *)(((uintptr_t)free_memory + alignment - 1u) / alignment * alignment);
    if ((uintptr_t)start + bytes + STACK_BYTES > (uintptr_t)__stack_top) {
        return NULL;
    }
    free_memory = start + bytes;
    memset(start, 0xA5, bytes);
    return start;
}

/* One case; '0' or the letter of what failed. */
static char run_case(void *self, struct rows *rows, const unsigned char **from)
{
    for (unsigned i = 0; i < current->inputs; i++) {
        if (current->set_reader != NULL) {
            rows->image = *from;
        } else {
            memcpy(current->input(self, i), *from, current->input_bytes[i]);
        }
        *from += current->input_bytes[i];
    }
    rows->asked = 0;
    if (current->run(self) != EMITC_OK) {
        return 'r';
    }
    emitc_write("0", 1);
    for (unsigned i = 0; i < current->outputs; i++) {
        emitc_print_hex((const uint8_t *)current->output(self, i), (uint32_t)current->output_bytes[i]);
    }
    return '0';
}

/* All cases, and after a reset the first one again; '0' or the letter of what failed. */
static char run_model(const struct harness_model *model)
{
    void *arenas[HARNESS_ARENAS];
    struct rows rows = { model, NULL, 0 };
    char result = '0';
    current = model;
    free_memory = __heap_start;
    for (unsigned i = 0; i < model->arenas; i++) {
        arenas[i] = take(model->arena_bytes[i], model->alignment);
        if (arenas[i] == NULL) {
            return 'm';
        }
    }
    void *const self = take(model->self_bytes, 64);
    void *const state = take(model->state_bytes, model->alignment);
    if (self == NULL || state == NULL) {
        return 'm';
    }
    if (model->init(self, arenas, state) != EMITC_OK) {
        return 'n';
    }
    if (model->set_reader != NULL && model->set_reader(self, give_row, &rows) != EMITC_OK) {
        return 'p';
    }
    const unsigned char *from = all_inputs + model->read_at;
    for (unsigned n = 0; n < model->cases && result == '0'; n++) {
        result = run_case(self, &rows, &from);
    }
    if (result == '0') {
        from = all_inputs + model->read_at;
        result = model->reset(self) == EMITC_OK ? run_case(self, &rows, &from) : 't';
    }
    return result;
}

int main(void)
{
    for (unsigned i = 0; i < sizeof models / sizeof models[0]; i++) {
        emitc_write("\nmodel", 6);
        const char result = run_model(&models[i]);
        if (result != '0') {
            emitc_write(&result, 1);
        }
    }
    emitc_write("\n", 1);
    return 0;
}
