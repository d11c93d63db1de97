"""Every status that init, run and reset can return, provoked; and the version handshake at build and at run time."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi
import pytest

from emitc.compiler import compile_model
from emitc.emit.package import runtime_files
from emitc.emit.render import RUNTIME_VERSION
from emitc.verify.build import build_shared

HEADER = runtime_files()["emitc_runtime.h"].read_text(encoding="ascii")
STATUS = {name: int(value) for name, value in re.findall(r"^    (EMITC_[A-Z_]+) = (\d+)", HEADER, re.M)}
DECLARATIONS = """
typedef struct { unsigned char *arena; void *state; uint32_t ready; } spotter_t;
int spotter_init(spotter_t *self, void *arena, size_t arena_bytes, void *state, size_t state_bytes);
int spotter_run(spotter_t *self);
int spotter_reset(spotter_t *self);
int8_t *spotter_input_0(spotter_t *self);
const int8_t *spotter_output_0(const spotter_t *self);
const char *emitc_status_string(int status);
uint32_t emitc_runtime_version(void);
"""


@dataclass(frozen=True, slots=True)
class Library:
    """The spotter as a shared library, and memory for its arena: aligned, with a byte to spare."""

    ffi: cffi.FFI
    lib: Any
    arena_bytes: int
    memory: Any
    arena: Any

    def init(self, model: Any, arena: Any = None, size: int | None = None) -> int:
        """spotter_init on the memory of this library, unless told otherwise."""
        status: int = self.lib.spotter_init(
            model, self.arena if arena is None else arena, self.arena_bytes if size is None else size, self.ffi.NULL, 0
        )
        return status


def load(path: Path, arena_bytes: int) -> Library:
    """The library at `path`."""
    ffi = cffi.FFI()
    ffi.cdef(DECLARATIONS)
    memory = ffi.new("unsigned char[]", arena_bytes + 64)
    base = int(ffi.cast("uintptr_t", memory))
    arena = ffi.cast("void *", base + (-base) % 16)
    return Library(ffi, ffi.dlopen(str(path)), arena_bytes, memory, arena)


@pytest.fixture(scope="module")
def package(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("status") / "package"
    compile_model(tiny / "spotter.tflite").write(folder)
    return folder


@pytest.fixture(scope="module")
def arena_bytes(package: Path) -> int:
    found = re.search(r"SPOTTER_ARENA_BYTES (\d+)u", (package / "spotter.h").read_text(encoding="ascii"))
    assert found
    return int(found[1])


@pytest.fixture(scope="module")
def library(package: Path, arena_bytes: int, tmp_path_factory: pytest.TempPathFactory) -> Library:
    return load(build_shared(package, tmp_path_factory.mktemp("status"), trace=False), arena_bytes)


def test_the_good_path(library: Library) -> None:
    model = library.ffi.new("spotter_t *")
    assert library.init(model) == STATUS["EMITC_OK"]
    assert library.lib.spotter_reset(model) == STATUS["EMITC_OK"]
    assert library.lib.spotter_run(model) == STATUS["EMITC_OK"]
    assert library.init(model, size=library.arena_bytes + 7) == STATUS["EMITC_OK"]


def test_null_self(library: Library) -> None:
    null = library.ffi.NULL
    assert library.init(null) == STATUS["EMITC_INVALID_ARGUMENT"]
    assert library.lib.spotter_run(null) == STATUS["EMITC_NOT_READY"]
    assert library.lib.spotter_reset(null) == STATUS["EMITC_NOT_READY"]


def test_null_arena(library: Library) -> None:
    model = library.ffi.new("spotter_t *")
    assert library.init(model, arena=library.ffi.NULL) == STATUS["EMITC_INVALID_ARGUMENT"]
    assert library.lib.spotter_run(model) == STATUS["EMITC_NOT_READY"]


@pytest.mark.parametrize("missing", [1, 16, 10**9])
def test_arena_too_small(library: Library, missing: int) -> None:
    model = library.ffi.new("spotter_t *")
    size = max(library.arena_bytes - missing, 0)
    assert library.init(model, size=size) == STATUS["EMITC_ARENA_TOO_SMALL"]
    assert library.lib.spotter_run(model) == STATUS["EMITC_NOT_READY"]


@pytest.mark.parametrize("by", [1, 2, 4, 8, 15])
def test_misaligned_arena(library: Library, by: int) -> None:
    model = library.ffi.new("spotter_t *")
    arena = library.ffi.cast("unsigned char *", library.arena) + by
    assert library.init(model, arena=arena) == STATUS["EMITC_MISALIGNED"]
    assert library.lib.spotter_run(model) == STATUS["EMITC_NOT_READY"]


def test_misaligned_state(library: Library) -> None:
    model = library.ffi.new("spotter_t *")
    state = library.ffi.cast("unsigned char *", library.arena) + 1
    status = library.lib.spotter_init(model, library.arena, library.arena_bytes, state, 0)
    assert status == STATUS["EMITC_MISALIGNED"]


def test_run_and_reset_before_init(library: Library) -> None:
    model = library.ffi.new("spotter_t *")
    assert library.lib.spotter_run(model) == STATUS["EMITC_NOT_READY"]
    assert library.lib.spotter_reset(model) == STATUS["EMITC_NOT_READY"]


def test_memory_that_was_never_set_is_not_ready(library: Library) -> None:
    model = library.ffi.new("spotter_t *")
    for pattern in (0xFF, 0xA5, 0x01):
        library.ffi.memmove(model, bytes([pattern]) * library.ffi.sizeof("spotter_t"), library.ffi.sizeof("spotter_t"))
        assert library.lib.spotter_run(model) == STATUS["EMITC_NOT_READY"]


def test_a_failed_init_takes_readiness_away(library: Library) -> None:
    model = library.ffi.new("spotter_t *")
    assert library.init(model) == STATUS["EMITC_OK"]
    assert library.init(model, size=0) == STATUS["EMITC_ARENA_TOO_SMALL"]
    assert library.lib.spotter_run(model) == STATUS["EMITC_NOT_READY"]
    assert library.lib.spotter_reset(model) == STATUS["EMITC_NOT_READY"]


def test_a_runtime_of_another_version_is_refused_at_run_time(package: Path, arena_bytes: int, tmp_path: Path) -> None:
    """emitc_runtime.c of another version than the header that the model was built with: stale objects in a build."""
    other = tmp_path / "other"
    other.mkdir()
    replaced = HEADER.replace(
        f"EMITC_RUNTIME_VERSION {RUNTIME_VERSION}", f"EMITC_RUNTIME_VERSION {RUNTIME_VERSION + 1}"
    )
    assert replaced != HEADER
    (other / "emitc_runtime.h").write_text(replaced, encoding="ascii")
    (other / "emitc_runtime.c").write_text((package / "emitc_runtime.c").read_text(encoding="ascii"), encoding="ascii")
    shared = ["gcc", "-std=c11", "-fPIC", "-shared", "-o", "mixed.so"]
    subprocess.run(["gcc", "-std=c11", "-fPIC", "-c", "other/emitc_runtime.c"], check=True, cwd=tmp_path)
    subprocess.run([*shared, "emitc_runtime.o", str(package / "spotter.c")], check=True, cwd=tmp_path)
    mixed = load(tmp_path / "mixed.so", arena_bytes)
    assert mixed.lib.emitc_runtime_version() == RUNTIME_VERSION + 1
    model = mixed.ffi.new("spotter_t *")
    assert mixed.init(model) == STATUS["EMITC_VERSION_MISMATCH"]
    assert mixed.lib.spotter_run(model) == STATUS["EMITC_NOT_READY"]


def test_a_header_of_another_version_stops_the_build(package: Path, tmp_path: Path) -> None:
    replaced = HEADER.replace(f"EMITC_RUNTIME_VERSION {RUNTIME_VERSION}", "EMITC_RUNTIME_VERSION 999")
    for name in ("spotter.c", "spotter.h", "emitc_bits.h"):
        (tmp_path / name).write_text((package / name).read_text(encoding="ascii"), encoding="ascii")
    (tmp_path / "emitc_runtime.h").write_text(replaced, encoding="ascii")
    done = subprocess.run(
        ["gcc", "-std=c11", "-fsyntax-only", "spotter.c"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode != 0
    assert (
        f'#error "spotter.c was generated for emitc runtime version {RUNTIME_VERSION}: take emitc_runtime.h and'
        ' emitc_runtime.c of the emitc that generated it"' in done.stderr
    )


def test_every_status_has_a_text_of_its_own(library: Library) -> None:
    assert list(STATUS.values()) == list(range(len(STATUS)))
    texts = [library.ffi.string(library.lib.emitc_status_string(value)).decode() for value in STATUS.values()]
    assert len(set(texts)) == len(STATUS)
    assert texts[STATUS["EMITC_OK"]] == "ok"
    assert "unknown status" not in texts


@pytest.mark.parametrize("value", [-1, len(STATUS), 1000, 2**31 - 1, -(2**31)])
def test_the_text_of_no_status_is_unknown(library: Library, value: int) -> None:
    assert library.ffi.string(library.lib.emitc_status_string(value)) == b"unknown status"


def test_compiler_and_runtime_agree_on_the_version() -> None:
    found = re.search(r"#define EMITC_RUNTIME_VERSION (\d+)", HEADER)
    assert found and int(found[1]) == RUNTIME_VERSION
