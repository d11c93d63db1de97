"""A package that is a component of ESP-IDF, Espressif's framework."""

from emitc.emit.package_kinds.kind import Content

_FILES = {
    "CMakeLists.txt": "component.cmake",
    "idf_component.yml": "idf_component.yml",
    "Kconfig": "Kconfig",
    "README.md": "README.md",
}
_EXAMPLE = "examples/check"
_PROJECT = {
    f"{_EXAMPLE}/CMakeLists.txt": "check_project.cmake",
    f"{_EXAMPLE}/sdkconfig.defaults": "sdkconfig.defaults",
    f"{_EXAMPLE}/main/CMakeLists.txt": "check_main.cmake",
    f"{_EXAMPLE}/main/idf_component.yml": "check_component.yml",
    f"{_EXAMPLE}/main/main.c": "check_main.c",
}
"""The template of each file, of the component and of its example's project."""


def files(content: Content) -> dict[str, str]:
    """What ESP-IDF's build reads, the manifest for its package manager, and a project that runs the model once."""
    example = content.check_header(f"{_EXAMPLE}/main")
    templates = _FILES | (_PROJECT if example else {})
    return {path: content.render(f"esp_idf/{template}") for path, template in templates.items()} | example
