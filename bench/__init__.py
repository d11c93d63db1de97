"""Benchmarks: commands that print a table, write JSON, and show the peers' figures beside ours."""
