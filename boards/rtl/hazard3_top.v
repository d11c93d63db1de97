/* SPDX-License-Identifier: Apache-2.0
   Hazard3 in the configuration of the RP2350, as far as it is public: two AHB ports, single-cycle multiplier,
   bit manipulation, branch predictor.
   events: operand not ready, multiplier or divider busy, memory port busy, instruction missing. */
module core_top (
    input wire clk,
    input wire rst_n,
    output wire [31:0] i_haddr,
    output wire [1:0] i_htrans,
    input wire i_hready,
    input wire [31:0] i_hrdata,
    output wire [31:0] d_haddr,
    output wire d_hwrite,
    output wire [1:0] d_htrans,
    output wire [2:0] d_hsize,
    input wire d_hready,
    output wire [31:0] d_hwdata,
    input wire [31:0] d_hrdata,
    output wire [31:0] pc,
    output wire retired,
    output wire [7:0] events
);
  hazard3_cpu_2port #(
      .RESET_VECTOR(`RESET_ADDRESS),
      .MTVEC_INIT(`RESET_ADDRESS),
      .EXTENSION_A(1),
      .EXTENSION_C(1),
      .EXTENSION_M(1),
      .EXTENSION_ZBA(1),
      .EXTENSION_ZBB(1),
      .EXTENSION_ZBC(0),
      .EXTENSION_ZBS(1),
      .EXTENSION_ZBKB(1),
      .EXTENSION_ZCB(1),
      .EXTENSION_ZCMP(1),
      .EXTENSION_ZIFENCEI(1),
      .CSR_M_MANDATORY(1),
      .CSR_M_TRAP(1),
      .CSR_COUNTER(1),
      .MUL_FAST(1),
      .MUL_FASTER(1),
      .MULH_FAST(1),
      .MULDIV_UNROLL(2),
      .FAST_BRANCHCMP(1),
      .BRANCH_PREDICTOR(1),
      .RESET_REGFILE(1),
      .REDUCED_BYPASS(0)
  ) cpu (
      .clk(clk),
      .clk_always_on(clk),
      .rst_n(rst_n),
      .pwrup_ack(1'b1),
      .unblock_in(1'b0),
      .i_haddr(i_haddr),
      .i_htrans(i_htrans),
      .i_hready(i_hready),
      .i_hresp(1'b0),
      .i_hrdata(i_hrdata),
      .d_haddr(d_haddr),
      .d_hwrite(d_hwrite),
      .d_htrans(d_htrans),
      .d_hsize(d_hsize),
      .d_hready(d_hready),
      .d_hresp(1'b0),
      .d_hexokay(1'b1),
      .d_hwdata(d_hwdata),
      .d_hrdata(d_hrdata),
      .dbg_req_halt(1'b0),
      .dbg_req_halt_on_reset(1'b0),
      .dbg_req_resume(1'b0),
      .dbg_data0_rdata(32'b0),
      .dbg_instr_data(32'b0),
      .dbg_instr_data_vld(1'b0),
      .dbg_sbus_addr(32'b0),
      .dbg_sbus_write(1'b0),
      .dbg_sbus_size(2'b0),
      .dbg_sbus_vld(1'b0),
      .dbg_sbus_wdata(32'b0),
      .irq(1'b0),
      .soft_irq(1'b0),
      .timer_irq(1'b0)
  );
  assign pc = cpu.core.d_pc;
  assign retired = cpu.core.x_instr_ret;
  assign events = {
    4'b0, cpu.core.d_starved, cpu.core.m_stall, cpu.core.x_stall_muldiv, cpu.core.x_stall_on_raw
  };
endmodule
