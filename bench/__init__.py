"""Benchmarks: commands that print a table, write JSON, and compare the peers' figures with ours."""
