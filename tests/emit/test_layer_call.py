"""The functions of layers that call their kernel once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emitc.emit.layer_call import LayerCall, layer_call, usual_arguments
from emitc.emit.render import environment, template_paths
from emitc.layer import PLAIN, KernelSpec, ReductionFormula
from emitc.program import Address, Block, Operand, Step


def operand(c_type: str, name: str) -> Operand:
    return Operand(c_type, "", Address(Block.ARENA, name), const=False, size_bytes=4, tensor=name, source=-1)


STEP = Step(
    0,
    "op0_scale",
    "SCALE",
    "",
    "family/scale",
    "portable",
    inputs=(operand("int8_t", "in"),),
    outputs=(operand("int16_t", "out"), operand("int32_t", "state")),
    scratch=(operand("int8_t", "sums"),),
    table_names={"factors": "op0_scale_factors"},
    constants=(),
    params=(),
    macs=0,
    spec=KernelSpec(suffix="_s16"),
)


def test_operands_are_parameters_and_tables_are_not() -> None:
    call = layer_call(STEP, "x, factors, restrict y, kept, work")
    assert call == LayerCall(
        "const int8_t *x, int16_t *restrict y, int32_t *kept, int8_t *work", "x, op0_scale_factors, y, kept, work", ""
    )


def test_an_operand_that_is_a_constant_is_its_table() -> None:
    constant = replace(STEP, inputs=(), table_names={"x": "op0_scale_x"})
    assert layer_call(constant, "x, y, kept, work") == LayerCall(
        "int16_t *y, int32_t *kept, int8_t *work", "op0_scale_x, y, kept, work", ""
    )


def test_casts_and_line_breaks_stay() -> None:
    call = layer_call(STEP, "\nx, y,\nkept, (struct emitc_KERNEL_sum *)(void *)work")
    assert call.parameters == "const int8_t *x, int16_t *y, int32_t *kept, int8_t *work"
    assert call.arguments == "x, y,\n        kept, (struct emitc_scale_s16_sum *)(void *)work"
    assert call.start == "\n        "


def test_parameters_too_may_start_on_a_line_of_their_own() -> None:
    call = layer_call(STEP, "\n\nx, y,\nkept, work")
    assert call.parameters == "\n    const int8_t *x, int16_t *y, int32_t *kept, int8_t *work"
    assert (call.start, call.arguments) == ("\n        ", "x, y,\n        kept, work")


def test_tables_and_memory_that_a_layer_lacks_are_left_out() -> None:
    assert layer_call(STEP, "x, zeros?, y, kept, factors?, sums?").arguments == "x, y, kept, op0_scale_factors, sums"
    assert layer_call(replace(STEP, scratch=()), "x, y, kept, restrict sums?").arguments == "x, y, kept"


def test_scaling_stands_for_the_tables_of_the_requantization() -> None:
    scaled = replace(STEP, table_names={"shift": "op0_shift", "multiplier": "op0_multiplier"})
    assert layer_call(scaled, "x, scaling, y, kept, work").arguments == "x, op0_multiplier, op0_shift, y, kept, work"


def test_arguments_that_do_not_fit_the_layer_are_a_bug() -> None:
    with pytest.raises(AssertionError, match=r"family/scale takes 4 operands, not x, y"):
        layer_call(STEP, "x, y")


def test_a_kernel_usually_takes_operands_tables_output_and_memory() -> None:
    one = replace(STEP, outputs=STEP.outputs[:1])
    assert usual_arguments(one) == "x, factors, y, sums"
    assert usual_arguments(replace(one, inputs=STEP.inputs * 2)) == "a, b, factors, y, sums"
    constant = replace(one, table_names={"factors": "op0_scale_factors", "a": "op0_scale_a"})
    assert usual_arguments(constant) == "a, b, factors, y, sums"


@pytest.mark.parametrize("template", sorted(path for path in template_paths() if "/_" not in path))
def test_no_template_says_twice_what_its_kernel_is_or_how_it_is_called(template: str) -> None:
    values = {
        "f": replace(PLAIN, window="4x9x3"),
        "name": "emitc_kernel",
        "e": ReductionFormula("sum", "acc", "The sum"),
    }
    module = environment().get_template(f"kernels/{template}.c.j2").make_module(values | {"members": ()})
    names = vars(module)
    text = str(module).strip()
    assert not (text and "kernel" in names)
    macro, arguments = names.get("layer"), names.get("arguments")
    assert text or "kernel" in names or macro is not None, "the layer may be all that a template prints"
    assert macro is None or arguments is None
    assert callable(macro) if arguments is None and macro is not None else isinstance(arguments, str | None)
