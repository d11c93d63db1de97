/* SPDX-License-Identifier: Apache-2.0
   VexRiscv in the configuration IMAC of its package: five stages, caches of 4096 bytes with lines of 32 for
   instructions and for data. It treats addresses from 0x80000000 as input and output and does not cache them. */
module core_top (
    input wire clk,
    input wire rst_n,
    output wire i_stb,
    input wire i_ack,
    output wire [31:0] i_addr,
    input wire [31:0] i_rdata,
    output wire d_stb,
    input wire d_ack,
    output wire d_we,
    output wire [3:0] d_sel,
    output wire [31:0] d_addr,
    output wire [31:0] d_wdata,
    input wire [31:0] d_rdata,
    output wire [31:0] pc,
    output wire retired,
    output wire [7:0] events
);
  wire i_cycle, i_strobe, d_cycle, d_strobe;
  VexRiscv cpu (
      .externalResetVector(`RESET_ADDRESS),
      .timerInterrupt(1'b0),
      .softwareInterrupt(1'b0),
      .externalInterruptArray(32'b0),
      .iBusWishbone_CYC(i_cycle),
      .iBusWishbone_STB(i_strobe),
      .iBusWishbone_ACK(i_ack),
      .iBusWishbone_WE(),
      .iBusWishbone_ADR(i_addr[31:2]),
      .iBusWishbone_DAT_MISO(i_rdata),
      .iBusWishbone_DAT_MOSI(),
      .iBusWishbone_SEL(),
      .iBusWishbone_ERR(1'b0),
      .iBusWishbone_CTI(),
      .iBusWishbone_BTE(),
      .dBusWishbone_CYC(d_cycle),
      .dBusWishbone_STB(d_strobe),
      .dBusWishbone_ACK(d_ack),
      .dBusWishbone_WE(d_we),
      .dBusWishbone_ADR(d_addr[31:2]),
      .dBusWishbone_DAT_MISO(d_rdata),
      .dBusWishbone_DAT_MOSI(d_wdata),
      .dBusWishbone_SEL(d_sel),
      .dBusWishbone_ERR(1'b0),
      .dBusWishbone_CTI(),
      .dBusWishbone_BTE(),
      .clk(clk),
      .reset(!rst_n)
  );
  assign i_stb = i_cycle & i_strobe;
  assign d_stb = d_cycle & d_strobe;
  assign i_addr[1:0] = 2'b0;
  assign d_addr[1:0] = 2'b0;
  assign pc = cpu.lastStagePc;
  assign retired = cpu.lastStageIsFiring;
  assign events = 8'b0;
endmodule
