"""Generated C of every operator: under every compiler, optimization level and strict warning, what it links to, what it reads,
and its layers with input and output in one array."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emitc.compiled import Compiled
from emitc.kernels import onnx_registry, tflite_registry
from emitc.numerics.float_functions import FUNCTIONS
from emitc.target import load_target
from tests.emit.test_walks import LEAN, SCALAR, SPAN, WIDER
from tests.support.emit.package_set import Packages
from tests.support.emit.shared_array import subjects
from tests.support.emit.struct_members import parameter_members

ROOT = Path(__file__).resolve().parents[2]
STRICT = [
    "-std=c11",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wconversion",
    "-Wsign-conversion",
    "-Wshadow",
    "-Wcast-qual",
    "-Wundef",
    "-Wmissing-prototypes",
    "-Wdouble-promotion",
    "-Wvla",
    "-Werror",
    "-DEMITC_NO_TARGET_WARNING",  # many packages are made for other cores than the compiler's
]
GCC_ONLY = ["-Wcast-align=strict"]
CLANG_ONLY = ["-Wcast-align"]
RISCV_LIBRARY = "--specs=picolibc.specs"


def _cross(target: str, *more: str) -> list[str]:
    described = load_target(target)
    return [f"{described.compiler_prefix}gcc", *described.compiler_flags, *more, *GCC_ONLY]


COMPILERS = {
    "gcc": ["gcc", *GCC_ONLY],
    "clang": ["clang", *CLANG_ONLY],
    "zig": [sys.executable, "-m", "ziglang", "cc", *CLANG_ONLY],
    "cortex-m0": _cross("cortex-m0"),
    "cortex-m4": _cross("cortex-m4"),
    "cortex-m55": _cross("cortex-m55"),
    "rv32imac": _cross("rv32imac", RISCV_LIBRARY),
}


def run(command: list[str], folder: Path) -> str:
    """The command's stdout; a failure shows what it printed. Skips when the program is not installed."""
    if "ziglang" in command:
        pytest.importorskip("ziglang", reason="the wheel ziglang is not installed")
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, (done.stdout + done.stderr)[:4000]
    return done.stdout


VIEWS = frozenset(("Flatten", "Identity", "Reinterpret", "Reshape", "Squeeze", "Unsqueeze"))
"""ONNX operators that print no code."""
OF_BACKENDS = frozenset(("CUSTOM:ethos-u",))
"""Operators whose code a backend prints; tests/backends compiles it."""
USES = frozenset(("ComputedConv2D", "ComputedFullyConnected"))
"""What an operator's parser makes of one of its uses, under a name that no file has; its templates are looked for below."""


def test_every_operator_and_every_template_is_compiled_here(packages: Packages) -> None:
    """A new operator or template needs a case in tests/kernels that uses it."""
    pytest.importorskip("tflite_micro", reason="the cases of the operators need the extra emitc[verify]")
    assert (
        sorted((set(tflite_registry()) | set(onnx_registry())) - packages.operators - VIEWS - OF_BACKENDS - USES) == []
    )
    kernels = (ROOT / "emitc" / "templates" / "kernels").rglob("*.c.j2")
    texts = {p.name.removesuffix(".c.j2"): p.read_text(encoding="utf-8") for p in kernels}
    shared = {
        name
        for text in texts.values()
        for name in re.findall(r'(?:import|from|extends) "kernels/[\w/]+/(\w+)\.c\.j2"', text)
    }
    printed = {name for name, text in texts.items() if re.search("macro layer|set (layer|arguments)", text)} - shared
    assert sorted((printed | formulas()) - packages.templates) == []


MADE_NAMES = {
    *(f"plain_{name}{end}" for name in ("sum", "difference", "product") for end in ("", "_fpu")),
    *(f"real_{name}{end}" for name in ("sum", "difference", "product") for end in ("", "_fpu", "_mve")),
    *(f"bounded_{name}" for name in ("sum", "difference", "product", "quotient")),
    *(f"{name}{end}" for name in ("erf", "tanh_rational", "logistic_rational") for end in ("_fpu", "_mve")),
    *("real_quotient", "relu_mve", "leaky_relu_mve", "reduce_mean"),
}
"""Names of formulas that no file has in one piece."""


def formulas() -> set[str]:
    """The names of all formulas: in the table of functions of float32, and in the operators' files."""
    calls = [
        node
        for path in (ROOT / "emitc" / "kernels").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Formula", "ReductionFormula", "wrapping")
    ]
    written = {str(node.args[0].value) for node in calls if isinstance(node.args[0], ast.Constant)}
    assert "truth" in written
    return written | MADE_NAMES | {function.name for function in FUNCTIONS.values()}


@pytest.mark.sweep(keep=0)
@pytest.mark.parametrize(
    ("compiler", "level"),
    [
        (compiler, level)
        for compiler in COMPILERS
        for level in ("-O2", "-Os", "-O0", "-O3")
        if (compiler, level) != ("gcc", "-O2")  # the objects below are compiled so
    ],
)
def test_no_compiler_warns(compiler: str, level: str, packages: Packages, tmp_path: Path) -> None:
    traced = ["-DEMITC_TRACE"] if level == "-O0" else []
    run([*COMPILERS[compiler], *STRICT, level, *traced, *packages.includes, "-c", *packages.sources], tmp_path)


@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize(("core", "family"), [("cortex-m4f", "fpu"), ("cortex-m4", "dsp"), ("cortex-m55", "mve")])
def test_no_compiler_warns_of_what_it_alone_compiles(
    core: str, family: str, packages: Packages, tmp_path: Path
) -> None:
    """The packages with instructions of the core; those in plain C are among the objects below."""
    header = re.compile(rf'#include "emitc_{family}\w*\.h"')
    sources = [source for source in packages.sources if header.search(Path(source).read_text(encoding="ascii"))]
    assert len(sources) >= 4
    run([*_cross(core), *STRICT, "-O2", *packages.includes, "-c", *sources], tmp_path)


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize(
    ("core", "level"),
    [(core, level) for core in ("cortex-m7", "cortex-m33") for level in ("-Og", "-O2", "-Os")],
)
def test_inner_loops_find_their_registers_on_every_core(
    core: str, level: str, packages: Packages, tmp_path: Path
) -> None:
    """Those of the DSP extension take all that there are, which gcc hands out by core and option."""
    sources = [source for source in packages.sources if Path(source).stem.startswith("family_dsp")]
    assert len(sources) >= 4
    run([*_cross(core), *STRICT, level, *packages.includes, "-c", *sources], tmp_path)


@pytest.mark.parametrize("core", ["cortex-m7", pytest.param("cortex-m4f", marks=pytest.mark.sweep(keep=0))])
@pytest.mark.parametrize("level", ["-O2", pytest.param("-O0", marks=pytest.mark.sweep(keep=0))])
def test_clang_finds_registers_for_the_inner_loops_too(
    core: str, level: str, packages: Packages, tmp_path: Path
) -> None:
    """Its headers, and newlib's of the other compiler. It leaves fewer registers to assembly than gcc."""
    described = load_target(core)
    library = run([f"{described.compiler_prefix}gcc", "-print-file-name=libc.a"], tmp_path).strip()
    headers = Path(library).resolve().parents[1] / "include"
    flags = ["--target=arm-none-eabi", *described.compiler_flags, "-isystem", str(headers), *CLANG_ONLY, *STRICT]
    sources = [source for source in packages.sources if Path(source).stem.startswith("family_dsp")]
    assert len(sources) >= 4
    run(["clang", *flags, level, *packages.includes, "-c", *sources], tmp_path)


def test_a_warning_fails_the_build(tmp_path: Path) -> None:
    source = tmp_path / "narrow.c"
    source.write_text("signed char narrow(int x);\nsigned char narrow(int x)\n{\n    return x;\n}\n", encoding="ascii")
    with pytest.raises(AssertionError, match="conversion"):
        run([*COMPILERS["gcc"], *STRICT, "-c", str(source)], tmp_path)


@pytest.mark.parametrize("compiler", ["g++", "clang++", "arm-none-eabi-g++"])
def test_headers_are_clean_in_cpp11(compiler: str, packages: Packages, tmp_path: Path) -> None:
    lines = [f'#include "{name}.h"' for name in packages.folders]
    for name in packages.folders:
        arguments = f"m, a, {name.upper()}_ARENA_BYTES, nullptr, 0"
        lines.append(f"emitc_status start_{name}({name}_t *m, void *a) {{ return {name}_init({arguments}); }}")
    (tmp_path / "headers.cpp").write_text("\n".join(lines) + "\n", encoding="ascii")
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", "headers.cpp"]
    run([compiler, *flags, *packages.includes], tmp_path)


def undefined(listing: str) -> set[str]:
    """Symbols that objects need from outside themselves, as `nm` lists them."""
    needed = set(re.findall(r"^\s+U (\w+)$", listing, re.M))
    return needed - set(re.findall(r"^[0-9a-f]+ [A-Z] (\w+)$", listing, re.M))


@pytest.fixture(scope="module")
def objects(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the objects of all packages, for the host at -O2, compiled without a warning."""
    folder = tmp_path_factory.mktemp("objects")
    run([*COMPILERS["gcc"], *STRICT, "-O2", *packages.includes, "-c", *packages.sources], folder)
    return folder


_REAL = (
    "acos acosh asin asinh atan atanh ceil copysign cos cosh erf exp fabs floor fmod log log1p pow rint round sin sinh "
    "sqrt tan tanh"
)
MATH = {name + suffix for name in _REAL.split() for suffix in ("", "f")}
"""What math.h has for the float operators."""


def test_nothing_of_libc_is_needed_but_memory_functions(packages: Packages, objects: Path) -> None:
    """Integer models need string.h only; a float operator may need math.h."""
    memory = {"memcpy", "memmove", "memset", "memcmp"}
    for name, folder in packages.folders.items():
        needed = undefined(run(["nm", f"{name}.o", "emitc_runtime.o"], objects))
        source = (folder / f"{name}.c").read_text(encoding="ascii")
        floats = MATH if "#include <math.h>" in source else set()
        assert needed <= memory | floats, f"{name} needs {sorted(needed - memory - floats)}"
        included = set(re.findall(r"#include <(\S+)>", source))
        assert included <= {"string.h", "math.h"}


def test_generated_code_has_no_mutable_memory_and_few_public_symbols(packages: Packages, objects: Path) -> None:
    for name in packages.folders:
        listing = run(["nm", f"{name}.o"], objects)
        assert re.findall(r"^[0-9a-f]+ [bBdDC] \w+$", listing, re.M) == []
        public = set(re.findall(r"^[0-9a-f]+ [A-Z] (\w+)$", listing, re.M))
        assert all(symbol.startswith(f"{name}_") for symbol in public)
        assert {f"{name}_init", f"{name}_run", f"{name}_reset", f"{name}_output_0"} <= public
        assert (f"{name}_input_0" in public) != (f"{name}_set_reader" in public), "an input, or who gives its rows"


def test_sources_are_plain_ascii_without_trailing_blanks(packages: Packages) -> None:
    for folder in packages.folders.values():
        for path in [*folder.glob("*.c"), *folder.glob("*.h")]:
            text = path.read_text(encoding="ascii")
            assert not re.search(r"[ \t]$", text, re.M), path.name
            assert "\n\n\n" not in text
            assert text.endswith("\n")
            assert "\t" not in text


_BLIND = {
    "copy",
    "copy_run",
    "dropout_mask",
    "dynamic_update_slice",
    "equal",
    "is_inf",
    "is_nan",
    "truth",
    "scaled_product",
    "transpose_in_place",
}
"""Templates that move bytes by memmove, right at any distance, or whose result hardly depends on random values (the
families' scaled_product saturates)."""


@pytest.mark.sweep(keep=0)
def test_every_template_keeps_its_distance(every_family: list[Compiled], tmp_path: Path) -> None:
    """All in one test: what is asserted at the end is that no template was left out."""
    windowed = LEAN.union(
        SPAN, {"conv_2d_winograd_dsp", "conv_2d_winograd_gpr31"}, *SCALAR.values(), *WIDER.values()
    )  # their own tests show that closer is wrong
    broken: list[str] = []
    sharp: dict[str, bool] = {}
    for compiled in every_family:
        for subject in subjects(compiled, tmp_path):
            template = subject.node.layer.kernel_name
            if not subject.right():
                broken.append(subject.id)
            if not sharp.get(template) and template not in windowed:
                closer = subject.wrong_closer()
                sharp[template] = sharp.get(template, False) or closer is True
    assert broken == []
    assert {template for template, wrong_closer in sharp.items() if not wrong_closer} <= {
        *_BLIND,
        "softmax",
        "requantized",
    }
    assert {"conv_2d_float", "average_pool_2d_even", "average_pool_2d_sum", "average_pool_2d_float"} <= set(sharp)
    assert {"max_pool_2d_taps", "softmax", "lookup", "sum", "dequantize", "dynamic_quantize"} <= set(sharp)


def test_every_parameter_is_read(packages: Packages) -> None:
    """A reviewer may take a clamp in a parameter struct for one that the kernel applies."""
    structs: set[str] = set()
    for name, folder in packages.folders.items():
        for struct, (declared, read) in parameter_members((folder / f"{name}.c").read_text(encoding="ascii")).items():
            structs.add(struct)
            assert declared == declared & read, f"{name}: {struct}"
    assert len(structs) > 500


def test_a_parameter_that_nothing_reads_is_found() -> None:
    source = """struct emitc_k {
    int32_t used;
    int32_t set;
    int32_t idle;
};

static void emitc_k(const struct emitc_k *p)
{
    use(p->used);
}

static const struct emitc_k op0_params = {
    .used = 1,
    .set = 2,
    .idle = 3, /* p->idle */
};

static void rows(void)
{
    struct emitc_k p = op0_params;
    p.set = 4;
    emitc_k(&p);
}
"""
    declared, read = parameter_members(source)["emitc_k"]
    assert (declared, read) == ({"used", "set", "idle"}, {"used"})
