"""Host side of the proof: golden engines, building generated C for this machine, comparing the two."""
