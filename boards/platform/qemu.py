"""Boot a firmware ELF in QEMU: python qemu.py BOARD ELF [--timeout S] [--dry-run] [-- QEMU ARGS].

The exit code is the firmware's, or 124 when it did not stop in time, or 127 when QEMU is not installed.
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import sys

TIMED_OUT = 124
NOT_FOUND = 127


def command(board, elf, extra=()):
    """The QEMU command that boots `elf` on the board (the content of its JSON file).

    -icount makes virtual time a function of the executed instructions, so that every run is the same; sleep=off lets
    virtual time run ahead of the wall clock. Standard input is never read: semihosting has the only console.
    """
    qemu = board["qemu"]
    return [
        "qemu-system-" + qemu["system"],
        "-M",
        qemu["machine"],
        *qemu.get("args", []),
        "-icount",
        f"shift={qemu.get('icount_shift', 0)},sleep=off",
        "-nographic",
        "-monitor",
        "none",
        "-serial",
        "null",
        "-no-reboot",
        "-chardev",
        "stdio,id=out,signal=off",
        "-semihosting-config",
        "enable=on,target=native,chardev=out",
        *extra,
        "-kernel",
        str(elf),
    ]


def run(cmd, timeout):
    try:
        return subprocess.run(cmd, stdin=subprocess.DEVNULL, timeout=timeout).returncode
    except subprocess.TimeoutExpired:
        print(f"QEMU: no exit within {timeout:g} s", file=sys.stderr)
        return TIMED_OUT
    except FileNotFoundError:
        print(f"QEMU: {cmd[0]} is not installed", file=sys.stderr)
        return NOT_FOUND


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("board")
    ap.add_argument("elf")
    ap.add_argument("--timeout", type=float, default=60)
    ap.add_argument("--dry-run", action="store_true")
    args, extra = ap.parse_known_args()
    path = pathlib.Path(__file__).resolve().parent / "boards" / (args.board + ".json")
    cmd = command(json.loads(path.read_text(encoding="utf-8")), args.elf, [e for e in extra if e != "--"])
    if args.dry_run:
        print(shlex.join(cmd))
        return 0
    return run(cmd, args.timeout)


if __name__ == "__main__":
    sys.exit(main())
