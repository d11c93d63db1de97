"""A package that CMake adds to a project by `add_subdirectory`."""

from emitc.emit.package_kinds.kind import Content


def files(content: Content) -> dict[str, str]:
    """`CMakeLists.txt`."""
    return {"CMakeLists.txt": content.render("CMakeLists.txt")}
