"""Compiled templates are kept in `__pycache__` folders, as Python keeps compiled modules."""

import hashlib
import importlib.util
import marshal
import os
import sys
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket, bc_magic

from emitc.emit.output_file import staging


class TemplateCache(jinja2.BytecodeCache):
    """Python's bytecode of each template, in the `__pycache__` folder of the template's own folder.

    Jinja takes about as long to compile a model's templates as all other work takes. The switches of Python's own bytecode
    hold here too: PYTHONPYCACHEPREFIX names another folder, and PYTHONDONTWRITEBYTECODE forbids to write. A folder that
    cannot be written costs time and nothing else.

    Bytecode is not used after a change of the environment's options, of Jinja, of Python or of the template's text.

    A file is a digest of all these, a digest of the bytecode, and the bytecode: 32 bytes, 32 bytes, and the rest.
    """

    def __init__(self, env: jinja2.Environment) -> None:
        options = (env.trim_blocks, env.lstrip_blocks, env.keep_trailing_newline, env.autoescape, env.optimized)
        self._made_with = f"{jinja2.__version__} {options}"

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """The path of the bytecode; "" for a template of a plugin, which has no file."""
        return "" if filename is None else importlib.util.cache_from_source(filename)

    def get_source_checksum(self, source: str) -> str:
        """A digest in hexadecimal digits of what the bytecode depends on."""
        return hashlib.sha256(bc_magic + f"{self._made_with}\n{source}".encode()).hexdigest()

    def load_bytecode(self, bucket: Bucket) -> None:
        """Reads the bytecode. Nothing is read where it is absent, damaged or made of something else."""
        try:
            stored = Path(bucket.key).read_bytes() if bucket.key else b""
        except OSError:
            return
        code = stored[64:]
        if stored[:64] == bytes.fromhex(bucket.checksum) + hashlib.sha256(code).digest():
            bucket.code = marshal.loads(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Writes the bytecode, whole or not at all."""
        if not bucket.key or sys.dont_write_bytecode:
            return
        code = marshal.dumps(bucket.code)
        try:
            with staging(Path(bucket.key)) as folder:
                fresh = folder / "new"
                fresh.write_bytes(bytes.fromhex(bucket.checksum) + hashlib.sha256(code).digest() + code)
                os.replace(fresh, bucket.key)
        except OSError:
            return
