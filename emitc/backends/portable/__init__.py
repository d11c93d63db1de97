"""emitc's own kernels: C that every core runs."""
