"""Writes four float networks in the style of torchvision's: trained on the digits of scikit-learn, exported by PyTorch.

    python examples/models/float/make_digit_nets.py [--output DIRECTORY] [--only NAME]

PyTorch and scikit-learn are needed to run this script, and by nothing else in this repository. The networks have the blocks of
torchvision's MobileNetV2, ResNet-18, MobileNetV3 and ShuffleNetV2 with few channels. Their input is a digit of 16 x 16 pixels
from 0 to 1, enlarged from 8 x 8. They learn from the first 1 400 images of the set; the other 397 are for tests. Seeds are
fixed, and PyTorch runs on one thread: one version of PyTorch on one kind of processor writes the same bytes.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

HERE = Path(__file__).resolve().parent
TRAINED, EPOCHS, BATCH, RATE, SEED = 1400, 60, 50, 4e-3, 7
OPSET = 18


def images() -> tuple[Tensor, Tensor]:
    """The digits as float32 [N, 1, 16, 16] from 0 to 1, and their labels [N]."""
    pixels, labels = load_digits(return_X_y=True)
    small = torch.tensor(pixels.reshape(-1, 1, 8, 8) / 16, dtype=torch.float32)
    return functional.interpolate(small, scale_factor=2, mode="bilinear", align_corners=False), torch.tensor(labels)


def unit(
    taken: int, made: int, size: int, stride: int = 1, groups: int = 1, act: type[nn.Module] | None = nn.ReLU
) -> Any:
    """Convolution, batch normalization and activation."""
    conv = nn.Conv2d(taken, made, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(made), *([act()] if act else []))


class SqueezeExcitation(nn.Module):
    """torchvision's: a factor for each channel from the means of all channels."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean = functional.adaptive_avg_pool2d(x, 1)
        return x * functional.hardsigmoid(self.second(functional.relu(self.first(mean))))


class InvertedResidual(nn.Module):
    """The block of MobileNetV2, with squeeze and excitation that of MobileNetV3."""

    def __init__(
        self, taken: int, hidden: int, made: int, size: int, stride: int, act: type[nn.Module], squeezed: int = 0
    ) -> None:
        super().__init__()
        parts = [unit(taken, hidden, 1, act=act)] if hidden != taken else []
        parts.append(unit(hidden, hidden, size, stride, hidden, act))
        parts += [SqueezeExcitation(hidden, squeezed)] if squeezed else []
        self.parts = nn.Sequential(*parts, unit(hidden, made, 1, act=None))
        self.adds = stride == 1 and taken == made

    def forward(self, x: Tensor) -> Tensor:
        y = self.parts(x)
        return x + y if self.adds else y


class BasicBlock(nn.Module):
    """The block of ResNet-18."""

    def __init__(self, taken: int, made: int, stride: int) -> None:
        super().__init__()
        self.parts = nn.Sequential(unit(taken, made, 3, stride), unit(made, made, 3, act=None))
        self.shortcut = unit(taken, made, 1, stride, act=None) if stride > 1 or taken != made else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.parts(x) + self.shortcut(x))


class ShuffleBlock(nn.Module):
    """The block of ShuffleNetV2: half of the channels go through, then both halves are interleaved."""

    def __init__(self, taken: int, made: int, stride: int) -> None:
        super().__init__()
        half, inner = made // 2, taken if stride > 1 else made // 2
        self.stride = stride
        self.first = (
            nn.Sequential(unit(taken, taken, 3, stride, taken, None), unit(taken, half, 1))
            if stride > 1
            else nn.Identity()
        )
        self.second = nn.Sequential(unit(inner, half, 1), unit(half, half, 3, stride, half, None), unit(half, half, 1))

    def forward(self, x: Tensor) -> Tensor:
        if self.stride > 1:
            y = torch.cat((self.first(x), self.second(x)), dim=1)
        else:
            kept, changed = x.chunk(2, dim=1)
            y = torch.cat((kept, self.second(changed)), dim=1)
        n, channels, height, width = y.shape
        return y.view(n, 2, channels // 2, height, width).transpose(1, 2).reshape(n, channels, height, width)


def classifier(features: list[nn.Module], channels: int, *head: nn.Module) -> nn.Module:
    """Features, their means, and a dense layer with a score for each digit."""
    last = [nn.Dropout(0.1), nn.LazyLinear(10)]
    return nn.Sequential(*features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), *head, *last)


def mobilenet_v2() -> nn.Module:
    blocks: list[nn.Module] = [unit(1, 8, 3, act=nn.ReLU6), InvertedResidual(8, 8, 8, 3, 1, nn.ReLU6)]
    for taken, made, stride in ((8, 12, 2), (12, 12, 1), (12, 16, 2), (16, 16, 1), (16, 24, 1)):
        blocks.append(InvertedResidual(taken, 6 * taken, made, 3, stride, nn.ReLU6))
    return classifier([*blocks, unit(24, 64, 1, act=nn.ReLU6)], 64)


def resnet18() -> nn.Module:
    blocks: list[nn.Module] = [unit(1, 8, 3), nn.MaxPool2d(3, 2, 1)]
    taken = 8
    for made, stride in ((8, 1), (12, 2), (16, 2), (24, 1)):
        blocks += [BasicBlock(taken, made, stride), BasicBlock(made, made, 1)]
        taken = made
    return classifier(blocks, taken)


def mobilenet_v3() -> nn.Module:
    swish = nn.Hardswish
    blocks: list[nn.Module] = [
        unit(1, 8, 3, act=swish),
        InvertedResidual(8, 8, 8, 3, 1, nn.ReLU, 4),
        InvertedResidual(8, 32, 12, 3, 2, nn.ReLU),
        InvertedResidual(12, 40, 12, 3, 1, nn.ReLU),
        InvertedResidual(12, 48, 16, 5, 2, swish, 12),
        InvertedResidual(16, 64, 16, 5, 1, swish, 16),
        unit(16, 64, 1, act=swish),
    ]
    return classifier(blocks, 64, nn.Linear(64, 64), swish())


def shufflenet_v2() -> nn.Module:
    blocks: list[nn.Module] = [unit(1, 8, 3)]
    taken = 8
    for made, repeats in ((24, 3), (48, 4)):
        blocks += [ShuffleBlock(taken, made, 2), *(ShuffleBlock(made, made, 1) for _ in range(repeats - 1))]
        taken = made
    return classifier([*blocks, unit(48, 64, 1)], 64)


NETS = {
    "mobilenet_v2": mobilenet_v2,
    "resnet18": resnet18,
    "mobilenet_v3": mobilenet_v3,
    "shufflenet_v2": shufflenet_v2,
}


def trained(net: nn.Module, x: Tensor, y: Tensor) -> nn.Module:
    """The network after EPOCHS passes over images that are shifted by up to two pixels."""
    net(x[:2])
    steps = EPOCHS * (len(x) // BATCH)
    optimizer = torch.optim.AdamW(net.parameters(), RATE, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps)
    net.train()
    for _ in range(EPOCHS):
        for part in torch.randperm(len(x)).split(BATCH):
            down, right = (int(torch.randint(-2, 3, ())) for _ in range(2))
            shifted = torch.roll(functional.pad(x[part], (2, 2, 2, 2)), (down, right), (2, 3))[:, :, 2:-2, 2:-2]
            loss = functional.cross_entropy(net(shifted), y[part], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def exported(net: nn.Module, example: Tensor, *, keep_batch_norm: bool) -> bytes:
    """The file, without the exporter's notes. keep_batch_norm: as operators, where others have them in the weights."""
    file = io.BytesIO()
    if keep_batch_norm:
        mode = torch.onnx.TrainingMode.PRESERVE
        more: dict[str, Any] = {"training": mode, "do_constant_folding": False}
    else:
        more = {}
    names: dict[str, Any] = {"input_names": ["image"], "output_names": ["scores"]}
    torch.onnx.export(net, (example,), file, opset_version=OPSET, dynamo=False, **names, **more)
    model = onnx.load_from_string(file.getvalue())
    del model.metadata_props[:]
    model.producer_version = model.doc_string = model.graph.doc_string = ""
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))


def main() -> None:
    """Trains and writes the networks."""
    parser = argparse.ArgumentParser(description="Train and write the digit networks in the style of torchvision's.")
    parser.add_argument("--output", type=Path, default=HERE, help="directory; default: that of this script")
    parser.add_argument("--only", choices=sorted(NETS), help="one of the networks")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    x, y = images()
    for name, make in NETS.items():
        if arguments.only in (None, name):
            torch.manual_seed(SEED)
            net = trained(make(), x[:TRAINED], y[:TRAINED])
            with torch.no_grad():
                right = float((net(x[TRAINED:]).argmax(1) == y[TRAINED:]).float().mean())
            model = exported(net, x[:1], keep_batch_norm=name == "resnet18")
            (arguments.output / f"digits_{name}.onnx").write_bytes(model)
            unseen = f"{np.round(100 * right, 2)} % of {len(x) - TRAINED} unseen digits"
            print(f"digits_{name}.onnx: {len(model)} bytes, {unseen}", flush=True)


if __name__ == "__main__":
    main()
