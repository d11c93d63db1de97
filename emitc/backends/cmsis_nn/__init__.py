"""CMSIS-NN, Arm's kernel library for Cortex-M: what its versions offer and need, as data, and operators as its calls."""
