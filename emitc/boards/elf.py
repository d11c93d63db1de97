"""Sizes and addresses from a firmware ELF.

On the QEMU boards `.text` and `.rodata` hold only the model, the emitc runtime and what both need of libgcc and libc. The
linker script keeps the code of the board and of the application out of them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from emitc.records import dataclass

CASES_SECTION = ".cases"


@dataclass(frozen=True, slots=True)
class ImageSizes:
    """Bytes of an image. flash: everything that is loaded, test cases included. ram: static data, without the stack.

    code, constant, data: of the model, the emitc runtime and their library routines. cases: the proof's test cases.
    """

    flash_bytes: int
    ram_bytes: int
    code_bytes: int
    constant_bytes: int
    data_bytes: int
    cases_bytes: int

    @property
    def model_flash_bytes(self) -> int:
        """What the model itself puts into flash."""
        return self.code_bytes + self.constant_bytes + self.data_bytes


def image_sizes(path: Path) -> ImageSizes:
    """The sizes of the image at `path`, from its section table."""
    flash = ram = 0
    named: dict[str, int] = {}
    with path.open("rb") as file:
        for section in ELFFile(file).iter_sections():
            flags, size = section["sh_flags"], section["sh_size"]
            if not flags & SH_FLAGS.SHF_ALLOC or section.name == ".tbss":
                continue
            named[section.name] = size
            if section["sh_type"] != "SHT_NOBITS":
                flash += size
            if flags & SH_FLAGS.SHF_WRITE:
                ram += size
    return ImageSizes(
        flash_bytes=flash,
        ram_bytes=ram,
        code_bytes=named.get(".text", 0),
        constant_bytes=named.get(".rodata", 0),
        data_bytes=named.get(".data", 0),
        cases_bytes=named.get(CASES_SECTION, 0),
    )


def addresses(path: Path, names: tuple[str, ...]) -> dict[str, int]:
    """Addresses of those of the symbols that the image has; Thumb's mark in bit 0 is taken off."""
    return {symbol.name: symbol["st_value"] & ~1 for symbol in _symbols(path) if symbol.name in names}


def _symbols(path: Path) -> list[Any]:
    with path.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        return list(table.iter_symbols()) if isinstance(table, SymbolTableSection) else []


def loaded(path: Path, base: int, size_bytes: int) -> bytes:
    """What is loaded at [base, base + size_bytes), up to the last byte that is; gaps are zero."""
    image = bytearray()
    with path.open("rb") as file:
        for segment in ELFFile(file).iter_segments("PT_LOAD"):
            at = segment["p_paddr"] - base
            if segment["p_filesz"] and 0 <= at <= size_bytes - segment["p_filesz"]:
                image += bytes(max(0, at + segment["p_filesz"] - len(image)))
                image[at : at + segment["p_filesz"]] = segment.data()
    return bytes(image)


def functions(path: Path) -> dict[int, str]:
    """The image's functions by address. Address 0 stands for code of none."""
    known = {s["st_value"]: s.name for s in _symbols(path) if s["st_info"]["type"] == "STT_FUNC"}
    return {0: "(no function)"} | known


def symbol_bytes(path: Path, wanted: Callable[[str], bool]) -> dict[str, int]:
    """Sizes of the image's functions and objects, by name, where `wanted` says so of the name."""
    own = (s for s in _symbols(path) if s["st_info"]["type"] in ("STT_FUNC", "STT_OBJECT"))
    return {symbol.name: symbol["st_size"] for symbol in own if wanted(symbol.name)}
