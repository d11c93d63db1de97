/* SPDX-License-Identifier: Apache-2.0
   CV32E40P with its packed SIMD and hardware loops (COREV_PULP), without a floating-point unit.
   events: load used by the next instruction, jump register stall, instruction missing, memory port busy, jump,
   taken branch. */
module core_top (
    input logic clk,
    input logic rst_n,
    output logic i_req,
    input logic i_gnt,
    input logic i_rvalid,
    output logic [31:0] i_addr,
    input logic [31:0] i_rdata,
    output logic d_req,
    input logic d_gnt,
    input logic d_rvalid,
    output logic d_we,
    output logic [3:0] d_be,
    output logic [31:0] d_addr,
    output logic [31:0] d_wdata,
    input logic [31:0] d_rdata,
    output logic [31:0] pc,
    output logic retired,
    output logic [7:0] events
);
  cv32e40p_top #(
      .COREV_PULP(1),
      .NUM_MHPMCOUNTERS(1)
  ) cpu (
      .clk_i(clk),
      .rst_ni(rst_n),
      .pulp_clock_en_i(1'b1),
      .scan_cg_en_i(1'b0),
      .boot_addr_i(`RESET_ADDRESS),
      .mtvec_addr_i(`RESET_ADDRESS),
      .dm_halt_addr_i(32'b0),
      .hart_id_i(32'b0),
      .dm_exception_addr_i(32'b0),
      .instr_req_o(i_req),
      .instr_gnt_i(i_gnt),
      .instr_rvalid_i(i_rvalid),
      .instr_addr_o(i_addr),
      .instr_rdata_i(i_rdata),
      .data_req_o(d_req),
      .data_gnt_i(d_gnt),
      .data_rvalid_i(d_rvalid),
      .data_we_o(d_we),
      .data_be_o(d_be),
      .data_addr_o(d_addr),
      .data_wdata_o(d_wdata),
      .data_rdata_i(d_rdata),
      .irq_i(32'b0),
      .irq_ack_o(),
      .irq_id_o(),
      .debug_req_i(1'b0),
      .debug_havereset_o(),
      .debug_running_o(),
      .debug_halted_o(),
      .fetch_enable_i(1'b1),
      .core_sleep_o()
  );
  assign pc = cpu.core_i.pc_id;
  assign retired = cpu.core_i.id_stage_i.minstret;
  assign events = {
    2'b0,
    cpu.core_i.id_stage_i.mhpmevent_branch_taken_o,
    cpu.core_i.id_stage_i.mhpmevent_jump_o,
    cpu.core_i.id_stage_i.mhpmevent_pipe_stall_o,
    cpu.core_i.id_stage_i.mhpmevent_imiss_o,
    cpu.core_i.id_stage_i.mhpmevent_jr_stall_o,
    cpu.core_i.id_stage_i.mhpmevent_ld_stall_o
  };
endmodule

/* The clock never stops: the firmware does not sleep. */
module cv32e40p_clock_gate (
    input  logic clk_i,
    input  logic en_i,
    input  logic scan_cg_en_i,
    output logic clk_o
);
  assign clk_o = clk_i;
endmodule
