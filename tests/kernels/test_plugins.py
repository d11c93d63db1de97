"""Operators of a user's own: loaded, compiled, proven by their references, and refused with a message when they are wrong."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emitc.compiler import compile_model, partition_model
from emitc.errors import EmitcError
from emitc.kernels import onnx_registry, registry, tflite_registry
from emitc.options import Options
from emitc.plugins import Plugins, load_plugins
from emitc.report.inspection import inspect_model
from emitc.target import load_target
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, OperatorSpec, TensorSpec, write_tflite

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "custom_operator"
LEAKY = EXAMPLE / "leaky_integrator.py"

CLIPPED = '''
from __future__ import annotations
from dataclasses import dataclass
import numpy as np
from emitc.ir import DType, Op
from emitc.kernels.contract import KernelDef, Parsed, require_dtypes
from emitc.layer import KernelSpec, Layer, Param, in_step

@dataclass(frozen=True, slots=True)
class ClippedSquare(Op):
    """y = min(x * x, limit)."""
    limit: float

def parse(node):
    node.counts((1, 1))
    return Parsed(ClippedSquare(node.real("limit", 4.0)))

def check(bound):
    require_dtypes(bound, [(DType.FLOAT32, DType.FLOAT32)])

def output_shapes(bound):
    return (bound.input(0).shape,)

def reference(bound, inputs):
    return (np.minimum(inputs[0] * inputs[0], np.float32(bound.node.op.limit)),)

def lower(bound):
    params = (Param("count", "int32_t", bound.output.elements), Param("limit", "float", bound.node.op.limit))
    return Layer("clipped_square", "portable", (0,), params=params, overlaps=(in_step(bound),))

KERNEL = KernelDef(
    ClippedSquare, "the square, up to a limit", (DType.FLOAT32,), ("CUSTOM:ClippedSquare",), parse, check, reference, lower,
    output_shapes=output_shapes, onnx=("org.example.ClippedSquare",), from_onnx=parse, elementwise=ELEMENTWISE,
)

TEMPLATES = {"clipped_square": """{% import "partials/layer.c.j2" as c %}
{% macro kernel() %}
struct emitc_clipped_square {
    int32_t count;
    float limit;
};

static inline void emitc_clipped_square(const struct emitc_clipped_square *p, const float *x, float *y)
{
    for (int32_t i = 0; i < p->count; i++) {
        const float square = x[i] * x[i];
        y[i] = square < p->limit ? square : p->limit;
    }
}
{% endmacro %}
{% macro layer(k) %}
{{ c.constants(k) }}
static void {{ k.name }}(const float *x, float *y)
{
    emitc_clipped_square(&{{ k.name }}_params, x, y);
}
{% endmacro %}
"""}
'''


def example_model(folder: Path) -> Path:
    """The example's model, made by its script."""
    path = folder / "smoothed.tflite"
    subprocess.run([sys.executable, str(EXAMPLE / "make_model.py"), str(path)], check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def smoothed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return example_model(tmp_path_factory.mktemp("plugins"))


def plugin(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def clipped(folder: Path, old: str = "", new: str = "", *, elementwise: bool = False) -> Path:
    """The plugin above, with a change."""
    assert old in CLIPPED
    text = CLIPPED.replace("ELEMENTWISE", str(elementwise))
    return plugin(folder, text.replace(old, new) if old else text)


def square_model(folder: Path, dtype: str = "float32", options: bytes = b"") -> Path:
    """One ClippedSquare of TFLite."""
    tensors = (TensorSpec("x", dtype, (2, 3)), TensorSpec("y", dtype, (2, 3)))
    operator = OperatorSpec("CUSTOM", (0,), (1,), custom_code="ClippedSquare", custom_options=options)
    path = folder / "square.tflite"
    path.write_bytes(write_tflite(ModelSpec(tensors, (operator,), (0,), (1,))))
    return path


# ---- the example ----


def test_the_example_is_proven_by_its_reference(smoothed: Path) -> None:
    compiled = compile_model(smoothed, plugins=(LEAKY,))
    assert compiled.program.state_bytes == 16
    proof = verify(compiled, layers=True, sanitize=True, samples=30)
    assert proof.match
    assert (proof.reference, proof.differing, proof.numpy_differing) == ("numpy", 0, 0)
    assert proof.layers_checked > 0


def test_the_report_says_that_no_engine_knows_the_operator(smoothed: Path) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    from emitc.report.verify import verify_text

    compiled = compile_model(smoothed, plugins=(LEAKY,))
    proof = verify(compiled, samples=2)
    operators, why = proof.to_json()["no_engine"].values()
    assert operators == ("CUSTOM:LeakyIntegrator",)
    assert "LeakyIntegrator" in why
    assert "no engine runs this model for CUSTOM:LeakyIntegrator of a plugin" in verify_text(compiled, proof)
    with pytest.raises(EmitcError, match="cannot load the model"):
        verify(compiled, samples=2, reference="tflm")


def test_a_wrong_reference_is_a_mismatch(smoothed: Path, tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "leaky_integrator.c.j2", tmp_path)
    text = LEAKY.read_text(encoding="utf-8")
    wrong = plugin(tmp_path, text.replace("(memory + 64) >> 7", "(memory + 63) >> 7"), "leaky_integrator.py")
    assert not verify(compile_model(smoothed, plugins=(wrong,)), samples=200).match


def test_the_manifest_names_the_plugin_and_its_template_by_hash(smoothed: Path) -> None:
    compiled = compile_model(smoothed, plugins=(LEAKY,))
    (stated,) = json.loads(compiled.files["manifest.json"])["options"]["plugins"]
    assert (stated["file"], len(stated["sha256"])) == ("leaky_integrator.py", 64)
    assert stated["operators"] == ["CUSTOM:LeakyIntegrator"]
    assert stated["template"]["file"] == "leaky_integrator.c.j2"
    assert stated["template"]["sha256"] != stated["sha256"]
    assert b"--plugin leaky_integrator.py" in compiled.files["smoothed.c"]
    assert compile_model(smoothed, plugins=(LEAKY,)).files == compiled.files


def test_its_c_is_clean_for_a_microcontroller(smoothed: Path, tmp_path: Path) -> None:
    target = load_target("cortex-m4")
    compiler = f"{target.compiler_prefix}gcc"
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    compile_model(smoothed, plugins=(LEAKY,)).write(tmp_path / "out")
    flags = (
        "-std=c11 -O2 -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-qual -Wcast-align=strict"
    )
    flags += " -Wundef -Wmissing-prototypes -Wdouble-promotion -Wvla -Werror"
    command = [compiler, *target.compiler_flags, *flags.split(), "-c", "smoothed.c", "-o", "smoothed.o"]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_inspection_and_partition_know_it(smoothed: Path) -> None:
    assert not inspect_model(smoothed, {})["compiles"]
    assert inspect_model(smoothed, {}, [LEAKY])["compiles"]
    parts = partition_model(smoothed, Options(plugins=(LEAKY,))).to_json()
    assert "CUSTOM:LeakyIntegrator" in json.dumps(parts)


# ---- what loading leaves ----


def test_loading_changes_nothing_but_its_value(smoothed: Path) -> None:
    before = dict(registry()), dict(tflite_registry()), dict(onnx_registry()), set(sys.modules)
    first, second = load_plugins([LEAKY]), load_plugins([LEAKY])
    assert (dict(registry()), dict(tflite_registry()), dict(onnx_registry()), set(sys.modules)) == before
    assert first.loaded[0].kernels[0].op is not second.loaded[0].kernels[0].op
    assert "CUSTOM:LeakyIntegrator" in first.registry_of("tflite")
    assert "CUSTOM:LeakyIntegrator" not in first.registry_of("onnx")
    assert Plugins().registry_of("tflite") is tflite_registry()
    with pytest.raises(TypeError):
        first.registry_of("tflite")["x"] = None  # type: ignore[index]
    with pytest.raises(EmitcError, match="LeakyIntegrator is not supported") as refused:
        compile_model(smoothed)
    assert "--plugin" in refused.value.hint


# ---- TFLite and ONNX ----


def test_a_float_operator_with_its_template_in_the_file(tmp_path: Path) -> None:
    from flatbuffers import flexbuffers

    builder = flexbuffers.Builder()
    with builder.Map():
        builder.Float("limit", 0.25)
    compiled = compile_model(square_model(tmp_path, options=bytes(builder.Finish())), plugins=(clipped(tmp_path),))
    assert compiled.plugin_ops == ("CUSTOM:ClippedSquare",)
    proof = verify(compiled, sanitize=True)
    assert proof.match
    assert (proof.rule, proof.tolerated) == ("tolerance", 0)


def onnx_model(folder: Path, nodes: list[Any], domain: str = "org.example", shape: Any = None) -> Path:
    """A model of x [1, 2, 3, 4] to y."""
    onnx = pytest.importorskip("onnx", reason="the extra emitc[onnx] is not installed")
    helper = onnx.helper
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2, 3, 4])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)
    constants = [
        onnx.numpy_helper.from_array(np.array(0.02, np.float32), "s"),
        onnx.numpy_helper.from_array(np.array(3, np.int8), "z"),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    path = folder / "square.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())
    return path


def onnx_node(op_type: str, inputs: list[str], output: str, **more: Any) -> Any:
    onnx = pytest.importorskip("onnx", reason="the extra emitc[onnx] is not installed")
    return onnx.helper.make_node(op_type, inputs, [output], **more)


@pytest.mark.parametrize("shape", [None, [1, 2, 3, 4]])
def test_an_onnx_operator_by_domain_and_name(shape: list[int] | None, tmp_path: Path) -> None:
    nodes = [
        onnx_node("Relu", ["x"], "a"),
        onnx_node("ClippedSquare", ["a"], "b", domain="org.example", limit=0.5),
        onnx_node("Neg", ["b"], "y"),
    ]
    model = onnx_model(tmp_path, nodes, shape=shape)
    compiled = compile_model(model, plugins=(clipped(tmp_path),))
    assert compiled.program.outputs[0].shape == (1, 2, 3, 4)
    proof = verify(compiled)
    assert proof.match
    assert proof.reference == "numpy"
    assert "ClippedSquare" in proof.no_engine[-1]
    with pytest.raises(EmitcError, match="ClippedSquare is not supported") as refused:
        compile_model(model)
    assert "org.example.ClippedSquare" in str(refused.value)
    assert not inspect_model(model, {})["compiles"]


def test_between_quantized_tensors_it_stays_float_unless_it_is_elementwise(tmp_path: Path) -> None:
    nodes = [
        onnx_node("QuantizeLinear", ["x", "s", "z"], "q"),
        onnx_node("DequantizeLinear", ["q", "s", "z"], "a"),
        onnx_node("ClippedSquare", ["a"], "b", domain="org.example"),
        onnx_node("QuantizeLinear", ["b", "s", "z"], "r"),
        onnx_node("DequantizeLinear", ["r", "s", "z"], "y"),
    ]
    model = onnx_model(tmp_path, nodes)
    own = compile_model(model, plugins=(clipped(tmp_path),))
    table = compile_model(model, plugins=(clipped(tmp_path, elementwise=True),))
    assert "clipped_square" in {step.template for step in own.program.steps}
    assert "clipped_square" not in {step.template for step in table.program.steps}
    assert verify(own).match
    assert verify(table).match


def test_another_domain_is_another_operator(tmp_path: Path) -> None:
    model = onnx_model(tmp_path, [onnx_node("ClippedSquare", ["x"], "y", domain="org.other")], domain="org.other")
    with pytest.raises(EmitcError, match="ClippedSquare is not supported"):
        compile_model(model, plugins=(clipped(tmp_path),))


# ---- refusals ----

WRONG = {
    "def parse(node:": ("def parse(node)", "does not load", "SyntaxError"),
    "raise at load": ("import numpy as np", "does not load", "ZeroDivisionError: division by zero (line 4)"),
    "exits": ("import numpy as np", "does not load", "SystemExit"),
    "leaves at once": ("import numpy as np", "does not load", "os._exit(0) (line 4)"),
    "no kernel": ("KERNEL = KernelDef(", "exports no operator", "KernelDef under the name KERNEL"),
    "no kernels": ("KERNEL = KernelDef(", "exports no operator", "KERNELS is empty"),
    "not a kernel": ("KERNEL = KernelDef(", "exports something else than operators", "not dict"),
    "exists": ("CUSTOM:ClippedSquare", "defines CONV_2D, which exists already", "does not replace"),
    "no prefix": ("CUSTOM:ClippedSquare", "names clippedSquare, which is no operator of TFLite", "CUSTOM:"),
    "exists in onnx": ("org.example.ClippedSquare", "defines Relu, which exists already", "does not replace"),
    "no parser": ("from_onnx=parse", "cannot parse org.example.ClippedSquare", "no function from_onnx"),
    "foreign class": ("    ClippedSquare, ", "defines no operator class of its own", "comes from elsewhere"),
    "template name": ('{"clipped_square"', "has a template called conv_2d", "emitc has one of this name"),
    "template syntax": ("{% endmacro %}\n{% macro layer", "the template clipped_square of the plugin", "(line "),
    "template macro": ("macro layer(k)", "the template clipped_square of the plugin", "it has no macro layer"),
    "templates": ("TEMPLATES = {", "TEMPLATES of the plugin mine.py is no dictionary", "maps names to templates"),
}
CHANGES = {
    "def parse(node:": "def parse(node",
    "raise at load": "import numpy as np; 1 / 0",
    "exits": "raise SystemExit(3)",
    "leaves at once": "import numpy as np; import os; os._exit(0)",
    "no kernel": "OTHER = KernelDef(",
    "no kernels": "KERNELS = ()\nOTHER = KernelDef(",
    "not a kernel": "KERNEL = dict(a=1)\nOTHER = KernelDef(",
    "exists": "CONV_2D",
    "no prefix": "clippedSquare",
    "exists in onnx": "Relu",
    "no parser": "from_onnx=None",
    "foreign class": "    Op, ",
    "template name": '{"conv_2d"',
    "template syntax": "{% endmacr %}\n{% macro layer",
    "template macro": "macro layers(k)",
    "templates": "TEMPLATES = [] and {",
}


@pytest.mark.parametrize("case", WRONG)
def test_a_plugin_that_cannot_be_used(case: str, tmp_path: Path) -> None:
    old, what, why = WRONG[case]
    with pytest.raises(EmitcError) as refused:
        load_plugins([clipped(tmp_path, old, CHANGES[case])])
    assert what in refused.value.what
    assert why in refused.value.why
    assert refused.value.where.option == "--plugin mine.py"
    assert refused.value.hint


def test_files_that_are_no_plugins(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.py", "no such file"), (tmp_path, "a plugin is a Python file")):
        with pytest.raises(EmitcError, match=r"cannot be read|is no plugin") as refused:
            load_plugins([path])
        assert why in refused.value.why
    (tmp_path / "large.py").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(EmitcError, match="too large"):
        load_plugins([tmp_path / "large.py"])


def test_two_plugins_with_one_operator(tmp_path: Path) -> None:
    clipped(tmp_path)
    other = plugin(tmp_path, CLIPPED.replace("ELEMENTWISE", "False"), "other.py")
    with pytest.raises(EmitcError, match="two plugins have an operator of one name") as refused:
        load_plugins([tmp_path / "mine.py", other])
    assert "in mine.py too" in refused.value.why


@pytest.mark.parametrize(
    ("old", "new", "what", "why"),
    [
        ("return Parsed(", "return None and Parsed(", "fails in the parser", "no Parsed with a ClippedSquare"),
        ("node.real(", "node.nothing(", "fails in the parser", "AttributeError"),
        ("    require_dtypes(bound", "    bound.input(7) and (bound", "fails in check", "IndexError"),
        ("return (bound.input(0).shape,)", "return bound.output.rank", "fails in output_shapes", "AttributeError"),
        ("return (bound.input(0).shape,)", "return [(2, 3)]", "fails in output_shapes", "not a tuple of shapes"),
        ('return Layer("clipped_square"', 'return Layer("clip_square"', "fails in lower", "no template clip_square"),
        ('Layer("clipped_square"', 'Layer("lookup"', "fails in lower", "no template lookup"),
        ('Layer("clipped_square"', 'Layer("activation/unary"', "fails in lower", "activation/unary needs a formula"),
        (
            'Layer("clipped_square"',
            'Layer("activation/lookup", formula=1, variant="portable", operands=(0,))  # ',
            "fails in lower",
            "activation/lookup takes no formula",
        ),
        ("return Layer(", "return print or Layer(", "fails in lower", "not a Layer"),
        ("return Layer(", "return exit(0) or Layer(", "fails in lower", "SystemExit: 0"),
        ("return Layer(", "return __import__('os')._exit(0) or Layer(", "fails in lower", "os._exit(0)"),
        ("y[i] = square < p->limit", "{{ k.nothing }}", "a plugin's template cannot be printed", "'k' is undefined"),
    ],
)
def test_a_plugin_that_fails_in_use(old: str, new: str, what: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(EmitcError) as refused:
        compile_model(square_model(tmp_path), plugins=(clipped(tmp_path, old, new),))
    assert what in str(refused.value)
    assert why in refused.value.why
    assert refused.value.exit_code == 2


def test_a_formula_needs_no_template(tmp_path: Path) -> None:
    formula = 'Formula("clipped_square", "v * v < p->limit ? v * v : p->limit", "x * x up to limit")'
    made = f'Layer("activation/unary", "portable", (0,), formula={formula}, spec=KernelSpec(x="float", y="float")'
    changed = CLIPPED.replace('Layer("clipped_square", "portable", (0,)', made).replace(
        "KernelSpec,", "KernelSpec, Formula,"
    )
    text = changed.replace("ELEMENTWISE", "False").replace("TEMPLATES = {", "UNUSED = {")
    compiled = compile_model(square_model(tmp_path), plugins=(plugin(tmp_path, text),))
    assert [step.kernel_name for step in compiled.program.steps] == ["clipped_square"]
    assert verify(compiled, samples=20).match


def test_a_kernel_with_the_c_name_of_another_one(tmp_path: Path) -> None:
    tensors = tuple(TensorSpec(name, "float32", (2, 3)) for name in "xyz")
    square = OperatorSpec("CUSTOM", (0,), (1,), custom_code="ClippedSquare")
    path = tmp_path / "floor.tflite"
    path.write_bytes(write_tflite(ModelSpec(tensors, (square, OperatorSpec("FLOOR", (1,), (2,))), (0,), (2,))))
    text = CLIPPED.replace("ELEMENTWISE", "False").replace("clipped_square", "floor")
    called = text.replace("overlaps=", 'spec=KernelSpec("_f32"), overlaps=')
    with pytest.raises(EmitcError, match="several kernels have the C name emitc_floor_f32") as refused:
        compile_model(path, plugins=(plugin(tmp_path, called),))
    assert "rename the plugin's template" in refused.value.hint


def test_a_reference_of_another_shape(tmp_path: Path) -> None:
    wrong = clipped(tmp_path, "inputs[0] * inputs[0], np", "inputs[0].reshape(-1), np")
    compiled = compile_model(square_model(tmp_path), plugins=(wrong,))
    with pytest.raises(EmitcError, match="fails in reference") as refused:
        verify(compiled)
    assert "the outputs are [((2, 3), 'float32')]" in refused.value.why


def test_its_own_refusals_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(EmitcError, match="element types") as refused:
        compile_model(square_model(tmp_path, "int32"), plugins=(clipped(tmp_path),))
    assert refused.value.exit_code == 1


# ---- the command line ----


@pytest.mark.parametrize("command", ["compile", "verify", "plan", "inspect", "run", "flash", "partition"])
def test_every_command_that_reads_a_model_takes_plugins(command: str) -> None:
    from emitc.cli.main import cli

    assert "--plugin" in [flag for option in cli.commands[command].params for flag in option.opts]


def test_the_command_line_shows_no_traceback(smoothed: Path, tmp_path: Path) -> None:
    wrong = clipped(tmp_path, "import numpy as np", "import no_such_package")
    for command in (["inspect"], ["plan"], ["compile", "-o", str(tmp_path / "out")]):
        words = [sys.executable, "-m", "emitc", command[0], str(smoothed), *command[1:], "--plugin", str(wrong)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert "No module named 'no_such_package' (line 4)" in done.stderr


def test_the_example_script_needs_nothing_else() -> None:
    """Its module can be imported; what it would write is what the tests use."""
    spec = importlib.util.spec_from_file_location("make_model", EXAMPLE / "make_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.model()[4:8] == b"TFL3"
