"""What makes two runs of one job the same: emitc's own source, Python and its packages, compilers and emulators."""

import hashlib
import importlib.metadata
import json
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from emitc._version import __version__
from emitc.boards.run import emulator
from emitc.errors import EmitcError
from emitc.target import boards_dir, load_board, load_target
from emitc.verify.build import compiler_command

_ALWAYS = ("numpy", "onnx", "flatbuffers", "tflite", "jinja2")
_ENGINES = ("tflite-micro", "ai-edge-litert", "onnxruntime")
_BOARDS = ("platformio",)
_SECONDS = 20
_SUFFIXES = (".py", ".j2", ".c", ".h", ".toml", ".json", ".S")


@cache
def emitc_identity() -> str:
    """The version and 16 digits of a hash of all of emitc's files: two commits of one version differ in it."""
    package = Path(__file__).resolve().parent.parent
    runtime = package / "_data" / "c_runtime"
    roots = (package, boards_dir(), runtime if runtime.is_dir() else package.parent / "c_runtime")
    digest = hashlib.sha256()
    for root in roots:
        for path in sorted(path for path in root.rglob("*") if path.suffix in _SUFFIXES):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"{__version__}+{digest.hexdigest()[:16]}"


def base_identity() -> dict[str, str]:
    python = ".".join(platform.python_version_tuple()[:2])
    return {"emitc": emitc_identity(), "python": python, **_packages(_ALWAYS)}


@cache
def toolchain(target: str, board: str, *, host: bool, cross: bool) -> dict[str, str]:
    """What one job depends on in addition to. host: it builds and runs C on this machine. cross: it builds C for the target."""
    versions: dict[str, str] = {}
    if host:
        try:
            versions["cc"] = _program(compiler_command()[0])
        except EmitcError as error:
            versions["cc"] = error.what
        versions |= _packages(_ENGINES)
    if cross:
        versions["target compiler"] = _program(load_target(target).c_compiler)
    if cross and board:
        described = load_board(board)
        versions |= _packages(_BOARDS)
        if described.kind == "qemu":
            versions["emulator"] = _program(emulator(described))
    return versions


def whole_identity() -> dict[str, str]:
    """All of it that jobs on another machine could differ in, for a comparison of machines."""
    here = {**base_identity(), **toolchain("host", "", host=True, cross=False), **_packages(_BOARDS)}
    here["arm-none-eabi-gcc"] = _program("arm-none-eabi-gcc")
    here["riscv64-unknown-elf-gcc"] = _program("riscv64-unknown-elf-gcc")
    return here


def key_of(content: dict[str, Any]) -> str:
    """The key of a job: 32 digits of the hash of everything that it depends on."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


@cache
def _packages(names: tuple[str, ...]) -> dict[str, str]:
    """The installed versions; "" for a package that is not there."""
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = ""
    return versions


@cache
def _program(name: str) -> str:
    """The first line that a program prints for --version; "" where it is not there."""
    path = shutil.which(name)
    if path is None:
        return ""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace").partition("\n")[0].strip()
