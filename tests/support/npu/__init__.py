"""Command streams of the NPU."""
