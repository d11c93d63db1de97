"""Models that tests make."""
