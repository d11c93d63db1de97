"""A package that is an external component of ESPHome."""

from emitc.emit.package_kinds.kind import Content
from emitc.emit.wrap import wrapped

FOLDER = "components/emitc_{name}"


def files(content: Content) -> dict[str, str]:
    """The component in Python and C++, and a configuration that uses it.

    The stored run is a C++ file, not a header: ESPHome includes every header of a component in the program's main file.
    """
    name = content.program.name
    folder = FOLDER.format(name=name)
    sources = [path.rpartition("/")[2] for path in content.sources]
    shared = [source for source in sources if source not in (f"{name}.c", f"{name}_weights.c")]
    texts = {
        f"{folder}/__init__.py": content.render("esphome.py", shared=shared),
        f"{folder}/{name}_component.h": content.render("esphome.h"),
        f"{folder}/{name}_component.cpp": wrapped(content.render("esphome.cpp")),
        "example.yaml": content.render("esphome.yaml"),
    }
    if content.example:
        texts[f"{folder}/{name}_check.cpp"] = wrapped(content.render("esphome_check.cpp"))
    return texts
