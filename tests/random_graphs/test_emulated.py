"""Random graphs on emulated boards: many in one image, and what is said of those that differ or stop the board."""

from __future__ import annotations

import shutil

import pytest

from bench.random_graphs.__main__ import main
from bench.random_graphs.emulated import Board, campaign, report

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
pytestmark = pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)


@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("level", ["-O2", "-Os"])
@pytest.mark.parametrize("board", ["qemu_m4", "qemu_m55", "qemu_m0_big"])
def test_graphs_have_their_numbers_on_boards(board: str, level: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--board", board, f"--level={level}", "--count", "24", "--seed", "11", "--format", "both"]
    assert main(arguments) == 0
    assert " match" in capsys.readouterr().out


def test_other_numbers_and_a_stop_are_told_from_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graphs after one that stops the board are run in another image."""
    real = Board.run
    images: list[bytes] = []

    def run(self: Board) -> bytes:
        printed = real(self)
        images.append(printed)
        if len(images) > 1:
            return printed
        _, first, second, *_ = printed.split(b"\nmodel")
        last = first.rstrip(b"\n")
        other = last[:-1] + (b"0" if last[-1:] != b"0" else b"1")
        return b"\nmodel".join((b"", other, second[: len(second) // 2]))

    monkeypatch.setattr(Board, "run", run)
    done = campaign("tflite", 11, 5, "qemu_m4")
    ran = [one.verdict for one in done if one.verdict != "refused"]
    assert ran[:2] == ["wrong", "lost"] and set(ran[2:]) == {"match"}
    assert len(images) == 2
    text, failures = report(done)
    assert failures == 2 and text.startswith(f"1 lost, {len(ran) - 2} match")
