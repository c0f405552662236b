"""Training while a stream of its own copies the next batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import tilewright
import tilewright.nn as nn
import tilewright.nn.functional as F


class Prefetcher:
    """The next batch goes to the device in a stream of its own."""

    def __init__(self, batches: list[tuple[np.ndarray, np.ndarray]], careful: bool):
        self.left = iter(batches)
        self.stream, self.careful = tilewright.cuda.Stream(), careful
        self.fetch()

    def fetch(self) -> None:
        self.next: Any = None
        found = next(self.left, None)
        if found is not None:
            with tilewright.cuda.stream(self.stream):
                x, y = (
                    tilewright.from_numpy(a).pin_memory().cuda(non_blocking=True) for a in found
                )
                self.next = x.sub(0.5).mul(2), y

    def take(self) -> Any:
        taken = self.next
        if taken is not None:
            if self.careful:
                tilewright.cuda.current_stream().wait_stream(self.stream)
                for t in taken:
                    t.record_stream(tilewright.cuda.current_stream())
            self.fetch()
        return taken


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3 * 16, 5)

    def forward(self, x: tilewright.Tensor) -> tilewright.Tensor:
        return self.head(F.max_pool2d(F.relu(self.norm(self.conv(x))), 2).flatten(1))


def batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [
        (rng.random((4, 1, 8, 8), np.float32), rng.integers(0, 5, 4).astype(np.int64))
        for _ in range(count)
    ]


def train(device: str, steps: int, careful: bool = True, read: bool = False) -> Iterator[Any]:
    """The losses; `read` tells whether each is looked at in its step."""
    tilewright.manual_seed(0)
    model = Net().to(device)
    optimizer = tilewright.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if device == "cpu":
        found: Any = iter(
            [
                (tilewright.from_numpy(x) * 2 - 1, tilewright.from_numpy(y))
                for x, y in batches(steps)
            ]
        )
        take = lambda: next(found, None)  # noqa: E731
    else:
        take = Prefetcher(batches(steps), careful).take
    batch = take()
    while batch:
        loss = F.cross_entropy(model(batch[0]), batch[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item() if read else loss.detach()
        batch = take()
