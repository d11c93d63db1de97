"""Who runs what: the assignment, its reasons, the policies, and the comparison with a map that was kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from emitc.backends import kernel_choices, registry
from emitc.backends.contract import PORTABLE, Backend, BackendDef, Offload, Region, Settings
from emitc.backends.partition import Partition, Policy, open_backends, partition, require_expected
from emitc.backends.portable.backend import Portable
from emitc.cli.main import cli
from emitc.compiler import compile_model, partition_model
from emitc.errors import CannotCompile, EmitcError, RefusalKind
from emitc.ir import BoundNode, Graph
from emitc.layer import Layer
from emitc.target import load_target

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
DIGITS = MODELS / "digits_int8.tflite"
TARGET = load_target("generic32")


class Library(Backend):
    """A kernel library that takes convolutions at a given price."""

    name = "library"

    def __init__(self, price: float) -> None:
        self._price = price
        self._portable = Portable(Settings(TARGET))

    def supports(self, bound: BoundNode) -> str:
        return "" if bound.node.op_type == "CONV_2D" else f"no {bound.node.op_type.lower()}"

    def cost(self, bound: BoundNode) -> float:
        return self._price

    def lower(self, bound: BoundNode) -> Layer:
        return replace(self._portable.lower(bound), variant="library")


class Accelerator(Backend):
    """Takes what it is told to take, each node as a region of its own, and refuses the rest."""

    name = "accelerator"

    def __init__(self, indices: frozenset[int]) -> None:
        self._indices = indices
        self._portable = Portable(Settings(TARGET))

    def lower(self, bound: BoundNode) -> Layer:
        return replace(self._portable.lower(bound), variant="accelerator")

    def offload(self, graph: Graph, keep: frozenset[int]) -> Offload:
        taken = [n for n in graph.nodes if n.index in self._indices - keep]
        regions = tuple(Region(n.index, (n.index,), 7, 64, 100) for n in taken)
        left = [n.index for n in graph.nodes if n not in taken]
        refusals = {index: "kept on the core" if index in keep else "too small" for index in left}
        return Offload(replace(graph), regions, refusals, ("an accelerator is used",))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel library in addition to the portable kernels in the registry."""
    known = {**registry(), "library": BackendDef("library", "for tests", lambda settings: None, kernels=True)}
    monkeypatch.setattr("emitc.backends.partition.registry", lambda: known)


def graph() -> Graph:
    """The shipped digits net after the passes."""
    return compile_model(DIGITS).graph


def partitioned(backends: Mapping[str, Backend], policy: Policy) -> Partition:
    return partition(graph(), {PORTABLE: Portable(Settings(TARGET)), **backends}, policy)


def by_type(found: Partition) -> dict[str, set[str]]:
    names: dict[str, set[str]] = {}
    for a in found.assignments:
        names.setdefault(a.op_type, set()).add(a.backend)
    return names


def test_portable_takes_everything() -> None:
    found = partitioned({}, Policy())
    assert {a.backend for a in found.assignments} == {PORTABLE}
    assert [a.index for a in found.assignments] == [n.index for n in graph().nodes]
    assert found.to_json()["fallback_share"] == 0.0
    assert not any(a.refused for a in found.assignments)


@pytest.mark.usefixtures("library")
def test_a_named_library_gets_what_it_takes_and_the_rest_says_why() -> None:
    found = partitioned({"library": Library(1.0)}, Policy(kernels="library"))
    assert by_type(found)["CONV_2D"] == {"library"}
    assert by_type(found)["SOFTMAX"] == {PORTABLE}
    softmax = next(a for a in found.assignments if a.op_type == "SOFTMAX")
    assert softmax.refused == (("library", "no softmax"),)
    assert softmax.reason == "library does not take it"
    conv = next(a for a in found.assignments if a.op_type == "CONV_2D")
    assert (conv.reason, conv.refused) == ("asked for", ())
    assert found.layers[conv.index].variant == "library"


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("price", "chosen"), [(1.0, "library"), (1e12, PORTABLE)])
def test_auto_takes_the_cheaper_one_and_names_the_price_of_the_other(price: float, chosen: str) -> None:
    found = partitioned({"library": Library(price)}, Policy(kernels="auto"))
    conv = next(a for a in found.assignments if a.op_type == "CONV_2D")
    assert conv.backend == chosen
    (other, reason) = conv.refused[0]
    assert {conv.backend, other} == {PORTABLE, "library"}
    assert reason.kind is RefusalKind.COST


def test_an_accelerator_comes_first_and_its_refusals_are_kept() -> None:
    first = graph().nodes[0].index
    found = partitioned({"accelerator": Accelerator(frozenset([first]))}, Policy())
    content = found.to_json()
    assert content["partitions"] == [
        {"backend": "accelerator", "index": first, "nodes": [first], "macs": 7, "edge_bytes": 64,
         "estimated_cycles": 100, "waits": 1, "cache_operations": 0}
    ]  # fmt: skip
    rows = {n["index"]: n for n in content["nodes"]}
    assert rows[first]["backend"] == "accelerator"
    assert rows[first]["partition"] == first
    others = [n for index, n in rows.items() if index != first]
    assert all(n["refused"] == [{"backend": "accelerator", "reason": "too small"}] for n in others)
    macs = sum(n["macs"] for n in content["nodes"])
    assert content["fallback_share"] == round(1 - rows[first]["macs"] / macs, 6)
    assert found.notes == ("an accelerator is used",)


def test_an_operator_can_be_kept_on_the_core() -> None:
    indices = frozenset(n.index for n in graph().nodes)
    for keep in ("softmax", str(graph().nodes[-1].index)):
        found = partitioned({"accelerator": Accelerator(indices)}, Policy(keep=(keep,)))
        assert by_type(found)["SOFTMAX"] == {PORTABLE}
        assert by_type(found)["CONV_2D"] == {"accelerator"}


def test_keeping_what_is_not_there_is_an_error_that_names_what_is() -> None:
    with pytest.raises(EmitcError, match="no operator is GRU") as caught:
        partitioned({}, Policy(keep=("GRU",)))
    assert "CONV_2D" in caught.value.why


def test_fallback_fail_refuses_and_names_the_first_operator() -> None:
    with pytest.raises(CannotCompile, match="accelerator does not take") as caught:
        partitioned({"accelerator": Accelerator(frozenset())}, Policy(fallback="fail"))
    assert caught.value.why == "too small"
    assert f"op {graph().nodes[0].index}" in str(caught.value.where)


def test_the_map_is_the_same_for_the_same_input() -> None:
    assert partition_model(DIGITS).to_json() == partition_model(DIGITS).to_json()


def test_an_expected_map_passes_and_a_change_is_named() -> None:
    content = partition_model(DIGITS).to_json()
    require_expected(content, json.dumps(content), "kept.json")
    kept = json.loads(json.dumps(content))
    kept["nodes"][0]["backend"] = "npu"
    del kept["nodes"][1]
    with pytest.raises(CannotCompile, match="2 operators run elsewhere") as caught:
        require_expected(content, json.dumps(kept), "kept.json")
    first, second = content["nodes"][:2]
    assert f"op {first['index']} {first['op']}: npu ({first['kernel']}) expected, portable" in caught.value.why
    assert f"op {second['index']} {second['op']}: not expected" in caught.value.why


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nodes": [1]}', '{"nodes": [{"index": "x"}]}', "[" * 100000])
def test_a_damaged_map_is_refused(text: str) -> None:
    with pytest.raises(EmitcError, match=r"kept.json is no partition map"):
        require_expected(partition_model(DIGITS).to_json(), text, "kept.json")


def test_the_command_line_compares_with_a_kept_map(tmp_path: Path) -> None:
    run = CliRunner().invoke(cli, ["partition", str(DIGITS), "--json"])
    assert run.exit_code == 0
    kept = tmp_path / "kept.json"
    kept.write_text(run.output, encoding="utf-8")
    out = str(tmp_path / "out")
    arguments = ["compile", str(DIGITS), "-o", out, "--expect-partition", str(kept)]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    kept.write_text(run.output.replace('"backend": "portable"', '"backend": "other"'), encoding="utf-8")
    refused = CliRunner().invoke(cli, arguments)
    assert refused.exit_code == 1
    assert "run elsewhere than expected" in refused.output
    assert CliRunner().invoke(cli, [*arguments[:-1], str(tmp_path / "none.json")]).exit_code == 2


def test_the_registry_knows_the_backends_and_what_kernels_may_be() -> None:
    assert set(registry()) >= {"portable", "cmsis-nn"}
    assert kernel_choices()[-1] == "auto"
    assert {"portable", "cmsis-nn"} <= set(kernel_choices())
    assert set(open_backends(Settings(TARGET, "portable", {}))) == {"portable"}
