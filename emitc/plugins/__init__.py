"""Operators that a user brings along: one Python file with their definitions, and the templates of their C.

A plugin exports `KERNELS`, or `KERNEL` for a single one: definitions as those of `emitc/kernels`, of operator classes
of its own. Its templates are the dictionary `TEMPLATES`, name to text, or else the file of its own name with the suffix
`.c.j2` in its folder. Loading gives a value: the registry is never changed, the module stays out of `sys.modules`, and
a further load of the same file makes new classes. What a plugin raises while it is loaded or used becomes an EmitcError
that names the file, and the line in it.
"""

import hashlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NoReturn

from emitc.emit.render import takes_formula, template_paths, template_problem
from emitc.errors import EmitcError, Where
from emitc.frontends.tflite.constants import DECODED
from emitc.frontends.tflite.state import FOLDED
from emitc.ir import Array, BoundNode, Op, Shape
from emitc.kernels import registry_of
from emitc.kernels.contract import KernelDef, Parsed, Parser, Variant
from emitc.layer import Layer
from emitc.records import dataclass, replace
from emitc.source import SourceModel

_MAX_BYTES = 1 << 20
_SUFFIX = ".c.j2"
_FORMATS = ("tflite", "onnx")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
_GUIDE = "see docs/custom-operators.md"


@dataclass(frozen=True, slots=True)
class Plugin:
    """One file. file: its name; sha256: of its bytes. kernels: its operators. templates: name and text of each; template_file:
    name and SHA-256 of the file that the text is from, "" where it is in the Python file.
    """

    file: str
    sha256: str
    kernels: tuple[KernelDef, ...]
    templates: tuple[tuple[str, str], ...] = ()
    template_file: tuple[str, str] = ("", "")

    @property
    def operators(self) -> tuple[str, ...]:
        """The names that its operators have in models."""
        return tuple(name for kernel in self.kernels for name in (*kernel.tflite, *kernel.onnx))

    def to_json(self) -> dict[str, Any]:
        files = {"file": self.file, "sha256": self.sha256, "operators": list(self.operators)}
        name, digest = self.template_file
        return files | ({"template": {"file": name, "sha256": digest}} if name else {})


@dataclass(frozen=True, slots=True)
class Plugins:
    """The plugins of one compilation."""

    loaded: tuple[Plugin, ...] = ()

    def registry_of(self, source_format: str) -> Mapping[str, KernelDef]:
        """Every operator by the names of a source format, those of the plugins among them."""
        own = self.custom(source_format)
        return MappingProxyType({**registry_of(source_format), **own}) if own else registry_of(source_format)

    def custom(self, source_format: str) -> Mapping[str, KernelDef]:
        return {name: k for plugin in self.loaded for k in plugin.kernels for name in _names(k, source_format)}

    def used(self, source: SourceModel) -> tuple[str, ...]:
        """Operators of the model that are the plugins', as the model calls them, each once, in order."""
        own = self.custom(source.format)
        return tuple(dict.fromkeys(n.op_type for n in source.nodes if (n.kind or n.op_type) in own))

    @property
    def templates(self) -> tuple[tuple[str, str], ...]:
        return tuple(template for plugin in self.loaded for template in plugin.templates)

    def to_json(self) -> dict[str, Any]:
        return {"plugins": [plugin.to_json() for plugin in self.loaded]} if self.loaded else {}


def _at(bound: BoundNode, *rest: Any) -> Where:
    return Where(op=bound.node.describe())


def _names(kernel: KernelDef, source_format: str) -> tuple[str, ...]:
    return tuple(kernel.tflite if source_format == "tflite" else kernel.onnx)


@contextmanager
def _staying() -> Iterator[None]:
    """Makes `os._exit` an exception: a plugin that leaves would end the command with exit code 0 and nothing done."""

    def leave(status: int) -> NoReturn:
        raise SystemExit(f"os._exit({status})")

    before, os._exit = os._exit, leave
    try:
        yield
    finally:
        os._exit = before


def load_plugins(paths: Sequence[Path]) -> Plugins:
    """The plugins in the files at `paths`. Raises EmitcError for one that cannot be used, and for two that contradict."""
    loaded: list[Plugin] = []
    for path in paths:
        plugin = _Loader(path).plugin()
        for other in loaded:
            both = sorted(set(other.operators) & set(plugin.operators))
            templates = sorted(dict(other.templates).keys() & dict(plugin.templates).keys())
            if both or templates:
                what = f"two plugins have {'an operator' if both else 'a template'} of one name"
                why = f"{(both or templates)[0]} is in {other.file} too"
                raise EmitcError(what, Where(option=f"--plugin {path.name}"), why, "give one of them, or rename")
        loaded.append(plugin)
    return Plugins(tuple(loaded))


class _Loader:
    """One file on its way to a Plugin."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = Where(option=f"--plugin {path.name}")

    def refusal(self, what: str, why: str, hint: str = _GUIDE) -> EmitcError:
        return EmitcError(what, self.where, why, hint)

    def wrong(self, does: str, why: str, hint: str = _GUIDE) -> EmitcError:
        """An error about the plugin. does: what is wrong, as a sentence of which the plugin is the subject."""
        return self.refusal(f"the plugin {self.path.name} {does}", why, hint)

    def read(self, path: Path) -> bytes:
        """The bytes of a file; refused where it is none, or too large."""
        try:
            if not path.is_file():
                raise self.refusal(f"{path.name} cannot be read", "there is no such file", "check the path")
            if path.stat().st_size > _MAX_BYTES:
                raise self.refusal(f"{path.name} is too large", f"the limit is {_MAX_BYTES} bytes", "check the path")
            return path.read_bytes()
        except OSError as error:
            raise self.refusal(f"{path.name} cannot be read", error.strerror or str(error), "check the path") from error

    def plugin(self) -> Plugin:
        """Reads, runs and checks the file."""
        if self.path.suffix != ".py":
            raise self.refusal(f"{self.path.name} is no plugin", "a plugin is a Python file", "give a .py file")
        source = self.read(self.path)
        digest = hashlib.sha256(source).hexdigest()
        module = self.executed(source, digest)
        kernels = self.kernels(module)
        templates, file = self.templates(module)
        names = frozenset(name for name, _ in templates)
        guarded = tuple(self.guarded(kernel, names) for kernel in kernels)
        for kernel in guarded:
            kernel.op.definition = kernel
        return Plugin(self.path.name, digest, guarded, templates, file)

    def executed(self, source: bytes, digest: str) -> ModuleType:
        """The module that the file makes. It is in sys.modules while it runs only, where dataclasses look for it."""
        module = ModuleType(f"emitc_plugin_{digest[:16]}")
        module.__file__ = str(self.path)
        before = sys.modules.get(module.__name__)
        sys.modules[module.__name__] = module
        try:
            with _staying():
                exec(compile(source, str(self.path), "exec"), module.__dict__)
        except (Exception, SystemExit) as error:
            raise self.wrong("does not load", self.reason(error), f"correct the file; {_GUIDE}") from error
        finally:
            del sys.modules[module.__name__]
            if before is not None:
                sys.modules[module.__name__] = before
        return module

    def reason(self, error: BaseException) -> str:
        """What was raised, and the last line of the plugin's own that led there."""
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(self.path)]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        return f"{type(error).__name__}: {text}" + (f" (line {line})" if line else "")

    def kernels(self, module: ModuleType) -> tuple[KernelDef, ...]:
        single, several = getattr(module, "KERNEL", None), getattr(module, "KERNELS", None)
        if (single is None) == (several is None):
            does = "exports no operator" if single is None else "exports both KERNEL and KERNELS"
            raise self.wrong(does, "an operator is a KernelDef under the name KERNEL, several are a tuple KERNELS")
        kernels = (single,) if several is None else tuple(several) if isinstance(several, tuple | list) else (several,)
        if not kernels:
            raise self.wrong("exports no operator", "KERNELS is empty")
        for kernel in kernels:
            if not isinstance(kernel, KernelDef):
                why = f"a KernelDef is expected, not {type(kernel).__name__}"
                raise self.wrong("exports something else than operators", why)
            self.check(kernel, module)
        classes = [kernel.op for kernel in kernels]
        if len(set(classes)) < len(classes):
            raise self.wrong("has two operators of one class", "each KernelDef has a class of its own")
        names = [name for kernel in kernels for name in (*kernel.tflite, *kernel.onnx)]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise self.wrong(f"defines {twice} twice", "a name stands for one operator")
        return kernels

    def check(self, kernel: KernelDef, module: ModuleType) -> None:
        """Refuses a definition that could not be found in a model, or that stands for what exists."""
        op = kernel.op
        if not (isinstance(op, type) and issubclass(op, Op) and op.__module__ == module.__name__):
            why = f"{getattr(op, '__name__', op)} comes from elsewhere: by its class an operator's definition is found"
            hint = "derive a frozen dataclass from emitc.ir.Op in the file"
            raise self.wrong("defines no operator class of its own", why, hint)
        names = (*kernel.tflite, *kernel.onnx)
        if not names or not all(isinstance(name, str) and name for name in names):
            why = "tflite or onnx must say what the operator is called in models, as text"
            raise self.wrong(
                f"gives {op.__name__} no name", why, 'write tflite=("CUSTOM:Name",) or onnx=("domain.Name",)'
            )
        for source_format in _FORMATS:
            for name in _names(kernel, source_format):
                if kernel.parser(source_format, name) is None:
                    why = f"it has the name for {source_format}, but no function from_{source_format}"
                    raise self.wrong(f"cannot parse {name}", why)
                dense = source_format == "tflite" and name in FOLDED | DECODED
                if dense or name in registry_of(source_format):
                    why = "emitc compiles this operator by itself, and a plugin does not replace it"
                    hint = "give the operator another name in the model, or leave the plugin out"
                    raise self.wrong(f"defines {name}, which exists already", why, hint)
        for name in kernel.tflite:
            if not (name.startswith("CUSTOM:") and len(name) > len("CUSTOM:")) and not name.isupper():
                why = "a custom operator is CUSTOM: and its custom code, any other has the schema's name"
                hint = f'write tflite=("CUSTOM:{name}",)'
                raise self.wrong(f"names {name}, which is no operator of TFLite", why, hint)

    def templates(self, module: ModuleType) -> tuple[tuple[tuple[str, str], ...], tuple[str, str]]:
        own = getattr(module, "TEMPLATES", None)
        file = ("", "")
        if own is None:
            template_file = self.path.with_name(self.path.stem + _SUFFIX)
            if not template_file.exists():
                return (), file
            data = self.read(template_file)
            try:
                own = {self.path.stem: data.decode("ascii")}
            except UnicodeDecodeError as error:
                raise self.refusal(f"{template_file.name} is no template", "C sources of emitc are ASCII") from error
            file = template_file.name, hashlib.sha256(data).hexdigest()
        if not isinstance(own, Mapping) or not all(isinstance(t, str) for pair in own.items() for t in pair):
            what = f"TEMPLATES of the plugin {self.path.name} is no dictionary of texts"
            raise self.refusal(what, "it maps names to templates")
        for name, text in own.items():
            taken = name in {path.rpartition("/")[2] for path in template_paths()}
            if taken or not _NAME.fullmatch(name):
                why = "emitc has one of this name" if taken else "a name is lower case and part of C names"
                hint = "rename it" if file == ("", "") else "rename the plugin's file, or use TEMPLATES"
                raise self.wrong(f"has a template called {name}", why, hint)
            problem = template_problem(name, text)
            if problem:
                raise self.refusal(f"the template {name} of the plugin {self.path.name} is wrong", problem)
        return tuple(own.items()), file

    # ---- use ----

    def guarded(self, kernel: KernelDef, templates: frozenset[str]) -> KernelDef:
        """The definition, with what its functions raise or return wrongly as errors that name the plugin."""

        def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
            results = kernel.reference(bound, inputs)
            stated = [(getattr(r, "shape", None), str(getattr(r, "dtype", type(r).__name__))) for r in results]
            wanted = [(t.shape, t.dtype.value) for t in bound.outputs]
            if stated != wanted:
                raise TypeError(f"it gives {stated}, but the outputs are {wanted}")
            return results

        def lower(bound: BoundNode) -> Layer:
            return self.printable(kernel.lower(bound), templates)

        def parsers(source_format: str) -> Mapping[str, Parser]:
            def checked(node: Any) -> Parsed:
                parse = kernel.parser(source_format, node.kind or node.op_type)
                assert parse is not None
                parsed = parse(node)
                if not isinstance(parsed, Parsed) or type(parsed.op) is not kernel.op:
                    raise TypeError(f"it gives no Parsed with a {kernel.op.__name__}")
                return parsed

            guarded = self.guard(checked, "the parser", lambda node: node.where())
            return dict.fromkeys(_names(kernel, source_format), guarded)

        def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
            shapes = kernel.output_shapes(bound)
            if not isinstance(shapes, tuple) or not all(isinstance(shape, tuple) for shape in shapes):
                raise TypeError(f"it gives {shapes!r}, not a tuple of shapes")
            return tuple(tuple(int(size) for size in shape) for shape in shapes)

        transposed = kernel.transposed
        return replace(
            kernel,
            tflite=parsers("tflite"),
            onnx=parsers("onnx"),
            check=self.guard(kernel.check, "check", _at),
            output_shapes=self.guard(output_shapes, "output_shapes", _at),
            reference=self.guard(reference, "reference", _at),
            lower=self.guard(lower, "lower", _at),
            work=self.guard(kernel.work, "work", _at),
            variants=tuple(self.guarded_variant(row, templates) for row in kernel.variants),
            transposed=transposed and self.guard(transposed, "transposed", _at),
        )

    def guarded_variant(self, row: Variant, templates: frozenset[str]) -> Variant:
        """The same of a variant."""

        def make(bound: BoundNode) -> Layer | str:
            layer = row.make(bound)
            return layer if isinstance(layer, str) else self.printable(row.named(layer), templates)

        what = f"the variant {row.name}"
        conditions = tuple(self.guard(condition, f"a condition of {what}", _at) for condition in row.applies)
        return replace(row, make=self.guard(make, what, _at), applies=conditions)

    def printable(self, layer: Layer, templates: frozenset[str]) -> Layer:
        """The layer; refused where it is none that a template prints."""
        if not isinstance(layer, Layer):
            raise TypeError(f"it gives {type(layer).__name__}, not a Layer")
        if layer.template not in {*templates, *template_paths()}:
            known = ", ".join(sorted(templates)) or "none"
            raise LookupError(f"there is no template {layer.template}; the plugin has {known}")
        if layer.template not in templates and takes_formula(layer.template) != (layer.formula is not None):
            raise TypeError(f"the template {layer.template} {'takes no' if layer.formula else 'needs a'} formula")
        return layer

    def guard(self, function: Callable[..., Any], name: str, place: Callable[..., Where]) -> Callable[..., Any]:
        """The function, with every exception but an EmitcError as one."""

        def guarded(*arguments: Any) -> Any:
            try:
                with _staying():
                    return function(*arguments)
            except EmitcError:
                raise
            except (Exception, SystemExit) as error:
                where = replace(place(*arguments), option=self.where.option)
                what = f"the plugin {self.path.name} fails in {name}"
                raise EmitcError(what, where, self.reason(error), f"correct it; {_GUIDE}") from error

        return guarded
