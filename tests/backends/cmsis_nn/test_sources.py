"""Which files a build needs: of made-up trees, and of the real ones, where the result must link."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.backends.cmsis_nn.buffer_sizes import Call, Dims
from emitc.backends.cmsis_nn.sources import core_include, needs_core, source_index, sources_of
from emitc.backends.cmsis_nn.versions import InstructionSet, Tree, read_tree
from emitc.errors import EmitcError
from tests.backends.cmsis_nn.test_versions import make
from tests.support.cmsis.library import SKIPPED, LibraryOf, Record, trees

TREES = trees()
CALL = Call(Dims(1, 4, 4, 3), Dims(1, 2, 2, 1), Dims(1, 3, 3, 3))
PORTABLE, DSP, MVE = InstructionSet.PORTABLE, InstructionSet.DSP, InstructionSet.MVE

A = """
#include "arm_nnfunctions.h"
arm_cmsis_nn_status arm_a(void)
{
#if defined(ARM_MATH_MVEI)
    return arm_b();
#else
    return arm_c() + arm_inline(1);
#endif
}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree of four functions and a table."""
    root = make(tmp_path / "nn" / "Include")
    header = root / "Include" / "arm_nnsupportfunctions.h"
    inline = "__STATIC_FORCEINLINE int arm_inline(int x) { return arm_table[x]; }\n"
    header.write_text(header.read_text(encoding="utf-8") + inline, encoding="utf-8")
    texts = {
        "One/arm_a.c": A,
        "One/arm_b.c": "int arm_b(void) { return arm_d(); }",
        "Two/arm_c.c": "static int arm_d(void) { return 1; }\nint arm_c(void) { return arm_d(); }",
        "Two/tables.c": "const int arm_table[2] = {1, 2};",
        "Tests/arm_b.c": "int arm_b(void) { return 0; }",
    }
    for name, text in texts.items():
        file = root / "Source" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


def test_files_are_found_through_calls_and_inline_functions(root: Path) -> None:
    tree = read_tree(root)
    for instructions, expected in (
        (PORTABLE, ["arm_a.c", "arm_c.c", "tables.c"]),
        (DSP, ["arm_a.c", "arm_c.c", "tables.c"]),
    ):
        found = sources_of(tree, ["arm_a"], instructions)
        assert [file.name for file in found.sources] == expected
        assert (found.includes, found.defines, found.headers) == ((root / "Include",), (), ())
    assert [file.name for file in sources_of(tree, ["arm_a"], MVE).sources] == ["arm_a.c", "arm_b.c", "arm_c.c"]
    assert [file.name for file in sources_of(tree, ["arm_inline"], PORTABLE).sources] == ["tables.c"]


def test_tests_of_the_library_do_not_count(root: Path) -> None:
    assert source_index(read_tree(root), PORTABLE)["arm_b"].file == root / "Source" / "One" / "arm_b.c"


def test_a_missing_file_is_named_with_its_user(root: Path) -> None:
    (root / "Source" / "Two" / "arm_c.c").unlink()
    header = root / "Include" / "arm_nnfunctions.h"
    header.write_text(header.read_text(encoding="utf-8") + "int32_t arm_c(void);\n", encoding="utf-8")
    assert [file.name for file in sources_of(read_tree(root), ["arm_b"], MVE).sources] == ["arm_b.c"]
    with pytest.raises(EmitcError) as caught:
        sources_of(read_tree(root), ["arm_a"], PORTABLE)
    assert str(caught.value) == (
        "error: CMSIS-NN 6.0.0 at this path does not define arm_c\n"
        f"  at:    --cmsis-nn {root}\n"
        "  why:   arm_a uses it; no C file below the path has it for the instruction set portable\n"
        "  try:   give the path of a complete CMSIS-NN, or of a version that has the function"
    )
    with pytest.raises(EmitcError, match="the generated code calls it"):
        sources_of(read_tree(root), ["arm_never"], PORTABLE)


def test_the_oldest_version_needs_cmsis_core(tmp_path: Path) -> None:
    root = make(tmp_path / "nn" / "Include", "11.2.0", "14.0.0")
    (root / "Include" / "arm_nn_math_types.h").write_text('#include "cmsis_compiler.h"\n', encoding="utf-8")
    (root / "Source").mkdir()
    (root / "Source" / "arm_a.c").write_text("int arm_a(void) { return 0; }", encoding="utf-8")
    tree = read_tree(root)
    assert needs_core(tree) and core_include(tree) is None
    with pytest.raises(EmitcError, match=r"CMSIS-NN 4\.0\.0 needs CMSIS-Core, which does not lie next to it"):
        sources_of(tree, ["arm_a"], DSP)
    host = sources_of(tree, ["arm_a"], PORTABLE, host=True)
    assert "__GNUC_PYTHON__" in host.defines and host.headers == ("stdint.h",) and len(host.includes) == 1
    core = tmp_path / "cmsis_core" / "Include"
    core.mkdir(parents=True)
    (core / "cmsis_compiler.h").write_text("", encoding="utf-8")
    assert sources_of(tree, ["arm_a"], DSP).includes == (root / "Include", core)


@pytest.mark.skipif(not TREES, reason=SKIPPED)
@pytest.mark.parametrize("instructions", InstructionSet, ids=lambda i: i.value)
@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.version.name)
def test_what_is_found_compiles_and_links(tree: Tree, instructions: InstructionSet, library_of: LibraryOf) -> None:
    # The driver refers to every function that sources_of finds complete: a file too few would fail to link.
    library = library_of(tree, instructions)
    found = {"arm_convolve_wrapper_s8", "arm_depthwise_conv_wrapper_s8", "arm_fully_connected_s8", "arm_avgpool_s8"}
    assert found <= set(library.available)
    assert library.run([Record("arm_avgpool_s8_get_buffer_size", CALL, 4)])[0][0] == 0
