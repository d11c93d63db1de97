"""CMSIS-NN compiled for the host, and layers for it."""
