/* The application on this machine. */
#include "application.h"

#include <stdio.h>
#include <time.h>

void put_text(const char *text, size_t bytes)
{
    fwrite(text, 1, bytes, stdout);
}

uint32_t ticks(void)
{
    return (uint32_t)((uint64_t)clock() * TICKS_PER_SECOND / CLOCKS_PER_SEC);
}

int main(void)
{
    return application();
}
