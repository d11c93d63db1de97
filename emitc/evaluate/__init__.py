"""A compiled model on data: runs of the generated C on this machine, data sets, and what they say of the model."""
