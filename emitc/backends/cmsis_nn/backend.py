"""CMSIS-NN as a backend: opened with `--kernels cmsis-nn` or `auto` and the path of a tree."""

import os
from functools import cached_property
from pathlib import Path

from emitc.backends.cmsis_nn.calls import Library
from emitc.backends.cmsis_nn.definition import NAME
from emitc.backends.cmsis_nn.lowering import layer_of, refusal
from emitc.backends.cmsis_nn.sources import source_index, sources_of
from emitc.backends.cmsis_nn.versions import InstructionSet, read_tree
from emitc.backends.contract import Backend
from emitc.backends.kernel_library import cost_of
from emitc.ir import BoundNode
from emitc.layer import Layer
from emitc.program import Guard, Program, Requirement
from emitc.target import DSP, MVE, BuildSupport, Target

_COSTS = Path(__file__).with_name("costs.toml")
_GUARDS = {
    InstructionSet.PORTABLE: "!defined(ARM_MATH_DSP) && !defined(ARM_MATH_MVEI)",
    InstructionSet.DSP: "defined(ARM_MATH_DSP) && !defined(ARM_MATH_MVEI)",
    InstructionSet.MVE: "defined(ARM_MATH_MVEI)",
}


def instruction_set(target: Target) -> InstructionSet:
    """What CMSIS-NN is compiled for on a target: its headers choose by the compiler's feature macros."""
    if MVE in target.features:
        return InstructionSet.MVE
    return InstructionSet.DSP if DSP in target.features else InstructionSet.PORTABLE


class CmsisNn(Backend):
    """Calls of the functions in one tree, for one target."""

    name = NAME

    def __init__(self, path: Path, target: Target) -> None:
        self._target = target
        self._path = path

    @cached_property
    def library(self) -> Library:
        """The tree, which is read on first use."""
        tree, instructions = read_tree(self._path), instruction_set(self._target)
        return Library(tree, instructions, frozenset(source_index(tree, instructions)))

    def supports(self, bound: BoundNode) -> str:
        return refusal(self.library, bound)

    def cost(self, bound: BoundNode) -> float:
        return cost_of(_COSTS, bound, self.library.instructions.value)

    def lower(self, bound: BoundNode) -> Layer:
        return layer_of(self.library, bound)

    def requirement(self, program: Program) -> Requirement:
        """The headers, and the instruction set that the scratch sizes are those of."""
        library = self.library
        what = library.instructions.value
        sources = self._sources(program, library.instructions, host=not self._target.compiler_prefix)
        message = f"the buffers are those of CMSIS-NN for {what} code: compile for {program.origin.target}, "
        message += "or run emitc with another --target"
        return Requirement(
            NAME,
            "CMSIS-NN",
            str(library.tree.version),
            "Apache-2.0",
            ("arm_nnfunctions.h",),
            (Guard(_GUARDS[library.instructions], message),),
            cmake="cmsis-nn",
            zephyr=("CMSIS_NN",),
            variable="CMSIS_NN_PATH",
            sources=tuple(self._relative(path) for path in sources.sources),
            folders=tuple(self._relative(path) for path in sources.includes),
        )

    def _relative(self, path: Path) -> str:
        """A path below the tree or in its parent folder, relative to the tree."""
        return Path(os.path.relpath(path, self.library.tree.root)).as_posix()

    def _sources(self, program: Program, instructions: InstructionSet, *, host: bool) -> BuildSupport:
        calls = [step.call for step in program.steps if step.backend == NAME and step.call is not None]
        functions = [call.function for call in calls] + [call.check[0] for call in calls if call.check is not None]
        return sources_of(self.library.tree, functions, instructions, host=host)

    def runs_on(self, target: Target) -> bool:
        """Where the instruction set is the same: buffer sizes depend on it."""
        return instruction_set(target) is self.library.instructions

    def support(self, program: Program, target: Target) -> BuildSupport:
        """The files that define the functions in use, and all that these use."""
        return self._sources(program, instruction_set(target), host=not target.compiler_prefix)
