"""Packages for the build systems and frameworks of C and C++."""

import json
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

from emitc.emit.licence import with_model
from emitc.emit.package_kinds.kind import Content
from emitc.emit.wrap import wrapped

VENDOR = "emitc"
"""Of CMSIS-Packs."""
ESPHOME_FOLDER = "components/emitc_{name}"
_EXAMPLE, _SAMPLE = "examples/check", "samples/check"
_LONGEST = 63
"""Characters of a library's name, by Arduino's library specification."""
_COMPONENTS = {"cmsis-nn": ("CMSIS", "NN Lib")}
"""Class and group of a CMSIS-Pack's component of a library, by the name of its CMake target."""
_LIBRARIES = "libraries.py"
_OTHERS_RAM, _OTHERS_FLASH = 16 << 10, 48 << 10
"""Bytes that are allowed for everything but the model: Zephyr's kernel, its console and the stacks, about."""


def _of_templates(
    texts: Mapping[str, str], folder: str, example: Mapping[str, str]
) -> Callable[[Content], dict[str, str]]:
    """Files that are templates alone: those of any model, and those of its example, as `Content.checked` has them."""
    return lambda content: content.rendered(texts) | content.checked(folder, example)


cmake = _of_templates(
    {"CMakeLists.txt": "CMakeLists.txt"},
    _EXAMPLE,
    {f"{_EXAMPLE}/main.c": "check.c", f"{_EXAMPLE}/CMakeLists.txt": "check.cmake"},
)
"""`CMakeLists.txt`, and a project with a program that uses it."""
esp_idf = _of_templates(
    {
        "CMakeLists.txt": "esp_idf/component.cmake",
        "idf_component.yml": "esp_idf/idf_component.yml",
        "Kconfig": "esp_idf/Kconfig",
        "README.md": "esp_idf/README.md",
    },
    f"{_EXAMPLE}/main",
    {
        f"{_EXAMPLE}/CMakeLists.txt": "esp_idf/check_project.cmake",
        f"{_EXAMPLE}/sdkconfig.defaults": "esp_idf/sdkconfig.defaults",
        f"{_EXAMPLE}/main/CMakeLists.txt": "esp_idf/check_main.cmake",
        f"{_EXAMPLE}/main/idf_component.yml": "esp_idf/check_component.yml",
        f"{_EXAMPLE}/main/main.c": "esp_idf/check_main.c",
    },
)
"""What ESP-IDF's build reads, the manifest for its package manager, and a project that runs the model once."""


def library_name(name: str) -> str:
    """The model's name as that of a library: only Arduino's own libraries may have a name that starts with "Arduino".

    >>> library_name("kws"), library_name("Arduino_kws")
    ('kws', 'emitc_Arduino_kws')
    """
    return f"emitc_{name}"[:_LONGEST] if name.lower().startswith("arduino") else name


def arduino(content: Content) -> dict[str, str]:
    """`library.properties` and `keywords.txt` of Arduino's format with sources in `src`, and a sketch."""
    templates = {name: name for name in ("library.properties", "keywords.txt")}
    texts = content.rendered(templates, library=library_name(content.program.name))
    return texts | content.checked(_EXAMPLE, {f"{_EXAMPLE}/check.ino": "check.ino"})


def zephyr(content: Content) -> dict[str, str]:
    """The module's description, its option, how CMake compiles it, and a sample that twister can run."""
    program = content.program
    stored = sum(len(tensor.data) for run in content.example for tensor in (*run.inputs, *run.outputs))
    ram = program.plan.arena_bytes + program.state_bytes + _OTHERS_RAM
    flash = program.constant_bytes + stored + _OTHERS_FLASH
    sample = {
        f"{_SAMPLE}/CMakeLists.txt": "sample.cmake",
        f"{_SAMPLE}/prj.conf": "sample.conf",
        f"{_SAMPLE}/sample.yaml": "sample.yaml",
        f"{_SAMPLE}/src/main.c": "check.c",
    }
    texts = {"CMakeLists.txt": "zephyr.cmake", "Kconfig": "Kconfig", "module.yml": "module.yml"}
    return content.rendered({f"zephyr/{path}": template for path, template in texts.items()}) | content.checked(
        f"{_SAMPLE}/src", sample, min_ram=-(-ram // 1024), min_flash=-(-flash // 1024)
    )


def cmsis_pack(content: Content) -> dict[str, str]:
    """The description of a CMSIS-Pack, a layer for csolution projects, and a program as a template of user code."""
    name = content.program.name
    example = content.checked(_EXAMPLE, {f"{_EXAMPLE}/main.c": "check.c"})
    paths = (*content.headers, *content.sources)
    # The runtime and the files of backends are the same for several models.
    own = [path for path in paths if PurePosixPath(path).stem in (name, f"{name}_weights")]
    templates = {f"{VENDOR}.{name}.pdsc": "pack.pdsc", f"layer/{name}.clayer.yml": "clayer.yml"}
    return example | content.rendered(
        templates,
        vendor=VENDOR,
        own=own,
        shared=[path for path in paths if path not in own],
        needed=[_COMPONENTS[r.cmake] for r in content.program.requirements if r.cmake in _COMPONENTS],
        templates=sorted(example),
    )


def platformio(content: Content) -> dict[str, str]:
    """`library.json`, an example, and a script where the model calls functions of other libraries."""
    program = content.program
    build: dict[str, Any] = {"includeDir": "include", "srcDir": "src", "flags": [content.optimize]}
    included = ["include", "src", "library.json", "manifest.json"]
    calls_libraries = any(requirement.sources for requirement in program.requirements)
    if calls_libraries:
        build["extraScript"] = _LIBRARIES
        included.append(_LIBRARIES)
    library: dict[str, Any] = {
        "name": program.name,
        "version": "0.1.0",
        "description": f"Neural network {program.name}, generated by emitc {program.origin.version}",
        "license": with_model(program.extras.model_licence),
        "frameworks": "*",
        "platforms": "*",
        "headers": f"{program.name}.h",
        "export": {"include": included},
        "build": build,
    }
    example = content.checked(_EXAMPLE, {f"{_EXAMPLE}/main.cpp": "check_platformio.cpp"})
    if example:
        names = [path.rpartition("/")[2] for path in sorted(example)]
        library["examples"] = [{"name": "check", "base": _EXAMPLE, "files": names}]
        included.append("examples")
    texts = content.rendered({_LIBRARIES: _LIBRARIES} if calls_libraries else {})
    return {"library.json": json.dumps(library, indent=2) + "\n"} | texts | example


def esphome(content: Content) -> dict[str, str]:
    """The external component in Python and C++, and a configuration that uses it.

    The stored run is a C++ file, not a header: ESPHome includes every header of a component in the program's main file.
    """
    name = content.program.name
    folder = ESPHOME_FOLDER.format(name=name)
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
