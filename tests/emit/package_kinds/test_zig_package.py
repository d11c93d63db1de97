"""The module of Zig: its example by the compiler of the wheel `ziglang`, for cores without a system, and by `zig build`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from emitc.compiler import compile_model
from emitc.emit.package_kinds.languages import fingerprint
from tests.support.emit.wrapped_models import with_a_wrong_byte, wrapped

pytest.importorskip("ziglang", reason="the wheel ziglang is not installed")

MODELS = {"branches": "branches", "edges": "edges", "sums": "sums", "match": "match", "comptime": "comptime_model"}
"""Package of each model: `comptime` is a keyword of Zig."""


def zig(root: Path, *arguments: str, where: str = ".") -> subprocess.CompletedProcess[str]:
    """The compiler in a folder of `root`, which has its cache."""
    env = os.environ | {"XDG_CACHE_HOME": str(root / "cache"), "ZIG_LOCAL_CACHE_DIR": str(root / "cache")}
    command = [sys.executable, "-m", "ziglang", *arguments]
    return subprocess.run(command, cwd=root / where, env=env, capture_output=True, text=True, check=False)


def c_arguments(name: str, *more: str) -> list[str]:
    """The C files of a package in folder `name`, with the flags of its build script.

    Without the checks of undefined behaviour, whose routines Zig would compile first.
    """
    (flags,) = re.findall(r"\.flags = &\.\{ (.*) \}", Path(name, "build.zig").read_text(encoding="ascii"))
    files = [str(path) for path in sorted(Path(name, "c").glob("*.c"))]
    return [
        "-I",
        f"{name}/c",
        *more,
        "-cflags",
        *flags.replace('"', "").split(", "),
        "-fno-sanitize=undefined",
        "--",
        *files,
    ]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every package."""
    folder = tmp_path_factory.mktemp("zig")
    for name in MODELS:
        model = "sums" if name == "comptime" else name
        compiled = wrapped(
            model, "zig", folder, as_name=name, split_weights=name == "branches", steps=name == "branches"
        )
        compiled.write(folder / name)
    return folder


def run_example(root: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Example, wrapper and C as one program. The routines that Zig would compile itself, for half a minute, are those of gcc."""
    libgcc = subprocess.run(["gcc", "-print-file-name=libgcc.a"], capture_output=True, text=True, check=True).stdout
    package, folder = MODELS[name], root / name
    built = zig(
        root, "build-exe", "-fno-compiler-rt", "-fno-ubsan-rt", "-fno-llvm", "-fno-lld", "-lc", libgcc.strip(),
        *c_arguments(str(folder)), "--dep", package, f"-Mroot={folder}/examples/golden.zig",
        f"-M{package}={folder}/src/{package}.zig", f"-femit-bin={folder}.out",
    )  # fmt: skip
    assert (built.returncode, built.stderr) == (0, "")
    return subprocess.run([f"{folder}.out"], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", MODELS)
def test_the_example_runs_its_golden_vectors(name: str, root: Path) -> None:
    done = run_example(root, name)
    assert (done.returncode, done.stdout) == (0, "MATCH\n")


@pytest.mark.parametrize("name", ["branches", "match"])
def test_the_example_finds_a_wrong_byte(name: str, root: Path) -> None:
    path = root / name / "examples" / "golden.zig"
    text = path.read_text(encoding="ascii")
    path.write_text(with_a_wrong_byte(text), encoding="ascii")
    try:
        done = run_example(root, name)
    finally:
        path.write_text(text, encoding="ascii")
    assert (done.returncode, done.stdout) == (1, "MISMATCH: 1 elements differ\n")


@pytest.mark.parametrize(
    "target", [("thumb-freestanding-eabihf", "cortex_m4"), ("riscv32-freestanding-none", "generic_rv32")]
)
def test_it_compiles_for_a_core_without_a_system(target: tuple[str, str], root: Path) -> None:
    """Wrapper and C, whose only header of a library is the one in the package."""
    folder = root / "branches"
    (root / "use.zig").write_text(
        'const model = @import("branches");\nvar arena: model.Arena = .{};\nexport fn use() u8 {\n'
        "    var one = model.Model.init(&arena) catch return 1;\n    one.input_right()[0] = 3;\n"
        "    one.run() catch return 2;\n    return @intCast(one.output_1().len);\n}\n",
        encoding="ascii",
    )
    done = zig(
        root, "build-lib", "-target", target[0], f"-mcpu={target[1]}", "-fno-compiler-rt", "-O", "ReleaseSmall",
        *c_arguments(str(folder), "-I", f"{folder}/c/freestanding"), "--dep", "branches", "-Mroot=use.zig",
        f"-Mbranches={folder}/src/branches.zig", f"-femit-bin={target[0]}.a",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    listing = subprocess.run(["nm", f"{target[0]}.a"], cwd=root, capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"^\s+U (\w+)$", listing, re.M)) - set(re.findall(r"^\w+ [A-Z] (\w+)$", listing, re.M))
    assert {name for name in needed if not name.startswith("__")} <= {"memcpy", "memmove", "memset"}


@pytest.mark.sweep(keep=0)
@pytest.mark.parametrize("other", ["sums"])
def test_zig_build_runs_the_example_and_two_models_share_a_runtime(other: str, root: Path) -> None:
    """As users build it. Zig first compiles its build system, which takes minutes without a cache."""
    done = zig(root, "build", "golden", where="branches")
    assert (done.returncode, done.stdout) == (0, "MATCH\n"), done.stderr
    app = root / "app"
    app.mkdir()
    (app / "main.zig").write_text(
        f'const a = @import("branches");\nconst b = @import("{other}");\nextern fn puts([*:0]const u8) c_int;\n'
        "var arenas: struct { a: a.Arena, b: b.Arena } = .{ .a = .{}, .b = .{} };\nvar state: b.State = .{};\n"
        "pub fn main() u8 {\n    var one = a.Model.init(&arenas.a) catch return 1;\n"
        "    var two = b.Model.init(&arenas.b, &state) catch return 2;\n    one.run() catch return 3;\n"
        '    two.run() catch return 4;\n    _ = puts("both");\n    return 0;\n}\n',
        encoding="ascii",
    )
    imports = "".join(
        f'    program.root_module.addImport("{name}", b.dependency("{name}", .{{}}).module("{name}"));\n'
        for name in ("branches", other)
    )
    (app / "build.zig").write_text(
        'const std = @import("std");\npub fn build(b: *std.Build) void {\n'
        '    const program = b.addExecutable(.{ .name = "app", .root_module = b.createModule(.{\n'
        '        .root_source_file = b.path("main.zig"), .target = b.graph.host, .link_libc = true }) });\n'
        f'{imports}    b.step("app", "runs").dependOn(&b.addRunArtifact(program).step);\n}}\n',
        encoding="ascii",
    )
    (app / "build.zig.zon").write_text(
        f'.{{ .name = .app, .version = "0.0.0", .fingerprint = {fingerprint("app")}, .paths = .{{""}}, .dependencies = .{{\n'
        f'    .branches = .{{ .path = "../branches" }}, .{other} = .{{ .path = "../{other}" }} }} }}\n',
        encoding="ascii",
    )
    done = zig(root, "build", "app", where="app")
    assert (done.returncode, done.stdout) == (0, "both\n"), done.stderr


def test_a_fingerprint_is_what_zig_asks_for() -> None:
    """The CRC of the name above, and an identity below that is neither 0 nor all ones."""
    number = int(fingerprint("kws"), 16)
    assert number >> 32 == zlib.crc32(b"kws")
    assert 0 < number & 0xFFFFFFFF < 0xFFFFFFFF


def test_a_long_name_is_cut_to_what_the_manifest_takes(tiny: Path) -> None:
    name = "a" * 29 + "_and_more_of_it"
    files = compile_model(tiny / "wires.tflite", package="zig", name=name).files
    assert f"    .name = .{'a' * 29}_an,\n" in files["build.zig.zon"].decode()
    assert f"extern fn {name}_run(" in files[f"src/{'a' * 29}_an.zig"].decode()
