"""Lowered nodes to stages and buffers: order, views, moves, rows, memory regions, scratch of kernels."""
