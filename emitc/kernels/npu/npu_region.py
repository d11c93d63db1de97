"""A region of the graph that an accelerator runs as one: its own small graph stays inside as the reference.

Shapes  those of the region's outputs.
Types   any; the region's operators have checked theirs.
Source  none: the region means what its operators mean, executed by their references.
"""

from dataclasses import dataclass

from emitc.ir import BoundNode, Graph, Op, Shape
from emitc.kernels.contract import KernelDef
from emitc.kernels.shared.subgraph_reference import nested_work, run_nested
from emitc.layer import Layer


@dataclass(frozen=True, slots=True)
class Offloaded(Op):
    """region: inputs and outputs in the order of the node's. layer: what the backend prints for it. foreign: the model's own
    arithmetic is another one than the region's, which the user has allowed.
    """

    region: Graph
    layer: Layer
    foreign: bool = False


def _check(bound: BoundNode) -> None:
    """The region fits its node: a violation is a bug of the backend that cut it."""
    region = bound.op(Offloaded).region
    inside = [region.tensor(name) for name in (*region.inputs, *region.outputs)]
    outside = [*(tensor for tensor in bound.inputs if tensor is not None), *bound.outputs]
    assert [(t.shape, t.dtype) for t in inside] == [(t.shape, t.dtype) for t in outside], bound.node.describe()


def _output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    region = bound.op(Offloaded).region
    return tuple(region.tensor(name).shape for name in region.outputs)


KERNELS = (
    KernelDef(
        Offloaded,
        "a region that an accelerator runs",
        (),
        check=_check,
        reference=lambda bound, inputs: run_nested(bound.op(Offloaded).region, inputs),
        lower=lambda bound: bound.op(Offloaded).layer,
        output_shapes=_output_shapes,
        work=lambda bound: nested_work(bound.op(Offloaded).region),
    ),
)
