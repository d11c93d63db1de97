"""What TFLite Micro registers of its signal library against what emitc takes: each type and rank that it runs has code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emitc.errors import EmitcError
from emitc.kernels import tflite_registry
from emitc.verify.engines.run import EngineRefused, engine_for
from emitc.writers.tflite import write_tflite
from tests.kernels.signal.test_signal import (
    SUBTRACTION,
    bank,
    energy,
    gain,
    inverse,
    logarithm,
    roots,
    scaled,
    subtraction,
    transform,
    window,
)
from tests.kernels.signal.test_signal_frames import delay, framer, overlap, stacker
from tests.support.single_op import Case, TensorSpec, graph_of, model_of, refusal

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "bool")
TABLE: dict[str, tuple[Case, ...]] = {
    "SignalWindow": (window((6,), 3),),
    "SignalFftAutoScale": (scaled(255),),
    "SignalRfft": tuple(transform(16, 16, dtype=t) for t in ("int16", "int32", "float32")),
    "SignalIrfft": tuple(inverse(16, dtype=t) for t in ("int16", "int32", "float32")),
    "SignalEnergy": (energy(0, 20),),
    "SignalFilterBank": (bank("bank"),),
    "SignalFilterBankSquareRoot": (roots(),),
    "SignalFilterBankSpectralSubtraction": (subtraction("subtraction"),),
    "SignalPCAN": (gain("gain", 6),),
    "SignalFilterBankLog": (logarithm(64, 3),),
    "SignalDelay": (delay("delay", (6,), 2),),
    "SignalFramer": (framer("framer", (8,), 6, 2, prefill=True),),
    "SignalOverlapAdd": tuple(overlap("overlap", (2, 4), 2, t) for t in ("int16", "float32")),
    "SignalStacker": (stacker("stacker", 3, 1, 1, 1),),
}
"""TFLite Micro's signal operators, by the names under which its resolver adds them, each with the types that its kernel has."""
ALL = [case for cases in TABLE.values() for case in cases]
IDS = [f"{case.custom_code}_{case.outputs[0].dtype}" for case in ALL]


def _runs(case: Case) -> bool:
    """Whether the engine takes the case, and ends one run on zeros."""
    try:
        engine = engine_for(write_tflite(model_of([case])), "tflm")
        engine.run([np.zeros(shape, dtype) for dtype, shape in engine.input_types()])
    except EngineRefused:
        return False
    return True


def _takes(case: Case) -> bool:
    try:
        graph_of(case)
    except EmitcError:
        return False
    return True


def _of_type(tensor: TensorSpec, dtype: str) -> TensorSpec:
    if tensor.data is None:
        return replace(tensor, dtype=dtype)
    values = np.frombuffer(tensor.data, tensor.dtype).reshape(tensor.shape)
    return replace(tensor, dtype=dtype, data=values.astype(dtype).tobytes())


def _changed(case: Case) -> list[Case]:
    """The case with each tensor in each other type, and with input and first output in each other type at once."""
    inputs = [tensor for tensor in case.inputs if tensor is not None]
    made: list[Case] = []
    for dtype in TYPES:
        both = (_of_type(inputs[0], dtype), *inputs[1:]), (replace(case.outputs[0], dtype=dtype), *case.outputs[1:])
        made.append(replace(case, inputs=both[0], outputs=both[1]))
        for i, tensor in enumerate(inputs):
            made.append(replace(case, inputs=(*inputs[:i], _of_type(tensor, dtype), *inputs[i + 1 :])))
        for i, tensor in enumerate(case.outputs):
            outputs = (*case.outputs[:i], replace(tensor, dtype=dtype), *case.outputs[i + 1 :])
            made.append(replace(case, outputs=outputs))
    same = (tuple(inputs), case.outputs)
    return [other for other in made if (other.inputs, other.outputs) != same]


def test_every_registered_operator_has_a_kernel() -> None:
    found = {name.removeprefix("CUSTOM:") for name in tflite_registry() if name.startswith("CUSTOM:Signal")}
    assert found == set(TABLE)


@pytest.mark.parametrize("case", ALL, ids=IDS)
def test_types(case: Case) -> None:
    """No other type runs in the engine, so that none is missing; and none is taken."""
    assert _runs(case) and _takes(case)
    for other in _changed(case):
        types = [tensor.dtype for tensor in (*other.inputs, *other.outputs) if tensor is not None]
        assert not _runs(other), f"the engine takes {types}"
        assert not _takes(other), f"{types} have no code"


@pytest.mark.parametrize("case", ALL, ids=IDS)
@pytest.mark.parametrize("outer", [(1,), (3, 2)], ids=str)
def test_ranks(case: Case, outer: tuple[int, ...]) -> None:
    """Where the engine takes dimensions in front, they are taken."""
    first, *others = (tensor for tensor in case.inputs if tensor is not None)
    wider = replace(
        case,
        inputs=(replace(first, shape=(*outer, *first.shape)), *others),
        outputs=(replace(case.outputs[0], shape=(*outer, *case.outputs[0].shape)), *case.outputs[1:]),
    )
    in_front = {"SignalWindow", "SignalRfft", "SignalIrfft", "SignalDelay", "SignalFramer", "SignalOverlapAdd"}
    assert _runs(wider) == (case.custom_code in in_front)
    assert _takes(wider) or not _runs(wider)


@pytest.mark.parametrize("length", range(2, 132, 2))
def test_lengths_of_transforms(length: int) -> None:
    """All that have no prime factor over 5; the engine has no memory for the others, and leaves its output as it was."""
    rest = length // 2
    for prime in (2, 3, 5):
        while rest % prime == 0:
            rest //= prime
    for case in (transform(length, length), inverse(length, dtype="float32")):
        assert _takes(case) == (rest == 1 and length > 2)


@pytest.mark.parametrize(
    "changes",
    [{"smoothing_bits": 0}, {"smoothing_bits": 31}, {"spectral_subtraction_bits": 0}, {"min_signal_remaining": 0}],
    ids=str,
)
def test_limits_of_options(changes: dict[str, int | bool]) -> None:
    assert _takes(subtraction("subtraction", **(SUBTRACTION | changes)))


def test_an_odd_length_says_why() -> None:
    assert "without prime factors over 5, as in TFLite Micro" in str(refusal(transform(14, 14)))
