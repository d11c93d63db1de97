"""Functions of one value."""
