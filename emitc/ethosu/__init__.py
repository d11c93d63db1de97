"""A host model of the Arm Ethos-U55 and Ethos-U65 NPU: what a command stream compiled by vela computes, bit for bit.

`HostModel.invoke` runs one payload as the driver would hand it to the chip; `check_vela_file` runs a whole TFLite file
that vela has compiled and compares it with the original. It is a model on the host, not a statement about silicon.
"""
