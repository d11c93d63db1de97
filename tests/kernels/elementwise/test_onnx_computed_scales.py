"""QLinearAdd and QLinearMul whose scales are computed, against onnxruntime: the bits that constant scales give."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.ir import Array
from emitc.kernels.elementwise.runtime_scales import AddByScales
from emitc.verify.build import HostModel, build_shared, run_compiler, sources
from emitc.verify.golden_run import interface_of
from tests.kernels.elementwise.test_onnx_arithmetic import every_pair
from tests.support.onnx_op import MICROSOFT, Computed, Draw, OnnxCase, computed, graph_of, model_of, prove_onnx

SHARED = Path(__file__).resolve().parents[4] / "shared" / "models"
PAIRS = (256, 256)
COLUMN, ROW = (256, 1), (1, 256)
SCALES = ("a_scale", "b_scale", "y_scale")
ZEROS = ("a_zero", "b_zero", "y_zero")
Shape = tuple[int, ...]


def drawn(op: str, dtype: str, negative: bool) -> Draw:
    """Every pair of values; scales with which most results are within the type, or of any sign."""

    def draw(rng: np.random.Generator, sample: int) -> Mapping[str, Array]:
        a, b = 10.0 ** rng.uniform(-3, 0, 2)
        y = (a + b) * rng.uniform(0.5, 1.5) if op == "Add" else a * b * rng.uniform(64, 256)
        scales = np.array([a, b, y]) * (rng.choice([-1, 1], 3) if negative else 1)
        values = {name: np.asarray(scale, np.float32) for name, scale in zip(SCALES, scales, strict=True)}
        info = np.iinfo(dtype)
        zeros = {name: np.asarray(rng.integers(info.min, info.max + 1), dtype) for name in ZEROS}
        return {**every_pair(dtype), **values, **zeros}

    return draw


def by_scales(
    name: str,
    op: str,
    dtype: str = "int8",
    shapes: tuple[Shape, Shape] = (PAIRS, PAIRS),
    *,
    negative: bool = False,
    constant: Mapping[str, float] | None = None,
    missing: tuple[str, ...] = (),
    scale_shape: Shape = (),
) -> OnnxCase:
    """constant: scales and zero points that are not computed. missing: zero points that are left out."""
    inputs: dict[str, Array | Computed | None] = {}
    for role, shape in (("a", shapes[0]), ("b", shapes[1]), ("y", None)):
        if shape is not None:
            inputs[role] = computed(shape, dtype)
        inputs[f"{role}_scale"] = computed(scale_shape, low=0.001, high=0.1)
        inputs[f"{role}_zero"] = computed(scale_shape, dtype)
    for role, value in (constant or {}).items():
        inputs[role] = np.full(scale_shape, value, np.float32 if role in SCALES else dtype)
    inputs.update(dict.fromkeys(missing))
    every = drawn(op, dtype, negative)

    def draw(rng: np.random.Generator, sample: int) -> Mapping[str, Array]:
        values = every(rng, sample)
        if shapes[0] == COLUMN:
            values = {**values, "a": values["a"][:, :1], "b": values["b"][:1]}
        return {role: value for role, value in values.items() if isinstance(inputs[role], Computed)}

    whole = shapes in ((PAIRS, PAIRS), (COLUMN, ROW))
    return OnnxCase(name, f"QLinear{op}", inputs, domain=MICROSOFT, draw=draw if whole else None)


EVERY_PAIR = [
    by_scales(f"{op}_{dtype}_{'any_sign' if negative else 'positive'}", op, dtype, negative=negative)
    for op in ("Add", "Mul")
    for dtype in ("int8", "uint8")
    for negative in (False, True)
]
EXCHANGED = [by_scales(f"exchanged_{dtype}", "Add", dtype, (COLUMN, ROW)) for dtype in ("int8", "uint8")]
"""Where a is repeated along the innermost dimension the operands change places."""
SHAPES = [
    by_scales(f"{op}_{i}", op, dtype, shapes)
    for op, dtype in (("Add", "uint8"), ("Mul", "int8"))
    for i, shapes in enumerate(
        (
            ((2, 3, 4), (2, 3, 4)), ((4,), (2, 3, 4)), ((2, 3, 4), (4,)), ((2, 3, 1), (2, 3, 4)), ((2, 1, 4), (1, 3, 1)),
            ((), (5,)), ((5,), ()), ((1,), (1,)), ((), ()),
        )
    )
]  # fmt: skip
PARTLY = [
    by_scales("one_scale", "Add", constant={"a_scale": 0.01, "a_zero": 3, "b_scale": 0.02, "b_zero": -7, "y_zero": 1}),
    by_scales(
        "one_zero", "Mul", constant={"a_scale": 0.01, "b_scale": 0.02, "y_scale": 0.03, "b_zero": -7, "y_zero": 1}
    ),
    by_scales("constant_value", "Add", constant={"a_scale": 0.25}),
]


def test_every_pair() -> None:
    prove_onnx([*EVERY_PAIR, *EXCHANGED], samples=20, sanitize=False).check()


@pytest.mark.parametrize("cases", [pytest.param(SHAPES, id="shapes"), pytest.param(PARTLY, id="partly_constant")])
def test_bits(cases: list[OnnxCase]) -> None:
    prove_onnx(cases).check()


def test_a_constant_operand() -> None:
    case = by_scales("constant", "Add", "uint8", ((3, 4), (4,)))
    inputs = {**case.inputs, "b": np.array([0, 7, 200, 255], np.uint8)}
    prove_onnx([OnnxCase("constant", case.op_type, inputs, domain=MICROSOFT)]).check()


def test_scales_of_zero_give_the_smallest_value_for_what_is_not_a_number() -> None:
    """Of the reference and the C alone: the engine leaves it to the processor."""
    case = by_scales("zero", "Mul", "uint8", ((4,), (4,)))
    values = {
        "a": np.array([3, 4, 5, 9], np.uint8), "b": np.array([7, 8, 9, 7], np.uint8), "a_zero": np.array(3, np.uint8),
        "b_zero": np.array(7, np.uint8), "y_zero": np.array(9, np.uint8), "a_scale": np.array(1, np.float32),
        "b_scale": np.array(1, np.float32), "y_scale": np.array(0, np.float32),
    }  # fmt: skip
    case = OnnxCase("zero", case.op_type, case.inputs, domain=MICROSOFT, draw=lambda rng, sample: values)
    graph = graph_of(case)
    assert [type(node.op).__name__ for node in graph.nodes] == ["MulByScales"]
    proven = prove_onnx([case], samples=1)
    assert proven.outcomes["zero"].compiled[0][0].tolist() == [0, 255, 255, 0]
    assert proven.outcomes["zero"].reference[0][0].tolist() == [0, 255, 255, 0]
    assert proven.memory_errors == ()


def test_no_compiler_merges_products_with_sums() -> None:
    cases = EVERY_PAIR
    proven = prove_onnx(cases, samples=4, sanitize=False)
    (compiled,) = proven.compiled.values()
    with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
        workdir = Path(folder)
        compiled.write(workdir / "package")
        files, includes = sources(workdir / "package")
        options = ["-std=gnu11", "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", f"-I{includes[0]}"]
        run_compiler([*options, *map(str, files), "-o", str(workdir / "fused.so")])
        model = HostModel(workdir / "fused.so", interface_of(compiled))
        for sample in range(4):
            given = [v for outcome in proven.outcomes.values() for v in outcome.inputs[sample].values()]
            for value, outcome in zip(model.run(given), proven.outcomes.values(), strict=True):
                assert (value == outcome.golden[sample][0]).all(), outcome.case.id


def test_numbers_of_quantized_tensors() -> None:
    """A QuantizeLinear in front has the operator see uint8 as it is in the model."""
    nodes = (
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node(
            "QLinearAdd", ["q", "scale", "zero", "q", "other", "zero", "scale", "zero"], ["y"], domain=MICROSOFT
        ),
    )
    inputs: dict[str, Array | Computed | None] = {
        "x": computed((4, 5)), "scale": np.array(0.05, np.float32), "zero": np.array(120, np.uint8),
        "other": computed((), low=0.01, high=0.1),
    }  # fmt: skip
    case = OnnxCase("chain", "QLinearAdd", inputs, nodes=nodes)
    assert any(isinstance(node.op, AddByScales) for node in graph_of(case).nodes)
    prove_onnx([case]).check()


@pytest.mark.parametrize("name", ["onnx2c_qlinearadd_int8", "onnx2c_qlinearmul_uint8"])
def test_vectors(name: str, tmp_path: Path) -> None:
    model, vectors = SHARED / "onnx" / f"{name}.onnx", SHARED / "vectors" / "onnx" / f"{name}.npz"
    if not (model.is_file() and vectors.is_file()):
        pytest.skip("the sibling folder of models is absent")
    compiled = compile_model(model)
    compiled.write(tmp_path / "package")
    found = HostModel(build_shared(tmp_path / "package", tmp_path, trace=False), interface_of(compiled))
    with np.load(vectors) as stored:
        for sample in range(3):
            (y,) = found.run([stored[f"in{i}_{sample}"] for i in range(8)])
            np.testing.assert_array_equal(y, stored[f"out0_{sample}"])


def test_zero_points_that_are_left_out() -> None:
    """They count as 0; the engine refuses to infer types without them."""
    rng = np.random.default_rng(5)
    values: dict[str, Array] = {role: np.asarray(rng.uniform(0.01, 0.1), np.float32) for role in SCALES}
    values |= every_pair("uint8")
    without = by_scales("zeros", "Mul", "uint8", missing=ZEROS)
    with_zeros = by_scales("zeros", "Mul", "uint8", constant=dict.fromkeys(ZEROS, 0))
    (found,) = run_without_engine(without, values)
    outcome = prove_onnx([replace(with_zeros, draw=lambda rng, sample: values)], samples=1).outcomes["zeros"]
    outcome.check()
    np.testing.assert_array_equal(found, outcome.golden[0][0])


def written(case: OnnxCase, folder: Path) -> Path:
    """The case's file, its output typed by hand."""
    model = model_of([case], engine=False)
    first = case.inputs["a"]
    assert isinstance(first, Computed)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(first.dtype))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(model.graph.node[0].output[0], kind, None))
    (folder / "case.onnx").write_bytes(model.SerializeToString())
    return folder / "case.onnx"


def run_without_engine(case: OnnxCase, values: Mapping[str, Array]) -> list[Array]:
    """What the C gives for a case that the engine does not take."""
    with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
        compiled = compile_model(written(case, Path(folder)))
        compiled.write(Path(folder) / "package")
        model = HostModel(build_shared(Path(folder) / "package", Path(folder), trace=False), interface_of(compiled))
        return model.run([values[name] for name in case.given])


@pytest.mark.parametrize(
    ("case", "code", "what"),
    [
        (by_scales("per_channel", "Add", shapes=((2, 3), (2, 3)), scale_shape=(3,)), 1,
         "QLinearAdd with 3 scales or zero points is not supported"),
        (by_scales("wide", "Mul", "int16", ((4,), (4,))), 1,
         "QLinearMul with element types (int16, int16, float32, int16, float32, int16, float32, int16, int16) is not supported"),
        (by_scales("no_scale", "Add", shapes=((4,), (4,)), missing=("b_scale",)), 1,
         "QLinearAdd takes its scale from a computed tensor"),
        (by_scales("misfit", "Mul", shapes=((4,), (3,))), 2, "QLinearMul is used wrongly"),
    ],
    ids=lambda value: value.id if isinstance(value, OnnxCase) else "",
)  # fmt: skip
def test_refusals(case: OnnxCase, code: int, what: str, tmp_path: Path) -> None:
    with pytest.raises(EmitcError) as error:
        compile_model(written(case, tmp_path))
    assert (error.value.exit_code, error.value.what) == (code, what)
