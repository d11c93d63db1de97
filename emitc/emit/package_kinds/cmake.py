"""A package that CMake adds to a project by `add_subdirectory`."""

from emitc.emit.package_kinds.kind import Content

_EXAMPLE = "examples/check"


def files(content: Content) -> dict[str, str]:
    """`CMakeLists.txt`, and a project with a program that uses it."""
    example = content.check_header(_EXAMPLE)
    if example:
        example[f"{_EXAMPLE}/main.c"] = content.render("check.c")
        example[f"{_EXAMPLE}/CMakeLists.txt"] = content.render("check.cmake")
    return {"CMakeLists.txt": content.render("CMakeLists.txt")} | example
