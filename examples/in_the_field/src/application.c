/* Two networks in one firmware: one tests itself, is profiled and runs in steps; the other one's weights are exchanged. */
#include "application.h"

#include "digits.h"
#include "kws.h"

#include "emitc_profile.h"
#include "weights.h" /* three files of weights, as a flash memory would hold them */

#include <string.h>

EMITC_PROFILE_HOOK;

enum { RECORDS = 64 };

static _Alignas(KWS_ARENA_ALIGN) unsigned char kws_arena[KWS_ARENA_BYTES];
static _Alignas(DIGITS_ARENA_ALIGN) unsigned char digits_arena[DIGITS_ARENA_BYTES];
static kws_t kws;
static digits_t digits;
static emitc_profile_record ring[RECORDS];
static emitc_profile profile;
static int failed;

static void write_text(void *context, const char *text, size_t bytes)
{
    (void)context;
    put_text(text, bytes);
}

static void say(const char *text)
{
    put_text(text, strlen(text));
}

static void check(const char *what, int right)
{
    say(what);
    say(right ? ": ok\n" : ": FAILED\n");
    failed = failed || !right;
}

/* At power-on: constants and results are what they were when the package was made. */
static void test_itself(void)
{
    emitc_test_fault fault;
    const emitc_status status = kws_self_test(kws_arena, sizeof kws_arena, NULL, 0, &fault);
    if (status == EMITC_SELF_TEST_FAILED) {
        say(fault.layer);
        say(" is wrong\n");
    }
    check("self test", status == EMITC_OK);
}

static void fill_input(void)
{
    memset(kws_input_0(&kws), 3, KWS_INPUT_0_BYTES);
}

/* One whole run, whose layers are timed. */
static void run_profiled(int8_t *result)
{
    fill_input();
    emitc_profile_init(&profile, "kws", KWS_MODEL_SHA256, ring, RECORDS, ticks, TICKS_PER_SECOND);
    emitc_profile_interval(&profile, KWS_PROFILE_INTERVAL);
    emitc_profile_begin(&profile);
    const emitc_status status = kws_run(&kws);
    emitc_profile_end(&profile);
    check("run", status == EMITC_OK);
    memcpy(result, kws_output_0(&kws), KWS_OUTPUT_0_BYTES);
    emitc_profile_write(&profile, write_text, NULL);
}

/* The same inference in steps; the watchdog would be fed after each. */
static void run_in_steps(const int8_t *result)
{
    fill_input();
    emitc_status status = kws_begin(&kws);
    if (status == EMITC_OK) {
        do {
            status = kws_step(&kws);
        } while (status == EMITC_MORE);
    }
    check("steps", status == EMITC_OK && memcmp(result, kws_output_0(&kws), KWS_OUTPUT_0_BYTES) == 0);
}

/* New weights come, and then damaged ones. */
static void update_weights(void)
{
    emitc_status status = digits_init(&digits, digits_arena, sizeof digits_arena, NULL, 0, first_weights, sizeof first_weights);
    check("first weights", status == EMITC_OK && digits_run(&digits) == EMITC_OK && digits_weights_version(&digits) == 0);
    status = digits_exchange_weights(&digits, second_weights, sizeof second_weights);
    check("second weights", status == EMITC_OK && digits_run(&digits) == EMITC_OK && digits_weights_version(&digits) == 1);
    status = digits_exchange_weights(&digits, damaged_weights, sizeof damaged_weights);
    check("damaged weights refused", status == EMITC_WEIGHTS_DAMAGED && digits_weights_version(&digits) == 1);
    check("run with the second weights", digits_run(&digits) == EMITC_OK);
}

int application(void)
{
    int8_t result[KWS_OUTPUT_0_BYTES];
    test_itself();
    check("init", kws_init(&kws, kws_arena, sizeof kws_arena, NULL, 0) == EMITC_OK);
    run_profiled(result);
    run_in_steps(result);
    update_weights();
    return failed;
}
