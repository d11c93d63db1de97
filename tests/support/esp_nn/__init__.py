"""A library with the prototypes of ESP-NN, written by this project, so that the calls are tested without Espressif's sources."""
