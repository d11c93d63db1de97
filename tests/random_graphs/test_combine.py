"""Many packages in one translation unit: equal definitions once, others under names of their own."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from bench.random_graphs.combine import Unit, chunks, defined
from bench.random_graphs.native import Builds, Item
from emitc.compiler import compile_model
from emitc.options import Options
from emitc.verify.reference import random_samples

FIRST = """#ifndef A_H
#define A_H
#include "emitc_runtime.h"
#ifdef __cplusplus
extern "C" {
#endif
int a_run(void);
#ifdef __cplusplus
}
#endif
#endif
"""
BODY = """#include "{name}.h"
/* a comment { */
enum {{
    AT_INPUT_0 = {at}, /* bytes */
    READY = 1
}};
struct emitc_sum {{
    int weight;
}};
static inline int emitc_sum(const struct emitc_sum *p)
{{
    return p->weight{more};
}}
static const struct emitc_sum op0_params = {{
    {at},
}};
int {name}_run(void)
{{
    return emitc_sum(&op0_params) + AT_INPUT_0;
}}
"""


def package(name: str, at: int, more: str = "") -> list[str]:
    """A header and a source file."""
    body = BODY.replace("a comment {", "a comment {{").format(name=name, at=at, more=more)
    return [FIRST.replace("a_run", f"{name}_run").replace("A_H", f"{name.upper()}_H"), body]


def test_definitions_are_chunks() -> None:
    found = list(chunks(package("a", 0)[1]))
    assert [defined(chunk) for chunk in found] == [
        [], ["AT_INPUT_0", "READY"], ["struct emitc_sum"], ["emitc_sum"], ["op0_params"], ["a_run"],
    ]  # fmt: skip


def test_equal_definitions_are_there_once_and_others_renamed() -> None:
    unit = Unit()
    for name, at, more in (("a", 0, ""), ("b", 4, ""), ("c", 4, " + 1")):
        unit.add(package(name, at, more), frozenset({f"{name}.h"}))
    text = unit.text()
    assert text.count("struct emitc_sum {") == 1
    assert text.count("return p->weight;") == text.count("return p->weight + 1;") == 1
    assert text.count('#include "emitc_runtime.h"') == 1
    assert '#include "a.h"' not in text
    # a and b share the kernel but not the place; b and c share the place but not the kernel.
    runs = [chunk for chunk in chunks(text) if "_run(void)\n{" in chunk]
    uses = [chunk.partition("return ")[2] for chunk in runs]
    assert len({use.partition("(")[0] for use in uses[:2]}) == 1
    assert uses[2].partition("(")[0] != uses[1].partition("(")[0]
    assert len({use.partition("+ ")[2] for use in uses}) == 2


def test_a_package_with_a_file_of_weights_is_built_and_run(tiny: Path, tmp_path: Path) -> None:
    made = compile_model(tiny / "spotter.tflite", split_weights=True)
    item = Item(made, random_samples(made.graph, 2, 1))
    Builds(tmp_path).run([item])
    assert item.fault is None
    assert len(item.outputs) == 3, "of each case, and of the first after a reset"


SHARED = "static int op5_clip(int x)\n{\n    return x;\n}\n"
REPORTED = "#if defined(EMITC_TRACE)\n#define op5_clip(...) (op5_clip(__VA_ARGS__) + 100)\n#endif\n"


def test_a_function_that_reports_in_one_package_does_not_in_another(tmp_path: Path) -> None:
    """The second package calls it in the body of an operator, whose layers do not report."""
    unit = Unit()
    unit.add([SHARED + REPORTED + "int a_run(void)\n{\n    return op5_clip(1);\n}\n"], frozenset())
    unit.add([SHARED + "int b_run(void)\n{\n    return op5_clip(2);\n}\n"], frozenset())
    source = tmp_path / "unit.c"
    source.write_text(unit.text() + "int main(void)\n{\n    return a_run() == 101 && b_run() == 2 ? 0 : 1;\n}\n")
    subprocess.run(["gcc", "-DEMITC_TRACE", str(source), "-o", str(tmp_path / "unit")], check=True)
    assert subprocess.run([str(tmp_path / "unit")], check=False).returncode == 0


def test_undefined_behaviour_is_named_with_the_graph_that_has_it(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    good = compile_model(root / "examples" / "models" / "digits_int8.tflite", Options(name="good"))
    bad = compile_model(root / "examples" / "models" / "digits_int8.tflite", Options(name="bad"))
    run = b"emitc_status bad_run(bad_t *self)\n{\n"
    assert run in bad.files["bad.c"]
    overflow = b"    volatile int32_t largest = INT32_MAX;\n    largest = largest + 1;\n"
    broken = replace(bad, files={**bad.files, "bad.c": bad.files["bad.c"].replace(run, run + overflow)})
    items = [Item(each, random_samples(each.graph, 2, 0)) for each in (good, broken)]
    Builds(tmp_path).run(items)
    assert items[0].fault is None
    assert len(items[0].outputs) == 3
    assert items[1].fault is not None
    assert items[1].fault[0] == "sanitizer"
    assert "signed integer overflow" in items[1].fault[1]
