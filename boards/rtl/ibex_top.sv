/* SPDX-License-Identifier: Apache-2.0
   Ibex in the configuration that its documentation calls "maxperf" without bit manipulation: single-cycle multiplier,
   branch target ALU and writeback stage; no instruction cache, no PMP. It starts 128 bytes after its boot address.
   events: instruction missing, load or store waiting, multiplier waiting, divider waiting. */
module core_top
  import ibex_pkg::*;
(
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
  logic [4:0] raddr_a, raddr_b, waddr;
  logic [31:0] rdata_a, rdata_b, wdata;
  logic we, dummy_id, dummy_wb;
  logic [IC_TAG_SIZE-1:0] no_tags[IC_NUM_WAYS];
  logic [IC_LINE_SIZE-1:0] no_lines[IC_NUM_WAYS];

  for (genvar way = 0; way < IC_NUM_WAYS; way++) begin : gen_no_cache
    assign no_tags[way] = '0;
    assign no_lines[way] = '0;
  end

  ibex_register_file_ff registers (
      .clk_i(clk),
      .rst_ni(rst_n),
      .test_en_i(1'b0),
      .dummy_instr_id_i(dummy_id),
      .dummy_instr_wb_i(dummy_wb),
      .raddr_a_i(raddr_a),
      .rdata_a_o(rdata_a),
      .raddr_b_i(raddr_b),
      .rdata_b_o(rdata_b),
      .waddr_a_i(waddr),
      .wdata_a_i(wdata),
      .we_a_i(we),
      .err_o()
  );

  ibex_core #(
      .RV32M(RV32MSingleCycle),
      .BranchTargetALU(1'b1),
      .WritebackStage(1'b1)
  ) u_ibex_core (
      .clk_i(clk),
      .rst_ni(rst_n),
      .hart_id_i(32'b0),
      .boot_addr_i(`RESET_ADDRESS - 32'h100),
      .instr_req_o(i_req),
      .instr_gnt_i(i_gnt),
      .instr_rvalid_i(i_rvalid),
      .instr_addr_o(i_addr),
      .instr_rdata_i(i_rdata),
      .instr_err_i(1'b0),
      .data_req_o(d_req),
      .data_gnt_i(d_gnt),
      .data_rvalid_i(d_rvalid),
      .data_we_o(d_we),
      .data_be_o(d_be),
      .data_addr_o(d_addr),
      .data_wdata_o(d_wdata),
      .data_rdata_i(d_rdata),
      .data_err_i(1'b0),
      .dummy_instr_id_o(dummy_id),
      .dummy_instr_wb_o(dummy_wb),
      .rf_raddr_a_o(raddr_a),
      .rf_raddr_b_o(raddr_b),
      .rf_waddr_wb_o(waddr),
      .rf_we_wb_o(we),
      .rf_wdata_wb_ecc_o(wdata),
      .rf_rdata_a_ecc_i(rdata_a),
      .rf_rdata_b_ecc_i(rdata_b),
      .ic_tag_rdata_i(no_tags),
      .ic_data_rdata_i(no_lines),
      .ic_scr_key_valid_i(1'b1),
      .irq_software_i(1'b0),
      .irq_timer_i(1'b0),
      .irq_external_i(1'b0),
      .irq_fast_i(15'b0),
      .irq_nm_i(1'b0),
      .debug_req_i(1'b0),
      .fetch_enable_i(IbexMuBiOn)
  );
  assign pc = u_ibex_core.pc_id;
  assign retired = u_ibex_core.instr_id_done & u_ibex_core.instr_perf_count_id;
  assign events = {4'b0, u_ibex_core.perf_div_wait, u_ibex_core.perf_mul_wait, u_ibex_core.perf_dside_wait, u_ibex_core.perf_iside_wait};
endmodule
