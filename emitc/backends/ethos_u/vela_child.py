"""Compiles one TFLite file with vela, alone in a process: its compiler ends the process on files that it dislikes.

    python vela_child.py MODEL.tflite ARCHITECTURE OPTIONS.json RESULT.npz

This file imports nothing of emitc, so that it starts quickly.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def configuration() -> str:
    """The system configurations that come with vela."""
    import ethosu  # type: ignore[import-not-found, import-untyped, unused-ignore]

    folder = Path(next(iter(ethosu.__path__)))
    return (folder / "config_files" / "Arm" / "vela.ini").read_text(encoding="utf-8")


def main() -> None:
    """The command. RESULT holds model (the file that vela made) and report (JSON)."""
    from ethosu import regor  # type: ignore[import-not-found, unused-ignore]

    model, architecture, options, result = sys.argv[1:]
    wanted: dict[str, Any] = json.loads(Path(options).read_text(encoding="utf-8"))
    system = f"[architecture]\nmacs={wanted['macs']}\ncores=1\n[vela]\nsystem_config_name={wanted['system']}\n"
    system += f"memory_mode_name={wanted['memory']}\n{configuration()}"
    compiler = f"[compiler]\noutput_format=TFLite\ncop_format=COP1\n[scheduler]\noptimize={wanted['optimize']}\n"
    compiler += f"separate_io_regions={wanted['separate']}\narena_size_limit={wanted['limit_bytes']}\n"
    data = Path(model).read_bytes()
    made = regor.compile(architecture, data, "TFLITE", system, options=compiler, verbose=False)
    perf = made.perf_report
    report = {"cycles": int(perf.totalCycles), "npu_cycles": int(perf.npuCycles), "macs": int(perf.macCount)}
    np.savez(result, model=np.frombuffer(bytes(made.model), np.uint8), report=np.array(json.dumps(report)))


if __name__ == "__main__":
    main()
