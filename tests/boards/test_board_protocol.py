"""The lines of a proof: what is read from them, and what is refused."""

from __future__ import annotations

import pytest

from emitc.boards.protocol import BadTranscript, fault, is_complete, last_line, parse

WHOLE = """\
emitc begin 1 b
emitc check 0 -
emitc guard 0 3
emitc run 0 40 -
emitc output 0 0 0 0102
emitc output 0 0 2 03
emitc output 0 1 0 ff
emitc differ 0 0 0
emitc differ 0 1 1
emitc status 1 run 5
emitc run 2 overflow -
emitc done
"""


def test_a_whole_proof() -> None:
    seen = parse("noise\n" + WHOLE + "more noise\n")
    assert (seen.board, seen.unit, seen.check_stack_bytes, seen.check_ticks) == ("b", "", 0, None)
    first, refused, deep = seen.cases
    assert (first.stack_bytes, first.outputs, first.differing) == (40, [b"\1\2\3", b"\xff"], [0, 1])
    assert (first.overwritten, deep.overwritten) == (3, 0)
    assert refused.refused == ("run", 5)
    assert deep.stack_overflow
    assert deep.stack_bytes is None


def test_the_last_complete_proof_counts() -> None:
    text = WHOLE + WHOLE.replace("run 0 40", "run 0 44") + "emitc begin 1 b\nemitc check"
    assert is_complete(text)
    assert parse(text).cases[0].stack_bytes == 44


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param("emitc done\n", "", "it ended with: emitc run 2 overflow -", id="cut_off"),
        pytest.param("begin 1", "begin 9", "speaks protocol 9", id="other_protocol"),
        pytest.param("emitc output 0 0 0 0102\n", "", "bytes are missing", id="lost_line"),
        pytest.param("0102", "01g2", "garbled", id="garbled_hex"),
        pytest.param("run 0 40", "run zero 40", "garbled", id="garbled_number"),
        pytest.param("emitc run 0 40 -", "emitc ran 0 40 -", "not a line of the protocol", id="unknown"),
        pytest.param("run 2 overflow", "run 7 overflow", "not numbered from 0", id="lost_case"),
    ],
)
def test_a_proof_that_is_not_whole_is_refused(old: str, new: str, message: str) -> None:
    assert old in WHOLE
    with pytest.raises(BadTranscript, match=message):
        parse(WHOLE.replace(old, new, 1))


def test_faults_and_last_lines() -> None:
    assert fault("emitc begin 1 b\nemitc fault exception 3 pc 8\n") == "emitc fault exception 3 pc 8"
    assert fault(WHOLE) == ""
    assert last_line("") == "nothing was printed"
