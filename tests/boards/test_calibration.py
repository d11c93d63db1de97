"""The errors that the files of targets and boards state, recomputed from published times of a rebuilt submission.

bench/published_times.json has the times, and the model's cycles of the code that was measured.
"""

from __future__ import annotations

import math

import pytest

from bench.cycles import NETS, NO_WAITS, measured_cycles, modelled_cycles, published
from emitc.target import FlashTiming, load_board, load_target

NRF, L4R5 = "nRF5340-DK", "NUCLEO-L4R5ZI"
REBUILT = published()["rebuilt"]["boards"]


def errors(board: str, flash: FlashTiming) -> dict[str, float]:
    """Of the model against the measurement, in percent of the measurement."""
    measured = measured_cycles(board)
    return {net: 100 * (cycles / measured[net] - 1) for net, cycles in modelled_cycles(board, flash).items()}


def test_a_cortex_m33_is_as_far_off_as_its_file_says() -> None:
    timing = load_target("cortex-m33").timing
    assert timing is not None
    found = errors(NRF, NO_WAITS)
    assert set(found) == set(NETS)
    assert math.ceil(max(map(abs, found.values()))) == timing.error_percent == 6


def test_a_nucleo_l4r5zi_is_as_far_off_as_its_file_says() -> None:
    flash = load_board("nucleo_l4r5zi").flash_timing
    assert flash is not None
    found = errors(L4R5, flash)
    assert set(found) == set(NETS)
    assert math.ceil(max(map(abs, found.values()))) == flash.error_percent == 4


def test_the_share_for_code_is_the_mean_of_what_the_constants_leave() -> None:
    """The cycles of a constant byte are wait states by bytes of a line; the other figure alone is fitted."""
    flash = load_board("nucleo_l4r5zi").flash_timing
    assert flash is not None
    assert flash.cycles_per_constant_byte == 5 / 8
    left = [
        (cycles - flash.cycles_per_constant_byte * REBUILT[L4R5][net]["constant_bytes_read"])
        / REBUILT[L4R5][net]["cycles"]
        - 1
        for net, cycles in measured_cycles(L4R5).items()
    ]
    assert 100 * sum(left) / len(left) == pytest.approx(flash.code_percent, abs=0.5)


@pytest.mark.parametrize("left_out", NETS)
def test_a_net_that_is_left_out_of_the_fit_is_predicted(left_out: str) -> None:
    flash = load_board("nucleo_l4r5zi").flash_timing
    assert flash is not None
    times = measured_cycles(L4R5)
    left = [
        (times[net] - flash.cycles_per_constant_byte * REBUILT[L4R5][net]["constant_bytes_read"])
        / REBUILT[L4R5][net]["cycles"]
        - 1
        for net in NETS
        if net != left_out
    ]
    fitted = FlashTiming("", 1, 100 * sum(left) / len(left), flash.cycles_per_constant_byte)
    assert abs(errors(L4R5, fitted)[left_out]) < 5


def test_every_published_row_names_its_core_and_clock() -> None:
    for row in published()["rows"]:
        assert set(row) == {"version", "submitter", "board", "core", "mhz", "software", "ms"}
        assert row["core"].startswith("Cortex-M")
        assert set(row["ms"]) <= set(NETS)
