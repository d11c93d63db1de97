"""SCons script of the platform: the system's cross GCC, start-up code and linker script by instruction set."""

import os
import shlex
import subprocess
import sys

from SCons.Script import Builder, Default, DefaultEnvironment

env = DefaultEnvironment()
board = env.BoardConfig()
root = env.PioPlatform().get_dir()
sys.path.insert(0, root)
import qemu  # noqa: E402

prefix = board.get("build.toolchain")
arch = board.get("build.arch_flags")
runtime = os.path.join(root, "runtime")
libc = {"cortex_m": ["--specs=nano.specs"], "riscv": ["--specs=picolibc.specs"]}[board.get("build.isa")]


def headers_of_libc():
    """The flags by which a compiler other than GCC finds the headers of GCC's C library."""
    asked = subprocess.run(
        [prefix + "gcc", *libc, "-M", "-x", "c", "-"], input="#include <stdlib.h>", capture_output=True, text=True
    )
    header = next(word for word in asked.stdout.split() if os.path.basename(word) == "stdlib.h")
    return ["-isystem", os.path.dirname(header)]


# A board may name another C compiler, such as one for instructions that the system's GCC does not know. GCC links then, too.
compiler = board.get("build.compiler", prefix + "gcc")
own = compiler == prefix + "gcc"
compiling = arch + (libc if own else headers_of_libc())
linking = board.get("build.link_flags", arch) + libc
defsyms = [
    f"-Wl,--defsym=__{region}_{what}={value}"
    for region, bounds in board.get("build.memory").items()
    for what, value in zip(("org", "len"), bounds, strict=True)
]

env.Replace(
    AR=prefix + "gcc-ar",
    AS=compiler,
    CC=compiler,
    CXX=prefix + "g++",
    LINK=prefix + "gcc",
    RANLIB=prefix + "gcc-ranlib",
    OBJCOPY=prefix + "objcopy",
    SIZETOOL=prefix + "size",
    ARFLAGS=["rc"],
    PROGNAME="firmware",
    PROGSUFFIX=".elf",
    SIZEPROGREGEXP=r"^(?:\.vectors|\.board_text|\.board_rodata|\.cases|\.text|\.rodata|\.data|\.ARM\.exidx|\.init_array)\s+(\d+).*",
    SIZEDATAREGEXP=r"^(?:\.data|\.tdata|\.bss|\.tbss)\s+(\d+).*",
    SIZECHECKCMD="$SIZETOOL -A -d $SOURCES",
)
env.Append(
    ASFLAGS=arch,
    ASPPFLAGS=["-x", "assembler-with-cpp"],
    # -O2 comes first, so that a project's build_flags and a library's own flags win.
    CCFLAGS=[*compiling, "-O2", "-g", "-Wall", "-ffunction-sections", "-fdata-sections"],
    CFLAGS=["-std=c11"],
    CXXFLAGS=["-fno-exceptions", "-fno-rtti"],
    CPPDEFINES=[
        ("F_CPU", "$BOARD_F_CPU"),
        ("EMITC_BOARD_NAME", env.StringifyMacro(board.id)),
        ("EMITC_ICOUNT_SHIFT", board.get("qemu.icount_shift", 0)),
    ],
    CPPPATH=[runtime],
    LIBS=["m"],
    LINKFLAGS=linking
    + defsyms
    + [
        "-nostartfiles",
        "-Wl,--gc-sections",
        "-Wl,--no-warn-rwx-segments",
        "-Wl,-Map=" + env.subst(os.path.join("$BUILD_DIR", "firmware.map")),
        "-L",
        os.path.join(root, "ldscripts"),
        "-T",
        os.path.join(root, "ldscripts", board.get("build.isa") + ".ld"),
    ],
)
# Start-up loops must stay loops: turned into memcpy and memset they would pull libc into an image that needs none.
runtime_env = env.Clone()
runtime_env.Append(CCFLAGS=["-fno-tree-loop-distribute-patterns" if own else "-fno-builtin"])
runtime_env.BuildSources(os.path.join("$BUILD_DIR", "runtime"), runtime)

env.Append(
    BUILDERS={
        "ElfToBin": Builder(
            action=env.VerboseAction("$OBJCOPY -O binary $SOURCES $TARGET", "Building $TARGET"), suffix=".bin"
        )
    }
)

elf = env.BuildProgram()
binary = env.ElfToBin(os.path.join("$BUILD_DIR", "firmware"), elf)


def write_launcher(target, source, env):
    """`pio test` runs $BUILD_DIR/program on a platform without an uploader; make that boot the ELF."""
    path = env.subst(os.path.join("$BUILD_DIR", "program"))
    command = [env.subst("$PYTHONEXE"), qemu.__file__, board.id, os.path.abspath(str(target[0]))]
    with open(path, "w", encoding="utf-8") as f:
        f.write(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    os.chmod(path, 0o755)


env.AddPostAction(elf, env.VerboseAction(write_launcher, "Writing the QEMU launcher"))


def boot(target, source, env):
    extra = list(env.get("PROGRAM_ARGS") or [])
    timeout = float(env.GetProjectOption("custom_qemu_timeout", "60"))
    return qemu.run(qemu.command(board.manifest, str(source[0]), extra), timeout)


env.AddPlatformTarget(
    "upload", elf, env.VerboseAction(boot, "Booting $SOURCE in QEMU"), "Upload", "Boot the firmware in QEMU"
)
env.AddPlatformTarget(
    "size", elf, env.VerboseAction("$SIZETOOL -A $SOURCES", "Sizes of $SOURCE"), "Size", "Section sizes"
)
Default([elf, binary])
