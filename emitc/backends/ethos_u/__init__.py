"""Arm Ethos-U55 and Ethos-U65: regions of the graph as command streams of vela, and the calls of the driver."""
