/* SPDX-License-Identifier: Apache-2.0
   Cores with two AHB-Lite ports: an address in one cycle, its data in the next ones, until `hready`. */
#include "Vcore_top.h"
#include "machine.h"
#include "verilated.h"

struct Port {
    bool reads = false, writes = false;
    unsigned left = 0, lanes = 0;
    uint32_t address = 0;
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
        core.i_hready = fetch.left == 0, core.d_hready = data.left == 0;
        core.i_hrdata = fetch.reads ? machine.read(fetch.address) : 0;
        core.d_hrdata = data.reads ? machine.read(data.address) : 0;
        core.clk = 0;
        core.eval();
        if (core.rst_n) {
            if (data.writes) {
                machine.write(data.address, core.d_hwdata, data.lanes);
                data.writes = false;
            }
            if (core.d_hready) {
                const bool moves = core.d_htrans & 2u;
                data.reads = moves && !core.d_hwrite, data.writes = moves && core.d_hwrite;
                data.address = core.d_haddr;
                data.lanes = (core.d_hsize == 0 ? 1u : core.d_hsize == 1 ? 3u : 15u) << (core.d_haddr & 3u);
                data.left = data.reads ? machine.wait(data.address) : 0;
            } else {
                data.left--;
            }
            if (core.i_hready) {
                fetch.reads = core.i_htrans & 2u;
                fetch.address = core.i_haddr;
                fetch.left = fetch.reads ? machine.wait(fetch.address) : 0;
            } else {
                fetch.left--;
            }
            machine.observe(core.pc, core.retired, core.events);
        }
        core.clk = 1;
        core.eval();
    }
    return machine.code;
}
