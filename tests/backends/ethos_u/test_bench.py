"""The table of what runs on the NPU: what is stored holds, and measuring gives rows of that form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.npu import RESULTS, Figures, measure, text
from emitc.backends.ethos_u.options import ACCELERATORS

MODELS = Path(__file__).resolve().parents[3] / "examples" / "models"
NETS = (
    "hello_world_int8", "micro_speech_int8", "kws_ref_int8", "ad01_int8", "ic_resnet_int8", "vww_96_int8",
    "person_detect_int8",
)  # fmt: skip
CACHE_LINE = 32


def test_the_stored_nets_all_match_and_need_no_more_than_velas_memory() -> None:
    rows = [Figures(**row) for row in json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]]
    assert all(row.match or row.refused for row in rows)
    for npu, accelerator in ACCELERATORS.items():
        for net in NETS:
            found = [row for row in rows if (row.model, row.npu, row.optimise) == (net, npu, "speed")]
            assert accelerator.memories[0] in {row.memory for row in found}
            for row in found:
                assert (row.on_npu, row.regions) == (row.operators, 1)
                if row.memory != "Dedicated_Sram":
                    assert row.arena_bytes <= -(-row.vela_sram_bytes // CACHE_LINE) * CACHE_LINE


@pytest.mark.usefixtures("vela")
def test_measuring_a_net() -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    row = measure(MODELS / "digits_int8.tflite", "ethos-u55-128", "Shared_Sram", "speed", 2)
    assert row.match
    assert row.on_npu == row.operators > 0
    assert row.vela_sram_bytes > 0
    assert row.cycles == row.vela_cycles
    assert "digits_int8" in text([row])
    kept = measure(MODELS / "digits_qdq.onnx", "ethos-u55-128", "Shared_Sram", "speed", 1)
    assert (kept.on_npu, kept.regions, kept.vela_sram_bytes) == (0, 0, 0)
    assert sum(kept.core.values()) == kept.operators
    assert any("--allow-npu-rounding" in reason for reason in kept.core)
