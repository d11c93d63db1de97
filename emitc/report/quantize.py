"""What `emitc quantize` prints."""

from typing import Any

from emitc.errors import shown
from emitc.report.tables import number


def quantize_text(made: dict[str, Any]) -> str:
    """The file that was written, its size, and what quantizing has cost."""
    output = shown(str(made["output"]), 200)
    lines = [
        f"{output}: {_types(made)}, quantized on {number(made['samples'])} samples, {number(made['bytes_before'])} bytes before, "
        f"{number(made['bytes_after'])} after"
    ]
    for row in made["outputs"]:
        agree = "" if row["agreement"] is None else f", the same largest value in {row['agreement']:.1%} of the samples"
        lines.append(
            f"  {row['name']:9} signal to noise {_db(row['sqnr_db'])}, cosine {row['cosine']:.6f}, largest error"
            f" {row['largest_error']:.4g}{agree}"
        )
    if made["worst"]:
        worst = ", ".join(f"{shown(row['tensor'], 40)} {_db(row['sqnr_db'])}" for row in made["worst"])
        lines.append(f"  worst     {worst}")
    test = made["test"]
    if test:
        lines.append(
            f"  accuracy  float {test['compared']:.2%}, int8 {test['value']:.2%} of {number(test['samples'])} labelled samples;"
            f" {number(test['engine_differing'])} samples differ between the C and {test['engine']}"
        )
    lines += [f"  warning   {row['what']} ({row['code']})" for row in made["warnings"]]
    lines += [f"  FAILED    {reason}" for reason in made["failed"]]
    data = "" if test else "; `emitc evaluate` measures the accuracy, which equal bits say nothing about"
    return "\n".join([*lines, f"  next      emitc verify {output}{data}"])


def _types(made: dict[str, Any]) -> str:
    """Type of the activations, and the operators that have another one."""
    parts = ["int8"]
    for key, kind in (("int16", "int16"), ("excluded", "float32")):
        if made[key]:
            parts.append(f"{kind} in {', '.join(shown(name, 40) for name in made[key])}")
    changed = f", after {' and '.join(made['remedies'])}" if made["remedies"] else ""
    return " and ".join(parts) + changed


def _db(ratio: float | None) -> str:
    return "without noise" if ratio is None else f"{ratio:.1f} dB"
