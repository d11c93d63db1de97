"""A package that is a library of Arduino, in the format with sources in `src`."""

from emitc.emit.package_kinds.kind import Content

_EXAMPLE = "examples/check"
_LONGEST = 63
"""Characters of a library's name, by Arduino's library specification."""


def library_name(name: str) -> str:
    """The model's name as that of a library: only Arduino's own libraries may have a name that starts with "Arduino".

    >>> library_name("kws"), library_name("Arduino_kws")
    ('kws', 'emitc_Arduino_kws')
    """
    return f"emitc_{name}"[:_LONGEST] if name.lower().startswith("arduino") else name


def files(content: Content) -> dict[str, str]:
    """`library.properties`, `keywords.txt`, and a sketch."""
    texts = {
        "library.properties": content.render("library.properties", library=library_name(content.program.name)),
        "keywords.txt": content.render("keywords.txt"),
    }
    example = content.check_header(_EXAMPLE)
    if example:
        example[f"{_EXAMPLE}/check.ino"] = content.render("check.ino")
    return texts | example
