"""Arithmetic that the C must match bit for bit, in numpy. It knows no layer."""
