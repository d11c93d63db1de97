#include "emitc_runtime.h"

const char *emitc_status_string(emitc_status status)
{
    switch (status) {
    case EMITC_OK:
        return "ok";
    case EMITC_NOT_READY:
        return "not ready: call init first";
    case EMITC_INVALID_ARGUMENT:
        return "invalid argument: a pointer is null";
    case EMITC_ARENA_TOO_SMALL:
        return "the arena is too small";
    case EMITC_STATE_TOO_SMALL:
        return "the state memory is too small";
    case EMITC_MISALIGNED:
        return "arena or state is misaligned";
    case EMITC_BACKEND_FAILED:
        return "a backend failed";
    case EMITC_VERSION_MISMATCH:
        return "the runtime is of another version than the generated code";
    }
    return "unknown status";
}

uint32_t emitc_runtime_version(void)
{
    return EMITC_RUNTIME_VERSION;
}
