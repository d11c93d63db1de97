"""What a model costs on a target, with the flash that the target's compiler and linker tell instead of an estimate."""

import time
from dataclasses import replace
from pathlib import Path

from emitc.boards.target_build import target_build
from emitc.compiler import compile_model
from emitc.explore.cost import Cost, cost_of
from emitc.options import Options

OPTION = "--link"


def linked_cost(path: str | Path, options: Options) -> Cost:
    """The cost of the model file at `path`. Code and constants are the bytes of the model, the runtime and their library
    routines in an image of the emulated boards, which calls init, run and the functions of inputs and outputs.

    Raises what `compile_model` raises, EmitcError where the target is no core, CannotCompile where its compiler is missing.
    """
    start = time.perf_counter()
    compiled = compile_model(path, options)
    program = compiled.program
    ports = [f"input_{i}" for i in range(len(program.inputs))] + [f"output_{i}" for i in range(len(program.outputs))]
    with target_build(compiled, OPTION, "flash") as build:
        sizes = build.sizes([f"{program.name}_{what}" for what in ("run", "init", *ports)])
        compiler = build.version()
    return replace(
        cost_of(compiled.partition, program, options.optimize),
        constant_bytes=sizes.constant_bytes + sizes.data_bytes,
        code_bytes=sizes.code_bytes,
        linked_by=compiler,
        seconds=time.perf_counter() - start,
    )
