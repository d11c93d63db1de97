/* SPDX-License-Identifier: Apache-2.0
   What every simulated core runs in: memory with a timing model, semihosting, and the counters of a measured call.

   The program `simulate IMAGE SETTINGS COUNTS` loads a flat image at SETTINGS' base, resets the core there, and stops
   when the firmware says so. The firmware's text goes to stdout. SETTINGS has one `name value...` per line, numbers in
   decimal:

     base ADDRESS              of the image's first byte, and of the reset vector
     bytes N                   of memory, from the base
     begin, end, hook, resume  addresses of the markers of a measured call (0: the image has no such marker)
     cycles N                  the simulation gives up after so many
     slow START END WAIT LINE LINES WAYS
                               reads of [START, END) go through a cache of LINES lines of LINE bytes in sets of WAYS
                               lines, of which the least recently used one is replaced. A miss takes WAIT cycles more
                               than a hit; the memory fills one line at a time.

   COUNTS gets, for each measured call: `begin`; at each layer hook `cut CYCLES INSTRUCTIONS`, which count from the
   marker before; for each address that was executed `at ADDRESS CYCLES INSTRUCTIONS`; `events N...`, the cycles during
   which each of the core's stall signals was set; `misses N`; and `end CYCLES INSTRUCTIONS`. */
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

constexpr uint32_t HOST = 0xFFFFFF00u; /* stores of a0 and a1 here are a semihosting call, a load is its result */
constexpr unsigned EVENTS = 8;

/* A cache in front of a slow memory, as XIP flash has one: it holds tags only, since the bytes lie in Machine. */
class Slow {
public:
    uint32_t start = 0, end = 0;
    uint64_t misses = 0;

    void configure(uint32_t from, uint32_t to, unsigned wait_cycles, unsigned line_bytes, unsigned lines, unsigned ways)
    {
        start = from, end = to, wait = wait_cycles, line = line_bytes, associativity = ways;
        sets = lines / ways;
        tags.assign(lines, Entry{});
    }
    bool covers(uint32_t address) const { return address >= start && address < end; }

    /* Cycles that a read waits, from `now`. */
    unsigned read(uint32_t address, uint64_t now)
    {
        const uint64_t tag = uint64_t{address} / line;
        Entry *set = &tags[tag % sets * associativity], *oldest = set;
        for (Entry *entry = set; entry < set + associativity; entry++) {
            if (entry->valid && entry->tag == tag) {
                entry->used = now;
                return entry->ready > now ? static_cast<unsigned>(entry->ready - now) : 0;
            }
            if (!entry->valid || (oldest->valid && entry->used < oldest->used)) {
                oldest = entry;
            }
        }
        misses++;
        const uint64_t begun = busy_until > now ? busy_until : now;
        busy_until = begun + wait;
        *oldest = Entry{true, tag, now, busy_until};
        return static_cast<unsigned>(busy_until - now);
    }

private:
    struct Entry {
        bool valid = false;
        uint64_t tag = 0, used = 0, ready = 0;
    };
    unsigned wait = 0, line = 4, associativity = 1, sets = 1;
    uint64_t busy_until = 0;
    std::vector<Entry> tags;
};

class Machine {
public:
    bool done = false;
    int code = -1;
    uint64_t cycle = 0;

    Machine(const char *image, const char *settings, const char *counts_path) : counts(fopen(counts_path, "w"))
    {
        std::ifstream file(settings);
        for (std::string text; std::getline(file, text);) {
            std::istringstream words(text);
            std::string name;
            uint64_t value[6] = {};
            words >> name;
            for (uint64_t &each : value) {
                words >> each;
            }
            set(name, value);
        }
        std::ifstream bytes(image, std::ios::binary);
        bytes.read(reinterpret_cast<char *>(memory.data()), static_cast<std::streamsize>(memory.size()));
        if (counts == nullptr || bytes.gcount() == 0) {
            fprintf(stderr, "the image or the counts cannot be opened\n");
            exit(3);
        }
    }

    /* Cycles that a read of a word waits beyond the first. */
    unsigned wait(uint32_t address) { return slow.covers(address) ? slow.read(address, cycle) : 0; }

    uint32_t read(uint32_t address) const
    {
        uint32_t word = 0;
        if ((address & ~3u) - base < memory.size()) {
            memcpy(&word, &memory[(address & ~3u) - base], 4);
        } else if (address == HOST) {
            word = result;
        }
        return word;
    }

    /* lanes: which bytes of the word are stored. */
    void write(uint32_t address, uint32_t word, unsigned lanes)
    {
        address &= ~3u;
        if (address - base < memory.size()) {
            for (unsigned i = 0; i < 4; i++) {
                if (lanes >> i & 1u) {
                    memory[address - base + i] = static_cast<uint8_t>(word >> 8 * i);
                }
            }
        } else if (address == HOST) {
            argument0 = word;
        } else if (address == HOST + 4) {
            call(argument0, word);
        } else if (++strays > 100) {
            stop(4, "the firmware stores outside of the memory");
        }
    }

    /* Once per cycle. pc: of the instruction in the observed stage; retired: whether it leaves the stage in this cycle;
       events: the stall signals, one bit each. */
    void observe(uint32_t pc, bool retired, unsigned events)
    {
        if (counting) {
            Place &place = places[pc];
            place.cycles++;
            place.instructions += retired;
            for (unsigned i = 0; i < EVENTS; i++) {
                stalls[i] += events >> i & 1u;
            }
        }
        if (retired) {
            instructions++;
            if (pc == begin) {
                at_begin();
            } else if (counting && pc == end) {
                at_end();
            } else if (counting && pc == hook && hook != 0) {
                cut("cut");
            } else if (counting && pc == resume && resume != 0) {
                restart();
            }
        }
        if (++cycle >= limit) {
            stop(5, "the firmware did not stop within the cycles allowed");
        }
    }

private:
    struct Place {
        uint64_t cycles = 0, instructions = 0;
    };
    FILE *counts;
    uint32_t base = 0, begin = 0, end = 0, hook = 0, resume = 0;
    uint32_t argument0 = 0, result = 0;
    uint64_t instructions = 0, limit = UINT64_MAX, cycle_then = 0, instructions_then = 0, misses_then = 0;
    uint64_t stalls[EVENTS] = {};
    unsigned strays = 0;
    bool counting = false;
    Slow slow;
    std::vector<uint8_t> memory;
    std::unordered_map<uint32_t, Place> places;

    void set(const std::string &name, const uint64_t *value)
    {
        const auto number = static_cast<uint32_t>(value[0]);
        if (name == "base") {
            base = number;
        } else if (name == "bytes") {
            memory.assign(value[0], 0);
        } else if (name == "begin") {
            begin = number;
        } else if (name == "end") {
            end = number;
        } else if (name == "hook") {
            hook = number;
        } else if (name == "resume") {
            resume = number;
        } else if (name == "cycles") {
            limit = value[0];
        } else if (name == "slow") {
            slow.configure(number, static_cast<uint32_t>(value[1]), static_cast<unsigned>(value[2]),
                           static_cast<unsigned>(value[3]), static_cast<unsigned>(value[4]),
                           static_cast<unsigned>(value[5]));
        }
    }

    /* Semihosting, as far as the proof's firmware uses it: open, write, exit. */
    void call(uint32_t operation, uint32_t block)
    {
        if (operation == 1) { /* SYS_OPEN: the console */
            result = 1;
        } else if (operation == 5) { /* SYS_WRITE: handle, address, bytes */
            const uint32_t from = read(block + 4) - base, bytes = read(block + 8);
            if (from < memory.size() && bytes <= memory.size() - from) {
                fwrite(&memory[from], 1, bytes, stdout);
                fflush(stdout);
            }
            result = 0;
        } else if (operation == 0x20) { /* SYS_EXIT_EXTENDED: reason, code */
            code = static_cast<int>(read(block + 4));
            done = true;
        } else {
            stop(6, "the firmware asks the host for something that the simulation does not have");
        }
    }

    void stop(int with, const char *why)
    {
        fprintf(stderr, "%s\n", why);
        code = with;
        done = true;
    }

    void restart()
    {
        cycle_then = cycle;
        instructions_then = instructions;
    }
    void at_begin()
    {
        fputs("begin\n", counts);
        places.clear();
        memset(stalls, 0, sizeof stalls);
        misses_then = slow.misses;
        counting = true;
        restart();
    }
    void cut(const char *what)
    {
        fprintf(counts, "%s %llu %llu\n", what, static_cast<unsigned long long>(cycle - cycle_then),
                static_cast<unsigned long long>(instructions - instructions_then - 1));
    }
    void at_end()
    {
        counting = false;
        for (const auto &[address, place] : places) {
            fprintf(counts, "at %u %llu %llu\n", address, static_cast<unsigned long long>(place.cycles),
                    static_cast<unsigned long long>(place.instructions));
        }
        fputs("events", counts);
        for (uint64_t each : stalls) {
            fprintf(counts, " %llu", static_cast<unsigned long long>(each));
        }
        fprintf(counts, "\nmisses %llu\n", static_cast<unsigned long long>(slow.misses - misses_then));
        cut("end");
        fflush(counts);
    }
};
