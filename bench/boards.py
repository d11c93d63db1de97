"""What one inference costs on emulated boards, and TensorFlow Lite Micro's figures.

    python -m bench.boards --models ../shared/models/tflite --boards qemu_m4 --json bench/results_boards.json
    python -m bench.boards --kernels portable cmsis-nn auto --cmsis-nn PATH --boards qemu_m4 qemu_m55 --layers --json FILE
    python -m bench.boards --streaming ... --json bench/results_wake_words.json
    python -m bench.boards --layers --boards qemu_m4 qemu_m55 --json bench/results_layers.json
    python -m bench.boards --optimize size --json bench/results_size.json
    python -m bench.boards --twins --boards qemu_m4 qemu_m55 qemu_m3 --json bench/results_twins.json
    python -m bench.boards --untuned --compare OLD.json --json bench/networks/results_untuned.json

Instructions are counted exactly by a QEMU plugin and are the same in every run; they are not cycles. Flash is what the
model, the runtime and the library routines that they pull in take in the linked image; TFLite Micro's figure is its
whole image without the harness. `--compare OLD.json` shows what changed since an earlier run.
It is no `emitc sweep`, which records neither layers nor bytes of code and state.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any

from bench.output import write_json
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.errors import CannotCompile
from emitc.options import Options
from emitc.report.tables import table
from emitc.target import load_board

HERE = Path(__file__).resolve().parent
NETS = (
    "hello_world_int8", "micro_speech_int8", "kws_ref_int8", "ad01_int8", "ic_resnet_int8", "vww_96_int8",
    "person_detect_int8",
)  # fmt: skip
STREAMING = ("mww_hey_jarvis_v2", "mww_okay_nabu_v2", "mww_vad_v2", "mww_alexa_v1")
"""Wake words, which keep state: a run is one frame."""
TWINS = {"kws_ref_int8": "tf2onnx_kws_int8", "ic_resnet_int8": "tf2onnx_ic_int8", "ad01_int8": "tf2onnx_ad_int8"}
"""ONNX models with the shapes of a TFLite model."""
UNTUNED = (
    "micro_kws_m_int8", "mltk_image_classification_int8", "tinymaix_cifar10_int8", "mnist_dw_int8", "mnist_resnet_int8",
    "mltk_micro_speech_int8", "mww_hey_jarvis_v2", "catdog_int8_floatio", "aww_int8", "mobilenet_v1_0.25_128_uint8",
)  # fmt: skip
"""Networks that no kernel was tuned for."""
CORES = {"qemu_m4": "m4", "qemu_m55": "m55", "qemu_m3": "m3", "qemu_m0": "m0", "qemu_m0_big": "m0"}


EARLIER = ("cycles", "instructions", "arena_bytes", "flash_bytes")
"""What rows have of the file that `--compare` names, too."""


def peers() -> dict[tuple[str, str, str], dict[str, int]]:
    """TFLite Micro's stored figures by model, core and kernels."""
    stored = json.loads((HERE / "tflite_micro.json").read_text(encoding="utf-8"))
    return {(row["model"], row["core"], row["kernels"]): row for row in stored["rows"]}


def measure(
    model: Path, board: str, optimize: str, kernels: str = "portable", cmsis_nn: str = "", *, layers: bool = False
) -> dict[str, Any]:
    """One model on one board: the figures of `emitc run`, or why there are none.

    kernels, cmsis_nn: as `emitc run` takes them. layers: also the instructions of each layer, and who ran it;
    every layer runs whole then.
    """
    backends = {"cmsis-nn": cmsis_nn} if cmsis_nn and kernels != "portable" else {}
    target = load_board(board).target
    whole = (
        frozenset({"streaming"}) if layers else frozenset()
    )  # layers that take turns by rows cannot be distinguished
    options = Options(
        target=target, package="platformio", optimize=optimize, kernels=kernels, backends=backends, disabled=whole
    )
    compiled = compile_model(model, options)
    row: dict[str, Any] = {"model": model.stem, "board": board, "kernels": kernels, "macs": compiled.program.macs}
    try:
        result = on_emulator(compiled, board, reference="auto", samples=1, seed=0, layers=layers, workdir=None)
    except CannotCompile as error:
        return row | {"refused": error.what}
    if layers:
        backend = {step.index: step.backend for step in compiled.program.steps}
        chosen = compiled.partition.layers
        row["layers"] = [
            {
                "index": layer.index,
                "variant": chosen[layer.index].variant if layer.index in chosen else "",
                "op": layer.op,
                "macs": layer.macs,
                "instructions": layer.count,
                "backend": backend[layer.index],
            }
            for layer in result.layers or ()
        ]
    return row | {
        "match": result.match,
        "instructions": result.count,
        "arena_bytes": result.arena_bytes,
        "state_bytes": compiled.program.state_bytes,
        "flash_bytes": result.model_flash_bytes,
        "code_bytes": result.code_bytes,
        "stack_bytes": result.stack_bytes,
        **({"cycles": round(result.estimate.zero_wait.cycles)} if result.estimate else {}),
    }


def _share(ours: int, theirs: int | None) -> str:
    return f"{ours / theirs:.2f}" if theirs else "-"


def _key(row: dict[str, Any]) -> tuple[str, str, str]:
    """What identifies a row; files of earlier versions had the portable kernels only."""
    return row["model"], row["board"], row.get("kernels", "portable")


def text(rows: list[dict[str, Any]], old: dict[tuple[str, str, str], dict[str, Any]]) -> str:
    """The table: instructions, flash and arena, each also as a share of TFLite Micro's; with an old run, the change.

    /ref: with TFLite Micro's reference kernels; /cmsis: with CMSIS-NN's.
    """
    stored = peers()
    lines = []
    for row in rows:
        core = CORES.get(row["board"], "")
        reference = stored.get((row["model"], core, "reference"), {})
        cmsis = stored.get((row["model"], core, "cmsis-nn"), {})
        if "refused" in row:
            lines.append((*_key(row), *["-"] * 8, "refused", ""))
            continue
        before = old.get(_key(row), {}).get("instructions")
        change = f"{100 * (row['instructions'] / before - 1):+.1f} %" if before else ""
        lines.append(
            (
                *_key(row),
                row["instructions"],
                f"{row['instructions'] / max(row['macs'], 1):.2f}",
                _share(row["instructions"], reference.get("instructions")),
                _share(row["instructions"], cmsis.get("instructions")),
                row["flash_bytes"],
                _share(row["flash_bytes"], reference.get("flash_bytes")),
                row["arena_bytes"],
                _share(row["arena_bytes"], reference.get("arena_bytes")),
                "yes" if row["match"] else "NO",
                change,
            )
        )
    columns = (
        "model",
        "board",
        "kernels",
        "instr>",
        "/MAC>",
        "/ref>",
        "/cmsis>",
        "flash>",
        "/ref>",
        "arena>",
        "/ref>",
        "ok",
        "change>",
    )
    refused = [f"{row['model']} on {row['board']}: {row['refused']}" for row in rows if "refused" in row]
    return "\n".join([table(columns, lines, width=165), *refused])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.boards", description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=HERE.parent.parent / "shared" / "models" / "tflite")
    parser.add_argument("--nets", nargs="*", default=list(NETS))
    parser.add_argument("--streaming", action="store_true", help="the streaming wake words instead of --nets")
    parser.add_argument(
        "--untuned", action="store_true", help="ten nets that no kernel was tuned for instead of --nets"
    )
    parser.add_argument(
        "--twins", action="store_true", help="TFLite nets and ONNX nets of the same shapes, from ../onnx"
    )
    parser.add_argument("--boards", nargs="*", default=["qemu_m4"])
    parser.add_argument("--optimize", choices=("speed", "size"), default="speed")
    parser.add_argument("--kernels", nargs="*", default=["portable"], help="portable, cmsis-nn, auto")
    parser.add_argument("--cmsis-nn", default="", help="the folder of CMSIS-NN, for the kernels that need it")
    parser.add_argument("--layers", action="store_true", help="instructions of every layer, in the --json file")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--compare", type=Path, help="an earlier --json file")
    arguments = parser.parse_args()
    if not arguments.models.is_dir():
        parser.error(f"{arguments.models} is not there: pass --models DIR with the .tflite files")
    old = {}
    if arguments.compare:
        rows = json.loads(arguments.compare.read_text(encoding="utf-8"))["rows"]
        old = {_key(row): row for row in rows}
    measured = []
    chosen = STREAMING if arguments.streaming else UNTUNED if arguments.untuned else arguments.nets
    nets = [f"{net}.tflite" for net in chosen]
    if arguments.twins:
        nets = [name for net, twin in TWINS.items() for name in (f"{net}.tflite", f"../onnx/{twin}.onnx")]
    for board in arguments.boards:
        for net, kernels in itertools.product(nets, arguments.kernels):
            print(f"{net} on {board}, {kernels}", file=sys.stderr)
            model = arguments.models / net
            row = measure(model, board, arguments.optimize, kernels, arguments.cmsis_nn, layers=arguments.layers)
            earlier = old.get(_key(row), {})
            measured.append(row | {f"earlier_{what}": earlier[what] for what in EARLIER if what in earlier})
    print(text(measured, old))
    write_json(
        arguments.json,
        {
            "what": "emitc on emulated boards, instructions of one inference",
            "optimize": arguments.optimize,
            "rows": measured,
        },
    )


if __name__ == "__main__":
    main()
