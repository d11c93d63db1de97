"""Tables of README.md and of pages in docs/, made from the figures that the benchmarks have stored."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from bench import cost as costing
from bench import cycles as timing
from bench import pareto as trading
from bench import stack as stacking
from bench import staging as copying
from bench.boards import TWINS

BENCH = Path(__file__).resolve().parents[2] / "bench"
PEERS = {"qemu_m4": "m4", "qemu_m55": "m55", "qemu_m3": "m3", "qemu_m0_big": "m0"}
Columns = tuple[str, ...]
Rows = list[tuple[str, ...]]


def _rows(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((BENCH / name).read_text(encoding="utf-8"))["rows"]
    return rows


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}".replace(",", " ")


def _tflm() -> dict[tuple[str, str, str], dict[str, int]]:
    return {(row["model"], row["core"], row["kernels"]): row for row in _rows("tflite_micro.json")}


def rtl() -> tuple[Columns, Rows]:
    """bench/results_rtl.json: exact cycles on the RTL of RISC-V cores."""
    stored = json.loads((BENCH / "results_rtl.json").read_text(encoding="utf-8"))["rows"]
    by_key = {(row["model"], row["board"]): row for row in stored if row["memory"] == "zero-wait"}
    nets, cores = list(dict.fromkeys(net for net, _ in by_key)), list(dict.fromkeys(core for _, core in by_key))
    rows = []
    for net in nets:
        cells: list[str] = [net]
        for core in cores:
            row = by_key[net, core]
            cells.append(f"{_number(row['cycles'])} ({row['cycles'] / row['instructions']:.3f})")
        rows.append(tuple(cells))
    return ("net", *(f"`{core}`" for core in cores)), rows


def arena() -> tuple[Columns, Rows]:
    """bench/results_arena.json: one row for each model, one pair of columns for each mode."""
    by_key = {(row["model"], row["mode"]): row for row in _rows("results_arena.json")}
    rows: Rows = []
    for model in dict.fromkeys(model for model, _ in by_key):
        disjoint, same, default, least = (
            by_key[model, mode] for mode in ("no-overlap", "no-overlap-same-kernels", "default", "min")
        )
        base = disjoint["instructions"]
        cells = [model, _number(disjoint["tflm_head_bytes"]), _number(disjoint["arena_bytes"])]
        for row in (default, least):
            cells += [_number(row["arena_bytes"]), f"{100 * (row['instructions'] / base - 1):+.1f} %"]
            if row is default:
                cells.append(f"{100 * (row['instructions'] / same['instructions'] - 1):+.1f} %")
        rows.append((*cells, str(least["layers_by_rows"] or "-"), _number(default["moved_bytes"] or None)))
    columns = (
        "model", "TFLM: head", "not shared", "default", "instructions", "with the same kernels", "`--ram-budget min`",
        "instructions",
        "layers by rows", "bytes moved by default",
    )  # fmt: skip
    return columns, rows


def input_rows() -> tuple[Columns, Rows]:
    """bench/results_arena.json: models that ask for the rows of their input, and the same without."""
    by_key = {(row["model"], row["mode"]): row for row in _rows("results_arena.json")}
    rows: Rows = []
    for model in dict.fromkeys(model for model, mode in by_key if mode == "input-rows"):
        cells = [model, _number(by_key[model, "default"]["tflm_head_bytes"])]
        for mode in ("default", "input-rows", "min", "input-rows-min"):
            row = by_key[model, mode]
            cells += [_number(row["arena_bytes"]), _number(row["instructions"])]
        rows.append(tuple(cells))
    columns = (
        "model", "TFLM: head", "default", "instructions", "`--input-rows`", "instructions", "`--ram-budget min`", "instructions",
        "both", "instructions",
    )  # fmt: skip
    return columns, rows


def instructions() -> tuple[Columns, Rows]:
    """bench/results_boards.json, Cortex-M4: emitc and TensorFlow Lite Micro."""
    peers, rows = _tflm(), []
    for row in _rows("results_boards.json"):
        if row["board"] == "qemu_m4":
            reference, library = (
                peers[row["model"], "m4", kernels]["instructions"] for kernels in ("reference", "cmsis-nn")
            )
            count = row["instructions"]
            rows.append(
                (
                    row["model"], _number(row["macs"]), _number(count), f"{count / row['macs']:.2f}", _number(reference),
                    f"{count / reference:.2f}", _number(library), f"{count / library:.2f}",
                )
            )  # fmt: skip
    columns = (
        "model", "MACs", "emitc: instructions", "per MAC", "TFLM M4, reference: instructions", "emitc / reference",
        "TFLM M4, CMSIS-NN: instructions", "emitc / CMSIS-NN",
    )  # fmt: skip
    return columns, rows


def headline() -> tuple[Columns, Rows]:
    """The README's: the three figures of the Cortex-M4 and TensorFlow Lite Micro's with its fastest kernels."""
    peers, rows = _tflm(), []
    for row in _rows("results_boards.json"):
        if row["board"] == "qemu_m4":
            tflm = peers[row["model"], "m4", "cmsis-nn"]
            names = ("instructions", "arena_bytes", "flash_bytes")
            cells = [cell for name in names for cell in (_number(row[name]), _number(tflm[name]))]
            rows.append((row["model"], *cells))
    return ("model", "instructions", "TFLM", "arena, bytes", "TFLM", "flash, bytes", "TFLM"), rows


def compile_time() -> tuple[Columns, Rows]:
    """bench/results_compile_time.json: one row for each model, one group of columns for each target."""
    by_key = {(row["model"], row["target"]): row for row in _rows("results_compile_time.json")}
    targets = tuple(dict.fromkeys(target for _, target in by_key))
    rows: Rows = []
    for model in dict.fromkeys(model for model, _ in by_key):
        seconds = [
            by_key[model, target][key] for target in targets for key in ("seconds", "median_seconds", "import_seconds")
        ]
        rows.append((model, *(f"{value:.2f}" for value in seconds)))
    return ("model", *(name for target in targets for name in (target, "median", "imports"))), rows


def memory() -> tuple[Columns, Rows]:
    """bench/results_boards.json, Cortex-M4: flash, arena and stack."""
    peers, rows = _tflm(), []
    for row in _rows("results_boards.json"):
        if row["board"] == "qemu_m4":
            tflm = peers[row["model"], "m4", "reference"]
            pairs = [
                (_number(row[f"{what}_bytes"]), _number(tflm[f"{what}_bytes"])) for what in ("flash", "arena", "stack")
            ]
            (flash, flash_tflm), *rest = pairs
            code = _number(row["code_bytes"])
            rows.append((row["model"], flash, code, flash_tflm, *(cell for pair in rest for cell in pair)))
    columns = (
        "model", "emitc: flash", "of which code", "TFLM M4, reference: flash", "emitc: arena", "TFLM M4, reference: arena",
        "emitc: stack", "TFLM M4, reference: stack",
    )  # fmt: skip
    return columns, rows


def cores() -> tuple[Columns, Rows]:
    """bench/results_boards.json, the other cores, and TensorFlow Lite Micro with CMSIS-NN where that is known."""
    peers, by_key = _tflm(), {(row["model"], row["board"]): row for row in _rows("results_boards.json")}
    boards = {
        "qemu_m55": "M55",
        "qemu_m3": "M3",
        "qemu_m0_big": "M0",
        "qemu_rv32": "RV32IMAC",
        "qemu_rv32v": "with Zve32x",
    }
    columns: list[str] = ["model"]
    for board, name in boards.items():
        columns += [f"emitc: {name}", f"TFLM {name}, CMSIS-NN", "emitc / it"] if board in PEERS else [f"emitc: {name}"]
    rows: Rows = []
    for model in dict.fromkeys(model for model, _ in by_key):
        cells = [model]
        for board in boards:
            count = by_key[model, board].get("instructions")
            cells.append(_number(count))
            if board in PEERS:
                tflm = peers[model, PEERS[board], "cmsis-nn"]["instructions"]
                cells += [_number(tflm), f"{count / tflm:.2f}" if count else "-"]
        rows.append(tuple(cells))
    return tuple(columns), rows


def library() -> tuple[Columns, Rows]:
    """bench/results_cmsis_nn.json: every choice of kernels on both cores."""
    peers = _tflm()
    by_key = {(row["model"], row["board"], row["kernels"]): row for row in _rows("results_cmsis_nn.json")}
    rows: Rows = []
    for board in ("qemu_m4", "qemu_m55"):
        for model in dict.fromkeys(model for model, _, _ in by_key):
            counts = [by_key[model, board, kernels]["instructions"] for kernels in ("portable", "cmsis-nn", "auto")]
            tflm = peers[model, PEERS[board], "cmsis-nn"]["instructions"]
            share = f"{counts[-1] / tflm:.2f}"
            rows.append((model, PEERS[board].upper(), *map(_number, counts), _number(tflm), share))
    return ("model", "core", "emitc's own", "cmsis-nn", "auto", "TFLM with CMSIS-NN", "auto / TFLM"), rows


def steps() -> tuple[Columns, Rows]:
    """bench/results_steps.json: instructions of run and of all steps, and the longest step."""
    rows: Rows = []
    for row in _rows("results_steps.json"):
        core = row["board"].removeprefix("qemu_").removesuffix("_big").upper()
        counts = (row["run"], row["instructions"], row["longest"], row["estimated_cycles"])
        rows.append((row["model"], core, _number(row["steps"]), *map(_number, counts), row["longest_of"]))
    names = (
        "model",
        "core",
        "steps",
        "instructions of run",
        "of all steps",
        "of the longest",
        "longest estimated, cycles",
    )
    return (*names, "longest"), rows


def accuracy() -> tuple[Columns, Rows]:
    """bench/results_accuracy.json: right answers of each float net and of what the default settings make of it."""
    rows: Rows = []
    for row in _rows("results_accuracy.json"):
        if row["settings"] == "default":
            shares = (f"{100 * row[side] / row['images']:.2f} %" for side in ("float", "c"))
            lost = f"{100 * (row['float'] - row['c']) / row['images']:.2f}"
            rows.append((row["model"], *shares, lost, _number(row["differing_from_engine"]), f"{row['sqnr_db']:.1f}"))
    return ("net", "float", "int8, generated C", "points lost", "differ from ONNX Runtime", "signal to noise, dB"), rows


def remedies() -> tuple[Columns, Rows]:
    """bench/results_accuracy.json: signal to noise and points lost by the settings of the quantizer."""
    by_key = {(row["model"], row["settings"]): row for row in _rows("results_accuracy.json")}
    settings = [name for name in dict.fromkeys(name for _, name in by_key) if name != "auto"]
    rows: Rows = []
    for model in dict.fromkeys(model for model, _ in by_key):
        found = [by_key[model, name] for name in settings]
        cells = [f"{r['sqnr_db']:.1f} dB, {100 * (r['float'] - r['c']) / r['images']:.2f}" for r in found]
        rows.append((model, *cells, " and ".join(by_key[model, "auto"]["remedies"]) or "-"))
    return ("net", *settings, "taken by auto"), rows


def wake_words() -> tuple[Columns, Rows]:
    """bench/results_wake_words.json: instructions of a frame by kernels, and the memory of emitc's own."""
    peers = _tflm()
    by_key = {(row["model"], row["board"], row["kernels"]): row for row in _rows("results_wake_words.json")}
    rows: Rows = []
    for board in ("qemu_m4", "qemu_m55"):
        for model in dict.fromkeys(model for model, _, _ in by_key):
            ours = {kernels: by_key[model, board, kernels] for kernels in ("portable", "cmsis-nn")}
            tflm, portable = peers[model, PEERS[board], "cmsis-nn"], ours["portable"]
            counts = [row["instructions"] for row in ours.values()]
            rows.append(
                (
                    model, PEERS[board].upper(), *map(_number, counts), _number(tflm["instructions"]),
                    f"{min(counts) / tflm['instructions']:.2f}", _number(portable["arena_bytes"] + portable["state_bytes"]),
                    _number(tflm["arena_bytes"]),
                )
            )  # fmt: skip
    columns = (
        "model", "core", "emitc's own", "cmsis-nn", "TFLM with CMSIS-NN", "the better / TFLM", "emitc's own: arena and state",
        "TFLM: arena",
    )  # fmt: skip
    return columns, rows


def size() -> tuple[Columns, Rows]:
    """bench/results_size.json: code and instructions of `--optimize size` and those of speed."""
    fast = {(row["model"], row["board"]): row for row in _rows("results_boards.json")}
    rows: Rows = []
    for row in _rows("results_size.json"):
        speed = fast[row["model"], row["board"]]
        rows.append(
            (
                row["model"], _number(speed["code_bytes"]), _number(row["code_bytes"]),
                f"{row['code_bytes'] / speed['code_bytes']:.2f}", _number(speed["flash_bytes"]), _number(row["flash_bytes"]),
                f"{row['instructions'] / speed['instructions']:.2f}",
            )
        )  # fmt: skip
    columns = (
        "model",
        "code, speed",
        "code, size",
        "size / speed",
        "flash, speed",
        "flash, size",
        "instructions, size / speed",
    )
    return columns, rows


def twins() -> tuple[Columns, Rows]:
    """bench/results_twins.json: ONNX nets and TFLite nets of the same shapes."""
    by_key = {(row["model"], row["board"]): row["instructions"] for row in _rows("results_twins.json")}
    rows: Rows = []
    for net, twin in TWINS.items():
        cells = [net]
        for board in ("qemu_m4", "qemu_m55", "qemu_m3"):
            first, second = by_key[net, board], by_key[twin, board]
            cells += [_number(first), _number(second), f"{second / first:.2f}"]
        rows.append(tuple(cells))
    columns = [f"{core}: {what}" for core in ("M4F", "M55", "M3") for what in ("TFLite", "ONNX", "ONNX / TFLite")]
    return ("net", *columns), rows


def untuned() -> tuple[Columns, Rows]:
    """bench/networks/results_untuned.json: nets that no kernel was tuned for, now and at an earlier commit."""
    rows: Rows = []
    for row in _rows("networks/results_untuned.json"):
        pairs = [(row[f"earlier_{what}"], row[what]) for what in ("cycles", "arena_bytes", "flash_bytes")]
        cells = [text for before, now in pairs for text in (_number(before), _number(now))]
        rows.append((row["model"], *cells[:2], f"{pairs[0][1] / pairs[0][0]:.2f}", *cells[2:]))
    kinds = ("arena before", "arena", "flash before", "flash")
    return ("net", "cycles before", "cycles", "now / before", *kinds), rows


def layers() -> tuple[Columns, Rows]:
    """bench/results_layers.json: each layer of the nets on two cores; layers that are alike share a row."""
    by_key = {(row["model"], row["board"]): row["layers"] for row in _rows("results_layers.json")}
    rows: Rows = []
    for net in dict.fromkeys(net for net, _ in by_key):
        same_cells: dict[tuple[str, ...], list[int]] = {}
        for four, vector in zip(by_key[net, "qemu_m4"], by_key[net, "qemu_m55"], strict=True):
            assert four["index"] == vector["index"]
            cells = (four["op"], _number(four["macs"] or None))
            for layer in (four, vector):
                per = (
                    f"{layer['instructions'] / layer['macs']:.2f}" if layer["macs"] else _number(layer["instructions"])
                )
                cells = (*cells, layer["variant"], per)
            same_cells.setdefault(cells, []).append(four["index"])
        rows += [(net, ", ".join(map(str, indices)), *cells) for cells, indices in same_cells.items()]
    return (
        "net",
        "layers",
        "operator",
        "MACs",
        "M4",
        "instructions per MAC, M4",
        "M55",
        "instructions per MAC, M55",
    ), rows


def estimates() -> tuple[Columns, Rows]:
    """bench/results_cycles.json: estimated milliseconds of emitc on boards whose times others have published, with those."""
    columns = tuple(column.removesuffix(">") for column in timing.COLUMNS)
    return columns, timing.compared(_rows("results_cycles.json"))


def cycles() -> tuple[Columns, Rows]:
    """bench/results_cycles.json: estimated cycles of emitc without wait states, and constant bytes."""
    by_key = {(row["model"], row["board"]): row for row in _rows("results_cycles.json")}
    rows: Rows = [
        (
            net,
            *(_number(by_key[net, board]["cycles"]) for board in timing.BOARDS),
            _number(by_key[net, "qemu_m4"]["constant_bytes_read"]),
        )
        for net in timing.NETS
    ]
    return ("net", "Cortex-M4F", "Cortex-M33", "Cortex-M55", "constant bytes read, Cortex-M4F"), rows


def pareto() -> tuple[Columns, Rows]:
    """bench/results_pareto.json: flash against estimated cycles of a Cortex-M4F."""
    stored = json.loads((BENCH / "results_pareto.json").read_text(encoding="utf-8"))["rows"]
    return tuple(name.removesuffix(">") for name in trading.COLUMNS), [
        (network, f"`{options}`" if options.startswith("--") else options, *cells)
        for network, options, *cells in trading.lines(stored)
    ]


def staging() -> tuple[Columns, Rows]:
    """bench/results_staging.json: weights that are read from a serial flash, and copied to RAM."""
    stored = json.loads((BENCH / "results_staging.json").read_text(encoding="utf-8"))["rows"]
    return tuple(name.removesuffix(">") for name in copying.COLUMNS), copying.lines(stored)


def copies() -> tuple[Columns, Rows]:
    """bench/results_copies.json: estimates for NUCLEO-L4R5ZI with and without copies of weights."""
    stored = json.loads((BENCH / "results_copies.json").read_text(encoding="utf-8"))["rows"]
    return tuple(name.removesuffix(">") for name in copying.NUCLEO_COLUMNS), [
        (network, f"`{options}`" if options.startswith("--") else options, *cells)
        for network, options, *cells in copying.nucleo_lines(stored)
    ]


def calibration() -> tuple[Columns, Rows]:
    """bench/published_times.json: measured cycles of a published program, and those of the model."""
    rows: Rows = []
    for board in ("nRF5340-DK", "NUCLEO-L4R5ZI"):
        measured, flash = timing.measured_cycles(board), timing.flash_of(board)
        for net, plain in timing.modelled_cycles(board, timing.NO_WAITS).items():
            modelled = timing.modelled_cycles(board, flash)[net]
            error = f"{100 * (modelled / measured[net] - 1):+.1f} %"
            cells = [_number(round(cycles / 1e3)) for cycles in (measured[net], plain, modelled)]
            rows.append((board, net, *cells, error))
    return ("board", "net", "1000 cycles, measured", "model, no wait states", "model of the board", "error"), rows


def hot() -> tuple[Columns, Rows]:
    """bench/results_hot_operators.json: in how many nets an operator is hot, and its largest share, on either board."""
    content = json.loads((BENCH / "results_hot_operators.json").read_text(encoding="utf-8"))
    rows: Rows = []
    for op, types in dict.fromkeys((row["op"], row["types"]) for row in content["hot"]):
        cells = [op, types.replace(">", " to ")]
        for board in ("qemu_m4", "qemu_m55"):
            key = (op, types, board)
            matching = [row for row in content["hot"] if (row["op"], row["types"], row["board"]) == key]
            largest = max(matching, key=lambda row: row["share"], default=None)
            cells.append(str(len(matching)) if matching else "-")
            cells.append(f"{100 * largest['share']:.0f} % of {largest['model']}" if largest else "-")
        rows.append(tuple(cells))
    return ("operator", "types", "M4F: nets", "M4F: most", "M55: nets", "M55: most"), rows


def vela_files() -> tuple[Columns, Rows]:
    """bench/results_vela_files.json: one row for each memory mode and compiler, and one for emitc's own cutting."""
    stored = json.loads((BENCH / "results_vela_files.json").read_text(encoding="utf-8"))
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in stored["files"]:
        older = "older compiler" if row["way"].endswith("legacy") else "vela"
        groups.setdefault(f"{older}, {row['way'].split()[1]}", []).append(row)
    groups["`--npu`"] = stored["own"]
    rows: Rows = []
    for name, members in groups.items():
        sums = [sum(row[key] for row in members) for key in ("streams", "elements")]
        apart = sum(row["differing"] + row["from_memory"] + row["from_original"] for row in members)
        vain = sum(row["arena_planned"] - row["arena_observed"] for row in members)
        rows.append((name, *map(_number, (len(members), *sums, apart, vain))))
    return ("compiled by", "nets>", "streams>", "elements>", "differing>", "arena bytes untouched>"), sorted(rows)


def _random_graphs() -> dict[str, Any]:
    results: dict[str, Any] = json.loads((BENCH / "results_random_graphs.json").read_text(encoding="utf-8"))
    return results


def random_verdicts() -> tuple[Columns, Rows]:
    """bench/results_random_graphs.json: graphs by format and verdict, and all modes that were drawn."""
    rows: Rows = []
    for name, count in sorted(_random_graphs()["verdicts"].items()):
        source_format, _, verdict = name.partition(" ")
        if count:
            rows.append((source_format, verdict, _number(count)))
    return ("format", "verdict", "graphs"), rows


def random_modes() -> tuple[Columns, Rows]:
    """bench/results_random_graphs.json: how many graphs ran in each mode."""
    return ("mode", "graphs"), [
        (f"`{name}`", _number(count)) for name, count in sorted(_random_graphs()["modes"].items())
    ]


def random_coverage() -> tuple[Columns, Rows]:
    """bench/results_random_graphs.json: operators by type, and the values that their attributes had."""
    results = _random_graphs()
    types: dict[tuple[str, str], dict[str, int]] = {}
    for name, count in results["operators"].items():
        source_format, op, dtype = name.split(" ", 2)
        types.setdefault((source_format, op), {})[dtype] = count
    values: dict[tuple[str, str], dict[str, list[str]]] = {}
    for name in results["attributes"]:
        source_format, _, rest = name.partition(" ")
        operator, _, pair = rest.rpartition("=")[0].rpartition(".")
        values.setdefault((source_format, operator), {}).setdefault(pair, []).append(rest.rpartition("=")[2])
    rows: Rows = []
    for key, counts in sorted(types.items()):
        ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        attributes = [f"{name}: {_values(drawn)}" for name, drawn in sorted(values.get(key, {}).items())]
        cells = " ".join(f"{dtype}:{count}" for dtype, count in ordered), "; ".join(attributes) or "-"
        rows.append((f"`{key[1]}`", key[0], *cells))
    return ("operator", "format", "nodes by type", "values of attributes"), rows


def _values(drawn: list[str]) -> str:
    return " ".join(drawn) if len(drawn) <= 5 else f"{len(drawn)} values"


def random_disputes() -> tuple[Columns, Rows]:
    """bench/results_random_graphs.json: operators and types that LiteRT computes otherwise than TFLite Micro."""
    rows: Rows = []
    for name, entry in sorted(_random_graphs()["engine_faults"].items()):
        rows.append(
            (f"`{name.removeprefix('tflite ')}`", _number(sum(entry["count"].values())), f"`{entry['example']}`")
        )
    return ("operator and type", "graphs", "example"), rows


def cost() -> tuple[Columns, Rows]:
    """bench/results_cost.json: errors of `emitc.cost`, by kind of model."""
    rows = []
    for name, group in costing.groups_of(_rows("results_cost.json")).items():
        board, _, kind = name.partition(": ")
        seconds = sorted(row["seconds"] for row in group)
        cells = (*costing.spread(group, "error"), *costing.spread(group, "flash_error")[:2])
        rows.append(
            (f"`{board}`", kind, str(len(group)), *cells, f"{seconds[len(seconds) // 2]:.2f}", f"{seconds[-1]:.2f}")
        )
    return (
        "board", "models", "number", "instructions: median error", "90 %", "worst", "flash: median error", "90 %",
        "seconds: median", "most",
    ), rows  # fmt: skip


def profile() -> tuple[Columns, Rows]:
    """bench/results_profile.json: what recording adds to a run."""
    columns = ("model", "board", "layers recorded", "one run of", "instructions", "with a profile", "share")
    rows = [
        (
            row["model"], row["board"], str(row["records"]), str(row["interval"]), _number(round(row["instructions"])),
            _number(round(row["profiled"])), f"{100 * (row['profiled'] / row['instructions'] - 1):.2f} %",
        )
        for row in _rows("results_profile.json")
    ]  # fmt: skip
    return columns, rows


def stack() -> tuple[Columns, Rows]:
    """bench/results_stack.json: the stated stack against the one that a run takes, by board."""
    stored = json.loads((BENCH / "results_stack.json").read_text(encoding="utf-8"))
    rows = []
    for board in stacking.BOARDS:
        own = [row for row in stored if row["board"] == board]
        stated = [row for row in own if row["bound_bytes"] is not None]
        over = sorted(row["bound_bytes"] - row["peak_bytes"] for row in stated if row["peak_bytes"] is not None)
        part = sum(bool(row["outside"]) for row in stated)
        counts = (len(own), len(stated), part, len(over), round(statistics.median(over)), over[0], over[-1])
        rows.append((f"`{board}`", *map(_number, counts)))
    columns = (
        "board", "models", "with a bound", "of them not whole", "run", "bound less stack of the run: median", "least", "most",
    )  # fmt: skip
    return columns, rows


TABLES = {
    "accuracy": accuracy,
    "remedies": remedies,
    "stack": stack,
    "profile": profile,
    "random_verdicts": random_verdicts,
    "random_modes": random_modes,
    "random_coverage": random_coverage,
    "random_disputes": random_disputes,
    "headline": headline,
    "hot": hot,
    "size": size,
    "twins": twins,
    "untuned": untuned,
    "layers": layers,
    "calibration": calibration,
    "cost": cost,
    "cycles": cycles,
    "pareto": pareto,
    "staging": staging,
    "copies": copies,
    "estimates": estimates,
    "rtl": rtl,
    "arena": arena,
    "input_rows": input_rows,
    "instructions": instructions,
    "compile_time": compile_time,
    "memory": memory,
    "cores": cores,
    "library": library,
    "wake_words": wake_words,
    "steps": steps,
    "vela_files": vela_files,
}
"""By the name that a page asks for."""
