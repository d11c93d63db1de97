/* SPDX-License-Identifier: Apache-2.0
   Cores with two Wishbone ports, as a block RAM serves them: an access is acknowledged one cycle after it is stated, and
   the next word of a burst in every cycle after that. A slow memory waits longer. */
#include "Vcore_top.h"
#include "machine.h"
#include "verilated.h"

class Port {
public:
    /* One cycle with an access that is stated, or none; returns whether it is acknowledged. */
    bool next(Machine &machine, bool stated, bool reads, uint32_t address)
    {
        if (!stated) {
            started = burst = false;
            return false;
        }
        if (!started) {
            started = true;
            left = (burst && address == last + 4 ? 0 : 1) + (reads ? machine.wait(address) : 0);
        } else {
            left--;
        }
        if (left != 0) {
            return false;
        }
        started = false, burst = true, last = address;
        return true;
    }

private:
    bool started = false, burst = false;
    unsigned left = 0;
    uint32_t last = 0;
};

int main(int, char **arguments)
{
    Machine machine(arguments[1], arguments[2], arguments[3]);
    Vcore_top core;
    Port fetch, data;
    core.clk = 0, core.rst_n = 0;
    core.eval();
    for (unsigned reset = 8; !machine.done; reset -= reset > 0) {
        core.rst_n = reset == 0;
        core.clk = 0, core.i_ack = 0, core.d_ack = 0;
        core.eval();
        if (core.rst_n) {
            core.i_ack = fetch.next(machine, core.i_stb, true, core.i_addr);
            core.d_ack = data.next(machine, core.d_stb, !core.d_we, core.d_addr);
            if (core.d_ack && core.d_we) {
                machine.write(core.d_addr, core.d_wdata, core.d_sel);
            } else if (core.d_ack) {
                core.d_rdata = machine.read(core.d_addr);
            }
            if (core.i_ack) {
                core.i_rdata = machine.read(core.i_addr);
            }
            if (core.i_ack || core.d_ack) {
                core.eval();
            }
            machine.observe(core.pc, core.retired, core.events);
        }
        core.clk = 1;
        core.eval();
    }
    return machine.code;
}
