"""The jobs of a sweep in their order, each with the key of everything that its result depends on."""

import hashlib
import importlib.metadata
import json
import platform
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from emitc._version import __version__
from emitc.boards.run import emulator
from emitc.errors import EmitcError, Where
from emitc.frontends.read import MAX_FILE_BYTES
from emitc.options import Options
from emitc.program.members import members
from emitc.records import dataclass, replace
from emitc.sweep.spec import Data, Spec
from emitc.target import boards_dir, load_board, load_target
from emitc.verify.build import compiler_command

_MOST_FILES = 1_000_000
_CHUNK = 1 << 20
_EXTERNAL = b"location"
"""The key under which an ONNX constant names its file."""
_DESCRIBED = "key model=label sha256 target=options.target board kernels=options.kernels ram_budget=options.ram_budget"


@dataclass(frozen=True, slots=True)
class Job:
    """One compilation with everything that is measured of it.

    key: of its content. label: the model's path below the root. sha256: of the model's file, data_sha256: of the data's files.
    board: "" for none. variant: name of the set of options. emitc: identity of the emitc that made the job.
    """

    key: str
    model: Path
    label: str
    sha256: str
    board: str
    variant: str
    options: Options
    data: Data | None
    data_sha256: str
    verify: bool
    samples: int
    measure: bool
    stack: bool
    emitc: str

    def described(self) -> dict[str, Any]:
        """The columns of the row that say which job it is."""
        data = members(self.data, "data=path.name metric") if self.data else {"data": "", "metric": ""}
        return members(self, f"{_DESCRIBED} options=variant") | data | {"emitc": self.emitc}


def jobs_of(spec: Spec) -> tuple[Job, ...]:
    """All jobs, models first. Raises EmitcError for a file that cannot be read."""
    base = base_identity()
    return tuple(
        _job(spec, base, model, board, with_target(variant.options, target, kernels, budget), variant.name, data)
        for model in spec.models
        for target, board in spec.places
        for kernels in spec.kernels
        for budget in spec.budgets
        for variant in spec.variants
        for data in tuple(data for data in spec.data if data.serves(model, spec.root)) or (None,)
    )


def with_target(options: Options, target: str, kernels: str, budget: int | str | None) -> Options:
    return replace(options, target=target, kernels=kernels, ram_budget=budget)


def _job(
    spec: Spec, base: dict[str, str], model: Path, board: str, options: Options, variant: str, data: Data | None
) -> Job:
    measure = spec.measure and _is_booted(board)
    job = Job(
        key="",
        model=model,
        label=model.relative_to(spec.root).as_posix(),
        sha256=model_sha256(model),
        board=board,
        variant=variant,
        options=replace(options, package="platformio" if measure else "plain"),
        data=data,
        data_sha256=data_sha256(data.path) if data else "",
        verify=spec.verify,
        samples=spec.samples,
        measure=measure,
        stack=spec.stack,
        emitc=base["emitc"],
    )
    return replace(job, key=key_of(_content(job, base)))


@cache
def _is_booted(board: str) -> bool:
    """Whether there is a board, and it is an emulated one."""
    return board != "" and load_board(board).kind in ("qemu", "rtl")


def _content(job: Job, base: dict[str, str]) -> dict[str, Any]:
    data = job.data
    tools = toolchain(
        job.options.target, job.board, host=job.verify or data is not None, cross=job.measure or job.stack
    )
    return {
        "identity": base | tools,
        # C names are made from the name of the file, but nothing depends on the folder.
        "model": [job.model.name, job.sha256],
        "board": job.board,
        "options": job.options.to_json(),
        "variant": job.variant,
        "data": [job.data_sha256, data.metric, data.scale, data.mean, data.layout, data.output] if data else None,
        "asked": [job.verify, job.samples, job.measure, job.stack],
    }


def file_sha256(path: Path) -> str:
    """The hash of a file. A worker may live longer than a sweep: a file that changed is read again. Raises EmitcError."""
    try:
        status = path.stat()
        return _hashed(path, status.st_mtime_ns, status.st_size, status.st_ino)
    except OSError as error:
        where, hint = Where(model=str(path)), "correct the path or its rights"
        raise EmitcError("a file of the sweep cannot be read", where, error.strerror or str(error), hint) from error


@lru_cache(maxsize=1 << 16)
def _hashed(path: Path, changed: int, size: int, inode: int) -> str:
    """The hash of a file that was last changed at that time and has that size."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def model_sha256(path: Path) -> str:
    """The hash of a model's file; with those of the files of constants that an ONNX file may name.

    Such a file lies in the folder of the model or below, and its name stands in the model's bytes.
    """
    own = file_sha256(path)
    if path.suffix.lower() != ".onnx" or path.stat().st_size > MAX_FILE_BYTES:
        return own
    data = path.read_bytes()
    if _EXTERNAL not in data:
        return own
    digest = hashlib.sha256(bytes.fromhex(own))
    for file in _files(path.parent):
        if file != path and file.name.encode("utf-8", "surrogateescape") in data:
            digest.update(file.name.encode("utf-8", "surrogateescape") + b"\0" + bytes.fromhex(file_sha256(file)))
    return digest.hexdigest()


def data_sha256(path: Path) -> str:
    """The hash of a data file, or of the names and contents of all files of a folder. Raises EmitcError."""
    if not path.is_dir():
        return file_sha256(path)
    digest = hashlib.sha256()
    for file in _files(path):
        digest.update(file.relative_to(path).as_posix().encode("utf-8", "surrogateescape") + b"\0")
        digest.update(bytes.fromhex(file_sha256(file)))
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    files = []
    for path in folder.rglob("*"):
        if path.is_file():
            files.append(path)
        if len(files) > _MOST_FILES:
            why = f"it has more than {_MOST_FILES} files"
            raise EmitcError("a data set of the sweep is too large", Where(option=str(folder)), why, "use an .npz file")
    return iter(sorted(files))


def shard_of(jobs: tuple[Job, ...], part: int, parts: int) -> tuple[Job, ...]:
    """The jobs of one shard, part from 1 to parts: every `parts`-th job, so that shards take about as long as each other.

    >>> [len(shard_of(tuple(range(10)), part, 3)) for part in (1, 2, 3)]
    [4, 3, 3]
    """
    return jobs[part - 1 :: parts]


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
