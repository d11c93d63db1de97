"""Model files to graphs. Frontends know no target, no backend, no memory and no C."""
