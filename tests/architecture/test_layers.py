"""Which module may import which, which package is imported where, who writes files, and that templates do not decide."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import jinja2
import jinja2.nodes
import pytest

from tests.support.module_trees import module_paths, module_trees

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = sorted((ROOT / "emitc" / "templates").rglob("*.j2"))

FAMILIES = tuple(
    path.name
    for path in sorted((ROOT / "emitc" / "kernels").iterdir())
    if path.is_dir() and path.name not in ("shared", "mac", "__pycache__")
)
"""Folders of operators."""
_KERNELS = (
    "emitc.errors", "emitc.ir", "emitc.layer", "emitc.numerics", "emitc.source", "emitc.kernels.contract",
    "emitc.kernels.costs",
)  # fmt: skip
_VALUES = (
    "emitc.errors", "emitc.ir", "emitc.layer", "emitc.numerics", "emitc.program", "emitc.source",
    "emitc.target",
)  # fmt: skip
_COMPILED = ("emitc.compiled", "emitc.compiler", "emitc.options")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # values that travel between the stages
    "emitc": ("emitc._version", "emitc.api", "emitc.errors", "emitc.options"),
    "emitc._version": (),
    "emitc.records": (),
    "emitc.errors": (),
    "emitc.ir": ("emitc.errors",),
    "emitc.toml_table": ("emitc.errors",),
    "emitc.target": ("emitc.errors", "emitc.toml_table"),
    "emitc.source": ("emitc.errors", "emitc.ir"),
    "emitc.layer": ("emitc.ir",),
    "emitc.program": ("emitc.errors", "emitc.layer", "emitc.planner", "emitc.program"),
    # the ground floor: arithmetic, the NPU and the planner know no compiler
    "emitc.numerics": ("emitc.ir", "emitc.numerics"),
    "emitc.ethosu": ("emitc.errors", "emitc.ethosu"),
    "emitc.planner": ("emitc.planner",),
    "emitc.writers": ("emitc.writers",),
    # operators: a family imports the two folders below and no other family
    "emitc.kernels": ("emitc.errors", "emitc.ir", "emitc.layer", "emitc.source", "emitc.kernels"),
    "emitc.kernels.costs": ("emitc.ir",),
    "emitc.kernels.contract": (
        "emitc.errors", "emitc.ir", "emitc.layer", "emitc.source", "emitc.target", "emitc.kernels.costs",
    ),
    "emitc.kernels.shared.subgraph_reference": (*_KERNELS, "emitc.kernels"),
    "emitc.kernels.shared": (*_KERNELS, "emitc.kernels.shared"),
    "emitc.kernels.mac": (*_KERNELS, "emitc.kernels.shared", "emitc.kernels.mac"),
    **{
        f"emitc.kernels.{family}": (*_KERNELS, "emitc.kernels.shared", "emitc.kernels.mac", f"emitc.kernels.{family}")
        for family in FAMILIES
    },
    "emitc.kernels.npu.npu_command": (*_KERNELS, "emitc.kernels.shared.subgraph_reference", "emitc.ethosu.simulator"),
    "emitc.kernels.recurrent.lstm_gru": (
        *_KERNELS, "emitc.kernels.shared", "emitc.kernels.mac", "emitc.kernels.recurrent",
        "emitc.kernels.quantization.quantize",
    ),
    # the stages in the order of the pipeline
    "emitc.frontends": ("emitc.errors", "emitc.ir", "emitc.source", "emitc.kernels.contract", "emitc.ethosu", "emitc.frontends"),
    "emitc.passes": ("emitc.errors", "emitc.ir", "emitc.numerics", "emitc.program", "emitc.kernels", "emitc.passes"),
    "emitc.backends": (*_VALUES, "emitc.ethosu", "emitc.kernels", "emitc.writers", "emitc.backends"),
    "emitc.schedule": (*_VALUES, "emitc.backends", "emitc.kernels", "emitc.planner", "emitc.schedule"),
    "emitc.lower": (*_VALUES, "emitc.backends", "emitc.kernels", "emitc.planner", "emitc.schedule", "emitc.lower"),
    "emitc.emit": ("emitc.errors", "emitc.layer", "emitc.program", "emitc.planner.proof_text", "emitc.emit"),
    "emitc.plugins": (
        "emitc.errors", "emitc.ir", "emitc.layer", "emitc.source", "emitc.frontends", "emitc.kernels", "emitc.emit.render",
    ),
    "emitc.lower.within_budget": (
        *_VALUES, "emitc.backends", "emitc.frontends.read", "emitc.lower", "emitc.options", "emitc.passes", "emitc.schedule",
    ),
    "emitc.options": (*_VALUES, "emitc.backends", "emitc.emit", "emitc.passes", "emitc.planner", "emitc.schedule"),
    "emitc.compiled": (*_VALUES, "emitc.backends", "emitc.emit", "emitc.options"),
    "emitc.compiler": (
        *_VALUES, "emitc._version", "emitc.backends", "emitc.compiled", "emitc.emit", "emitc.explore.layer_timing",
        "emitc.frontends", "emitc.lower", "emitc.options", "emitc.passes", "emitc.plugins", "emitc.schedule",
        "emitc.verify.example", "emitc.verify.self_test",
    ),
    # what takes a compilation or several
    "emitc.verify": (
        *_VALUES, "emitc.backends", "emitc.calibrate.npz", *_COMPILED, "emitc.emit", "emitc.ethosu", "emitc.frontends",
        "emitc.kernels", "emitc.verify",
    ),
    # the runs of a package's example, which are made when it is compiled
    "emitc.verify.example": (
        "emitc.errors", "emitc.ir", "emitc.program", "emitc.kernels", "emitc.verify.reference", "emitc.verify.tolerances",
    ),
    "emitc.validation": (
        *_VALUES, "emitc.backends", *_COMPILED, "emitc.kernels", "emitc.passes", "emitc.schedule", "emitc.verify",
        "emitc.validation",
    ),
    "emitc.boards": (
        "emitc.errors", "emitc.program.members", "emitc.target", *_COMPILED, "emitc.emit", "emitc.verify", "emitc.boards",
    ),
    "emitc.boards.target_build": (
        "emitc.errors", "emitc.target", *_COMPILED, "emitc.boards", "emitc.explore.cost", "emitc.verify",
    ),
    "emitc.calibrate": ("emitc.errors", "emitc.ir", *_COMPILED, "emitc.emit", "emitc.frontends", "emitc.calibrate"),
    "emitc.evaluate": (
        *_VALUES, "emitc.boards", "emitc.calibrate", *_COMPILED, "emitc.frontends", "emitc.verify", "emitc.evaluate",
    ),
    "emitc.explore.layer_cycles": (*_VALUES, "emitc.backends", "emitc.explore"),
    "emitc.explore": (
        *_VALUES, "emitc._version", *_COMPILED, "emitc.backends", "emitc.emit", "emitc.kernels", "emitc.lower",
        "emitc.planner", "emitc.schedule", "emitc.explore",
    ),
    "emitc.listing": (*_VALUES, *_COMPILED, "emitc.emit", "emitc.passes", "emitc.listing"),
    "emitc.sweep": (
        *_VALUES, "emitc._version", "emitc.backends", "emitc.boards", *_COMPILED, "emitc.emit", "emitc.evaluate",
        "emitc.frontends.read", "emitc.toml_table", "emitc.verify", "emitc.sweep",
    ),
    # what users touch
    "emitc.report": (
        *_VALUES, "emitc._version", "emitc.backends", "emitc.boards", *_COMPILED, "emitc.evaluate", "emitc.explore",
        "emitc.frontends", "emitc.kernels", "emitc.planner", "emitc.plugins", "emitc.sweep", "emitc.validation", "emitc.verify",
        "emitc.report",
    ),
    "emitc.api": (
        *_COMPILED, "emitc.boards", "emitc.calibrate", "emitc.emit.output_file", "emitc.errors", "emitc.evaluate",
        "emitc.explore", "emitc.planner", "emitc.report", "emitc.target", "emitc.validation", "emitc.verify",
    ),
    "emitc.cli": (
        *_VALUES, "emitc._version", "emitc.backends", "emitc.boards", "emitc.calibrate", *_COMPILED, "emitc.emit",
        "emitc.evaluate", "emitc.explore", "emitc.listing", "emitc.planner", "emitc.report", "emitc.sweep", "emitc.validation",
        "emitc.verify", "emitc.cli",
    ),
    "emitc.__main__": ("emitc.cli",),
}  # fmt: skip
"""By module or folder; the most specific entry wins. A listed folder stands for all below it, `emitc` for itself."""

RECORDS = "emitc.records"
"""Every module may import it, and takes `dataclass` from there: the one of the standard library takes longer to make a class."""

IMPORTED_ONLY_BY: dict[str, tuple[str, ...]] = {
    "numpy": (
        "emitc.ir", "emitc.layer", "emitc.source", "emitc.numerics", "emitc.ethosu", "emitc.frontends", "emitc.kernels",
        "emitc.passes", "emitc.backends", "emitc.schedule.check", "emitc.schedule.row_overlap", "emitc.emit.literals",
        "emitc.writers", "emitc.verify", "emitc.validation", "emitc.calibrate", "emitc.evaluate", "emitc.explore.zero_share",
    ),
    "PIL": ("emitc.evaluate.dataset",),
    "tflite": ("emitc.frontends.tflite.reader", "emitc.frontends.tflite.npu", "emitc.writers.tflite",
               "emitc.backends.ethos_u.vela"),
    "ethosu": ("emitc.backends.ethos_u.vela_child",),
    "flatbuffers": ("emitc.frontends.tflite", "emitc.writers.tflite", "emitc.verify.engines.pieces"),
    "onnx": ("emitc.frontends.onnx", "emitc.verify.engines.pieces"),
    "jinja2": ("emitc.emit.render", "emitc.emit.template_cache", "emitc.report.page"),
    "distributed": ("emitc.sweep.cluster",),
    "cffi": ("emitc.verify.build", "emitc.ethosu.driver"),
    "elftools": ("emitc.boards.elf",),
    "platformdirs": ("emitc.boards.rtl",),
    "serial": ("emitc.boards.serial_port",),
    "click": ("emitc.cli",),
    "rich": ("emitc.cli.main", "emitc.cli.sweep", "emitc.report.tables"),
}  # fmt: skip
"""Packages that are not Python's own, and the modules (or packages) that may import them; any other package is refused."""

WRITERS = (
    "emitc.emit.output_file",
    "emitc.emit.package",
    "emitc.emit.template_cache",
    "emitc.ethosu",
    "emitc.calibrate",
    "emitc.verify",
    "emitc.evaluate",
    "emitc.sweep",
    "emitc.boards",
    "emitc.backends.ethos_u.vela",
)
"""Who writes files: the package; the proofs in their working directories."""
WRITING_CALLS = frozenset(
    [
        "write_text",
        "write_bytes",
        "mkdir",
        "unlink",
        "rename",
        "rmdir",
        "makedirs",
        "rmtree",
        "copytree",
        "copyfile",
        "copy2",
        "mkdtemp",
        "mkstemp",
        "NamedTemporaryFile",
        "TemporaryDirectory",
        "symlink_to",
        "hardlink_to",
    ]
)


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING:`."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        yield from _nodes(child)


def imports(tree: ast.Module) -> set[str]:
    """Modules that a module imports, at its top or inside a function; `from emitc.verify import parity` is emitc.verify.proof."""
    found: set[str] = set()
    for node in _nodes(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, "imports are absolute"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in module_paths() else node.module)
    return found


def within(name: str, places: tuple[str, ...]) -> bool:
    """Whether the module is one of the places or below one; `emitc` is the root module alone."""
    return any(name == place or (place != "emitc" and name.startswith(place + ".")) for place in places)


def rule(table: dict[str, tuple[str, ...]], name: str) -> tuple[str, ...]:
    """The most specific entry of the table for a module."""
    found = name
    while found not in table:
        found = found.rpartition(".")[0]
        assert found not in ("", "emitc"), f"{name} has no entry in MAY_IMPORT: say what it may import"
    return table[found]


def violations(name: str, tree: ast.Module) -> list[str]:
    """What a module imports and may not."""
    allowed = (*rule(MAY_IMPORT, name), RECORDS)
    found = []
    for imported in sorted(imports(tree)):
        top = imported.split(".")[0]
        if top == "emitc":
            if not within(imported, allowed):
                found.append(f"{name} imports {imported}")
        elif top not in sys.stdlib_module_names and not within(name, IMPORTED_ONLY_BY.get(top, ())):
            found.append(f"{name} imports {imported}")
    return found


def test_every_module_imports_only_what_its_layer_may() -> None:
    assert [line for name, tree in module_trees().items() for line in violations(name, tree)] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("emitc.planner.search", "from emitc.ir import Graph"),
        ("emitc.planner.search", "import numpy as np"),
        ("emitc.kernels.normalization.softmax", "from emitc.target import load_target"),
        ("emitc.frontends.build", "import tflite"),
        ("emitc.ir", "from emitc import target"),
        ("emitc.emit.render", "def f():\n    from emitc.lower import lower"),
        ("emitc.passes.simplify", "import emitc.compiler"),
        ("emitc.compiler", "from emitc.verify import reference"),
        ("emitc.kernels.pooling.pool", "from emitc.kernels.convolution import conv_2d"),
        ("emitc.ethosu.execute", "from emitc.verify import verify"),
        ("emitc.compiler", "import torch"),
    ],
)
def test_a_forbidden_import_is_seen(name: str, text: str) -> None:
    assert violations(name, ast.parse(text)) != []


def standard_dataclasses(tree: ast.Module) -> int:
    """How often a module imports `dataclass` from the standard library, or its module as a whole."""
    of_module = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"]
    whole = [
        a for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names if a.name == "dataclasses"
    ]
    return len(whole) + sum(alias.name == "dataclass" for node in of_module for alias in node.names)


def test_every_class_is_made_by_the_faster_decorator() -> None:
    assert [name for name, tree in module_trees().items() if name != RECORDS and standard_dataclasses(tree)] == []
    assert standard_dataclasses(ast.parse("from dataclasses import dataclass, field")) == 1
    assert standard_dataclasses(ast.parse("import dataclasses")) == 1


def test_an_import_for_types_only_is_free() -> None:
    assert violations("emitc.ir", ast.parse("if TYPE_CHECKING:\n    from emitc.target import Target")) == []


def test_the_table_names_modules_that_exist() -> None:
    packages = {name.rpartition(".")[0] for name in module_paths()} | set(module_paths())
    assert sorted(set(MAY_IMPORT) - packages) == []


def writing_calls(tree: ast.Module) -> list[str]:
    """Calls that write, by name; `open` only with a mode that writes."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name == "replace" and isinstance(function, ast.Attribute):
            name = "os.replace" if getattr(function.value, "id", "") == "os" else ""
        if name in WRITING_CALLS or name == "os.replace":
            found.append(name)
        if name == "open":
            modes = [a.value for a in (*node.args, *(k.value for k in node.keywords)) if isinstance(a, ast.Constant)]
            found += [f"open {mode}" for mode in modes if isinstance(mode, str) and set(mode) & set("wax+")]
    return found


def test_only_the_package_and_the_proofs_write_files() -> None:
    assert {n: writing_calls(t) for n, t in module_trees().items() if writing_calls(t) and not within(n, WRITERS)} == {}
    assert writing_calls(module_trees()["emitc.emit.package"])
    assert writing_calls(ast.parse("path.open('wb')")) == ["open wb"]


DECIDING = frozenset({"dtype", "c_type", "op_type", "op", "target", "template", "variant", "format", "features", "isa"})


def _names_a_kernel(node: jinja2.nodes.Assign) -> bool:
    """Whether an assignment is `"emitc_..." ~ f.suffix`, or states arguments, layer function or <math.h>."""
    value = node.node
    if isinstance(node.target, jinja2.nodes.Name) and node.target.name in ("arguments", "layer", "math", "own_struct"):
        return isinstance(value, jinja2.nodes.Const | jinja2.nodes.Getattr)
    if not isinstance(value, jinja2.nodes.Concat) or len(value.nodes) != 2:
        return False
    prefix, suffix = value.nodes
    return (
        isinstance(prefix, jinja2.nodes.Const) and isinstance(suffix, jinja2.nodes.Getattr) and suffix.attr == "suffix"
    )


def decisions(source: str) -> list[str]:
    """Conditions of a template that look at an operator, a type or a target; assignments, which belong into lowering.

    A name made of the kernel's and the spec's suffix may be kept in a variable. The arguments of a kernel are a text, or those
    of another template; so is the macro of the layer's function.
    """
    tree = jinja2.Environment().parse(source)
    found = [f"line {node.lineno}: set" for node in tree.find_all(jinja2.nodes.Assign) if not _names_a_kernel(node)]
    for node in tree.find_all((jinja2.nodes.If, jinja2.nodes.CondExpr)):
        names = {n.attr for n in node.test.find_all(jinja2.nodes.Getattr)}
        if isinstance(node.test, jinja2.nodes.Getattr):
            names.add(node.test.attr)
        found += [f"line {node.lineno}: if {name}" for name in sorted(names & DECIDING)]
    return found


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda p: p.name)
def test_templates_do_not_decide(path: Path) -> None:
    assert decisions(path.read_text(encoding="utf-8")) == []


def test_a_deciding_template_is_seen() -> None:
    assert decisions('{% if k.inputs[0].dtype == "int8" %}x{% endif %}') == ["line 1: if dtype"]
    assert decisions('{{ "a" if p.origin.target else "b" }}') == ["line 1: if target"]
    assert decisions("{% set x = 1 %}") == ["line 1: set"]
    assert decisions('{% set arguments = "x, y" %}{% set layer = other.layer %}{% set math = true %}') == []
    assert decisions('{% set arguments = "x" ~ f.suffix %}') == ["line 1: set"]


def test_emit_does_not_decide() -> None:
    for name, tree in module_trees().items():
        if not name.startswith("emitc.emit"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.If | ast.IfExp | ast.While):
                read = {n.attr for n in ast.walk(node.test) if isinstance(n, ast.Attribute)}
                assert not read & DECIDING, f"{name} line {node.lineno} decides on {sorted(read & DECIDING)}"
