"""The sweep of verdicts over seeds: what the stored file says, and that a network is proven with each seed once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import seeds
from bench.networks import unet
from tests.support.models.onnx_net import OnnxNet

STORED = seeds.read_rows(seeds.RESULTS)
SEEDS = 20


def test_every_stored_network_has_one_verdict() -> None:
    ran = {name: row for name, row in STORED.items() if row["seeds"]}
    assert len(ran) >= 50
    assert {seeds.verdict(row) for row in ran.values()} == {"MATCH"}
    for name, row in ran.items():
        assert [found["seed"] for found in row["seeds"]] == list(range(SEEDS)), name
        assert all(found["unjudged"] == 0 for found in row["seeds"]), name


def test_the_networks_whose_verdict_depended_on_the_seed_are_stored() -> None:
    """And one with transposed convolutions, with and without floats at its ends."""
    assert {"digits_transformer_dyn_u8.onnx", "unet_qdq_u8u8.onnx", "unet_qdq_u8u8_floats.onnx"} <= set(STORED)


def small(folder: Path) -> Path:
    """A quantized product."""
    net = OnnxNet()
    net.output(net.qdq(net.op("Gemm", net.qdq(net.input((3, 8)), 0.0513), net.weights((5, 8)), transB=1), 0.1371))
    path = folder / "small.onnx"
    path.write_bytes(net.serialized())
    return path


def test_a_row_goes_on_where_it_was(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    path = small(tmp_path)
    first = seeds.proven(path, range(1))
    assert seeds.verdict(first) == "MATCH"
    marked = first | {"seeds": [first["seeds"][0] | {"match": False}]}
    second = seeds.proven(path, range(2), marked)
    assert [found["seed"] for found in second["seeds"]] == [0, 1]
    assert seeds.verdict(second) == "1 of 2 match"  # what is kept is not run again
    other = seeds.proven(path, range(1), marked | {"code": "other"})
    assert seeds.verdict(other) == "MATCH"
    (worst,) = {found["worst"][0] for found in second["seeds"]}
    assert worst == "Gemm"
    seeds.write_rows(tmp_path / "rows.json", {"small.onnx": second})
    assert seeds.read_rows(tmp_path / "rows.json") == {"small.onnx": second}
    assert "0 of 1 networks have one verdict, in 2 proofs" in seeds.text([second])


def test_a_network_that_is_refused_has_no_verdict(tmp_path: Path) -> None:
    path = tmp_path / "none.onnx"
    path.write_bytes(b"nothing")
    row = seeds.proven(path, range(1))
    assert seeds.verdict(row) == "refused" and row["seeds"] == []


def test_the_u_net_has_transposed_convolutions_between_bytes_and_matches(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    whole, floats = unet.write(tmp_path)
    assert (whole.name, floats.name) == ("unet_qdq_u8u8.onnx", "unet_qdq_u8u8_floats.onnx")
    row = seeds.proven(whole, [5])
    assert seeds.verdict(row) == "MATCH"
    assert row["seeds"][0]["rule"] == "groups"
