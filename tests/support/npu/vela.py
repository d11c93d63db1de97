"""vela as a child process, for tests: networks compiled for a configuration, a memory mode and a goal."""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

CONFIGS = ("ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u55-256", "ethos-u65-256")
_SECONDS = 300


@dataclass(frozen=True, slots=True)
class VelaOptions:
    """What vela compiles for."""

    config: str
    memory: str
    optimise: str

    @property
    def id(self) -> str:
        """For test names."""
        return f"{self.config}-{self.memory}-{self.optimise}"


ALL = tuple(
    VelaOptions(config, memory, optimise)
    for config in CONFIGS
    for memory in ("Shared_Sram", "Sram_Only", "Dedicated_Sram")
    for optimise in ("Performance", "Size")
    if memory != "Dedicated_Sram" or config.startswith("ethos-u65")
)
"""Every combination that vela takes: Dedicated_Sram exists on Ethos-U65 alone."""


def require_vela() -> None:
    """Skips the test where vela is not installed."""
    if importlib.util.find_spec("ethosu") is None:
        pytest.skip("vela (the extra emitc[npu]) is not installed")


@cache
def _folder() -> Path:
    """Where the files of this process lie until it ends."""
    folder = tempfile.TemporaryDirectory(prefix="emitc-vela-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


@cache
def compiled(model: bytes, options: VelaOptions) -> Path:
    """The file that vela makes of a model; once for each model and combination in this process."""
    require_vela()
    folder = _folder() / hashlib.sha256(model + options.id.encode()).hexdigest()[:16]
    folder.mkdir()
    (folder / "net.tflite").write_bytes(model)
    system = "Ethos_U65_High_End" if options.config.startswith("ethos-u65") else "Ethos_U55_High_End_Embedded"
    arguments = {
        "--accelerator-config": options.config,
        "--config": "Arm/vela.ini",
        "--system-config": system,
        "--memory-mode": options.memory,
        "--optimise": options.optimise,
        "--output-dir": str(folder),
    }
    command = [
        sys.executable,
        "-m",
        "ethosu.vela",
        "net.tflite",
        *(word for pair in arguments.items() for word in pair),
    ]
    done = subprocess.run(
        command, cwd=folder, env=os.environ, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    made = folder / "net_vela.tflite"
    assert done.returncode == 0 and made.is_file(), f"vela ended with {done.returncode}: {done.stdout}{done.stderr}"
    return made


_RAW_CHILD = """
import sys
from pathlib import Path
import ethosu, numpy as np
from ethosu import regor
folder = Path(sys.argv[1])
text = (Path(ethosu.__path__[0]) / "config_files" / "Arm" / "vela.ini").read_text()
head = "[architecture]\\nmacs=128\\ncores=1\\n[vela]\\nsystem_config_name=Ethos_U55_High_End_Embedded\\n"
options = "[compiler]\\noutput_format=Raw\\ncop_format=COP1\\n[scheduler]\\noptimize=Size\\nseparate_io_regions=true\\n"
made = regor.compile("EthosU55", (folder / "net.tflite").read_bytes(), "TFLITE",
                     head + "memory_mode_name=Shared_Sram\\n" + text, options=options, verbose=False)
places = [(t.region, t.address, t.size) for t in (*made.inputs, *made.outputs)]
np.savez(folder / "raw.npz", payload=np.frombuffer(made.command_stream, np.uint8),
         constants=np.frombuffer(bytes(made.read_only.data), np.uint8), scratch=made.scratch.size, places=places)
"""


def compiled_with_own_regions(model: bytes, folder: Path) -> Path:
    """An .npz with payload, constants, scratch bytes and places (region, address, size) of inputs and outputs in regions of
    their own, for 128 MACs."""
    require_vela()
    (folder / "net.tflite").write_bytes(model)
    command = [sys.executable, "-c", _RAW_CHILD, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert done.returncode == 0, f"vela ended with {done.returncode}: {done.stdout}{done.stderr}"
    return folder / "raw.npz"
