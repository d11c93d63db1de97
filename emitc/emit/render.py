"""Program to text: the Jinja environment and what it prints. No file is written here."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

import jinja2
from jinja2 import meta
from jinja2.runtime import Macro

from emitc.emit import literals
from emitc.emit.facts import StackBound, extensions, halves_to_even, limits, suffixes
from emitc.emit.layer_call import layer_call, usual_arguments
from emitc.emit.self_test import checked_constants
from emitc.emit.template_cache import TemplateCache
from emitc.emit.trained_numbers import with_little_work, with_numbers, with_trained
from emitc.emit.wrap import wrapped
from emitc.errors import EmitcError, Where, first_name
from emitc.layer import PLAIN, Formula, KernelSpec, Param
from emitc.program import Program, Step, c_names
from emitc.program.weights import ARGUMENT

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
BACKENDS = Path(__file__).resolve().parent.parent / "backends"
RUNTIME_VERSION = 1


@cache
def _backend_folders() -> dict[str, jinja2.BaseLoader]:
    """The templates of the backends, under the names of their folders."""
    return {folder.parent.name: jinja2.FileSystemLoader(folder) for folder in sorted(BACKENDS.glob("*/templates"))}


@cache
def environment(more: tuple[tuple[str, str], ...] = ()) -> jinja2.Environment:
    """The environment of all C templates: a missing field is an error, tags stand alone on their line.

    more: names and texts of kernels' templates that plugins bring along.
    """
    plugin_templates = jinja2.DictLoader({f"kernels/{name}.c.j2": text for name, text in more})
    own = jinja2.FileSystemLoader(TEMPLATES)
    env = jinja2.Environment(
        loader=jinja2.ChoiceLoader([own, jinja2.PrefixLoader(_backend_folders()), plugin_templates]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        # Jinja's folding of constants takes longer than what it saves.
        optimized=False,
    )
    env.bytecode_cache = TemplateCache(env)
    env.filters["comment"] = c_names.comment_text
    env.filters["members"] = members
    env.filters["reads"] = lambda step, name: any(param.name == name for param in members(env, step))
    env.filters["limits"] = limits
    env.filters["first_name"] = first_name
    env.filters["quoted"] = c_names.string_text
    env.filters["utf8"] = literals.text
    env.filters["rows"] = literals.rows
    env.filters["number"] = literals.number
    env.filters["real"] = literals.real
    env.filters["braced"] = lambda value: f"({value})" if value < 0 else str(value)
    env.globals["c"] = env.get_template("partials/layer.c.j2").module
    return env


def _tidy(text: str) -> str:
    """At most one empty line in a row, no trailing blanks, no line that is too long."""
    # Tables are megabytes of blanks that the first pattern would be tried at.
    trailing = " \n" in text or "\t\n" in text
    return wrapped(re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text) if trailing else text))


@cache
def template_paths() -> frozenset[str]:
    """The kernels' templates as a `Layer` names them: with their folder, without their suffix."""
    folder = TEMPLATES / "kernels"
    return frozenset(path.relative_to(folder).as_posix().removesuffix(".c.j2") for path in folder.rglob("*.c.j2"))


def takes_formula(template: str) -> bool:
    """Whether one of emitc's templates prints the kernel of the layer's formula."""
    text = (TEMPLATES / "kernels" / f"{template}.c.j2").read_text(encoding="utf-8")
    return "e" in meta.find_undeclared_variables(environment().parse(text))


def template_problem(name: str, text: str) -> str:
    """What is wrong with the text of a kernel's template, "" where it can be used."""
    try:
        module = _printed(environment(((name, text),)), name, PLAIN, f"emitc_{name}")
    except jinja2.TemplateSyntaxError as error:
        return f"{error.message} (line {error.lineno})"
    except jinja2.TemplateError as error:
        return f"{type(error).__name__}: {error.message}"
    if not hasattr(module, "kernel") and not str(module).strip():
        return "it has no macro kernel, and no text"
    return "" if hasattr(module, "layer") or hasattr(module, "arguments") else "it has no macro layer and no arguments"


@lru_cache(maxsize=1024)
def _printed(
    env: jinja2.Environment,
    template: str,
    spec: KernelSpec,
    name: str,
    formula: Formula | None = None,
    own: tuple[Param, ...] = (),
) -> jinja2.environment.TemplateModule:
    """A kernel's template, printed for a specification `f` and a formula `e`. name: the kernel's in C. own: its `members`."""
    folder = "" if template.partition("/")[0] in _backend_folders() else "kernels/"
    values = {"f": spec, "name": name, "e": formula, "members": own}
    return env.get_template(f"{folder}{template}.c.j2").make_module(values)


def _kernel_module(
    env: jinja2.Environment, step: Step, own: tuple[Param, ...] | None = None
) -> jinja2.environment.TemplateModule:
    """The printed template of a step. own: the members of its struct; all parameters where they are not known yet."""
    types = tuple(Param(param.name, param.c_type, 0) for param in (step.params if own is None else own))
    return _printed(env, step.template, step.spec, f"emitc_{step.kernel}", step.formula, types)


@jinja2.pass_environment
def members(env: jinja2.Environment, step: Step) -> tuple[Param, ...]:
    """The members of the step's parameter struct: its parameters, without those that the template's macro `unread` names.

    A layer carries all facts about its window or its output, because the scheduler reads them too. One kernel
    specification may need fewer.
    """
    unread = getattr(_kernel_module(env, step), "unread", None)
    names = set() if unread is None else set(str(unread(step.spec)).split())
    names |= set(step.stored) if step.separate else set()
    return tuple(param for param in step.params if param.name not in names)


def _kernel(program: Program, step: Step) -> str:
    """The kernel of a step: the struct of its parameters, and the template's text.

    A template that has something in front of the struct prints the struct itself, from `members`, and sets `own_struct`. One that
    prints a function of a library has a macro `kernel` instead.
    """
    env = environment(program.templates)
    with _of_a_plugin(program, step.template):
        module, own, struct = _kernel_module(env, step), members(env, step), f"emitc_{step.kernel}"
        if hasattr(module, "kernel"):
            values = {"f": step.spec, "e": step.formula, "members": own}
            return str(module.kernel(**{name: values[name] for name in module.kernel.arguments}))
        if not own or hasattr(module, "own_struct"):
            return str(_kernel_module(env, step, own))
        return f"{env.globals['c'].struct(struct, own)}\n\n{module}"  # type: ignore[attr-defined]


def _layer(program: Program, step: Step) -> str:
    """The function of a step: by the template's macro, or the one that calls the kernel with the arguments that it states."""
    with _of_a_plugin(program, step.template):
        env = environment(program.templates)
        module = _kernel_module(env, step)
        if hasattr(module, "layer"):
            return str(module.layer(step))
        arguments = getattr(module, "arguments", None) or usual_arguments(step)
        return str(env.globals["c"].layer(step, layer_call(step, arguments)))  # type: ignore[attr-defined]


@contextmanager
def _of_a_plugin(program: Program, template: str) -> Iterator[None]:
    """Turns what a plugin's template raises into an error that says which; of emitc's own it would be a bug."""
    try:
        yield
    except Exception as error:
        if template not in dict(program.templates):
            raise
        why = f"{type(error).__name__}: {error}"
        where = Where(option=f"template {template}")
        hint = "correct it; see docs/custom-operators.md"
        raise EmitcError("a plugin's template cannot be printed", where, why, hint) from error


def _require_one_struct(program: Program) -> None:
    """Layers of one kernel have constants of one struct, so that their parameters have the same names and types."""
    env = environment(program.templates)
    seen: dict[str, list[tuple[str, str]]] = {}
    for step in program.every_step:
        with _of_a_plugin(program, step.template):
            module = _kernel_module(env, step)
            if not hasattr(module, "kernel"):
                own = [(param.name, param.c_type) for param in members(env, step)]
                assert seen.setdefault(step.kernel, own) == own, f"{step.name} has other parameters than {step.kernel}"


def _parts(program: Program) -> tuple[str, str]:
    """The kernels in use, each once, and the layers in order. Only a plugin's kernel can have the C name of another one."""
    for name, count in Counter(step.kernel for step in program.kernels).items():
        if count > 1:
            where, why = Where(option=f"kernel {name}"), f"the model needs {count} of them"
            what = f"several kernels have the C name emitc_{name}"
            raise EmitcError(what, where, why, "rename the plugin's template")
    _require_one_struct(program)
    kernels: list[str] = []
    layers: dict[str, str] = {}
    for step in program.kernels:
        own = [other for other in program.every_step if other.kernel == step.kernel]
        kernel, texts = _with_trained(program, own) or (
            _kernel(program, step),
            [_with_every_parameter_read(_layer(program, other), other) for other in own],
        )
        kernels.append(kernel)
        layers |= {other.name: text for other, text in zip(own, texts, strict=True)}
    return "\n\n".join(kernels), "\n\n".join(layers[step.name] for step in program.every_step)


def _with_every_parameter_read(text: str, step: Step) -> str:
    """The text of a layer whose function reads the pointer to the weights, which it may take for its caller's macros alone."""
    head, named, body = text.rpartition(f" {step.name}({step.weights_leading}")
    if not step.weights_leading or not named or re.search(rf"\b{ARGUMENT}\b", body):
        return text
    return head + named + body.replace("\n{\n", f"\n{{\n    (void){ARGUMENT};\n", 1)


def _with_trained(program: Program, steps: Sequence[Step]) -> tuple[str, list[str]] | None:
    """The kernel of some layers and their functions, with a pointer to numbers of the weights; None where there is none."""
    if not all(step.numbers for step in steps):
        return None
    steps = [replace(step, separate=True) for step in steps]
    types = {param.name: param.c_type for param in steps[0].params if param.name in steps[0].stored}
    called = [with_numbers(_layer(program, step), step) for step in steps]
    layers, places = [call[0] for call in called if call], [call[1] for call in called if call]
    if len(layers) < len(steps) or any(other != places[0] for other in places):
        return None
    kernel = with_trained(_kernel(program, steps[0]), steps[0].kernel, types, places[0])
    return None if kernel is None else (with_little_work(kernel, steps), layers)


def _needs_math(env: jinja2.Environment, step: Step) -> bool:
    """Whether the kernel of a step needs <math.h>: its formula says so, or its template by `math`.

    `math` is true, or a macro of the spec that prints something where the kernel needs it.
    """
    stated = getattr(_kernel_module(env, step), "math", False)
    if isinstance(stated, Macro):
        stated = str(stated(step.spec)).strip() != ""
    return stated or (step.formula is not None and step.formula.math)


def _any_not_finite(numbers: Iterable[tuple[str, Sequence[float]]]) -> bool:
    """Whether one of the numbers is infinite or a NaN, for which only <math.h> has names; each sequence with its C type."""
    reals = (values for c_type, values in numbers if c_type in ("float", "double"))
    return any(not math.isfinite(value) for values in reals for value in values)


def uses_math(program: Program) -> bool:
    """Whether the source of the model needs <math.h>."""
    env = environment(program.templates)
    if any(_needs_math(env, step) for step in program.kernels):
        return True
    steps = list(program.every_step)
    parts = [program, *(part for step in steps for part in step.parts)]
    constants = [
        *(constant for step in steps for constant in step.constants if not constant.external),
        *(constant for part in parts for constant in part.output_constants),
    ]
    params = ((param.c_type, (param.value,)) for step in steps for param in members(env, step))
    return _any_not_finite([*params, *((entry.table.c_type, entry.table.values) for entry in constants)])


def render_sources(program: Program, stack: StackBound | None = None) -> dict[str, str]:
    """The public header and the source of a program, by file name. stack: what the header says of it, where it is known."""
    kernels, layers = _parts(program)
    env = environment(program.templates)
    header = env.get_template("model/model.h.j2").render(p=program, halves_to_even=halves_to_even(program), stack=stack)
    source = env.get_template("model/model.c.j2").render(
        p=program,
        kernels=kernels,
        layers=layers,
        uses_math=uses_math(program),
        extensions=extensions(program),
        suffixes=suffixes(program),
        runtime_version=RUNTIME_VERSION,
        ready=program.origin.sha256[:7].upper(),
        checked_constants=checked_constants(program, kernels, layers) if program.self_test else None,
    )
    sources = {f"{program.name}.h": _tidy(header), f"{program.name}.c": _tidy(source)}
    if program.extras.cpp:
        wrapper = env.get_template("model/model.hpp.j2").render(p=program)
        sources[f"{program.name}.hpp"] = _tidy(wrapper)
    if constants := program.split_constants:
        names = _any_not_finite((constant.table.c_type, constant.table.values) for constant in constants)
        for end in ("h", "c"):
            text = env.get_template(f"model/weights.{end}.j2").render(p=program, uses_math=names)
            sources[f"{program.name}_weights.{end}"] = _tidy(text)
    return sources
