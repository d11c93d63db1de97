"""Formulas and templates state that they need <math.h>; constants that are not finite need it too."""

from __future__ import annotations

import math
import re

from emitc.compiled import Compiled
from emitc.emit.render import _any_not_finite, _kernel, _needs_math, environment
from tests.emit.test_compilers import MATH

_IN_COMMENTS = {"exp", "floor", "log", "sqrt"}
"""Comments have these as functions of mathematics; the calls in C have a cast in front of the argument."""
CALL = re.compile(
    rf"\b(?:{'|'.join(sorted(MATH - _IN_COMMENTS))})\(|\b(?:{'|'.join(_IN_COMMENTS)})\(\(double\)|\bINFINITY\b|\bNAN\b"
)
COMMENT = re.compile(r"/\*.*?\*/", re.S)


def test_every_kernel_states_whether_it_needs_math(every_family: list[Compiled]) -> None:
    """Of every template and formula, which these models have (tests/emit/test_compilers.py)."""
    wrong: set[str] = set()
    stated: set[str] = set()
    for compiled in every_family:
        program = compiled.program
        for step in program.kernels:
            needed = CALL.search(COMMENT.sub("", _kernel(program, step))) is not None
            if _needs_math(environment(program.templates), step) != needed:
                wrong.add(step.kernel_name)
            if needed:
                stated.add(step.kernel_name)
    assert wrong == set()
    assert {"tanh", "mish", "power", "reduce_l2", "is_inf", "detection_postprocess", "sequence_lstm_float"} <= stated


def test_numbers_that_only_math_names_are_found() -> None:
    assert _any_not_finite([("int8_t", (1, 2)), ("float", (0.5, math.inf))])
    assert _any_not_finite([("double", (math.nan,))])
    assert not _any_not_finite([("float", (0.5,)), ("int32_t", (3,))])
