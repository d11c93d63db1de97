/* The application on an emulated board, with emitc's own start-up code (boards/platform/runtime). */
#include "application.h"

#include "emitc_board.h"

void put_text(const char *text, size_t bytes)
{
    emitc_write(text, (uint32_t)bytes);
}

uint32_t ticks(void)
{
    return (uint32_t)emitc_timer_read();
}

int main(void)
{
    emitc_timer_start();
    return application();
}
