"""Files of weights: the digest of the code that reads them, and what a package says of its code.

Two models may exchange weights where their code is the same to the last character. Comments, names of the model's layers and
what the header says of the file's origin do not count.
"""

import hashlib
import re
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from emitc.emit.render import environment, members, render_sources
from emitc.program import Program, Step
from emitc.program.weights import ARGUMENT, FORMAT, HEADER_BYTES, ExternalWeights

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_DIGITS = 32


def file_name(program: Program) -> str:
    return f"{program.name}.weights.bin"


def read_members(step: Step) -> frozenset[str]:
    """The names of the parameters that a step's kernel reads."""
    return frozenset(param.name for param in members(environment(), step))


def with_structure(program: Program, runtime: Mapping[str, str]) -> Program:
    """The program with the digest of its code. runtime: the text of each file of the runtime that the package holds."""
    external = program.external
    assert external is not None
    nameless = _nameless(program, replace(external, structure="0" * _DIGITS, version=0))
    digest = hashlib.sha256()
    for name, text in sorted({**render_sources(nameless), **runtime}.items()):
        digest.update(f"{name}\0{_plain(text)}\0".encode())
    return replace(program, external=replace(external, structure=digest.hexdigest()[:_DIGITS]))


def _nameless(program: Program, external: ExternalWeights) -> Program:
    """The program without what does not count: where it comes from, and the model's names for its inputs and outputs."""
    origin = replace(program.origin, version="", model_file="", sha256="0" * 64, producer="", options="")
    inputs, outputs = (
        tuple(replace(port, alias="", label="", scale=port.scale and 1.0, zero_point=None if port.zero_point is None else 0)
              for port in ports)
        for ports in (program.inputs, program.outputs)
    )  # fmt: skip
    return replace(program, origin=origin, inputs=inputs, outputs=outputs, external=external)


def _plain(text: str) -> str:
    """A C text without comments, its white space as single blanks."""
    return " ".join(_COMMENT.sub(" ", text).split())


def weights_json(program: Program) -> dict[str, Any]:
    """What the manifest says of the weights: their file, and what the code of each layer is made for."""
    external = program.external
    assert external is not None
    data = external.file()
    places = {member.name: offset for member, offset in zip(external.members, external.offsets, strict=True)}
    return {
        "file": file_name(program),
        "format": FORMAT,
        "structure": external.structure,
        "version": external.version,
        "bytes": len(data),
        "crc32": f"{zlib.crc32(data):08x}",
        "sha256": hashlib.sha256(data).hexdigest(),
        "loaded": [
            {"function": step.name, "offset": HEADER_BYTES + places[name], "bytes": staged.size_bytes}
            for step in program.every_step
            for staged in step.staged
            if (name := staged.constant.removeprefix(f"{ARGUMENT}->")) in places
        ],
        "layers": [_facts(step) for step in program.every_step],
    }


def _facts(step: Step) -> dict[str, Any]:
    """What a layer's code depends on, without its values."""
    arrays = {
        c.table.role: f"{c.table.c_type}[{len(c.table.values)}] {_digest(c.table.values)}" for c in step.constants
    }
    numbers = {param.name: param.value for param in step.params if param.name not in step.stored}
    structures = step.call.structures if step.call is not None else ()
    stated = {f"{s.role}.{name}": value.text for s in structures for name, value in s.members if value.text}
    return {
        "function": step.name,
        "kernel": step.kernel,
        "inputs": [operand.text for operand in step.inputs],
        "outputs": [operand.text for operand in step.outputs],
        "numbers": {name: value if isinstance(value, int) else repr(value) for name, value in numbers.items()} | stated,
        "arrays": arrays,
    }


def _digest(values: tuple[int, ...] | tuple[float, ...]) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()[:8]
