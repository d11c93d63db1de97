"""Accuracy of the digit classifiers in ONNX: the emitted C against ONNX Runtime on the 397 held-out images.

    python -m bench.digits [--models DIRECTORY] [--data FILE.npz] [--update]

Prints a table and, with --update, writes bench/results_digits.json. Exit code 1 when a net's accuracy differs. Models and images
are those of the corpus next to the checkout; the nets saw none of the images in training.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.output import write_json
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.report.tables import table
from emitc.verify.build import HostModel, build_shared
from emitc.verify.engines.onnx import OnnxRuntimeEngine
from emitc.verify.golden_run import interface_of

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT.parent / "shared" / "models"
RESULTS = Path(__file__).with_name("results_digits.json")
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Right answers of `images` by the engine and by the C, and on how many images the two name the same digit.

    reason: why there is no C, "" when there is.
    """

    model: str
    images: int
    engine: int
    compiled: int
    same: int
    reason: str = ""

    @property
    def equal(self) -> bool:
        """Whether both have the same accuracy, or there is no C to compare."""
        return bool(self.reason) or self.engine == self.compiled


def upsampled(images: Floats, size: int = 16) -> Floats:
    """[N, 8, 8] to [N, size, size], bilinear with half-pixel centres."""
    position = np.clip((np.arange(size) + 0.5) * 8 / size - 0.5, 0, 7)
    first = np.minimum(position.astype(int), 6)
    share = (position - first).astype(np.float32)
    weights = np.zeros((size, 8), np.float32)
    weights[np.arange(size), first] = 1 - share
    weights[np.arange(size), first + 1] = share
    return np.asarray(np.einsum("ya,nab,xb->nyx", weights, images, weights), np.float32)


def inputs_of(name: str, images: Floats) -> Floats:
    """The images [N, 8, 8] in the layout that a net was trained on, by its name."""
    kind = name.removeprefix("digits_").split("_")[0]
    if kind == "mlp":
        return images.reshape(-1, 1, 64)
    if kind == "cnn":
        return images[:, np.newaxis, np.newaxis]
    if kind in ("resnet", "dscnn"):
        return upsampled(images)[:, np.newaxis, np.newaxis]
    return (images.transpose(0, 2, 1) if kind == "tcn1d" else images)[:, np.newaxis]


def quantized(compiled: Compiled, values: Floats) -> NDArray[Any]:
    """The values in the type of the model's input."""
    port = compiled.program.inputs[0]
    if port.dtype == "float32":
        return values
    assert port.scale is not None and port.zero_point is not None
    info = np.iinfo(port.dtype)
    steps = np.rint(values / np.float32(port.scale)) + port.zero_point
    return np.asarray(np.clip(steps, info.min, info.max).astype(port.dtype))


def measure(path: Path, images: Floats, digits: NDArray[np.int64]) -> Accuracy:
    """One net of the corpus over all images [N, 8, 8]."""
    return measured(path, list(inputs_of(path.stem, images)), digits)


def measured(path: Path, images: Sequence[Floats], digits: NDArray[np.int64]) -> Accuracy:
    """One net over images in the shape of its input."""
    try:
        compiled = compile_model(path)
    except EmitcError as error:
        return Accuracy(path.stem, len(images), 0, 0, 0, error.what)
    engine = OnnxRuntimeEngine(compiled.model_bytes)
    answers = []
    with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
        compiled.write(Path(folder) / "package")
        library = build_shared(Path(folder) / "package", Path(folder), trace=False)
        model = HostModel(library, interface_of(compiled))
        for image in images:
            values = quantized(compiled, image)
            answers.append((int(np.argmax(engine.run([values])[0])), int(np.argmax(model.run([values])[0]))))
    classes = np.array(answers)
    right = (classes == digits[:, np.newaxis]).sum(axis=0)
    return Accuracy(path.stem, len(images), int(right[0]), int(right[1]), int((classes[:, 0] == classes[:, 1]).sum()))


def held_out(data: Path) -> tuple[Floats, NDArray[np.int64]]:
    """The images [N, 8, 8] in 0..1 and their digits."""
    arrays = np.load(data)
    return arrays["Xte"].astype(np.float32).reshape(-1, 8, 8), arrays["yte"].astype(np.int64)


def text(results: list[Accuracy]) -> str:
    """The table."""
    rows = [
        (r.model, r.reason or f"{r.engine / r.images:.2%}", "" if r.reason else f"{r.compiled / r.images:.2%}",
         "" if r.reason else f"{r.same} of {r.images}")
        for r in results
    ]  # fmt: skip
    return table(("model", "onnxruntime", "C", "same answer"), rows)


def main() -> int:
    """Measures every digits net of the corpus."""
    parser = argparse.ArgumentParser(
        description="Accuracy of the digit classifiers: the emitted C against onnxruntime."
    )
    parser.add_argument("--models", type=Path, default=CORPUS / "onnx", help="directory of the .onnx files")
    parser.add_argument("--data", type=Path, default=CORPUS / "data" / "digits.npz", help="images: Xte, yte")
    parser.add_argument("--update", action="store_true", help="write results_digits.json")
    arguments = parser.parse_args()
    paths = sorted(arguments.models.glob("digits_*.onnx"))
    if not paths or not arguments.data.is_file():
        parser.error(f"{arguments.models} or {arguments.data} is not there")
    images, digits = held_out(arguments.data)
    results = [measure(path, images, digits) for path in paths]
    print(text(results))
    if arguments.update:
        write_json(RESULTS, [asdict(r) for r in results])
    return 0 if all(r.equal for r in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
