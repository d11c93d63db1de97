"""`emitc.cost`: the arena of a compilation without one, and estimates held against what boards have counted."""

from __future__ import annotations

import json
import statistics
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import emitc
from bench.cost import COUNTS, RESULTS, Places, errors, groups_of, held_out, outdated, plan_of
from bench.least_squares import anchored_fit, non_negative, relative_fit
from emitc.compiler import plan_model
from emitc.explore.cost import cost_of
from emitc.explore.kernel_counts import counts_for
from emitc.explore.kernel_work import plane_work, quad_taps, quad_windows, single_windows, vector_windows
from emitc.explore.layer_cycles import layer_works
from emitc.explore.layer_work import inner, met
from emitc.explore.zero_share import limited, weighted, zero_shares
from emitc.target import load_target
from tests.support.models.onnx_net import OnnxNet

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
NETS = ("kws_ref_int8", "person_detect_int8", "mww_hey_jarvis_v2")
"""Networks of the corpus that the examples have too."""


def counted(model: str, board: str = "qemu_m4") -> dict[str, int]:
    rows = json.loads(COUNTS.read_text(encoding="utf-8"))["rows"]
    return next(row for row in rows if row["model"] == f"tflite/{model}.tflite" and row["board"] == board)


@pytest.mark.parametrize("model", NETS)
def test_a_network_costs_what_the_board_counted(model: str) -> None:
    found, row = emitc.cost(MODELS / f"{model}.tflite", "cortex-m4f"), counted(model)
    assert found.arena_bytes == emitc.compile_model(MODELS / f"{model}.tflite", target="cortex-m4f").plan.arena_bytes
    assert found.instructions == pytest.approx(row["instructions"], rel=0.02)
    assert found.cycles == pytest.approx(row["cycles"], rel=0.05)
    assert found.constant_bytes == pytest.approx(row["constants"], rel=0.003)
    assert found.flash_bytes == pytest.approx(row["constants"] + row["code"], rel=0.01)
    assert found.source == "qemu_m4" and found.counted > 0.9


def test_networks_that_the_counts_do_not_have_are_estimated(tmp_path: Path) -> None:
    """Of one board: those of `bench.networks.cost` that are kept out of the fit."""
    rows = [r for r in json.loads(COUNTS.read_text(encoding="utf-8"))["rows"] if r["board"] == "qemu_m4"]
    kept = [row for row in rows if held_out(row["model"])][:16]
    found = [abs(row["error"]) for row in errors(kept, Places(tmp_path, tmp_path))]
    assert statistics.median(found) < 0.02
    assert sorted(found)[len(found) * 3 // 4] < 0.04
    assert max(found) < 0.1


def test_no_network_is_far_off() -> None:
    """Of the errors that `bench.cost` wrote."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    groups = groups_of(rows)
    networks = [row for name, group in groups.items() if name.endswith(": networks") for row in group]
    assert len(networks) > 250 and max(abs(row["error"]) for row in networks) < 0.1
    assert all(statistics.median(abs(r["error"]) for r in group) < 0.03 for group in groups.values())


def test_models_of_a_changed_kernel_are_outdated(tmp_path: Path) -> None:
    path = MODELS / "digits_int8.tflite"
    _, program = plan_model(path, target="cortex-m4f")
    row = {"board": "qemu_m4", "model": str(path), "plan": plan_of(program)}
    places = Places(tmp_path, tmp_path)
    assert list(outdated([row], "", places)) == []
    assert list(outdated([row], program.steps[0].kernel, places)) == [str(path)]
    assert list(outdated([row | {"plan": "0"}], "", places)) == [str(path)]


def test_no_program_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **settings: object) -> None:
        raise AssertionError("a program is run")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert emitc.cost(MODELS / "digits_int8.tflite", "cortex-m4f").instructions > 0


def test_what_was_not_counted_is_said() -> None:
    found = emitc.cost(MODELS / "digits_int8.tflite", "generic32")
    assert (found.source, found.counted, found.code_bytes) == ("", 0.0, 0)
    assert found.instructions > 0


def test_the_layers_and_the_overhead_are_the_sum() -> None:
    model = emitc.compile_model(MODELS / "person_detect_int8.tflite", target="cortex-m4f")
    found = model.cost()
    assert found.overhead > 0, "no layers run by rows"
    assert sum(layer.instructions for layer in found.layers) + found.overhead == found.instructions
    assert [layer.index for layer in found.layers] == [step.index for step in model.program.steps]
    assert cost_of(model.partition, model.program).to_json()["layers"][0]["op"] == model.program.steps[0].op_type


def test_one_line_and_a_table_in_a_notebook() -> None:
    found = emitc.cost(MODELS / "digits_int8.tflite", "cortex-m4f")
    assert repr(found).startswith("<Cost of digits_int8 on cortex-m4f: arena ") and "\n" not in repr(found)
    assert found._repr_html_().count("<tr>") == 1 + len(found.layers)


def test_windows_are_counted_as_one_by_one() -> None:
    draw = np.random.default_rng(0)
    for _ in range(2000):
        outputs, stride, dilation, size, pad, inputs = (
            int(draw.integers(low, high)) for low, high in ((1, 12), (1, 4), (1, 4), (1, 6), (0, 5), (1, 20))
        )
        inside = [[0 <= o * stride - pad + tap * dilation < inputs for tap in range(size)] for o in range(outputs)]
        values = {"stride_w": stride, "pad_left": pad, "dilation_w": dilation, "kernel_w": size, "in_w": inputs}
        values |= {"out_w": outputs}
        assert met(values, "w") == sum(map(sum, inside))
        whole = [o for o in range(outputs) if o * stride >= pad and o * stride - pad + dilation * (size - 1) < inputs]
        assert inner(values, "w") == len(whole)


def test_windows_that_are_looked_for_one_by_one_are_counted_as_the_kernel_goes() -> None:
    """`conv_2d_mve` takes two pixels at a time: this goes pair by pair, `vector_windows` from one end of a run to the other."""
    draw = np.random.default_rng(0)
    for _ in range(300):
        kernel, stride, pad, size = (int(draw.integers(low, high)) for low, high in ((1, 6), (1, 3), (0, 3), (6, 15)))
        out = (size + 2 * pad - kernel) // stride + 1
        axes = {"in_h": size, "in_w": size, "out_h": out, "out_w": out, "kernel_h": kernel, "kernel_w": kernel}
        values = axes | {
            "in_c": 3,
            "stride_h": stride,
            "stride_w": stride,
            "pad_top": pad,
            "pad_left": pad,
            "direct": 0,
        }
        fits = [o for o in range(out) if 0 <= o * stride - pad <= size - kernel]
        values |= {"inner_first": fits[0], "inner_end": fits[-1] + 1} if fits else {"inner_first": 0, "inner_end": 0}
        placed = waiting = row = column = 0
        for pixel in range(0, out * out, 2):
            pair = min(2, out * out - pixel)
            if waiting:
                waiting, column = waiting - 2, column + 2
                continue
            for _ in range(pair):
                row, column = (row + 1, 0) if column == out else (row, column)
                column, placed = column + 1, placed + 1
            inside = row in fits and values["inner_first"] <= column < values["inner_end"]
            waiting = (values["inner_end"] - column) // 2 * 2 if inside else 0
        assert vector_windows(values, 8, 16)["placed"] == placed


def test_tiles_of_planes_are_counted_band_by_band() -> None:
    draw = np.random.default_rng(0)
    for _ in range(100):
        height, width, band, channels = (
            int(draw.integers(low, high)) for low, high in ((3, 12), (3, 12), (2, 6), (1, 9))
        )
        values = {"in_h": height, "in_w": width, "in_c": channels, "out_h": height, "out_w": width, "kernel_h": 3}
        work = plane_work(values | {"kernel_w": 3, "group": 2, "band": band, "strips": 5})
        bands = [range(start, min(start + band, height)) for start in range(0, height, band)]
        tiles = [(y, x) for rows in bands for y in rows[::2] for x in range(0, width, 2)]
        assert work["tiles"] == channels * len(tiles)
        assert work["bands"] == len(bands) * len(range(0, channels, 2))


def test_a_layer_that_runs_by_rows_is_estimated_row_by_row() -> None:
    model = emitc.compile_model(MODELS / "person_detect_int8.tflite", target="cortex-m4f")
    works = layer_works(model.partition, model.program)
    calls = {call.step.index: call for segment in model.program.segments for call in segment.calls}
    assert calls, "no layers run by rows"
    assert {index: works[index][1]["once"] for index in works} == {
        index: calls[index].makes.rows if index in calls else 1 for index in works
    }
    macs = {step.index: step.macs for step in model.program.steps}
    assert all(works[index][1]["work"] == macs[index] for index in calls), "the work of the whole layer"


def test_pixels_in_fours_are_counted_as_the_kernels_of_small_cores_go() -> None:
    """`conv_2d_halves` and `depthwise_conv_2d_scalar`: four pixels at a time, the last ones alone, each four times over."""
    draw = np.random.default_rng(0)
    for _ in range(200):
        kernel, stride, pad, high, wide = (
            int(draw.integers(a, b)) for a, b in ((1, 5), (1, 3), (0, 3), (5, 12), (5, 12))
        )
        columns, rows = (wide + 2 * pad - kernel) // stride + 1, (high + 2 * pad - kernel) // stride + 1
        names = [f"{of}_{axis}" for of in ("in", "out", "kernel", "stride") for axis in "hw"] + [
            "pad_top",
            "pad_left",
            "in_c",
        ]
        numbers = (high, wide, rows, columns, kernel, kernel, stride, stride, pad, pad, 3)
        values = dict(zip(names, numbers, strict=True))
        groups = placed = edge_rows = pixel = inside = 0
        while pixel < rows * columns:
            size = 4 if rows * columns - pixel > 3 else 1
            windows = [divmod(pixel + i % size, columns) for i in range(4)]
            lefts, tops = ([at[axis] * stride - pad for at in windows] for axis in (1, 0))
            whole = [left >= 0 and left + kernel <= wide for left in lefts]
            edge_rows += sum(
                not (ok and 0 <= top + y < high) for ok, top in zip(whole, tops, strict=True) for y in range(kernel)
            )
            y, x = divmod(pixel, columns)
            first, top = x * stride - pad, y * stride - pad
            fits = first >= 0 and first + kernel - 1 + 3 * stride < wide and x + 4 < columns
            placed += not (fits and top >= 0 and top + kernel - 1 < high)
            inside += sum(
                0 <= tops[i] + y < high and 0 <= lefts[i] + x < wide
                for i in range(size)
                for y in range(kernel)
                for x in range(kernel)
            )
            groups += 1
            pixel += size
        found = quad_windows(values, 5)
        assert (found["quads"], found["edge_rows"], found["quad_outputs"]) == (groups, edge_rows, 5 * groups)
        assert (quad_taps(values, 5)["quads"], quad_taps(values, 5)["placed"]) == (groups, placed)
        single = single_windows(values, 6)
        assert single["left_inside"] == (2 * 3 * inside if single["edge_rows"] else 0)


def test_the_share_of_zeros_is_that_of_samples() -> None:
    """Means and variances through two layers with a limit of 0, against samples from -1 to 1."""
    draw = np.random.default_rng(0)
    weights = [draw.normal(0.1, 0.5, (16, 9, 4)), draw.normal(-0.05, 0.3, (16, 16, 16))]
    values = draw.uniform(-1, 1, (4000, 16, 9, 4))
    moments = np.zeros(4), np.full(4, 1 / 3)
    first = np.maximum(np.einsum("spti,oti->spo", values, weights[0]), 0)
    share, moments = limited(weighted(moments, weights[0], 16))
    assert share == pytest.approx((first == 0).mean(), abs=0.02)
    second = np.einsum("spi,opi->so", first, weights[1])
    assert limited(weighted(moments, weights[1], 16))[0] == pytest.approx((second <= 0).mean(), abs=0.02)


def test_weights_that_are_no_numbers_have_a_share() -> None:
    with np.errstate(all="ignore"):
        assert limited((np.array([np.nan, np.inf]), np.array([1.0, np.inf])))[0] == 0.0


def test_float_layers_have_the_share_of_zeros_of_their_inputs() -> None:
    model = emitc.compile_model(MODELS / "float" / "digits_resnet18.onnx", target="cortex-m3")
    shares, works = zero_shares(model.partition), layer_works(model.partition, model.program)
    first, _, third = [work for name, work in works.values() if name.startswith("conv_2d_float")][:3]
    assert first["zero_work"] == 0.0 < first["other_work"]
    assert third["zero_work"] / (third["zero_work"] + third["other_work"]) in shares.values()
    assert len(shares) > 10 and all(0 < share < 1 for share in shares.values())


@pytest.mark.parametrize("operator", ["Conv", "MatMul"])
def test_the_share_of_zeros_takes_nothing_else_for_weights(operator: str, tmp_path: Path) -> None:
    """A constant bias is no weights, and a vector has none for each channel."""
    net = OnnxNet()
    if operator == "Conv":
        bias = net.constant(np.ones(2, np.float32))
        y = net.op("Conv", net.input((1, 2, 4, 4)), net.input((2, 2, 1, 1)), bias)
    else:
        y = net.op("MatMul", net.input((4, 4)), net.constant(np.ones(4, np.float32)))
    net.output(net.op("Relu", y))
    (tmp_path / "net.onnx").write_bytes(net.serialized())
    model = emitc.compile_model(tmp_path / "net.onnx", target="cortex-m3")
    assert all(0 < share < 1 for share in zero_shares(model.partition).values())


def test_an_error_is_a_share_of_the_count_that_the_row_names() -> None:
    rows = [({"work": 1.0}, 2.0, 4.0), ({"work": 1.0}, 4.0, 4000.0)]
    assert relative_fit(rows, {}, 1e-9)["work"] == pytest.approx(2.0, rel=1e-3)


def test_least_squares_without_negative_coefficients() -> None:
    draw = np.random.default_rng(0)
    for _ in range(50):
        a, b = draw.normal(size=(12, 5)), draw.normal(size=12)
        x = non_negative(a, b)
        slope = a.T @ (b - a @ x)
        assert (x >= 0).all() and slope.max() < 1e-8, "the conditions of Karush, Kuhn and Tucker"
        assert np.abs(slope[x > 0]).max(initial=0) < 1e-8


def test_models_are_grouped_by_kind() -> None:
    rows = [
        {"model": "drawn_63", "board": "b", "held_out": True},
        {"model": "tflite/layers/x.tflite", "board": "b", "held_out": False},
    ]
    assert list(groups_of(rows)) == ["b: drawn, not in the fit", "b: single layers"]


def test_a_term_that_no_counted_layer_has_keeps_the_coefficient_of_the_like_kernels() -> None:
    """All counted layers have channels in fours; one that has not costs what it does in other kernels."""
    prior = {"work": 2.0, "channels_left": 15.0}
    rows = [({"work": 10.0, "channels_left": 0.0}, 30.0, 30.0), ({"work": 20.0}, 60.0, 60.0)]
    found = relative_fit(rows, prior, 1e-6)
    assert found["channels_left"] == 15.0 and found["work"] == pytest.approx(3.0, rel=1e-3)


def test_a_coefficient_without_a_reason_keeps_its_anchor() -> None:
    rows = [
        ({"params a": 40.0, "model": 1.0}, 28.0),
        ({"params a": 80.0, "model": 1.0}, 48.0),
        ({"params b": 0.0}, 0.0),
    ]
    found = anchored_fit(rows, lambda name: (1.0, 0.01) if name.startswith("params") else (0.0, 0.0))
    assert found == pytest.approx({"params a": 0.5, "model": 8.0}, rel=1e-3)
    stiff = anchored_fit(rows, lambda name: (1.0, 1e6) if name.startswith("params") else (0.0, 0.0))
    assert stiff["params a"] == pytest.approx(1.0, rel=1e-3)


def test_a_kernel_that_a_board_has_not_counted_is_estimated_from_a_like_board(monkeypatch: pytest.MonkeyPatch) -> None:
    target = load_target("cortex-m55")
    own, name = counts_for(target), "lookup"
    assert own is not None and own.like == "qemu_m4" and own.has(name)
    bare = replace(own, kernels={}, families={}, stems={})
    like = counts_for(load_target("cortex-m4f"))
    assert like is not None and bare.instructions(name, {"once": 1.0}) == like.instructions(name, {"once": 1.0})
    monkeypatch.setattr("emitc.explore.layer_cycles.counts_for", lambda _: bare)
    found = emitc.cost(MODELS / "digits_int8.tflite", "cortex-m55")
    assert found.counted < 0.1 and found.warnings, "an estimate from another board is no count"
    assert bare.instructions("no_such_kernel", {"once": 1.0}) is None
