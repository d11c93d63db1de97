"""A DMA for the host proof of packages with `--load-ahead`: it copies as late as it may, and destroys what was there.

`load` fills the destination with bytes that are no weights. The copy is made when `wait` asks for it, and no earlier copy of the
source is kept. So a run that does not wait, or that lets two buffers share bytes for too short a time, gives other results.
"""

HEADER = "emitc_transfers.h"
"""The header of the runtime that a package with transfers has."""
SOURCE = """
#include "emitc_transfers.h"

enum { HOST_DMA_MOST = 4096 };

emitc_status host_dma_load(void *context, void *to, const void *from, size_t bytes);
emitc_status host_dma_wait(void *context, uint32_t left);
uint32_t host_dma_left(void);

static struct host_dma_copy {
    void *to;
    const void *from;
    size_t bytes;
} host_dma_copies[HOST_DMA_MOST];
static uint32_t host_dma_first;
static uint32_t host_dma_end;

emitc_status host_dma_load(void *context, void *to, const void *from, size_t bytes)
{
    (void)context;
    if (host_dma_end == HOST_DMA_MOST || (uintptr_t)to % 16u != 0u) {
        return EMITC_INVALID_ARGUMENT;
    }
    memset(to, (int)(0xC5u ^ (host_dma_end & 0x1Fu)), bytes);
    const struct host_dma_copy copy = { to, from, bytes };
    host_dma_copies[host_dma_end++] = copy;
    return EMITC_OK;
}

emitc_status host_dma_wait(void *context, uint32_t left)
{
    (void)context;
    for (; host_dma_end - host_dma_first > left; host_dma_first++) {
        const struct host_dma_copy *const copy = &host_dma_copies[host_dma_first];
        memcpy(copy->to, copy->from, copy->bytes);
    }
    if (host_dma_first == host_dma_end) {
        host_dma_first = 0;
        host_dma_end = 0;
    }
    return EMITC_OK;
}

uint32_t host_dma_left(void)
{
    return host_dma_end - host_dma_first;
}
"""


def declarations(name: str) -> str:
    """What cffi needs of it, and of the function of the model called `name` that takes it."""
    load, wait = "int (*load)(void *, void *, const void *, size_t)", "int (*wait)(void *, uint32_t)"
    return (
        "int host_dma_load(void *, void *, const void *, size_t); int host_dma_wait(void *, uint32_t);"
        f" uint32_t host_dma_left(void); int {name}_set_weights_loader({name}_t *, {load}, {wait}, void *);"
    )
