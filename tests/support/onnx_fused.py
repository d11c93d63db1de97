"""The C against the references of the graph that it was made from: after the passes, with operators on quantized tensors.

`prove_onnx` compares with the references before the passes, which for DequantizeLinear -> operator -> QuantizeLinear are those
of the float operator.
"""

from __future__ import annotations

import numpy as np

from emitc.ir import Numerics
from emitc.verify.reference import run_reference
from tests.support.onnx_op import Proven


def check_fused(proven: Proven, op_type: str) -> None:
    """Asserts that every bit of the C is the lowered graph's reference, and that each `op_type` in it is an integer one."""
    for opset, compiled in proven.compiled.items():
        numerics = [bound.node.op.numerics for bound in compiled.graph.bound() if bound.node.op_type == op_type]
        assert numerics and set(numerics) <= {Numerics.QDQ}, f"{op_type} stays in float: {compiled.graph.notes}"
        outcomes = [outcome for outcome in proven.outcomes.values() if outcome.case.opset == opset]
        for sample in range(len(outcomes[0].inputs)):
            inputs = [value for outcome in outcomes for value in outcome.inputs[sample].values()]
            results = run_reference(compiled.graph, inputs)
            expected = [results[name] for name in compiled.graph.outputs]
            written = [value for outcome in outcomes for value in outcome.compiled[sample]]
            for name, value, reference in zip(compiled.graph.outputs, written, expected, strict=True):
                assert np.array_equal(value, reference), f"{name}, sample {sample}: C and reference differ"
