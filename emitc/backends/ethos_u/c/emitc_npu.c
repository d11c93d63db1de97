/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc_npu.c: emitc_npu_invoke with Arm's Ethos-U core driver. Written by emitc.
 *
 * The application initialises the driver (ethosu_init), routes the NPU's interrupt to it, and defines its cache functions. */
#include "emitc_npu.h"

#include "ethosu_driver.h"

int emitc_npu_invoke(const void *payload, size_t payload_bytes, uint64_t *base, const size_t *base_bytes, int bases)
{
    struct ethosu_driver *const driver = ethosu_reserve_driver();
    if (driver == NULL) {
        return -1;
    }
#if defined(EMITC_NPU_ASYNC)
    int result = ethosu_invoke_async(driver, payload, (int)payload_bytes, base, base_bytes, bases, NULL);
    if (result == 0) {
        do {
            emitc_npu_while_running();
            result = ethosu_wait(driver, false);
        } while (result == 1);
    }
#else
    const int result = ethosu_invoke_v3(driver, payload, (int)payload_bytes, base, base_bytes, bases, NULL);
#endif
    ethosu_release_driver(driver);
    return result;
}
