"""Layers and weight layouts of multiply-accumulate kernels, by instruction set. No operator is defined here."""
