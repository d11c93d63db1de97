"""Kernels that take the numbers of training by a pointer of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.emit.trained_numbers import with_trained
from emitc.verify.verification import verify
from emitc.writers.tflite import write_tflite
from tests.support.models.tiny import Net

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


WITH_ARRAY = KERNEL.replace("const int8_t *x, ", "const int8_t *x, const int32_t *restrict factor, ").replace(
    "x[i])", "x[i]) * factor[0]"
)


def test_arrays_may_come_with_the_numbers() -> None:
    """A function that calls another one has the array by its address as before."""
    text = with_trained(STRUCT + HELPER + WITH_ARRAY, "k", TYPES, {2: "scale"})
    assert text is not None
    head, body = text.partition("EMITC_NOINLINE")[2].split("\n{\n")
    assert "factor" not in head
    assert body.startswith("    const int32_t *factor = trained->scale;\n")
    assert with_trained(STRUCT + HELPER + WITH_ARRAY, "k", TYPES, {3: "scale"}) is None


def layers(folder: Path, sizes: list[int]) -> Compiled:
    """Fully connected layers with these numbers of values in between, for Cortex-M3, with external weights and one scale."""
    net = Net()
    tensors = [net.activation(f"t{i}", (1, size)) for i, size in enumerate(sizes)]
    for x, y, before, size in zip(tensors, tensors[1:], sizes, sizes[1:], strict=False):
        w, b = net.weights(f"w{y}", (size, before), [0.004]), net.bias(f"b{y}", size, [0.0002])
        net.op("FULLY_CONNECTED", (x, w, b), (y,), fused_activation_function="NONE")
    (folder / "net.tflite").write_bytes(write_tflite(net.spec(tensors[:1], tensors[-1:])))
    return compile_model(folder / "net.tflite", target="cortex-m3", weights="external")


@pytest.mark.parametrize(
    ("filters", "count", "word"), [(3, 2, "NOINLINE"), (3, 1, "ALWAYS_INLINE"), (80, 1, "NOINLINE")]
)
def test_the_kernel_of_one_layer_with_little_work_is_inlined(
    filters: int, count: int, word: str, tmp_path: Path
) -> None:
    """Layers of 16 inputs, whose last one gives the answers."""
    made = layers(tmp_path, [16] * count + [filters])
    text = made.files["net.c"].decode()
    assert f"EMITC_{word} void emitc_row_" in text
    assert "_numbers.multiplier" not in text.partition("---- layers")[2]
    assert verify(made, samples=2).match


@pytest.mark.parametrize("sizes", [[16, 5], [16, 16, 5]], ids=["one_layer", "two_layers"])
def test_the_arrays_of_the_only_layer_of_a_kernel_lie_with_its_numbers(sizes: list[int], tmp_path: Path) -> None:
    """Layers that share a kernel may have arrays of different lengths, which one structure cannot have."""
    made = layers(tmp_path, sizes)
    text = made.files["net.c"].decode()
    inside = text.partition("_numbers {\n")[2].partition("\n};")[0]
    assert ("int32_t bias[5];" in inside) == (len(sizes) == 2)
    assert ("= trained->bias;" in text) == (len(sizes) == 2)
    assert verify(made, samples=2).match
