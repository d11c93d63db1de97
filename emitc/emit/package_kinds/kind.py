"""What a kind of package states, and what its files are made from."""

from collections.abc import Callable, Mapping

from emitc.emit.render import environment
from emitc.emit.wrap import wrapped
from emitc.program import Program
from emitc.program.extras import ExampleRun
from emitc.records import dataclass, fields


@dataclass(frozen=True, slots=True)
class Content:
    """What the files of a build system are made from.

    optimize: `-O2` or `-Os`. units: C files of backends without their ending, which several models share.
    uses_math: the model's C calls the library of <math.h>. example: the runs that the package's example repeats, none for a
    model without one. sources, headers: paths of all C files in the package.
    """

    program: Program
    optimize: str
    units: tuple[str, ...]
    uses_math: bool
    example: tuple[ExampleRun, ...] = ()
    sources: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()

    def render(self, template: str, **more: object) -> str:
        """The text of a template of the folder `package`.

        It reads the members of this class under their names, the program as `p`, and `more`.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)} | {"p": self.program}
        return environment().get_template(f"package/{template}.j2").render(values | more)

    def rendered(self, templates: Mapping[str, str], /, **more: object) -> dict[str, str]:
        return {path: self.render(template, **more) for path, template in templates.items()}

    def checked(self, folder: str, templates: Mapping[str, str], /, **more: object) -> dict[str, str]:
        """The files of the package's example, nothing where it has none.

        They are a header in `folder` that runs the example's inputs and compares the outputs, and those of the templates.
        """
        if not self.example:
            return {}
        header = {f"{folder}/{self.program.name}_check.h": wrapped(self.render("check.h"))}
        return header | self.rendered(templates, **more)


def _any_program(program: Program, kind: str) -> None:
    """Takes every program."""


@dataclass(frozen=True, slots=True)
class PackageKind:
    """One kind of package.

    headers, sources: folders of the files `.h` and `.c`, "" for the package's own folder; `{name}` in them stands for the
    model's name. files: the text of what the build system reads, by path in the package. has_example: files among them that
    repeat a run of the model, so that one is computed. sequence: files that repeat two, whatever their values are. weights: the
    files give init external weights, or leave that to the application. require: raises EmitcError for a program that the kind
    cannot hold; it gets the word of `--package` too.
    """

    headers: str
    sources: str
    files: Callable[[Content], dict[str, str]] = lambda content: {}
    has_example: bool = False
    require: Callable[[Program, str], None] = _any_program
    sequence: bool = False
    weights: bool = True

    def path(self, name: str, model: str) -> str:
        folder = (self.headers if name.endswith((".h", ".hpp")) else self.sources).format(name=model)
        return f"{folder}/{name}" if folder else name
