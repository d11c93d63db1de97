"""A package that is a module of Zephyr."""

from emitc.emit.package_kinds.kind import Content

_FILES = {
    "zephyr/CMakeLists.txt": "zephyr.cmake",
    "zephyr/Kconfig": "Kconfig",
    "zephyr/module.yml": "module.yml",
}
_SAMPLE = {
    "samples/check/CMakeLists.txt": "sample.cmake",
    "samples/check/prj.conf": "sample.conf",
    "samples/check/sample.yaml": "sample.yaml",
    "samples/check/src/main.c": "check.c",
}
"""The template of each file, of the module and of its sample."""
_OTHERS_RAM, _OTHERS_FLASH = 16 << 10, 48 << 10
"""Bytes that are allowed for everything but the model: Zephyr's kernel, its console and the stacks, about."""


def files(content: Content) -> dict[str, str]:
    """The module's description, its option, how CMake compiles it, and a sample that twister can run."""
    texts = {path: content.render(template) for path, template in _FILES.items()}
    if not content.example:
        return texts
    program = content.program
    (run,) = content.example
    stored = sum(len(tensor.data) for tensor in (*run.inputs, *run.outputs))
    ram = program.plan.arena_bytes + program.state_bytes + _OTHERS_RAM
    flash = program.constant_bytes + stored + _OTHERS_FLASH
    sizes = {"min_ram": -(-ram // 1024), "min_flash": -(-flash // 1024)}
    texts |= {path: content.render(template, **sizes) for path, template in _SAMPLE.items()}
    return texts | content.check_header("samples/check/src")
