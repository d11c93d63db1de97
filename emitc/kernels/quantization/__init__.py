"""Conversions between types and scales."""
