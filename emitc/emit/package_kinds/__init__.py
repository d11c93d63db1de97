"""The kinds of package that `--package` makes, a row for each: where C files lie, and the files of the build system."""

from emitc.emit.package_kinds import build_systems, languages
from emitc.emit.package_kinds.build_systems import ESPHOME_FOLDER
from emitc.emit.package_kinds.kind import Content, PackageKind
from emitc.emit.package_kinds.languages import FOLDER, require_one_arena

KINDS: dict[str, PackageKind] = {
    "plain": PackageKind("", ""),
    "cmake": PackageKind("include", "src", build_systems.cmake, has_example=True),
    "platformio": PackageKind("include", "src", build_systems.platformio, has_example=True),
    "arduino": PackageKind("src", "src", build_systems.arduino, has_example=True),
    "zephyr": PackageKind("include", "src", build_systems.zephyr, has_example=True),
    "cmsis-pack": PackageKind("include", "src", build_systems.cmsis_pack, has_example=True),
    "esphome": PackageKind(ESPHOME_FOLDER, ESPHOME_FOLDER, build_systems.esphome, has_example=True),
    "rust": PackageKind(FOLDER, FOLDER, languages.rust, require=require_one_arena, sequence=True),
    "zig": PackageKind(FOLDER, FOLDER, languages.zig, require=require_one_arena, sequence=True, weights=False),
    "micropython": PackageKind(
        FOLDER, FOLDER, languages.micropython, require=require_one_arena, sequence=True, weights=False
    ),
    "esp-idf": PackageKind("include", "src", build_systems.esp_idf, has_example=True),
}
"""Every kind by the word of the command line."""

__all__ = ["KINDS", "Content", "PackageKind"]
