"""Numbers as C text: tables of floats read back as the same bits, whether all of them are finite or not."""

from __future__ import annotations

import numpy as np
import pytest

from emitc.emit.literals import elements, real


@pytest.mark.parametrize("special", [(), (np.inf,), (-np.inf, np.nan)])
def test_a_table_of_floats_has_the_text_of_each_of_them(special: tuple[float, ...]) -> None:
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 2**32, 1000, dtype=np.uint32).view(np.float32)
    finite = drawn[np.isfinite(drawn)].tolist()
    values = [0.0, -0.0, 3.0, 1e16, 123456792.0, *finite, *special]
    printed = elements(values, "float").replace("\n", " ").replace(" ", "").removesuffix(",").split(",")
    assert printed == [real(value) for value in values]
    plain = printed[: len(values) - len(special)]
    assert all(text.endswith("f") and ("." in text or "e" in text) for text in plain)
    read = np.array([text.removesuffix("f") for text in plain], np.float32)
    assert read.tobytes() == np.array(values[: len(plain)], np.float32).tobytes()
