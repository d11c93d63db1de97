"""Graphs for the tests of passes."""
