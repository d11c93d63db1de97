"""Kernels that take the numbers of training by a pointer of their own."""

from __future__ import annotations

import pytest

from emitc.emit.trained_numbers import with_trained

STRUCT = "struct emitc_k {\n    int32_t count;\n};\n\n"
HELPER = """static inline int32_t emitc_k_one(const struct emitc_k *restrict p, int32_t x)
{
    return x + p->offset;
}

"""
KERNEL = """EMITC_NOINLINE void emitc_k(const struct emitc_k *p, const int8_t *x, int32_t *y)
{
    for (int32_t i = 0; i < p->count; i++) {
        y[i] = emitc_k_one(p, x[i]);
    }
}
"""
TYPES = {"offset": "int32_t"}


def test_each_function_takes_what_it_and_those_that_it_calls_read() -> None:
    assert with_trained(STRUCT + HELPER + KERNEL, "k", TYPES) == STRUCT + (
        "static inline int32_t emitc_k_one(const struct emitc_k_numbers *restrict trained, int32_t x)\n{\n"
        "    const int32_t trained_offset = trained->offset;\n"
        "    return x + trained_offset;\n}\n\n"
        "EMITC_NOINLINE void emitc_k(const struct emitc_k *p, const struct emitc_k_numbers *restrict trained, "
        "const int8_t *x, int32_t *y)\n{\n"
        "    for (int32_t i = 0; i < p->count; i++) {\n"
        "        y[i] = emitc_k_one(trained, x[i]);\n    }\n}\n"
    )


def test_a_number_of_a_conditional_part_is_no_variable() -> None:
    kernel = KERNEL.replace("    for", "#if EMITC_ASM\n    y[0] = p->offset;\n#endif\n    for")
    text = with_trained(STRUCT + HELPER + kernel, "k", TYPES)
    assert text is not None
    assert "y[0] = trained->offset;" in text


@pytest.mark.parametrize(
    "text",
    [
        STRUCT + HELPER + KERNEL.replace("emitc_k_one(p", "emitc_elsewhere(p"),
        STRUCT + HELPER + KERNEL.replace("p, x[i]", "x[i], p"),
        STRUCT + HELPER + KERNEL.replace("int32_t i = 0", "int32_t trained = 0, i = 0"),
        STRUCT + HELPER + KERNEL.replace("    for", "    const struct emitc_k *const same = p;\n    for"),
        STRUCT + HELPER + KERNEL.replace("p->count", "3"),
        STRUCT + KERNEL.replace("emitc_k_one(p, x[i])", "x[i]"),
        HELPER + KERNEL,
    ],
    ids=["of_elsewhere", "second", "name_is_used", "other_name", "no_constant", "no_number", "no_struct"],
)
def test_text_of_another_form_stays_as_it_is(text: str) -> None:
    assert with_trained(text, "k", TYPES) is None
