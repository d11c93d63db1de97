"""What a kind of package states, and what its files are made from."""

from collections.abc import Callable
from dataclasses import dataclass

from emitc.emit.render import environment
from emitc.program import Program


@dataclass(frozen=True, slots=True)
class Content:
    """What the files of a build system are made from.

    optimize: `-O2` or `-Os`. units: C files of backends without their ending, which several models share.
    uses_math: the model's C calls the library of <math.h>.
    """

    program: Program
    optimize: str
    units: tuple[str, ...]
    uses_math: bool

    def render(self, template: str) -> str:
        """The text of a template of the folder `package`, which reads `p`, `optimize`, `units` and `uses_math`."""
        values = {"p": self.program, "optimize": self.optimize, "units": self.units, "uses_math": self.uses_math}
        return environment().get_template(f"package/{template}.j2").render(values)


def _no_files(content: Content) -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class PackageKind:
    """One kind of package.

    headers, sources: folders of the files `.h` and `.c`, "" for the package's own folder.
    files: the text of what the build system reads, by path in the package.
    """

    headers: str
    sources: str
    files: Callable[[Content], dict[str, str]] = _no_files

    def path(self, name: str) -> str:
        """Where a C file lies in the package."""
        folder = self.headers if name.endswith((".h", ".hpp")) else self.sources
        return f"{folder}/{name}" if folder else name
