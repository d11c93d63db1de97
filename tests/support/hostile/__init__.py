"""Damaged and forged files, and the campaign that compiles them."""
