"""Convolutions, and the Layer of each of their kernels."""
