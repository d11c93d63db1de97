"""Results as text, tables and pictures."""
