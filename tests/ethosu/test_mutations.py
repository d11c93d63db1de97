"""The tests can fail: each deliberate mistake in the executor is caught, by the streams made by hand and by those of vela."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emitc.errors import EmitcError
from emitc.ethosu import execute, memory, simulator
from emitc.ethosu.commands import (
    Convolution,
    Elementwise,
    FeatureMap,
    OperandScaling,
    Pooling,
    Rounding,
    Scale,
    Upscale,
)
from emitc.verify.engines.run import engine_for
from emitc.verify.npu_check import VelaNetwork, read_vela
from emitc.writers.tflite import write_tflite
from tests.ethosu import test_execute as hand
from tests.ethosu import test_memory as memories
from tests.support.npu.cases import case
from tests.support.npu.vela import VelaOptions, compiled, require_vela
from tests.support.single_op import drawn, model_of

Patch = pytest.MonkeyPatch
Mutation = Callable[[Patch], None]


def on_commands(change: Callable[[Any], Any]) -> Mutation:
    """Every operation is changed before it runs."""

    def apply(patch: Patch) -> None:
        run = simulator._run

        def mutated(command: Any, *rest: Any) -> None:
            run(change(command) if isinstance(command, Convolution | Pooling | Elementwise) else command, *rest)

        patch.setattr(simulator, "_run", mutated)

    return apply


def on_windows(change: Callable[[Any], Any]) -> Mutation:
    """Every convolution and pooling is changed before it runs."""
    return on_commands(lambda c: c if isinstance(c, Elementwise) else change(c))


def on_scales(**change: Callable[[Any], Any]) -> Mutation:
    """Fields of the scales per channel are changed."""

    def apply(patch: Patch) -> None:
        original = execute.channel_scales

        def mutated(data: bytes, channels: int) -> Any:
            found = original(data, channels)
            return replace(found, **{name: f(getattr(found, name)) for name, f in change.items()})

        patch.setattr(execute, "channel_scales", mutated)

    return apply


def on_function(module: Any, name: str, make: Callable[[Any], Any]) -> Mutation:
    """A function of the executor is replaced by what `make` makes of it."""
    return lambda patch: patch.setattr(module, name, make(getattr(module, name)))


def _rounding(old: Rounding | None, new: Rounding) -> Mutation:
    def change(original: Any) -> Any:
        return lambda v, s, r, **high: original(v, s, new if old in (None, r) else r, **high)

    def apply(patch: Patch) -> None:
        patch.setattr(execute, "shifted", change(execute.shifted))

    return apply


def _no_zero_point(command: Any) -> Any:
    return replace(command, ifm=replace(command.ifm, zero_point=0))


def _output(command: Any, **changes: Any) -> Any:
    return replace(command, output=replace(command.output, **changes))


def _brick_pieces(original: Any) -> Any:
    """Groups of bricks in the wrong order."""

    def mutated(fm: FeatureMap) -> Any:
        for piece in original(fm):
            turned = piece.shape[2] > 1
            yield replace(
                piece,
                base=piece.base + (piece.shape[2] - 1) * fm.stride_c if turned else piece.base,
                strides=(*piece.strides[:2], -piece.strides[2], *piece.strides[3:]) if turned else piece.strides,
            )

    return mutated


MUTATIONS: dict[str, Mutation] = {
    "tfl_as_natural": _rounding(Rounding.TFL, Rounding.NATURAL),
    "tfl_as_truncate": _rounding(Rounding.TFL, Rounding.TRUNCATE),
    "natural_as_truncate": _rounding(Rounding.NATURAL, Rounding.TRUNCATE),
    "bias_one_more": on_scales(bias=lambda b: b + 1000),
    "bias_left_out": on_scales(bias=lambda b: b * 0),
    "multiplier_low": on_scales(multiplier=lambda m: m - (1 << 20)),
    "shift_one_more": on_scales(shift=lambda s: s + 1),
    "scale_of_first_channel": on_scales(multiplier=lambda m: np.full_like(m, m[0]), shift=lambda s: np.full_like(s, s[0])),
    "input_zero_point": on_windows(_no_zero_point),
    "elementwise_zero_point": on_commands(lambda c: _no_zero_point(c) if isinstance(c, Elementwise) else c),
    "output_zero_point": on_commands(
        lambda c: _output(c, feature_map=replace(c.output.feature_map, zero_point=c.output.feature_map.zero_point + 1))
    ),
    "no_clamp_below": on_commands(lambda c: _output(c, minimum=None if c.output.minimum is None else -(1 << 30))),
    "clamp_one_less": on_commands(lambda c: _output(c, maximum=None if c.output.maximum is None else c.output.maximum - 1)),
    "padding_filled": on_function(execute, "padded_input", lambda f: lambda *a, **k: f(*a, **k | {"fill": k["fill"] + 3})),
    "padding_turned": on_windows(
        lambda c: replace(c, padding=replace(c.padding, top=c.padding.bottom, bottom=c.padding.top))
    ),
    "columns_for_rows": on_function(
        execute, "tap", lambda f: lambda v, k, y, x, oh, ow: f(v, k, min(x, k.height - 1), min(y, k.width - 1), oh, ow)
    ),
    "dilation_of_weights": on_function(
        execute, "kernel_weights", lambda f: lambda data, layout: f(data, layout)[:, ::-1]
    ),
    "weights_mirrored": on_function(execute, "kernel_weights", lambda f: lambda data, layout: f(data, layout)[:, :, ::-1]),
    "weights_negated": on_function(execute, "kernel_weights", lambda f: lambda data, layout: -f(data, layout)),
    "average_of_whole_windows": on_function(
        execute, "_averages", lambda f: lambda sums, counts, rounding: f(sums, np.full_like(counts, counts.max()), rounding)
    ),
    "stride_one_less": on_function(
        execute,
        "tap",
        lambda f: lambda v, k, *rest: f(v, replace(k, stride_y=1, stride_x=max(1, k.stride_x - 1)), *rest),
    ),
    "nearest_as_zeros": on_windows(
        lambda c: replace(c, upscale=Upscale.ZEROS if c.upscale is Upscale.NEAREST else c.upscale)
    ),
    "zeros_as_nearest": on_windows(
        lambda c: replace(c, upscale=Upscale.NEAREST if c.upscale is Upscale.ZEROS else c.upscale)
    ),
    "other_operand_scaled": on_commands(
        lambda c: replace(
            c,
            scaling={
                OperandScaling.FIRST: OperandScaling.SECOND,
                OperandScaling.SECOND: OperandScaling.FIRST,
                OperandScaling.BOTH: OperandScaling.BOTH,
            }[c.scaling],
        )
        if isinstance(c, Elementwise)
        else c
    ),
    "operand_scales_turned": on_commands(
        lambda c: replace(c, scale_a=c.scale_b, scale_b=c.scale_a)
        if isinstance(c, Elementwise) and c.scaling is OperandScaling.BOTH
        else c
    ),
    "operands_turned": on_commands(
        lambda c: replace(c, swapped=not c.swapped) if isinstance(c, Elementwise) and c.ifm2 is not None else c
    ),
    "global_scale_left_out": on_commands(
        lambda c: _output(c, scale=Scale(1, 0)) if c.output.scale is not None else c
    ),
    "table_one_further": on_function(
        execute, "looked_up", lambda f: lambda v, *rest: f(np.minimum(v + 1, 127), *rest)
    ),
    "bricks_turned": on_function(memory, "_pieces", _brick_pieces),
}  # fmt: skip

HAND: tuple[Callable[[], None], ...] = (
    *(
        lambda d=d, c=c: hand.test_convolutions(d, *c)  # type: ignore[misc]
        for d in (False, True)
        for c in (
            ((3, 2), (2, 1), (1, 1), (1, 0, 1, 1), 0),
            ((2, 3), (1, 3), (2, 1), (0, 2, 1, 0), 0),
            ((3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
            ((2, 2), (1, 1), (1, 1), (1, 1, 1, 1), 2),
        )
    ),
    hand.test_maximum_and_averages_with_padding,
    lambda: hand.test_an_average_without_padding_takes_the_given_scale("tfl"),
    lambda: hand.test_an_average_without_padding_takes_the_given_scale("natural"),
    hand.test_additions_with_both_operands_scaled,
    lambda: hand.test_additions_with_one_operand_scaled_as_tflite_does(1, "int8", 20),
    hand.test_products_and_their_scale,
    hand.test_extrema_scalars_and_order,
    hand.test_one_operand,
    lambda: hand.test_tables(0, False),
    lambda: memories.test_bricks(37, "int8"),
)
ON_VELA = (
    ("conv", 1), ("conv", 2), ("dilated", 0), ("depthwise", 0), ("saturating", 0), ("transpose_conv", 0), ("max_pool", 0),
    ("average_pool", 0), ("average_pool", 3), ("add", 0), ("sub", 1), ("mul", 2), ("leaky_relu", 0), ("hard_swish", 0),
    ("softmax", 0), ("mean", 0), ("resize_nearest", 0), ("quantize", 0),
)  # fmt: skip
UNSEEN_ON_VELA = frozenset({"operand_scales_turned", "bricks_turned"})
"""What these streams do not tell: they write and read bricks in one order, and have one operand scale."""


@pytest.mark.parametrize("name", MUTATIONS)
def test_streams_made_by_hand_catch_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    caught = 0
    for check in HAND:
        try:
            check()
        except (AssertionError, EmitcError, IndexError, ValueError):
            caught += 1
    assert caught > 0


def test_without_a_mutation_nothing_is_caught() -> None:
    for check in HAND:
        check()


@pytest.fixture(scope="module")
def vela_streams() -> list[tuple[VelaNetwork, list[Any], list[Any]]]:
    """Operators compiled by vela, with inputs and tflite_micro's outputs."""
    require_vela()
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    found = []
    for kind, number in ON_VELA:
        made = case(kind, number)
        model = write_tflite(model_of([made]))
        file = read_vela(compiled(model, VelaOptions("ethos-u55-128", "Shared_Sram", "Performance")).read_bytes())
        engine, rng = engine_for(model, "tflm"), np.random.default_rng(number)
        inputs = [
            [drawn(tensor, rng, sample) for tensor in made.inputs if tensor is not None and tensor.data is None]
            for sample in range(4)
        ]
        found.append((VelaNetwork(file), inputs, [engine.run(values)[0] for values in inputs]))
    return found


def differing(streams: list[tuple[VelaNetwork, list[Any], list[Any]]]) -> int:
    """Streams whose outputs are not those of the engine."""
    count = 0
    for network, inputs, expected in streams:
        try:
            same = all(
                np.array_equal(network.run(values)[0].reshape(output.shape), output)
                for values, output in zip(inputs, expected, strict=True)
            )
        except (EmitcError, IndexError, ValueError):
            same = False
        count += not same
    return count


@pytest.mark.parametrize("name", MUTATIONS)
def test_streams_of_vela_catch_it(
    name: str, monkeypatch: pytest.MonkeyPatch, vela_streams: list[tuple[VelaNetwork, list[Any], list[Any]]]
) -> None:
    MUTATIONS[name](monkeypatch)
    assert (differing(vela_streams) > 0) == (name not in UNSEEN_ON_VELA)


def test_streams_of_vela_agree_without_a_mutation(vela_streams: list[tuple[VelaNetwork, list[Any], list[Any]]]) -> None:
    assert differing(vela_streams) == 0
