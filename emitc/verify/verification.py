"""The proof: generated C against the golden engine and the numpy reference, element by element, layer by layer.

An element differs when its bits do (a NaN equals a NaN of the same bits). Only floats that operators on floats have computed are
allowed a tolerance (`tolerances`). The operators of a QDQ model are judged one by one (`operator_checks`). The proof names the
rule that decided. The arena is filled with two complementary patterns. Every byte that a run writes shows in one of
them. So the planned bytes can be compared with those that are used.

A model with state runs the samples as a sequence, in the engine and in the C; given vectors and random inputs are a sequence
each. Only the state block may last from one run to the next, so the arena is overwritten in between; and after a reset
the model must give its first answer again.
"""

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from emitc.compiled import Compiled
from emitc.ir import Array, Graph
from emitc.records import asdict, dataclass, replace
from emitc.verify.build import HostModel, MemoryFault, build_shared
from emitc.verify.engines.contract import EngineRefused
from emitc.verify.engines.run import missing_engines
from emitc.verify.golden_run import golden_run, has_npu_commands, has_other_arithmetic, interface_of, play_back
from emitc.verify.layers import PATTERNS, Divergence, LayerProof, filled_bytes, observed_bytes
from emitc.verify.operator_checks import (
    Group,
    OperatorCheck,
    has_operator_checks,
    has_steps_of_floats,
    quantizes_inexact,
    rounded_otherwise,
)
from emitc.verify.proof import COMMANDS_RULE, NPU_RULE, ArenaUse, Proof
from emitc.verify.reference import Sample, random_samples, read_vectors, run_reference
from emitc.verify.sanitize import run_sanitized
from emitc.verify.subgraph_checks import InnerCheck, judged
from emitc.verify.tolerances import Tally, difference, rules, tolerances_of

_NUMPY_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class ProofOptions:
    """How a model is proven: the keyword arguments of `verify`.

    reference: one of `golden_run.REFERENCES`. samples: random inputs, drawn with `seed`. vectors: a file of further inputs and
    outputs. layers: compare every layer. sanitize: run under sanitizers too. progress: called with samples done and in all.
    floats: operators on floats decide one by one.
    """

    reference: str = "auto"
    samples: int = 20
    seed: int = 0
    vectors: Path | None = None
    layers: bool = False
    sanitize: bool = False
    progress: Callable[[int, int], None] | None = None
    floats: bool = False


class Verification:
    """The steps of one proof in order; `proof` runs them all."""

    def __init__(self, compiled: Compiled, options: ProofOptions) -> None:
        self.compiled, self.options, self.graph = compiled, options, compiled.graph
        no_engine = options.reference == "auto" and not has_npu_commands(self.graph)
        self.missing = missing_engines(compiled.source.format) if no_engine else ""
        self.reference = "numpy" if self.missing else options.reference
        vectors = read_vectors(options.vectors, self.graph) if options.vectors else []
        drawn = random_samples(self.graph, options.samples, options.seed)
        self.cases: list[tuple[Sample, Sample]] = [*vectors, *((sample, ()) for sample in drawn)]
        self.inputs = [inputs for inputs, _ in self.cases]
        self.stateful = bool(compiled.program.states)
        self.resets = (len(vectors),) if self.stateful and 0 < len(vectors) < len(self.cases) else ()
        self.other_arithmetic = has_other_arithmetic(compiled.partition.graph)
        self.inner = InnerCheck(compiled, self.reference, floats=options.floats)
        self.rule_of = tolerances_of(compiled)
        self.rules = [self.rule_of[name] for name in self.graph.outputs]
        self.results: list[list[Array]] = []
        self.errors: list[str] = []
        self.tally, self.given_tally, self.numpy_tally = Tally(), Tally(), Tally()
        self.given_cases: list[int] = []
        self.state: dict[str, Array] = {}
        self.checked = 0
        self.first: Divergence | None = None
        self.observed: tuple[int, ...] = ()

    def proof(self) -> Proof:
        """Everything in order. Raises what `verify` raises."""
        self._run_the_engine()
        run = self.compiled.partition.graph
        self.operators = OperatorCheck(run, rules(run, self.compiled.source.format), own=True)
        with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
            self._run_the_c(Path(folder))
        return self._judged()

    def _run_the_engine(self) -> None:
        """The engine's answers, with every tensor where operators decide one by one."""
        options, graph = self.options, self.graph
        self.inner.add(self.inputs)
        self.grouped = (has_operator_checks(graph) or self.inner.judged or options.floats) and not self.other_arithmetic
        self.golden = golden_run(
            self.compiled, self.reference, self.inputs, preserve=options.layers or self.grouped, resets=self.resets
        )
        one_by_one = rounded_otherwise(graph, self.golden.engine) or quantizes_inexact(graph, self.rule_of)
        if self.reference in ("auto", "mixed") and not self.stateful and one_by_one:
            self.grouped = True
            if not options.layers:
                self.golden = golden_run(self.compiled, self.golden.engine, self.inputs, preserve=True)
        self.by_layers = self.grouped or self.other_arithmetic
        self.numpy_samples = len(self.cases) if self.by_layers else _NUMPY_SAMPLES

    def _run_the_c(self, workdir: Path) -> None:
        """Builds the package twice, without and with the layer hook, and runs every case."""
        package = workdir / "package"
        self.compiled.write(package)
        interface = interface_of(self.compiled)
        support, hooks = self.compiled.support("host"), self.compiled.host_hooks()
        model = HostModel(build_shared(package, workdir, trace=False, support=support), interface, hooks)
        traced = HostModel(build_shared(package, workdir, trace=True, support=support), interface, hooks)
        layers = LayerProof(traced, self.compiled)
        for done, (inputs, expected) in enumerate(self.cases):
            if done in self.resets:
                model.reset()
                traced.reset()
                self.operators.reset()
                self.state.clear()
            if self.stateful:
                model.fill(PATTERNS[done % 2])
            try:
                outputs = model.run(inputs)
            except MemoryFault as fault:
                self.errors.append(str(fault))
                break
            self.results.append(outputs)
            self._compare(done, outputs, expected)
            self._compare_layers(done, inputs, outputs, layers)
            if self.options.progress:
                self.options.progress(done + 1, len(self.cases))
        if self.stateful and self.results:
            model.reset()
            if _differ(model.run(self.inputs[0]), self.results[0]):
                self.errors.append("after a reset the model does not give its first answer again")
        self.errors += layers.errors
        library = workdir / "plain.so"
        self.observed = tuple(
            observed_bytes(lambda: HostModel(library, interface, hooks), self.inputs[:2], interface.alignment)
        )
        if self.options.sanitize:
            ran = self.inputs[: len(self.results)]
            if hooks:
                play_back(self.compiled, package, ran, self.resets)
            self.errors += run_sanitized(package, workdir, interface, ran, self.results, support, self.resets)

    def _compare(self, done: int, outputs: Sequence[Array], expected: Sample) -> None:
        for output, value, rule in zip(outputs, self.golden.outputs[done], self.rules, strict=True):
            self.tally.add(output, value.reshape(output.shape), rule)
        stated = zip(outputs, expected, self.rules, strict=False)
        if sum(self.given_tally.add(output, value, rule) for output, value, rule in stated):
            self.given_cases.append(done)

    def _compare_layers(self, done: int, inputs: Sample, outputs: Sequence[Array], layers: LayerProof) -> None:
        """One case by the build with the layer hook, and its layers or outputs with the numpy references."""
        run = self.compiled.partition.graph
        if self.options.layers or self.by_layers or self.stateful or done == 0:
            layers.model.write_inputs(inputs)
            layers.start()
            if _differ(layers.model.invoke(), outputs):
                self.errors.append("built with the layer hook, the model computes other outputs")
        if self.options.layers and self.first is None and not self.other_arithmetic:
            count, self.first = layers.first_divergence(self.golden.tensors[done])
            self.checked += count
        if self.by_layers:
            written = layers.values(run, inputs)
            self.operators.add(written)
            self.errors += _handed_over(run, written, outputs)
        elif done < self.numpy_samples:
            values = run_reference(self.graph, inputs, self.state)
            for name, output, rule in zip(self.graph.outputs, outputs, self.rules, strict=True):
                self.numpy_tally.add(output, values[name], rule)

    def _operators(self) -> tuple[tuple[Group, ...], int]:
        """The operators by type where they decide one by one, and how many of them cannot be compared."""
        if not self.grouped:
            return (), 0
        tensors = self.golden.tensors[: len(self.results)]

        def more(drawn: Sequence[Sample]) -> tuple[Mapping[str, Array], ...]:
            return golden_run(self.compiled, self.reference, drawn, preserve=True).tensors

        return judged(
            self.compiled, tensors, self.inner, self.options.seed, more, self.resets, floats=self.options.floats
        )

    def _rule(self, groups: Sequence[Group]) -> str:
        if has_npu_commands(self.graph):
            return COMMANDS_RULE
        if self.other_arithmetic:
            return NPU_RULE
        # Where only a step could make operators decide and none did, the outputs themselves are as they should be.
        inexact = has_operator_checks(self.graph) or self.inner.judged or self.options.floats
        agree = self.compiled.source.format == "onnx" and not inexact and not self.tally.differing
        if groups and not agree:
            return "groups"
        return "exact" if all(rule.exact for rule in self.rules) else "tolerance"

    def _judged(self) -> Proof:
        groups, unjudged = self._operators()
        program, filled = self.compiled.program, filled_bytes(self.compiled)
        uses = tuple(
            ArenaUse(region, plan.arena_bytes, seen, sure)
            for (region, plan), seen, sure in zip(program.arenas, self.observed, filled, strict=True)
        )
        rule, both = self._rule(groups), self.tally.with_those_of(self.given_tally)
        return Proof(
            reference=self.golden.engine,
            samples=len(self.results),
            **asdict(both),
            numpy_samples=min(len(self.results), self.numpy_samples),
            numpy_differing=self.numpy_tally.differing + sum(group.broken for group in self.operators.groups()),
            layers_checked=self.checked,
            first_divergence=self.first,
            arena_planned=program.plan.arena_bytes,
            arena_observed=sum(self.observed),
            sanitized=self.options.sanitize,
            memory_errors=tuple(dict.fromkeys(self.errors)),
            rule=rule,
            tolerance=max(one.absolute for one in self.rules) if self.rules else 0.0,
            groups=groups,
            arena_filled=sum(filled),
            arenas=uses if program.regions else (),
            no_engine=self.golden.refused or ((self.missing,) if self.missing else ()),
            unjudged=unjudged,
            given_elements=self.given_tally.elements,
            given_differing=self.given_tally.differing,
            given_cases=tuple(self.given_cases),
            disputes=self.golden.disputes,
        )


def _differ(some: Sequence[Array], others: Sequence[Array]) -> bool:
    return any(difference(actual, value)[0] for actual, value in zip(some, others, strict=True))


def _handed_over(graph: Graph, written: Mapping[str, Array], outputs: Sequence[Array]) -> list[str]:
    """Outputs of a run that are not what a layer has written there: operators that are right say nothing of those."""
    wrong = []
    for name, output in zip(graph.outputs, outputs, strict=True):
        value = written.get(name, written.get(graph.root(name).name))
        if value is not None and value.tobytes() != output.tobytes():
            wrong.append(f"the output {name!r} is not what its last layer has written")
    return wrong


def verify(compiled: Compiled, **options: Any) -> Proof:
    """Proves a compiled model on this machine. options: those of `ProofOptions`.

    Where floats of an ONNX model are outside of the tolerance, errors may have added up or sums cancelled. Then the operators
    are compared one by one. They are for TFLite too in three cases: where the numpy references stand for an engine, since these
    round floats in another order than the C; where only these references are outside of the tolerance, and the engine is within
    it; and where an operator magnifies a last bit to a whole step, as FLOOR_DIV does.
    Where LiteRT alone runs a TFLite model and disagrees, TFLite Micro decides about every operator that it has by itself.

    Raises EmitcError for vectors that do not fit, CannotCompile when compiler or engine fail.
    """
    chosen = ProofOptions(**options)
    proof = Verification(compiled, chosen).proof()
    graph = compiled.graph
    rule_of = rules(graph, compiled.source.format)
    magnified = has_steps_of_floats(graph, rule_of)
    steps = proof.rule == "exact" and (magnified or quantizes_inexact(graph, rule_of))
    doubtful = (proof.rule in ("tolerance", "groups") or steps) and not proof.match and not proof.memory_errors
    numpy_alone = proof.numpy_differing > 0 and proof.differing == 0
    one_by_one = compiled.source.format == "onnx" or proof.reference == "numpy" or magnified or numpy_alone
    if doubtful and one_by_one:
        proof = replace(Verification(compiled, replace(chosen, floats=True)).proof(), numpy_alone=numpy_alone)
    if not proof.match and chosen.reference == "auto" and proof.reference == "litert":
        with contextlib.suppress(EngineRefused):
            proof = Verification(compiled, replace(chosen, reference="mixed")).proof()
    return proof
