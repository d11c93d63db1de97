"""Functions of two or more tensors, element by element, with broadcasting."""
