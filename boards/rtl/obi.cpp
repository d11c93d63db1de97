/* SPDX-License-Identifier: Apache-2.0
   Cores with two OBI ports (request, grant, response): each port has one response on its way, or one every cycle. */
#include "Vcore_top.h"
#include "machine.h"
#include "verilated.h"

/* A port of the memory. A request that is granted in one cycle has its response in the next one, or after its wait. */
struct Port {
    bool pending = false;
    unsigned left = 0;
    uint32_t word = 0;

    bool ready() const { return !pending || left == 0; }
    bool responds() const { return pending && left == 0; }
    void next(bool taken, uint32_t with, unsigned wait)
    {
        if (taken) {
            pending = true, left = wait, word = with;
        } else if (responds()) {
            pending = false;
        } else if (pending) {
            left--;
        }
    }
};

int main(int, char **arguments)
{
    Machine machine(arguments[1], arguments[2], arguments[3]);
    Vcore_top core;
    Port fetch, data;
    core.clk = 0, core.rst_n = 1;
    core.eval();
    for (unsigned reset = 8; !machine.done; reset -= reset > 0) {
        core.rst_n = reset == 0;
        core.i_gnt = fetch.ready(), core.i_rvalid = fetch.responds(), core.i_rdata = fetch.word;
        core.d_gnt = data.ready(), core.d_rvalid = data.responds(), core.d_rdata = data.word;
        core.clk = 0;
        core.eval();
        if (core.rst_n) {
            const bool fetches = core.i_req && core.i_gnt, moves = core.d_req && core.d_gnt;
            const uint32_t at = core.d_addr;
            if (moves && core.d_we) {
                machine.write(at, core.d_wdata, core.d_be);
            }
            data.next(moves, moves && !core.d_we ? machine.read(at) : 0, moves && !core.d_we ? machine.wait(at) : 0);
            fetch.next(fetches, fetches ? machine.read(core.i_addr) : 0, fetches ? machine.wait(core.i_addr) : 0);
            machine.observe(core.pc, core.retired, core.events);
        }
        core.clk = 1;
        core.eval();
    }
    return machine.code;
}
