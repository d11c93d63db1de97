"""A package that is the content of a CMSIS-Pack, with a layer for csolution projects."""

from pathlib import PurePosixPath

from emitc.emit.package_kinds.kind import Content

VENDOR = "emitc"
_EXAMPLE = "examples/check"
_COMPONENTS = {"cmsis-nn": ("CMSIS", "NN Lib")}
"""Class and group of the component of a library, by the name of its CMake target."""


def files(content: Content) -> dict[str, str]:
    """The description of the pack, the layer, and a program as a template of user code."""
    name = content.program.name
    example = content.check_header(_EXAMPLE)
    if example:
        example[f"{_EXAMPLE}/main.c"] = content.render("check.c")
    own = [path for path in (*content.headers, *content.sources) if _is_of_model(path, name)]
    shared = [path for path in (*content.headers, *content.sources) if not _is_of_model(path, name)]
    needed = [_COMPONENTS[r.cmake] for r in content.program.requirements if r.cmake in _COMPONENTS]
    values = {"vendor": VENDOR, "own": own, "shared": shared, "needed": needed, "templates": sorted(example)}
    return {
        f"{VENDOR}.{name}.pdsc": content.render("pack.pdsc", **values),
        f"layer/{name}.clayer.yml": content.render("clayer.yml", **values),
    } | example


def _is_of_model(path: str, name: str) -> bool:
    """Whether a file belongs to the model alone; the runtime and the files of backends are the same for several models."""
    return PurePosixPath(path).stem in (name, f"{name}_weights")
