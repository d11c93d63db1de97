"""Finding CMSIS-NN at a path, telling its version, and what is said where that fails; headers read as data."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.backends.cmsis_nn.versions import (
    BETWEEN,
    RELEASES,
    VERSIONS,
    InstructionSet,
    KernelSums,
    Tree,
    Variable,
    Version,
    active_lines,
    definitions,
    named,
    prototypes,
    read_tree,
    structures,
)
from emitc.errors import EmitcError
from tests.support.cmsis.library import SKIPPED, trees

TREES = trees()


def header(revision: str, more: str = "") -> str:
    """A header with its revision line."""
    return f"/* ----\n * Title: a header\n * $Revision:    V.{revision}\n */\n{more}\n"


def make(include: Path, functions: str = "16.0.0", support: str = "22.0.0") -> Path:
    """A tree of three headers; the folder of its root."""
    include.mkdir(parents=True)
    code = "arm_cmsis_nn_status arm_f_s8(const cmsis_nn_context *ctx,\n   const int8_t *x, int8_t *y);"
    (include / "arm_nnfunctions.h").write_text(header(functions, code), encoding="utf-8")
    members = "typedef struct\n{\n    int32_t w; /**< width */\n    int32_t h;\n} cmsis_nn_tile;"
    (include / "arm_nn_types.h").write_text(header("3.2.0", members), encoding="utf-8")
    (include / "arm_nnsupportfunctions.h").write_text(header(support), encoding="utf-8")
    return include.parent


@pytest.mark.parametrize("place", ["Include", "CMSIS/NN/Include", "lib/CMSIS-NN/src", "a/b/c/d/e/Include"])
def test_a_tree_is_found_at_its_root_and_above(place: str, tmp_path: Path) -> None:
    root = make(tmp_path / place)
    for start in (tmp_path, root):
        tree = read_tree(start)
        assert (tree.version.name, tree.include, tree.root) == ("6.0.0", tmp_path / place, root)
        assert (
            tree.takes("arm_f_s8", "ctx") and not tree.takes("arm_f_s8", "bias") and not tree.takes("arm_g_s8", "ctx")
        )
        assert tree.has_member("cmsis_nn_tile", "h") and not tree.has_member("cmsis_nn_tile", "c")


def test_the_folder_of_headers_itself_will_do(tmp_path: Path) -> None:
    assert read_tree(make(tmp_path / "Include") / "Include").root == tmp_path


def refusal(path: Path) -> tuple[str, str, str, str]:
    """The four parts of the error that reading a path gives."""
    with pytest.raises(EmitcError) as caught:
        read_tree(path)
    assert caught.value.exit_code == 2
    return caught.value.what, str(caught.value.where), caught.value.why, caught.value.hint


HINT = "give the folder that has CMSIS-NN's Include and Source"


def test_a_path_without_a_tree_is_refused(tmp_path: Path) -> None:
    what = "there is no CMSIS-NN at this path"
    missing, file = tmp_path / "missing", tmp_path / "file"
    file.write_text("", encoding="utf-8")
    assert refusal(missing) == (what, f"--cmsis-nn {missing}", "the folder does not exist", HINT)
    assert refusal(file) == (what, f"--cmsis-nn {file}", "it is a file", HINT)
    why = "no folder down to 6 levels below it has arm_nnfunctions.h"
    assert refusal(tmp_path) == (what, f"--cmsis-nn {tmp_path}", why, HINT)


def test_two_trees_are_refused(tmp_path: Path) -> None:
    make(tmp_path / "a" / "Include")
    make(tmp_path / "b" / "Include")
    assert refusal(tmp_path) == (
        "there are 2 copies of CMSIS-NN at this path",
        f"--cmsis-nn {tmp_path}",
        f"{tmp_path / 'a' / 'Include'}, {tmp_path / 'b' / 'Include'}",
        "give the path of one of them",
    )


def test_a_missing_header_is_named(tmp_path: Path) -> None:
    root = make(tmp_path / "Include")
    (root / "Include" / "arm_nn_types.h").unlink()
    what, _, why, _ = refusal(root)
    assert what == "CMSIS-NN lacks arm_nn_types.h"
    assert why == f"{root / 'Include' / 'arm_nn_types.h'} cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("functions", "support", "why"),
    [
        ("99.0.0", "99.0.0", f"it is newer than {VERSIONS[-1]}, the newest whose interface and buffer sizes are known"),
        ("10.0.0", "9.0.0", "it is older than 4.0.0, the oldest that is supported"),
        ("16.0.0", "22.0.1", "it lies between two releases, or is modified: the sizes of its buffers are not known"),
        ("12.1.0", "17.2.0", "it lies between two releases, or is modified: the sizes of its buffers are not known"),
    ],
)
def test_an_unknown_version_is_refused(functions: str, support: str, why: str, tmp_path: Path) -> None:
    root = make(tmp_path / "Include", functions, support)
    assert refusal(root) == (
        f"this version of CMSIS-NN is not known: revisions {functions} and {support} of arm_nnfunctions.h and "
        "arm_nnsupportfunctions.h",
        f"--cmsis-nn {root}",
        why,
        "use one of the releases 4.0.0, 23.02, 4.1.0, 23.08, 5.0.0, 24.02, 6.0.0, 7.0.0",
    )


def test_a_header_without_a_revision_is_refused(tmp_path: Path) -> None:
    root = make(tmp_path / "Include")
    (root / "Include" / "arm_nnsupportfunctions.h").write_text("/* nothing */", encoding="utf-8")
    what, _, why, _ = refusal(root)
    assert (what, why) == (
        "the version of this CMSIS-NN cannot be read",
        "arm_nnsupportfunctions.h has no line $Revision",
    )


def test_versions_are_distinct_and_in_order() -> None:
    assert list(VERSIONS) == sorted(VERSIONS) and len(set(VERSIONS)) == len(RELEASES) + len(BETWEEN)
    assert [v.name for v in VERSIONS if "+" not in v.name] == list(RELEASES)
    assert named("5.0.0+ (12.6.0, 17.7.0)") < named("24.02") < named("6.0.0")
    sums = {name: named(name).sums for name in ("4.1.0", "5.0.0", "6.0.0", "7.0.0")}
    expected = (KernelSums.NONE, KernelSums.WEIGHTS, KernelSums.WEIGHTS, KernelSums.BIAS_AND_OFFSET)
    assert tuple(sums.values()) == expected


def test_a_version_orders_by_both_revisions() -> None:
    assert Version((11, 3, 0), (15, 0, 0), "b") < Version((11, 3, 0), (16, 0, 0), "a")


def test_prototypes_and_structures() -> None:
    text = """
    /* arm_cmsis_nn_status arm_gone(int x); */
    int32_t arm_size(const cmsis_nn_dims *dims, // arm_not(int)
                     const int ch_src);
    void arm_softmax_s8(const int8_t *input, int8_t *const output_data);
    arm_cmsis_nn_status arm_inline(int a) { return 0; }
    typedef struct { int32_t n; const int16_t *lut, *x[4]; cmsis_nn_tile stride; } cmsis_nn_thing;
    """
    assert prototypes(text) == {
        "arm_size": (Variable("dims", "const cmsis_nn_dims *"), Variable("ch_src", "const int")),
        "arm_softmax_s8": (Variable("input", "const int8_t *"), Variable("output_data", "int8_t *const")),
    }
    members = structures(text)["cmsis_nn_thing"]
    assert [member.name for member in members] == ["n", "x", "stride"]


CODE = """
#include "x.h"
#if defined(ARM_MATH_MVEI) && !defined(SOMETHING)
static int only_mve(int x) { return arm_mve(x); }
#elif defined(ARM_MATH_DSP)
static int only_dsp(int x) { if (x) { return arm_dsp(x); } return 0; }
#else
static int plain(int x) { return "arm_text {"[x]; }
#endif
#ifdef UNKNOWN
const int16_t table[4] = {1, 2, arm_constant, 4};
#endif
#if defined(__ARMCC_VERSION) && (__ARMCC_VERSION >= 6010050)
void maybe(void) {}
#endif
struct s { int a; };
__attribute__((unused)) int last(struct s *x) { return only(x->a); }
"""


@pytest.mark.parametrize(
    ("instructions", "expected"),
    [
        (InstructionSet.PORTABLE, ["plain", "table", "maybe", "last"]),
        (InstructionSet.DSP, ["only_dsp", "table", "maybe", "last"]),
        # The last #else may be compiled as well: whether SOMETHING is defined is not known, but DSP is.
        (InstructionSet.MVE, ["only_mve", "only_dsp", "table", "maybe", "last"]),
    ],
)
def test_definitions_by_instruction_set(instructions: InstructionSet, expected: list[str]) -> None:
    found = definitions(CODE, instructions.macros)
    assert [definition.name for definition in found] == expected
    assert "only" in found[-1].names and "last" not in found[-1].names


@pytest.mark.parametrize(
    ("condition", "lines"),
    [
        ("defined(ON) || defined(UNKNOWN)", ["a"]),
        ("defined(OFF) && defined(UNKNOWN)", ["b"]),
        ("!(defined(ON) && !defined(OFF))", ["b"]),
        ("defined(UNKNOWN)", ["a", "b"]),
        ("defined ON && defined OFF", ["b"]),
        ("UNKNOWN >= 3", ["a", "b"]),
        ("!defined(OFF)", ["a"]),
    ],
)
def test_conditions_have_three_values(condition: str, lines: list[str]) -> None:
    found = active_lines(f"#if {condition}\na\n#else\nb\n#endif", {"ON": True, "OFF": False})
    assert [line for line in found if line.strip()] == lines


@pytest.mark.skipif(not TREES, reason=SKIPPED)
@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.version.name)
def test_real_trees(tree: Tree) -> None:
    version = tree.version
    names = [argument.name for argument in tree.functions["arm_convolve_wrapper_s8"]]
    assert names[:3] == ["ctx", "conv_params", "quant_params"] and names[-1] == "output_data" and len(names) == 11
    assert tree.takes("arm_svdf_s8", "ctx") == (version.functions >= (12, 0, 0))
    assert ("arm_fully_connected_per_channel_s8" in tree.functions) == (version.functions >= (16, 3, 0))
    assert tree.takes("arm_convolve_s8", "upscale_dims") == (version.functions >= (18, 0, 0))
    assert ("cmsis_nn_bias_data" in tree.structures) == (version.functions >= (16, 0, 0))
    assert ("arm_convolve_wrapper_s4" in tree.functions) == (version.functions >= (12, 4, 0))
    members = [member.name for member in tree.structures["cmsis_nn_conv_params"]]
    assert members == ["input_offset", "output_offset", "stride", "padding", "dilation", "activation"]
    assert [member.name for member in tree.structures["cmsis_nn_tile"]] == ["w", "h"]
