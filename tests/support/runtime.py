"""The C runtime for compilers: its folders as options, and its source."""

from __future__ import annotations

from emitc.emit.package import runtime_files

INCLUDES = tuple(dict.fromkeys(f"-I{path.parent}" for path in runtime_files().values()))
SOURCE = runtime_files()["emitc_runtime.c"]
