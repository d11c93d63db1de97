"""What quantizing costs: the float nets of the corpus and of `examples/models/float`, on digits that they have not seen.

    python -m bench.accuracy [--models DIRECTORY] [--settings NAME ...] [--json FILE]

Each net is quantized on the first 200 training images of scikit-learn's digits, and tested on the 397 that are no
training images: the float model in ONNX Runtime, the int8 model in ONNX Runtime, and its C. Exit code 1 when the
default settings lose more than one point, or when the C gives another class than ONNX Runtime. Nets of the corpus
need it next to the checkout.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import emitc
from bench.corpus import CORPUS
from bench.digits import inputs_of, upsampled
from emitc.report.tables import table
from emitc.verify.engines.run import answer, engines_in

SHIPPED = Path(__file__).resolve().parents[1] / "examples" / "models" / "float"
RESULTS = Path(__file__).with_name("results_accuracy.json")
STYLES = ("mobilenet_v2", "mobilenet_v3", "resnet18", "shufflenet_v2")
"""Networks of `examples/models/float/make_digit_nets.py`."""
TRAINED, CALIBRATION = 1400, 200
MOST_POINTS = 1.0
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "heads": {"remedies": ("heads",)},
    "equalize": {"remedies": ("equalize",)},
    "bias": {"remedies": ("bias",)},
    "equalize and bias": {"remedies": ("equalize", "bias")},
    "auto": {"auto_remedies": True},
    "mse": {"method": "mse"},
    "percentile": {"method": "percentile"},
    "entropy": {"method": "entropy"},
}
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Net:
    """A float net, its images [N, ...] and the shape of its batch."""

    path: Path
    images: NDArray[np.float32]


def nets(corpus: Path) -> Iterator[Net]:
    """The shipped nets, then those of the corpus that classify digits."""
    pixels = (load_digits().data / 16).astype(np.float32).reshape(-1, 8, 8)
    for name in STYLES:
        yield Net(SHIPPED / f"digits_{name}.onnx", upsampled(pixels)[:, np.newaxis, np.newaxis])
    for path in sorted((corpus / "onnx" / "float").glob("digits_*.onnx")):
        yield Net(path, inputs_of(path.stem, pixels))
    # It was trained on digits of 20 x 20 pixels from 0 to 255 within a border, by other people.
    bordered = np.pad(255 * upsampled(pixels, 20), ((0, 0), (4, 4), (4, 4)))
    yield Net(corpus / "onnx" / "float" / "onnx2c_mnist_cntk.onnx", bordered[:, np.newaxis, np.newaxis])


def measured(net: Net, settings: str, folder: Path) -> Row:
    """Accuracy of a net that is quantized with some settings."""
    labels = load_digits().target
    calibration, test = folder / "calibration.npz", folder / "test.npz"
    np.savez(calibration, allow_pickle=False, X=net.images[:CALIBRATION])
    np.savez(test, allow_pickle=False, X=net.images[TRAINED:], y=labels[TRAINED:])
    with engines_in(_in_this_process):
        made = emitc.quantize(net.path, calibration, folder / "q.onnx", test=test, force=True, **SETTINGS[settings])
    result = made.test
    assert result is not None and result.compared is not None
    count = len(labels) - TRAINED
    return {
        "model": net.path.stem,
        "settings": settings,
        "images": count,
        "float": round(result.compared * count),
        "c": round(result.value * count),
        "differing_from_engine": result.engine_differing,
        "sqnr_db": round(made.quality.outputs[0].sqnr_db, 2),
        "agreement": round(made.quality.outputs[0].agreement or 0.0, 4),
        "remedies": list(made.made.settings.remedies),
    }


def _in_this_process(message: bytes, _: float) -> subprocess.CompletedProcess[bytes]:
    """ONNX Runtime without a process for each run: the models are known."""
    return subprocess.CompletedProcess([], 0, answer(message), b"")


def points(row: Row) -> float:
    """Accuracy that the int8 model has lost, in points of a hundred."""
    return float(100 * (row["float"] - row["c"]) / row["images"])


def text(rows: Sequence[Row]) -> str:
    """The table."""
    cells = [
        (r["model"], r["settings"], f"{r['float'] / r['images']:.2%}", f"{r['c'] / r['images']:.2%}", f"{points(r):.2f}",
         r["differing_from_engine"], f"{r['sqnr_db']:.1f}", " ".join(r["remedies"]))
        for r in rows
    ]  # fmt: skip
    return table(("model", "settings", "float>", "int8 C>", "lost>", "differ>", "dB>", "remedies"), cells, width=150)


def main() -> int:
    """Measures the nets."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=CORPUS, help="directory of the corpus")
    parser.add_argument("--only", default="", help="nets whose name has this in it")
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS), help="those to try")
    parser.add_argument("--json", type=Path, help="write the rows here")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
        for net in nets(arguments.models):
            if arguments.only in net.path.stem:
                rows += [measured(net, name, Path(folder)) for name in arguments.settings]
                print(text(rows[-len(arguments.settings) :]), flush=True)
    if arguments.json:
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        what = "right answers of float nets and of what emitc quantize makes of them, on unseen digits of scikit-learn"
        arguments.json.write_text(f'{{"what":"{what}","rows":[\n{lines}\n]}}\n', encoding="utf-8")
    lost = any(points(row) > MOST_POINTS for row in rows if row["settings"] == "default")
    return int(lost or any(row["differing_from_engine"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
