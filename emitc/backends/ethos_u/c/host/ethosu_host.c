/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* ethosu_host.c: the driver's functions on the host: a call goes to whoever has registered, the host model of the NPU. */
#include "ethosu_driver.h"

typedef int (*npu_function)(const void *payload, int payload_bytes, const uint64_t *bases, const size_t *sizes, int count);
void emitc_host_set_npu(npu_function function);

struct ethosu_driver {
    int reserved;
    int result;
};

static npu_function npu;
static struct ethosu_driver only;

void emitc_host_set_npu(npu_function function)
{
    npu = function;
}

struct ethosu_driver *ethosu_reserve_driver(void)
{
    if (only.reserved) {
        return NULL;
    }
    only.reserved = 1;
    return &only;
}

void ethosu_release_driver(struct ethosu_driver *drv)
{
    drv->reserved = 0;
}

int ethosu_invoke_v3(struct ethosu_driver *drv, const void *custom_data_ptr, const int custom_data_size,
                     uint64_t *const base_addr, const size_t *base_addr_size, const int num_base_addr, void *user_arg)
{
    (void)user_arg;
    if (!drv->reserved || npu == NULL) {
        return -1;
    }
    return npu(custom_data_ptr, custom_data_size, base_addr, base_addr_size, num_base_addr);
}

int ethosu_invoke_async(struct ethosu_driver *drv, const void *custom_data_ptr, const int custom_data_size,
                        uint64_t *const base_addr, const size_t *base_addr_size, const int num_base_addr, void *user_arg)
{
    drv->result = ethosu_invoke_v3(drv, custom_data_ptr, custom_data_size, base_addr, base_addr_size, num_base_addr, user_arg);
    return drv->result;
}

int ethosu_wait(struct ethosu_driver *drv, bool block)
{
    (void)block;
    return drv->result;
}
