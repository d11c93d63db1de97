// SPDX-License-Identifier: Apache-2.0 OR 0BSD
// Real boards: what emitc_board.h declares, by Arduino's serial port and clock; and the application's place in Arduino.
#include <Arduino.h>

#include "emitc_board.h"

extern "C" int spot_keyword(void);

static unsigned long started;

void emitc_print(const char *text)
{
    Serial.print(text);
}

void emitc_print_u32(uint32_t value)
{
    Serial.print(static_cast<unsigned long>(value));
}

void emitc_print_u64(uint64_t value)
{
    if (value >= 10u) {
        emitc_print_u64(value / 10u);
    }
    Serial.print(static_cast<char>('0' + static_cast<int>(value % 10u)));
}

void emitc_timer_start(void)
{
    started = micros();
}

uint64_t emitc_timer_read(void)
{
    return static_cast<uint32_t>(micros() - started);
}

uint64_t emitc_timer_in_units(uint64_t ticks)
{
    return ticks;
}

const char *emitc_timer_name(void)
{
    return "microseconds";
}

void setup()
{
    Serial.begin(115200);
}

void loop()
{
    spot_keyword();
    delay(1000);
}
