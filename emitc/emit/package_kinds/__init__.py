"""The kinds of package that `--package` makes, a row for each: where C files lie, and the files of the build system."""

from emitc.emit.package_kinds import (
    arduino,
    cmake,
    cmsis_pack,
    esp_idf,
    esphome,
    micropython,
    platformio,
    rust,
    zephyr,
    zig,
)
from emitc.emit.package_kinds.kind import Content, PackageKind
from emitc.emit.package_kinds.wrapper import FOLDER, require_one_arena

KINDS: dict[str, PackageKind] = {
    "plain": PackageKind("", ""),
    "cmake": PackageKind("include", "src", cmake.files, has_example=True),
    "platformio": PackageKind("include", "src", platformio.files, has_example=True),
    "arduino": PackageKind("src", "src", arduino.files, has_example=True),
    "zephyr": PackageKind("include", "src", zephyr.files, has_example=True),
    "cmsis-pack": PackageKind("include", "src", cmsis_pack.files, has_example=True),
    "esphome": PackageKind(esphome.FOLDER, esphome.FOLDER, esphome.files, has_example=True),
    "rust": PackageKind(FOLDER, FOLDER, rust.files, require=require_one_arena, sequence=True),
    "zig": PackageKind(FOLDER, FOLDER, zig.files, require=require_one_arena, sequence=True, weights=False),
    "micropython": PackageKind(
        FOLDER, FOLDER, micropython.files, require=require_one_arena, sequence=True, weights=False
    ),
    "esp-idf": PackageKind("include", "src", esp_idf.files, has_example=True),
}
"""Every kind by the word of the command line."""

__all__ = ["KINDS", "Content", "PackageKind"]
