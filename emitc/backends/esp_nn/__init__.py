"""ESP-NN, Espressif's kernel library: what its functions take and need as scratch, and operators as its calls."""
