"""What emitc makes of ONNX's own node tests: each compiled to C, built, run and compared with the case's outputs.

    python -m bench.node_tests                        all cases; fails when a verdict differs from the committed file
    python -m bench.node_tests --update               all cases; rewrites bench/node_test_verdicts.json and .md
    python -m bench.node_tests --sample 60 --seed 1   some of them, checked against the committed file
    python -m bench.node_tests --case conv_with_strides_padding

The cases are those of the package `onnx`; they are made in memory, without a download. Taken are those whose operators
are in OPERATORS, have a kernel, or are defined by others that have one. Every case about quantization is taken too.
They make weights, scales and axes inputs of the graph; a compiler takes those as constants. So each case is tried with
all inputs computed, then with ever more of its inputs frozen to their values. The first input, the data, is frozen
last. The verdict is that of the first model that compiles.

`passed`: the C and the numpy references give the case's outputs: integers, and all of a case about quantization, exactly;
other floats within the case's rtol and atol. `unsupported`: valid, but there is no code. `refused`: emitc says that the model
is wrong. `disputed`: other outputs, those of ONNX Runtime, which contradicts the case; KNOWN says why. `wrong`: other outputs.
`crashed`: anything else than an answer, in the compiler or in the C.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from bench.corpus import chosen, missing
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError
from emitc.ir import Array
from emitc.kernels import onnx_registry
from emitc.report.tables import table
from emitc.source import DEFINED
from emitc.verify.build import WARNINGS, HostModel, run_compiler, sources
from emitc.verify.golden_run import interface_of
from emitc.verify.reference import run_reference

HERE = Path(__file__).resolve().parent
JSON_FILE, TEXT_FILE = HERE / "node_test_verdicts.json", HERE / "node_test_verdicts.md"
VERDICTS = ("passed", "unsupported", "refused", "disputed", "wrong", "crashed")
SEVERAL = "several operators"
_BATCH = 20
"""Cases built into one shared library."""

_CONVOLUTIONS = "Conv ConvTranspose ConvInteger"
_PRODUCTS = "Gemm MatMul MatMulInteger"
_POOLS = "MaxPool AveragePool GlobalAveragePool GlobalMaxPool"
_ACTIVATIONS = "Relu LeakyRelu PRelu Sigmoid Tanh HardSigmoid HardSwish Elu Softplus Softmax Gelu Erf Clip"
_ELEMENTWISE = (
    "Add Sub Mul Div Neg Abs Sqrt Exp Log Pow Min Max Mean Sum Reciprocal Floor Ceil Round Equal Less LessOrEqual Greater "
    "GreaterOrEqual Where"
)
_NORMALIZATIONS = "BatchNormalization LayerNormalization"
_MOVES = (
    "Reshape Flatten Squeeze Unsqueeze Transpose Concat Split Slice Gather Pad Expand Tile Identity Dropout DepthToSpace "
    "SpaceToDepth Shape Size Constant ConstantOfShape"
)
_REDUCTIONS = "ReduceMean ReduceSum ReduceMax ReduceMin ArgMax ArgMin"
_RESIZES = "Resize Upsample"
_QUANTIZATION = (
    "QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul ConvInteger MatMulInteger"
)

_FRACTIONAL = (
    "with align_corners the case divides by the input's length times the scale, less 1, which is no whole number here; the "
    "specification's formula and ONNX Runtime divide by the output's length less 1, and so does emitc"
)
KNOWN: Mapping[str, str] = {
    "resize_downsample_scales_cubic_align_corners": _FRACTIONAL,
    "resize_downsample_scales_linear_align_corners": _FRACTIONAL,
}
"""Cases whose outputs ONNX Runtime contradicts, and in what; emitc has ONNX Runtime's outputs, as the tests show."""

QUANTIZATION = frozenset(_QUANTIZATION.split())
OPERATORS = QUANTIZATION.union(
    *(
        family.split()
        for family in (
            _CONVOLUTIONS, _PRODUCTS, _POOLS, _ACTIVATIONS, _ELEMENTWISE, _NORMALIZATIONS, _MOVES, _REDUCTIONS, _RESIZES,
        )
    )
)  # fmt: skip
"""The operators of networks for microcontrollers."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One case. exact: it is about quantization. frozen: graph inputs made constants. elements: of the outputs compared."""

    case: str
    operator: str
    exact: bool
    verdict: str
    reasons: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    elements: int = 0

    def to_json(self) -> dict[str, Any]:
        """A row of the file."""
        return asdict(self) | {"reasons": list(self.reasons), "frozen": list(self.frozen)}


def from_json(row: Mapping[str, Any]) -> Verdict:
    """A row of the file."""
    return Verdict(**(dict(row) | {"reasons": tuple(row["reasons"]), "frozen": tuple(row["frozen"])}))


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A node test. inputs: by graph input, in order; outputs in the graph's order. Not every value is an array."""

    name: str
    model: onnx.ModelProto
    inputs: Mapping[str, Any]
    outputs: tuple[Any, ...]
    rtol: float
    atol: float

    @property
    def operators(self) -> frozenset[str]:
        """Types of its nodes."""
        return frozenset(node.op_type for node in self.model.graph.node)

    @property
    def operator(self) -> str:
        """The type of its node, or that there are several."""
        return next(iter(self.operators)) if len(self.model.graph.node) == 1 else SEVERAL

    @property
    def exact(self) -> bool:
        """Whether floats too have to have the case's bits."""
        return bool(self.operators & QUANTIZATION)

    def verdict(self, kind: str, reasons: Sequence[str] = (), frozen: Sequence[str] = (), elements: int = 0) -> Verdict:
        """A verdict on it."""
        return Verdict(self.name, self.operator, self.exact, kind, tuple(reasons), tuple(frozen), elements)


def wanted(operators: frozenset[str], kernels: Iterable[str] = ()) -> bool:
    """Whether a case of these operators is run."""
    return bool(operators & QUANTIZATION) or operators <= OPERATORS.union(kernels)


def _value(value: Any) -> Any:
    """An array of a case, which some cases give as ONNX's own tensor; other values as they are."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


@cache
def cases() -> Mapping[str, Case]:
    """The selected cases by name without `test_`, sorted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # making the cases divides by zero and overflows
        from onnx.backend.test.loader import load_model_tests

        tests = load_model_tests(kind="node")
    cases_by_name: dict[str, Case] = {}
    for test in tests:
        assert test.model is not None and test.data_sets is not None and len(test.data_sets) == 1, test.name
        inputs, outputs = ([_value(value) for value in values] for values in test.data_sets[0])
        names = [value.name for value in test.model.graph.input]
        name = test.name.removeprefix("test_")
        case = Case(name, test.model, dict(zip(names, inputs, strict=False)), tuple(outputs), test.rtol, test.atol)
        if wanted(case.operators, (*onnx_registry(), *DEFINED)):
            cases_by_name[name] = case
    return dict(sorted(cases_by_name.items()))


def freezings(case: Case) -> Iterator[tuple[str, ...]]:
    """Which inputs to make constants, from none to all but the first; sizes alone (ConstantOfShape) to all.

    Of a loop, whose data need not come first: also all that are single values, such as the number of rounds.
    """
    names = list(case.inputs)
    small = [n for n in names[1:] if np.ndim(case.inputs[n]) <= 1]
    choices = [names[k:] for k in range(len(names), 0, -1)] + [small]
    if case.operator == "ConstantOfShape":
        choices.append(names)
    if "Loop" in case.operators:
        choices.append([n for n in names if np.ndim(case.inputs[n]) == 0])
    yield from dict.fromkeys(tuple(choice) for choice in sorted(choices, key=len))


def frozen_model(case: Case, frozen: Sequence[str]) -> bytes:
    """The case's model with inputs made constants of the values that the case gives them."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.ir_version = max(model.ir_version, 4)  # before, a constant had to be an input too
    kept = [value for value in model.graph.input if value.name not in frozen]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    for name in frozen:
        model.graph.initializer.add().CopyFrom(numpy_helper.from_array(np.asarray(case.inputs[name]), name))
    data: bytes = model.SerializeToString()
    return data


def _crash(error: BaseException, name: str) -> str:
    """An exception as a reason, without the name that the case has in its batch."""
    return f"{type(error).__name__}: {str(error).replace(name, 'case')[:200]}".strip()


def compiled(case: Case, folder: Path, name: str) -> tuple[Compiled, tuple[str, ...]] | Verdict:
    """The first of the case's models that compiles, with its frozen inputs; the verdict on the last one when none does."""
    verdict = case.verdict("crashed", ("it has no model",))
    for frozen in freezings(case):
        path = folder / f"{name}.onnx"
        try:
            path.write_bytes(frozen_model(case, frozen))
        except (TypeError, ValueError, AttributeError):
            continue  # a sequence or an optional cannot be a constant of the file
        try:
            return compile_model(path, name=name), frozen
        except EmitcError as error:
            kind = "unsupported" if error.exit_code == CannotCompile.exit_code else "refused"
            reasons = tuple(reason.replace(path.name, "the model") for reason in missing(error))
            verdict = case.verdict(kind, reasons, frozen)
        except Exception as error:
            return case.verdict("crashed", (f"compiler: {_crash(error, name)}",), frozen)
    return verdict


def as_stored(value: Any) -> Array:
    """A case's array as the interface of compiled C has it: every bit is kept, under an element type that C has.

    Integers of 2 and 4 bits are one to a byte; of float16, float8 and float4 there are the bits, in a uint16 or a byte.
    """
    array = np.asarray(value)
    if array.dtype.name in ("int2", "int4", "uint2", "uint4"):
        return array.astype(array.dtype.name.rstrip("24") + "8")
    if array.dtype.name.startswith(("float16", "float8", "float4")):
        return np.ascontiguousarray(array).view(f"uint{8 * array.dtype.itemsize}").reshape(array.shape)
    return array


def unequal(actual: Array, expected: Any, case: Case) -> str:
    """How an output differs from the case's; "" when it does not."""
    wanted_value = as_stored(expected)
    if (actual.dtype, actual.shape) != (wanted_value.dtype, wanted_value.shape):
        return f"{actual.dtype}{list(actual.shape)} instead of {wanted_value.dtype}{list(wanted_value.shape)}"
    if case.exact or actual.dtype.kind != "f":
        right = (actual == wanted_value) | ((actual != actual) & (wanted_value != wanted_value))
    else:
        right = np.isclose(actual, wanted_value, rtol=case.rtol, atol=case.atol, equal_nan=True)
    if right.all():
        return ""
    with np.errstate(all="ignore"):
        gap = np.abs(actual[~right].astype(np.float64) - wanted_value[~right].astype(np.float64)).max()
    return f"{int((~right).sum())} of {actual.size} elements differ, by {gap:g} at most"


def _library(packages: Sequence[Path], library: Path) -> None:
    """The packages as one shared library, with all warnings as errors; their runtime is the same and taken once."""
    files: dict[str, Path] = {}
    arguments = [*WARNINGS, "-O1", "-shared", "-fPIC"]
    for package in packages:
        files_to_compile, includes = sources(package)
        arguments += [f"-I{folder}" for folder in includes]
        files.update((path.name, path) for path in files_to_compile)
    run_compiler([*arguments, *map(str, files.values()), "-o", str(library)])


def run_case(case: Case, model: Compiled, frozen: tuple[str, ...], library: Path) -> Verdict:
    """The verdict on a case that compiled and is in the library."""
    inputs = [as_stored(value) for name, value in case.inputs.items() if name not in frozen]
    wrong: list[str] = []
    outputs: list[Array] = []
    try:
        values = run_reference(model.graph, inputs)
        reference = [values[name] for name in model.graph.outputs]
        outputs = HostModel(library, interface_of(model)).run(inputs)
    except Exception as error:
        return case.verdict("crashed", (f"run: {_crash(error, model.program.name)}",), frozen)
    for what, results in (("numpy reference", reference), ("C", outputs)):
        if len(results) != len(case.outputs):
            wrong.append(f"{what}: {len(results)} outputs instead of {len(case.outputs)}")
        for position, (value, expected) in enumerate(zip(results, case.outputs, strict=False)):
            difference = unequal(value, expected, case)
            if difference:
                wrong.append(f"{what}, output {position}: {difference}")
    elements = sum(math.prod(value.shape) for value in outputs)
    if wrong and case.name in KNOWN:
        return case.verdict("disputed", (KNOWN[case.name], *wrong), frozen, elements)
    return case.verdict("wrong" if wrong else "passed", wrong, frozen, elements)


def judged(names: Sequence[str]) -> list[Verdict]:
    """The verdicts on some cases, built together."""
    known = cases()
    verdicts: dict[str, Verdict] = {}
    ready: dict[str, tuple[Compiled, tuple[str, ...], Path]] = {}
    with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
        workdir = Path(folder)
        for number, name in enumerate(names):
            result = compiled(known[name], workdir, f"case{number}")
            if isinstance(result, Verdict):
                verdicts[name] = result
                continue
            model, frozen = result
            package = workdir / f"package{number}"
            model.write(package)
            ready[name] = (model, frozen, package)
        library = workdir / "cases.so"
        together = True
        if ready:
            try:
                _library([package for _, _, package in ready.values()], library)
            except CannotCompile:
                together = False
        for name, (model, frozen, package) in ready.items():
            if not together:
                library = workdir / f"{package.name}.so"
                try:
                    _library([package], library)
                except CannotCompile as error:
                    reason = (
                        f"C compiler: {error.why.replace(str(package), '').replace(model.program.name, 'case')[:300]}"
                    )
                    verdicts[name] = known[name].verdict("crashed", (reason,), frozen)
                    continue
            verdicts[name] = run_case(known[name], model, frozen, library)
    return [verdicts[name] for name in names]


def _pooled(batches: Sequence[Sequence[str]], jobs: int) -> Iterator[list[Verdict] | None]:
    """The verdicts batch by batch; None for each batch that a dying process took with it."""
    context = multiprocessing.get_context("fork")  # the children share the cases, which take seconds to make
    with ProcessPoolExecutor(max_workers=jobs, mp_context=context) as pool:
        for future in [pool.submit(judged, batch) for batch in batches]:
            try:
                yield future.result()
            except BrokenProcessPool:
                yield None


def all_judged(names: Sequence[str], jobs: int) -> list[Verdict]:
    """The verdicts on all these cases; jobs: processes at once, 0 for this one alone.

    A case whose C ends its process is `crashed`; the others of its batch run again.
    """
    known = cases()
    batches = [names[i : i + _BATCH] for i in range(0, len(names), _BATCH)]
    if jobs == 0:
        return [verdict for batch in batches for verdict in judged(batch)]
    verdicts: list[Verdict] = []
    for batch, batch_verdicts in zip(batches, list(_pooled(batches, jobs)), strict=True):
        if batch_verdicts is not None:
            verdicts += batch_verdicts
            continue
        for name in batch:
            (alone,) = _pooled([[name]], 1)
            gone = known[name].verdict("crashed", ("run: its process ended",))
            verdicts += [gone] if alone is None else alone
    return verdicts


def json_text(verdicts: Iterable[Verdict], version: str) -> str:
    """The file for programs: one case a line. version: of the package onnx, which brings the cases."""
    rows = ",\n".join("  " + json.dumps(v.to_json()) for v in verdicts)
    return f'{{"onnx": "{version}", "cases": [\n{rows}\n]}}\n'


def read_verdicts(path: Path) -> tuple[str, list[Verdict]]:
    """The version of onnx of the committed verdicts, and these."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["onnx"], [from_json(row) for row in content["cases"]]


def _rows(verdicts: Sequence[Verdict]) -> list[tuple[str, ...]]:
    """Counts by operator, and their sum."""
    rows = []
    operators = sorted({v.operator for v in verdicts} - {SEVERAL}) + [SEVERAL] * any(
        v.operator == SEVERAL for v in verdicts
    )
    for operator in operators:
        count = Counter(v.verdict for v in verdicts if v.operator == operator)
        rows.append((operator, str(count.total()), *(str(count[name] or "") for name in VERDICTS)))
    count = Counter(v.verdict for v in verdicts)
    return [*rows, ("all", str(count.total()), *(str(count[name]) for name in VERDICTS))]


def _counts(verdicts: Sequence[Verdict]) -> str:
    count = Counter(v.verdict for v in verdicts)
    return ", ".join(f"{count[name]} {name}" for name in VERDICTS if count[name])


def markdown_text(verdicts: Sequence[Verdict], version: str) -> str:
    """The file for people."""
    about = [v for v in verdicts if v.exact]
    lines = [
        "# What emitc makes of ONNX's node tests",
        "",
        f"Written by `python -m bench.node_tests --update` with onnx {version}. A passed case gives the case's own outputs in",
        "C and in the numpy references: integers, and all of a case about quantization, exactly; other floats within the case's",
        "rtol and atol. A disputed case contradicts ONNX Runtime, whose outputs emitc has.",
        "",
        f"{len(verdicts)} cases: {_counts(verdicts)}.",
        f"{len(about)} of them are about quantization: {_counts(about)}.",
        "",
        f"| operator | cases | {' | '.join(VERDICTS)} |",
        "|---|" + "---:|" * (1 + len(VERDICTS)),
    ]
    lines += [f"| {' | '.join(row)} |" for row in _rows(verdicts)]
    lines += ["", "| case that did not pass | verdict | why |", "|---|---|---|"]
    for v in verdicts:
        if v.verdict != "passed":
            why = "; ".join(v.reasons).replace("|", "\\|").replace("\n", " ")
            lines.append(f"| {v.case} | {v.verdict} | {why} |")
    return "\n".join(lines) + "\n"


def changes(verdicts: Sequence[Verdict], committed: Sequence[Verdict]) -> list[str]:
    """What is no longer as the committed file says, one line each; cases that the file does not have are left out."""
    old = {v.case: v for v in committed}
    return [f"{v.case}: {old[v.case]} in the file, {v} now" for v in verdicts if v.case in old and old[v.case] != v]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 when a case is wrong or crashes, or a verdict is not the committed one."""
    parser = argparse.ArgumentParser(prog="python -m bench.node_tests", description="Verdicts on ONNX's node tests.")
    parser.add_argument("--case", action="append", default=[], metavar="NAME", help="only this case; may be repeated")
    parser.add_argument("--sample", type=int, default=None, metavar="N", help="only N cases")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--update", action="store_true", help="write the committed file; all cases")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once; 0: this one alone")
    options = parser.parse_args(arguments)
    known = list(cases())
    picked = [name.removeprefix("test_") for name in options.case]
    unknown = sorted(set(picked) - set(known))
    if unknown or (options.update and (picked or options.sample is not None)):
        parser.error(f"no case {', '.join(unknown)}" if unknown else "--update takes all cases")
    names = picked or chosen(known, options.sample, options.seed)
    verdicts = all_judged(names, max(options.jobs, 0))
    for v in verdicts:
        if picked or v.verdict in ("wrong", "crashed"):
            print(f"{v.case}: {v.verdict} {'; '.join(v.reasons)}", file=sys.stderr)
    print(table(("operator", "cases>", *(f"{name}>" for name in VERDICTS)), _rows(verdicts)))
    print(f"\n{len(verdicts)} cases: {_counts(verdicts)}")
    failed = any(v.verdict in ("wrong", "crashed") for v in verdicts)
    if options.update:
        JSON_FILE.write_text(json_text(verdicts, onnx.__version__), encoding="utf-8", newline="\n")
        TEXT_FILE.write_text(markdown_text(verdicts, onnx.__version__), encoding="utf-8", newline="\n")
        return 1 if failed else 0
    different = (
        changes(verdicts, read_verdicts(JSON_FILE)[1]) if JSON_FILE.is_file() else ["there is no committed file"]
    )
    print("\n".join(different) or "as in the committed file")
    return 1 if failed or different else 0


if __name__ == "__main__":
    raise SystemExit(main())
