"""The kinds of package that `--package` makes, a row for each: where C files lie, and the files of the build system."""

from emitc.emit.package_kinds import cmake, platformio, zephyr
from emitc.emit.package_kinds.kind import Content, PackageKind

KINDS: dict[str, PackageKind] = {
    "plain": PackageKind("", ""),
    "cmake": PackageKind("include", "src", cmake.files),
    "platformio": PackageKind("include", "src", platformio.files),
    "zephyr": PackageKind("include", "src", zephyr.files),
}
"""Every kind by the word of the command line."""

__all__ = ["KINDS", "Content", "PackageKind"]
