"""The table of hot operators: its arithmetic, and what the committed file says of itself."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from bench.hot_operators import (
    JSON_FILE,
    SHARE,
    Cell,
    Run,
    by_operator,
    hot,
    nets,
    rounds_of,
    slower,
    to_json,
)

NET = Run(
    "net",
    "qemu_m4",
    (
        Cell(0, "CONV_2D", "int8>int8", "dsp", 900, (("portable", 2000), ("dsp-2px", 890), ("dsp-noscratch", 895))),
        Cell(1, "MEAN", "int8>int8", "portable", 40),
        Cell(2, "MEAN", "int8>int8", "portable", 30),
        Cell(3, "SOFTMAX", "int8>int8", "portable", 30, (("mve", 30),)),
    ),
)


def test_operators_of_a_kernel_are_counted_together() -> None:
    assert [(row.op, row.layers, row.instructions, row.share) for row in by_operator(NET)] == [
        ("CONV_2D", 1, 900, 0.9),
        ("MEAN", 2, 70, 0.07),
        ("SOFTMAX", 1, 30, 0.03),
    ]


def test_hot_is_a_portable_kernel_above_the_share() -> None:
    assert [row.op for row in hot([NET])] == ["MEAN"]
    assert [row.op for row in hot([NET], 0.02)] == ["MEAN", "SOFTMAX"]
    assert hot([NET], 0.07) == []


def test_slower_names_the_kernel_with_the_fewest_instructions() -> None:
    (row,) = slower([NET])
    assert (row.index, row.better, row.better_instructions, row.share) == (0, "dsp-2px", 890, 0.01)


def test_every_other_kernel_is_run_once() -> None:
    others = {0: ["mve", "dsp", "portable"], 4: [], 7: ["portable"]}
    rounds = rounds_of(others)
    assert sorted(pair for each in rounds for pair in each) == [
        (i, name) for i, names in others.items() for name in sorted(names)
    ]
    assert all(len({index for index, _ in each}) == len(each) for each in rounds)


def test_the_file_is_made_of_its_runs() -> None:
    made = to_json([NET], {"other on qemu_m4": "does not fit"})
    assert made["hot"] == [asdict(row) for row in hot([NET])]
    assert made["nets"][0]["instructions"] == sum(row[-1] for row in made["nets"][0]["operators"]) == 1000
    assert made["refused"] == {"other on qemu_m4": "does not fit"}


def test_the_committed_file_agrees_with_itself() -> None:
    content = json.loads(JSON_FILE.read_text(encoding="utf-8"))
    assert content["hot_share"] == SHARE
    found = {
        (net["model"], net["board"], op, types, count)
        for net in content["nets"]
        for op, types, variant, _, count in net["operators"]
        if variant == "portable" and round(count / net["instructions"], 4) > SHARE
    }
    assert found == {
        (row["model"], row["board"], row["op"], row["types"], row["instructions"]) for row in content["hot"]
    }


def test_single_layers_are_no_nets(tmp_path: Path) -> None:
    for name in ("tflite/net.tflite", "tflite/layers/add.tflite", "tflite/float_ops/abs.tflite", "onnx/float/net.onnx"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert nets(tmp_path) == ["tflite/net.tflite", "onnx/float/net.onnx"]
