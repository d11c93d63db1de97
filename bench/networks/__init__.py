"""Networks that benches make for themselves."""
