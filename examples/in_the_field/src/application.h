/* What the application needs of the place where it runs. */
#ifndef APPLICATION_H
#define APPLICATION_H

#include <stddef.h>
#include <stdint.h>

int application(void);                           /* 0 where everything was as it must be */
void put_text(const char *text, size_t bytes);   /* to a console, or a serial line */
uint32_t ticks(void);                            /* a clock that goes on with 0 after 2^32 - 1 */
#define TICKS_PER_SECOND 1000000u

#endif
