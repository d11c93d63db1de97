"""Which module may import which, which package is imported where, who writes files, and that templates do not decide."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import jinja2
import jinja2.nodes
import pytest

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = sorted((ROOT / "emitc" / "templates").rglob("*.j2"))

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "emitc": ("emitc._version", "emitc.api", "emitc.compiler", "emitc.errors"),
    "emitc.api": ("emitc.compiler", "emitc.host.parity", "emitc.planner", "emitc.report", "emitc.validation"),
    "emitc.__main__": ("emitc.cli",),
    "emitc._version": (),
    "emitc.errors": (),
    "emitc.ir": (),
    "emitc.quantize": ("emitc.ir",),
    "emitc.target": ("emitc.errors",),
    "emitc.frontends": ("emitc.errors", "emitc.ir", "emitc.frontends", "emitc.kernels.contract"),
    "emitc.frontends.tflite_npu": ("emitc.errors", "emitc.frontends", "emitc.host.ethosu.effects"),
    "emitc.frontends.tflite_npu_memory": ("emitc.errors", "emitc.frontends.source", "emitc.host.ethosu.effects"),
    "emitc.kernels": ("emitc.errors", "emitc.ir", "emitc.quantize", "emitc.frontends.source", "emitc.kernels"),
    "emitc.kernels.npu_command": (
        "emitc.ir", "emitc.frontends.source", "emitc.kernels.contract", "emitc.host.ethosu.host_model",
    ),
    "emitc.verify_graph": ("emitc.errors", "emitc.ir", "emitc.kernels"),
    "emitc.passes": (
        "emitc.errors", "emitc.ir", "emitc.quantize", "emitc.kernels", "emitc.verify_graph", "emitc.passes",
    ),
    "emitc.planner": ("emitc.planner",),
    "emitc.program": ("emitc.kernels.contract", "emitc.planner"),
    "emitc.backends": (
        "emitc.errors", "emitc.ir", "emitc.quantize", "emitc.kernels", "emitc.program", "emitc.target", "emitc.backends",
        "emitc.writers",
    ),
    "emitc.backends.ethos_u": (
        "emitc.errors", "emitc.ir", "emitc.kernels", "emitc.program", "emitc.target", "emitc.backends", "emitc.writers",
        "emitc.host.ethosu.driver", "emitc.host.ethosu.effects",
    ),
    "emitc.schedule": ("emitc.ir", "emitc.kernels.contract"),
    "emitc.views": ("emitc.ir", "emitc.schedule"),
    "emitc.memory": ("emitc.ir", "emitc.planner", "emitc.row_spans", "emitc.schedule", "emitc.views"),
    "emitc.streaming": ("emitc.ir", "emitc.kernels.spatial", "emitc.kernels.walk", "emitc.schedule"),
    "emitc.row_costs": ("emitc.kernels.contract", "emitc.schedule"),
    "emitc.row_spans": ("emitc.schedule",),
    "emitc.spending": (
        "emitc.backends.contract", "emitc.backends.partition", "emitc.errors", "emitc.program", "emitc.row_costs",
    ),
    "emitc.arrange": (
        "emitc.ir", "emitc.memory", "emitc.planner", "emitc.row_costs", "emitc.row_spans", "emitc.schedule",
        "emitc.streaming", "emitc.views",
    ),
    "emitc.replay": ("emitc.ir", "emitc.planner", "emitc.schedule", "emitc.views"),
    "emitc.slots": ("emitc.errors", "emitc.ir", "emitc.schedule"),
    "emitc.lower_schedule": ("emitc.ir", "emitc.kernels.contract", "emitc.program", "emitc.schedule", "emitc.slots"),
    "emitc.regions": (
        "emitc.arrange", "emitc.emit.names", "emitc.errors", "emitc.ir", "emitc.kernels.depthwise_conv_2d", "emitc.planner",
        "emitc.schedule", "emitc.slots", "emitc.staging", "emitc.views",
    ),
    "emitc.staging": ("emitc.arrange", "emitc.planner", "emitc.schedule"),
    "emitc.lower": (
        "emitc.regions",
        "emitc.arrange", "emitc.backends.partition", "emitc.errors", "emitc.ir", "emitc.kernels", "emitc.lower_schedule",
        "emitc.planner", "emitc.program", "emitc.replay", "emitc.schedule", "emitc.slots", "emitc.emit.names",
    ),
    "emitc.emit": (
        "emitc.errors", "emitc.program", "emitc.planner.report", "emitc.kernels.contract", "emitc.emit",
    ),
    "emitc.emit.manifest": ("emitc.emit.licence", "emitc.emit.stack", "emitc.passes", "emitc.planner.report", "emitc.program"),
    "emitc.emit.package": ("emitc.errors", "emitc.passes", "emitc.program", "emitc.emit"),
    "emitc.writers": ("emitc.writers",),
    "emitc.plugins": (
        "emitc.emit.render", "emitc.errors", "emitc.frontends.source", "emitc.frontends.tflite_decode",
        "emitc.frontends.tflite_state", "emitc.ir",
        "emitc.kernels",
    ),
    "emitc.control": (
        "emitc.backends.contract", "emitc.backends.partition", "emitc.ir", "emitc.kernels", "emitc.lower", "emitc.program",
    ),
    "emitc.compiler": (
        "emitc.control", "emitc.plugins",
        "emitc._version", "emitc.arrange", "emitc.backends", "emitc.errors", "emitc.ir", "emitc.target", "emitc.frontends",
        "emitc.kernels", "emitc.passes", "emitc.lower", "emitc.planner.regions", "emitc.program", "emitc.regions", "emitc.emit",
        "emitc.spending",
    ),
    "emitc.host.layers": ("emitc.compiler", "emitc.host", "emitc.ir", "emitc.kernels", "emitc.program"),
    "emitc.host": (
        "emitc.errors", "emitc.ir", "emitc.kernels", "emitc.compiler", "emitc.emit.render", "emitc.host", "emitc.target",
        "emitc.backends.contract", "emitc.program",
    ),
    "emitc.host.calibrate": (
        "emitc.errors", "emitc.ir", "emitc.compiler", "emitc.emit.output_file", "emitc.frontends.onnx_file", "emitc.host.archive",
    ),
    "emitc.host.golden": (
        "emitc.errors", "emitc.host.golden_engine", "emitc.host.golden_onnx", "emitc.host.golden_pieces",
        "emitc.host.golden_tflite",
    ),
    "emitc.host.ethosu": ("emitc.errors", "emitc.host.ethosu", "emitc.host.golden_engine"),
    "emitc.host.ethosu.vela_file": ("emitc.errors", "emitc.frontends"),
    "emitc.host.ethosu.check": ("emitc.errors", "emitc.ir", "emitc.kernels", "emitc.frontends", "emitc.host"),
    "emitc.boards": ("emitc.errors", "emitc.target", "emitc.boards"),
    "emitc.boards.model": ("emitc.errors", "emitc.host.golden_rules"),
    "emitc.boards.result": ("emitc.errors", "emitc.target", "emitc.boards", "emitc.host.golden_rules"),
    "emitc.boards.stack": (
        "emitc.boards.library_stack", "emitc.compiler", "emitc.emit.stack", "emitc.errors", "emitc.host.build", "emitc.target",
    ),
    "emitc.boards.prove": (
        "emitc.errors", "emitc.target", "emitc.boards", "emitc.compiler", "emitc.host.golden", "emitc.host.golden_rules",
        "emitc.host.groups", "emitc.host.parity", "emitc.host.samples",
    ),
    "emitc.validation": (
        "emitc.arrange", "emitc.backends.contract", "emitc.program",
        "emitc.compiler", "emitc.errors", "emitc.host.golden_rules", "emitc.host.groups", "emitc.host.reference",
        "emitc.host.samples", "emitc.ir", "emitc.kernels", "emitc.passes", "emitc.validation",
    ),
    "emitc.listing": (
        "emitc.compiler", "emitc.emit.manifest", "emitc.errors", "emitc.frontends.source", "emitc.ir", "emitc.kernels.contract",
        "emitc.listing", "emitc.passes", "emitc.program",
    ),
    "emitc.cli_check": ("emitc.cli_options", "emitc.emit.output_file", "emitc.errors", "emitc.listing", "emitc.validation"),
    "emitc.inspection": (
        "emitc.plugins", "emitc.backends",
        "emitc.errors", "emitc.ir", "emitc.target", "emitc.frontends", "emitc.kernels", "emitc.compiler",
    ),
    "emitc.report": ("emitc.errors", "emitc.planner.report"),
    "emitc.report_lists": ("emitc.errors", "emitc.report"),
    "emitc.picture": ("emitc.planner", "emitc.picture"),
    "emitc.together": (
        "emitc.errors", "emitc.program", "emitc.emit.licence", "emitc.emit.names", "emitc.emit.render",
    ),
    "emitc.cli_options": ("emitc.backends", "emitc.compiler", "emitc.errors", "emitc.planner.regions", "emitc.target"),
    "emitc.cli_plan": (
        "emitc.cli_options", "emitc.compiler", "emitc.emit.manifest", "emitc.emit.output_file", "emitc.errors", "emitc.picture",
        "emitc.pareto", "emitc.planner", "emitc.program", "emitc.report", "emitc.together",
    ),
    "emitc.pareto": ("emitc.compiler", "emitc.errors", "emitc.program", "emitc.spending"),
    "emitc.cli": (
        "emitc.cli_check", "emitc.validation",
        "emitc", "emitc._version", "emitc.backends", "emitc.cli_options", "emitc.cli_plan", "emitc.errors", "emitc.target",
        "emitc.compiler", "emitc.inspection", "emitc.pareto",
        "emitc.report", "emitc.report_lists", "emitc.emit.manifest", "emitc.host", "emitc.boards",
    ),
}  # fmt: skip
"""By module or package; the most specific entry wins. A listed package stands for all below it, `emitc` for itself."""

IMPORTED_ONLY_BY: dict[str, tuple[str, ...]] = {
    "numpy": ("emitc.replay", "emitc.row_spans", "emitc.ir", "emitc.quantize", "emitc.frontends", "emitc.kernels", "emitc.passes",
              "emitc.emit.literals", "emitc.writers", "emitc.host", "emitc.backends", "emitc.validation"),
    "tflite": ("emitc.frontends.tflite", "emitc.frontends.tflite_npu", "emitc.writers.tflite", "emitc.host.ethosu.vela_file",
               "emitc.backends.ethos_u.vela"),
    "ethosu": ("emitc.backends.ethos_u.vela_child",),
    "flatbuffers": (
        "emitc.frontends.tflite", "emitc.frontends.flatbuffer", "emitc.frontends.flexbuffer", "emitc.host.golden_pieces",
        "emitc.writers.tflite",
    ),
    "onnx": (
        "emitc.frontends.onnx", "emitc.frontends.onnx_branches", "emitc.frontends.onnx_contradictions",
        "emitc.frontends.onnx_custom",
        "emitc.frontends.onnx_external", "emitc.frontends.onnx_file", "emitc.frontends.onnx_functions",
        "emitc.frontends.onnx_graphs", "emitc.frontends.onnx_order", "emitc.frontends.onnx_types",
    ),
    "jinja2": ("emitc.emit.render", "emitc.boards.project"),
    "cffi": ("emitc.host.build", "emitc.host.ethosu.driver"),
    "elftools": ("emitc.boards.elf",),
    "click": ("emitc.cli", "emitc.cli_check", "emitc.cli_options", "emitc.cli_plan"),
    "ortools": ("emitc.planner.prove",),
    "rich": ("emitc.cli", "emitc.report"),
}  # fmt: skip
"""Packages that are not Python's own, and the modules (or packages) that may import them; any other package is refused."""

WRITERS = ("emitc.emit.output_file", "emitc.emit.package", "emitc.host", "emitc.boards", "emitc.backends.ethos_u.vela")
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


def modules() -> dict[str, ast.Module]:
    """Every module of the package, parsed."""
    found = {}
    for path in sorted((ROOT / "emitc").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


MODULES = modules()


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING:`."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        yield from _nodes(child)


def imports(tree: ast.Module) -> set[str]:
    """Modules that a module imports, at its top or inside a function; `from emitc.host import parity` is emitc.host.parity."""
    found: set[str] = set()
    for node in _nodes(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, "imports are absolute"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in MODULES else node.module)
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
    allowed = rule(MAY_IMPORT, name)
    found = []
    for imported in sorted(imports(tree)):
        top = imported.split(".")[0]
        if top == "emitc":
            if not within(imported, allowed):
                found.append(f"{name} imports {imported}")
        elif top not in sys.stdlib_module_names and not within(name, IMPORTED_ONLY_BY.get(top, ())):
            found.append(f"{name} imports {imported}")
    return found


@pytest.mark.parametrize("name", MODULES)
def test_every_module_imports_only_what_its_layer_may(name: str) -> None:
    assert violations(name, MODULES[name]) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("emitc.planner.search", "from emitc.ir import Graph"),
        ("emitc.planner.search", "import numpy as np"),
        ("emitc.kernels.softmax", "from emitc.target import load_target"),
        ("emitc.frontends.build", "import tflite"),
        ("emitc.ir", "from emitc import errors"),
        ("emitc.emit.render", "def f():\n    from emitc.lower import lower"),
        ("emitc.passes.drop_dead", "import emitc.compiler"),
        ("emitc.compiler", "from emitc.host import parity"),
        ("emitc.compiler", "import torch"),
    ],
)
def test_a_forbidden_import_is_seen(name: str, text: str) -> None:
    assert violations(name, ast.parse(text)) != []


def test_an_import_for_types_only_is_free() -> None:
    assert violations("emitc.ir", ast.parse("if TYPE_CHECKING:\n    from emitc.target import Target")) == []


def test_the_table_names_modules_that_exist() -> None:
    packages = {name.rpartition(".")[0] for name in MODULES} | set(MODULES)
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
    assert {n: writing_calls(t) for n, t in MODULES.items() if writing_calls(t) and not within(n, WRITERS)} == {}
    assert writing_calls(MODULES["emitc.emit.package"])
    assert writing_calls(ast.parse("path.open('wb')")) == ["open wb"]


DECIDING = frozenset({"dtype", "c_type", "op_type", "op", "target", "template", "variant", "format", "features", "isa"})


def _names_a_kernel(node: jinja2.nodes.Assign) -> bool:
    """Whether an assignment is `"emitc_..." ~ f.suffix`."""
    value = node.node
    if not isinstance(value, jinja2.nodes.Concat) or len(value.nodes) != 2:
        return False
    prefix, suffix = value.nodes
    return (
        isinstance(prefix, jinja2.nodes.Const) and isinstance(suffix, jinja2.nodes.Getattr) and suffix.attr == "suffix"
    )


def decisions(source: str) -> list[str]:
    """Conditions of a template that look at an operator, a type or a target; assignments, which belong into lowering.

    A name made of the kernel's and the flavour's suffix may be kept in a variable.
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


def test_emit_does_not_decide() -> None:
    for name, tree in MODULES.items():
        if not name.startswith("emitc.emit"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.If | ast.IfExp | ast.While):
                read = {n.attr for n in ast.walk(node.test) if isinstance(n, ast.Attribute)}
                assert not read & DECIDING, f"{name} line {node.lineno} decides on {sorted(read & DECIDING)}"
