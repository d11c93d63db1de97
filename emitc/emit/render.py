"""Program to text: the Jinja environment and what it prints. No file is written here."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import jinja2

from emitc.emit import literals, names
from emitc.kernels.contract import Flavour
from emitc.program import Program

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
BACKENDS = Path(__file__).resolve().parent.parent / "backends"
RUNTIME_VERSION = 1
_MATH = re.compile(
    r"\b(?:(?:acos|acosh|asin|asinh|atan|atanh|ceil|copysign|cos|cosh|erf|exp|fabs|floor|fmod|log1p|log|pow|rint|round|sin|sinh"
    r"|sqrt|tan|tanh)f|pow)\(|\bexp\(\(double\)|\bINFINITY\b"
)
"""What a kernel needs <math.h> for."""


def _backend_folders() -> dict[str, jinja2.BaseLoader]:
    """The templates of the backends, under the names of their folders."""
    return {folder.parent.name: jinja2.FileSystemLoader(folder) for folder in sorted(BACKENDS.glob("*/templates"))}


@cache
def environment() -> jinja2.Environment:
    """The environment of all C templates: a missing field is an error, tags stand alone on their line."""
    env = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.FileSystemLoader(TEMPLATES), jinja2.PrefixLoader(_backend_folders())]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    env.filters["comment"] = names.comment_text
    env.filters["quoted"] = names.string_text
    env.filters["rows"] = literals.rows
    env.filters["number"] = literals.number
    env.filters["real"] = literals.real
    env.filters["braced"] = lambda value: f"({value})" if value < 0 else str(value)
    return env


def _tidy(text: str) -> str:
    """At most one empty line in a row, no trailing blanks."""
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text))


def _kernel_module(template: str) -> jinja2.environment.TemplateModule:
    folder = "" if "/" in template else "kernels/"
    return environment().get_template(f"{folder}{template}.c.j2").module


def _kernel(template: str, flavour: Flavour) -> str:
    """The kernel of a template; one that serves several flavours takes the flavour."""
    macro = _kernel_module(template).kernel  # type: ignore[attr-defined]
    return str(macro(flavour) if macro.arguments else macro())


def _parts(program: Program) -> tuple[str, str]:
    """The kernels in use, each once, and the layers in order."""
    kernels = "".join(_kernel(template, flavour) for template, flavour in program.kernels)
    layers = "".join(_kernel_module(s.template).layer(s) for s in program.steps)  # type: ignore[attr-defined]
    return str(kernels), str(layers)


def _has_infinity(layers: str, program: Program) -> bool:
    """Whether a constant is infinite or not a number, which only <math.h> has names for."""
    tables = [constant.table for constant in program.output_constants]
    return re.search(r"\b(?:INFINITY|NAN)\b", layers + "".join(map(literals.rows, tables))) is not None


def render_sources(program: Program) -> dict[str, str]:
    """The public header and the source of a program, by file name."""
    kernels, layers = _parts(program)
    env = environment()
    header = env.get_template("model.h.j2").render(p=program)
    source = env.get_template("model.c.j2").render(
        p=program,
        kernels=kernels,
        layers=layers,
        uses_math=_MATH.search(kernels) is not None or _has_infinity(layers, program),
        runtime_version=RUNTIME_VERSION,
        ready=program.origin.sha256[:7].upper(),
    )
    return {f"{program.name}.h": _tidy(header), f"{program.name}.c": _tidy(source)}
