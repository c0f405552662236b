"""Train a small CNN on real handwritten digits, show what was compiled, export it to ONNX.

python examples/digits.py [--epochs 12] [--device cpu|interpret] [--out out/digits]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import tilewright as torch
import tilewright.nn as nn
import tilewright.nn.functional as F
from tilewright.utils.data import DataLoader, TensorDataset

SEED = 0
BATCH = 128


class DigitsNet(nn.Module):
    """Two convolutions, each with batch norm, and two linear layers, for images of 8 x 8."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, kernel_size=3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Dropout(0.2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 64),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(64, 10),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images))


def load() -> tuple[TensorDataset, TensorDataset]:
    """1,797 images of real handwriting, a fifth of them held out."""
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    parts = train_test_split(images, labels, test_size=0.2, random_state=SEED, stratify=labels)
    x_train, x_test, y_train, y_test = map(torch.from_numpy, parts)
    return TensorDataset(x_train, y_train), TensorDataset(x_test, y_test)


def train(model: nn.Module, data: TensorDataset, epochs: int, device: str) -> None:
    loader = DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    model.train()
    with tqdm(total=epochs * len(loader), unit="step") as bar:
        for epoch in range(epochs):
            for images, labels in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(images.to(device)), labels.to(device))
                loss.backward()
                optimizer.step()
                schedule.step()
                bar.set_postfix(epoch=epoch + 1, loss=f"{loss.item():.3f}")
                bar.update()


def accuracy(model: nn.Module, data: TensorDataset, device: str) -> float:
    images, labels = data.tensors
    model.eval()
    with torch.no_grad():
        predicted = model(images.to(device)).argmax(dim=1).cpu()
    return (predicted == labels).float().mean().item()


def export(model: nn.Module, data: TensorDataset, path: Path) -> float:
    """Writes the model as ONNX; the largest difference to onnxruntime over several batch sizes."""
    import onnxruntime

    images = data.tensors[0]
    torch.onnx.export(
        model,
        (images[:1],),
        path,
        input_names=["images"],
        output_names=["scores"],
        dynamic_axes={"images": {0: "batch"}, "scores": {0: "batch"}},
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    worst = 0.0
    with torch.no_grad():
        for batch in (1, 3, len(images)):
            (theirs,) = session.run(None, {"images": images[:batch].numpy()})
            ours = model(images[:batch]).numpy()
            worst = max(worst, float(np.abs(ours - theirs).max()))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--device", default="cpu", help="cpu, or interpret: Triton's interpreter")
    parser.add_argument("--out", type=Path, default=Path("out/digits"), help="folder for results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(SEED)
    train_data, test_data = load()
    model = DigitsNet().to(options.device)
    start = time.perf_counter()
    train(model, train_data, options.epochs, options.device)
    seconds = time.perf_counter() - start
    score = accuracy(model, test_data, options.device)
    print(f"trained {options.epochs} epochs in {seconds:.1f} s, {score:.2%} right of the held out")

    report = torch.explain()
    step = report.plans[0]  # the busiest: forward, backward and the optimizer's update
    print(
        f"compiled: a training step of {step.ops} recorded ops became {step.launches} kernels in "
        f"{step.compile_seconds:.2f} s; {step.runs} steps took {step.run_seconds:.2f} s, "
        f"{step.run_seconds / step.runs * 1e3:.1f} ms each"
    )
    files = step.write(options.out / "training_step", targets=["sm_90"])
    print(
        f"wrote {len(files)} files to {options.out / 'training_step'}: graph.mlir, kernels/, "
        f"source/ for {step.device}, and the Triton sources in sm_90/"
    )

    path = options.out / "digits.onnx"
    difference = export(model.to("cpu"), test_data, path)
    print(f"exported {path}: onnxruntime differs by at most {difference:.1e}")
    if difference >= 1e-4:
        raise SystemExit("the exported model differs from ours by too much")
    if score < 0.98 and options.epochs >= 12:
        raise SystemExit(f"expected at least 98% right, got {score:.2%}")


if __name__ == "__main__":
    main()
