"""Timing of work on a GPU, and comparison of results."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

CACHE = 256 << 20
"""Bytes written to flush the cache. An H200's holds 60 MB."""
MOST = 20
"""Calls of a candidate in one round, at most."""


class Card:
    """Times work on a GPU with one framework."""

    def __init__(self, torch: Any, device: str):
        self.torch, self.device = torch, device
        self.cache = torch.empty(CACHE // 4, dtype=torch.int32, device=device)

    def milliseconds(self, step: Callable[[], Any], count: int) -> list[float]:
        """Milliseconds on the card for each of `count` calls."""
        cuda = self.torch.cuda
        events = [[cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        for start, end in events:
            self.cache.zero_()  # also gives the host time to prepare the step
            start.record()
            result = step()  # ours runs when the event is recorded, if it's still wanted then
            end.record()
            del result
        cuda.synchronize()
        return [start.elapsed_time(end) for start, end in events]


def interleaved(
    candidates: dict[str, tuple[Card, Callable[[], Any]]], rounds: int = 5
) -> dict[str, float]:
    """Milliseconds a call of each candidate: the median over interleaved rounds."""
    seen: dict[str, list[float]] = {name: [] for name in candidates}
    counts = {}
    for name, (card, step) in candidates.items():
        for _ in range(4):  # compiles, makes graphs
            first = card.milliseconds(step, 1)[0]
        counts[name] = max(3, min(MOST, int(30 / max(first, 0.05))))
    for _ in range(rounds):
        for name, (card, step) in candidates.items():
            seen[name] += card.milliseconds(step, counts[name])
    return {name: statistics.median(times) for name, times in seen.items()}


def kernels(torch: Any, step: Callable[[], Any]) -> dict[str, float]:
    """Microseconds of each kernel and copy of one call, by name, from CUPTI through `torch`, which
    is PyTorch. It sees the kernels of all libraries of the process."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        result = step()
        torch.cuda.synchronize()
        del result
    found: dict[str, float] = {}
    for event in seen.events():
        if event.device_type.name == "CUDA":
            found[event.name] = found.get(event.name, 0.0) + event.device_time_total
    return found


def sample(result: Any) -> Any:
    """Up to four million elements on the CPU. A full copy of the largest results would take
    minutes."""
    step = max(1, result.numel() >> 22) | 1
    return result.detach().reshape(-1)[::step].cpu()


def errors(results: list[Any], expected: list[np.ndarray]) -> float:
    """The largest difference, in units of the largest element of each result."""
    worst = 0.0
    for a, b in zip(results, expected, strict=True):
        array = np.asarray(a.detach().cpu().double().numpy())
        scale = max(float(np.abs(b).max(initial=0)), 1e-30)
        worst = max(worst, float(np.abs(array - b).max(initial=0)) / scale)
        if np.isnan(array).any():
            return math.nan
    return worst
