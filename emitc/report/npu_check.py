"""What `emitc npu-check` prints."""

from typing import Any

from emitc.errors import shown
from emitc.report.tables import number


def npu_check_text(file: str, check: dict[str, Any]) -> str:
    """The verdict on a file that vela has compiled, and what the file asks of the hardware."""
    verdict = {True: "MATCH", False: "MISMATCH", None: "runs"}[check["match"]]
    lines = [
        f"{shown(file)}: {verdict} on the host model of {check['accelerator']} (no hardware)",
        f"  npu         {check['operators']} operators, {number(check['commands'])} commands",
        f"  memory      {number(check['constant_bytes'])} bytes of constants, {number(check['scratch_bytes'])} scratch,"
        f" {number(check['fast_bytes'])} fast scratch",
        f"  samples     {number(check['samples'])} inputs gave {number(check['distinct'])} different outputs",
    ]
    if check["on_cpu"]:
        lines.append(f"  cpu         {shown(', '.join(check['on_cpu']))}, by the numpy references")
    if check["match"] is None:
        lines.append("  outputs     not compared: give --original")
    else:
        largest = "not finite" if check["max_abs_diff"] is None else f"{check['max_abs_diff']:g}"
        lines.append(
            f"  outputs     {number(check['differing'])} of {number(check['elements'])} elements differ from"
            f" {check['reference']} (largest difference {largest})"
        )
    return "\n".join(lines)
