"""Operators that an NPU runs."""
