"""Kernels of the signal library for cores with more than every core has: values in words, or in vectors.

Such a kernel does what the portable one does, step for step, and has the same tables and parameters.
"""

from __future__ import annotations

from dataclasses import replace

from emitc.kernels.mac.dsp_int8 import BYTES_HEADER, HEADER
from emitc.kernels.mac.int16_dsp_mve import DSP_HEADER
from emitc.layer import Layer


def in_words(layer: Layer) -> Layer:
    """The layer by the template of its name for the DSP extension: two values at a time."""
    headers = (*layer.headers, HEADER, BYTES_HEADER, DSP_HEADER, "emitc_dsp_signal.h")
    return replace(layer, template=f"{layer.template}_dsp", variant="dsp", headers=headers)


def in_naturals(layer: Layer) -> Layer:
    """The layer by the template of its name for MVE: four numbers of 32 bits without a sign at a time."""
    headers = tuple(dict.fromkeys((*layer.headers, "emitc_bits.h", "emitc_mve.h", "emitc_mve_uint32.h")))
    return replace(layer, template=f"{layer.template}_mve", variant="mve", headers=headers)


def in_vectors(layer: Layer) -> Layer:
    """The layer by the template of its name for MVE: eight values at a time."""
    headers = (*layer.headers, "emitc_mve.h", "emitc_mve_signal.h")
    return replace(layer, template=f"{layer.template}_mve", variant="mve", headers=headers)
