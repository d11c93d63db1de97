"""A package that is a module of Zephyr."""

from emitc.emit.package_kinds.kind import Content

_FILES = {
    "zephyr/CMakeLists.txt": "zephyr.cmake",
    "zephyr/Kconfig": "Kconfig",
    "zephyr/module.yml": "module.yml",
}
"""The template of each file."""


def files(content: Content) -> dict[str, str]:
    """The module's description, its option, and how CMake compiles it."""
    return {path: content.render(template) for path, template in _FILES.items()}
