"""Searches a small network for handwritten digits that fits 32 KB of RAM and 1 MB of flash, with emitc as the judge.

    python examples/architecture_search/search.py [--trials N] [--seed N]

Data       scikit-learn's digits: 1797 images of 8x8 pixels, a quarter of them for the comparison at the end.
Network    conv (filters from k-means over patches) - relu - average pool - fully connected, trained by scikit-learn.
Judge      emitc quantizes and compiles each candidate: bytes of arena and of constants are exact, and the accuracy is that of
           the generated C. A candidate that does not fit is not built.
Result     the candidates that no other one is better than in accuracy and RAM, and the best one with the seed's RAM.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import optuna
from onnx import TensorProto, helper, numpy_helper
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

import emitc
from emitc.calibrate.calibrate import quantize_model

RAM_BYTES, FLASH_BYTES = 32 << 10, 1 << 20
TARGET = "cortex-m4f"
SIDE, CLASSES = 8, 10
PATCHES, CALIBRATION = 4000, 100


@dataclass(frozen=True)
class Network:
    """filters: of the convolution, with kernel x kernel weights. pool: side of the average pool, 1 for none."""

    filters: int
    kernel: int
    stride: int
    pool: int
    regularisation: float

    @property
    def size(self) -> int:
        """Side of the convolution's output."""
        return (SIDE - self.kernel) // self.stride + 1

    @property
    def pooled(self) -> int:
        """Side of the pool's output."""
        return self.size // self.pool


SEED_NETWORK = Network(filters=12, kernel=3, stride=1, pool=2, regularisation=1.0)


@dataclass(frozen=True)
class Judged:
    """A candidate as emitc measures it. accuracy: on the validation images, or the test images."""

    network: Network
    arena_bytes: int
    constant_bytes: int
    accuracy: float


class Digits:
    """Images [N, 1, 8, 8] from 0 to 1, and labels: for training, to choose candidates, and for the last comparison."""

    def __init__(self) -> None:
        images, labels = load_digits(return_X_y=True)
        images = (images.reshape(-1, 1, SIDE, SIDE) / 16).astype(np.float32)
        rest, self.test, kept, self.test_labels = train_test_split(images, labels, test_size=0.25, random_state=0)
        split = train_test_split(rest, kept, test_size=0.25, random_state=0)
        self.train, self.valid, self.train_labels, self.valid_labels = split


def patches(images: Any, network: Network) -> Any:
    """The patches that the convolution reads: [N, size, size, kernel * kernel]."""
    windows = np.lib.stride_tricks.sliding_window_view(images[:, 0], (network.kernel, network.kernel), axis=(1, 2))
    return windows[:, :: network.stride, :: network.stride].reshape(len(images), network.size, network.size, -1)


def filters_of(network: Network, images: Any) -> tuple[Any, Any]:
    """Weights [filters, kernel * kernel] and biases: how well a patch fits one of the k-means, above the average fit."""
    found = patches(images, network).reshape(-1, network.kernel**2)
    found = found[np.random.default_rng(0).choice(len(found), PATCHES, replace=False)]
    centres = KMeans(network.filters, n_init=1, random_state=0).fit(found - found.mean(axis=1, keepdims=True))
    weights = centres.cluster_centers_ / (np.linalg.norm(centres.cluster_centers_, axis=1, keepdims=True) + 1e-3)
    weights -= weights.mean(axis=1, keepdims=True)
    return weights.astype(np.float32), -(found @ weights.T).mean(axis=0).astype(np.float32)


def features(network: Network, weights: Any, biases: Any, images: Any) -> Any:
    """What the fully connected layer reads: [N, filters * pooled * pooled]."""
    maps = np.maximum(patches(images, network) @ weights.T + biases, 0).transpose(0, 3, 1, 2)
    side = network.pooled * network.pool
    blocks = maps[:, :, :side, :side].reshape(
        len(images), -1, network.pooled, network.pool, network.pooled, network.pool
    )
    return blocks.mean(axis=(3, 5)).reshape(len(images), -1)


def trained(network: Network, digits: Digits) -> onnx.ModelProto:
    """The trained network as float ONNX."""
    weights, biases = filters_of(network, digits.train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the solver stops early for some candidates, which the accuracy shows
        last = LogisticRegression(C=network.regularisation, max_iter=300)
        last.fit(features(network, weights, biases, digits.train), digits.train_labels)
    constants = {
        "w": weights.reshape(-1, 1, network.kernel, network.kernel),
        "b": biases,
        "dense": last.coef_.astype(np.float32).T,
        "bias": last.intercept_.astype(np.float32),
    }
    pool = [network.pool, network.pool]
    nodes = [
        helper.make_node("Conv", ["image", "w", "b"], ["maps"], strides=[network.stride, network.stride]),
        helper.make_node("Relu", ["maps"], ["fits"]),
        helper.make_node("AveragePool", ["fits"], ["pooled"], kernel_shape=pool, strides=pool),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "dense", "bias"], ["digit"]),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, SIDE, SIDE])],
        [helper.make_tensor_value_info("digit", TensorProto.FLOAT, [1, CLASSES])],
        [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def compiled(network: Network, digits: Digits, folder: Path) -> emitc.api.Model:
    """The candidate quantized to int8 and compiled; nothing of it is built."""
    model, calibration, quantized = (folder / name for name in ("digits.onnx", "calibration.npz", "digits_int8.onnx"))
    onnx.save(trained(network, digits), model)
    np.savez(calibration, **{f"in0_{k}": image[None] for k, image in enumerate(digits.train[:CALIBRATION])})
    quantize_model(model, calibration, quantized, force=True)
    return emitc.compile_model(quantized, target=TARGET, io="int8")


def accuracy(model: emitc.api.Model, images: Any, labels: Any) -> float:
    """The share of images that the generated C names correctly."""
    return float((model.run(images, quantize=True).argmax(axis=1) == labels).mean())


def judged(network: Network, digits: Digits, *, test: bool = False) -> Judged | None:
    """The candidate's measures; None where it does not fit."""
    with tempfile.TemporaryDirectory() as folder:
        model = compiled(network, digits, Path(folder))
        program = model.program
        if program.plan.arena_bytes > RAM_BYTES or program.constant_bytes > FLASH_BYTES:
            return None
        images, labels = (digits.test, digits.test_labels) if test else (digits.valid, digits.valid_labels)
        return Judged(network, program.plan.arena_bytes, program.constant_bytes, accuracy(model, images, labels))


def search(digits: Digits, trials: int, seed: int) -> list[Judged]:
    """All candidates that fit, the seed network first. The sampler looks for accuracy and for little RAM at once."""
    found: list[Judged] = []

    def objective(trial: optuna.Trial) -> tuple[float, float]:
        network = Network(
            trial.suggest_int("filters", 4, 64, step=4),
            trial.suggest_int("kernel", 2, 5),
            trial.suggest_int("stride", 1, 2),
            trial.suggest_int("pool", 1, 3),
            trial.suggest_float("regularisation", 0.01, 100, log=True),
        )
        result = judged(network, digits) if network.pooled else None
        if result is None:
            raise optuna.TrialPruned
        found.append(result)
        return result.accuracy, result.arena_bytes

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=optuna.samplers.TPESampler(seed=seed))
    study.enqueue_trial({name: getattr(SEED_NETWORK, name) for name in Network.__dataclass_fields__})
    study.optimize(objective, n_trials=trials)
    return found


def front(found: list[Judged]) -> list[Judged]:
    """The candidates that no other one is better than in accuracy and arena, the smallest arena first."""
    best: list[Judged] = []
    for each in sorted(found, key=lambda one: (one.arena_bytes, -one.accuracy)):
        if not best or each.accuracy > best[-1].accuracy:
            best.append(each)
    return best


def line(what: str, each: Judged) -> str:
    """One candidate as text."""
    net = each.network
    shape = (
        f"{net.filters:2} filters {net.kernel}x{net.kernel}/{net.stride}, pool {net.pool}, C {net.regularisation:.3g}"
    )
    return f"{what:<6} {each.accuracy:6.2%}  arena {each.arena_bytes:5} B  constants {each.constant_bytes:6} B  {shape}"


def main() -> None:
    """Searches, and compares the best candidate that has no more RAM than the seed network on images that decided nothing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    digits = Digits()
    found = search(digits, arguments.trials, arguments.seed)
    print(f"{len(found)} of {arguments.trials} candidates fit; accuracy on the validation images:")
    for each in front(found):
        print(line("front", each))
    seed = found[0]
    best = max((each for each in found if each.arena_bytes <= seed.arena_bytes), key=lambda each: each.accuracy)
    print("on the test images, at the seed's RAM:")
    for what, network in (("seed", seed.network), ("best", best.network)):
        result = judged(network, digits, test=True)
        assert result is not None
        print(line(what, result))


if __name__ == "__main__":
    main()
