"""HistogramObserver: the range of numbers whose rounding has the least squared error.

The search narrows the range from both ends, by the share of numbers that it cuts off, as long as
the error of rounding all numbers to the range's steps falls (the norm minimization of Caffe2's and
FBGEMM's calibration; Park et al., Deep Learning Inference in Facebook Data Centers, 2018).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes

from ...functions.creation import zeros
from ...functions.from_data import tensor
from .observers import Observer, qparams

_SPLIT = 16  # into how many parts a bin is cut when its numbers move to other bins
_SHARE = 1e-5  # of the numbers, which a step of the search cuts off


def moved(counts: np.ndarray, low: float, high: float, new: tuple[float, float]) -> np.ndarray:
    """The counts of the bins of [low, high] in as many bins of the range `new`."""
    bins = len(counts)
    parts = np.repeat(counts / np.float32(_SPLIT), _SPLIT).astype(np.float32)
    width = np.float32((high - low) / (bins * _SPLIT))
    middles = np.linspace(low, high, bins * _SPLIT + 1, dtype=np.float32)[:-1] + width / 2
    edges = np.linspace(*new, bins + 1, dtype=np.float32)
    places = np.clip(np.searchsorted(edges, middles, side="right") - 1, 0, bins - 1)
    return np.bincount(places, parts, bins).astype(np.float32)


def _third(begin: Any, end: Any) -> Any:
    """The integral of x^2."""
    return (end * end * end - begin * begin * begin) / np.float32(3)


def error(counts: np.ndarray, width: np.float32, first: int, last: int, steps: int) -> float:
    """The squared error of the numbers in bins of `width`, rounded to `steps` steps that the bins
    from `first` to `last` span. Numbers lie evenly in each bin."""
    step = np.float32(width * (last - first + 1) / steps)
    if step == 0:
        return 0.0
    half = step / 2
    begin = (np.arange(len(counts), dtype=np.float32) - first) * width
    end = begin + width
    at_begin = np.clip(np.floor(begin / step), 0, steps - 1)
    at_end = np.clip(np.floor(end / step), 0, steps - 1)
    density = counts / width
    first_part = _third(begin - (at_begin + np.float32(0.5)) * step, half)
    whole_steps = (at_end - at_begin - 1) * _third(-half, half)
    last_part = _third(-half, end - (at_end * step + half))
    return float(((first_part + whole_steps + last_part) * density).sum(dtype=np.float32))


def best_range(counts: np.ndarray, low: float, high: float, steps: int) -> tuple[float, float]:
    """The part of [low, high] with the least error."""
    bins = len(counts)
    width = np.float32(np.float32(high - low) / np.float32(bins))
    total, below = float(counts.sum(dtype=np.float32)), np.cumsum(counts, dtype=np.float32)
    first, last = 0, bins - 1
    cut_below, kept = 0.0, 1.0
    least = float("inf")
    while cut_below < kept:
        left = max(first, int(np.searchsorted(below, np.float32((cut_below + _SHARE) * total))))
        left = min(left, last)
        right = int(np.searchsorted(below, np.float32((kept - _SHARE) * total), side="right")) - 1
        right = max(first, min(right, last))
        new_first, new_last = first, last
        if left - first > last - right:
            new_first, cut_below = left, cut_below + _SHARE
        else:
            new_last, kept = right, kept - _SHARE
        if (new_first, new_last) == (first, last):
            continue
        found = error(counts, width, new_first, new_last, steps)
        if found > least:
            break
        least, first, last = found, new_first, new_last
    start = np.float32(low)
    return float(start + width * np.float32(first)), float(start + width * np.float32(last + 1))


class HistogramObserver(Observer):
    """Counts of the numbers in `bins` bins between the least and the largest so far. The range of
    the results is the part of it with the least error."""

    histogram: Any
    _reduces_symmetric = True

    def __init__(self, bins: int = 2048, **options: Any):
        super().__init__(**options)
        self.bins = bins
        self.upsample_rate = _SPLIT
        self.dst_nbins = 2 ** (8 * self.dtype.itemsize)
        self.register_buffer("histogram", zeros(bins))
        self._buffers["min_val"] = self._buffers.pop("min_val")  # PyTorch's order
        self._buffers["max_val"] = self._buffers.pop("max_val")

    def forward(self, x_orig: Any) -> Any:
        if not x_orig.numel():
            return x_orig
        x = x_orig.detach().to(dtypes.float32)
        low, high = float(x.min()), float(x.max())
        if np.isinf(low) or np.isinf(high):
            x = x[~x.isinf()]
            low, high = float(x.min()), float(x.max())
        known = (float(self.min_val), float(self.max_val))
        if known[0] > known[1]:
            counts = self._counts(x, low, high)
        else:
            low, high = min(low, known[0]), max(high, known[1])
            counts, before = self._counts(x, low, high), np.array(self.histogram.numpy())
            if known[0] == known[1] and (low, high) != known:
                spread = np.zeros(self.bins, np.float32)
                place = int((known[0] - low) * (self.bins / (high - low)))
                spread[min(place, self.bins - 1)] = before.sum()
                before = spread
            elif (low, high) != known:
                before = moved(before, *known, (low, high))
            counts = counts + before
        self.histogram, self.min_val, self.max_val = tensor(counts), tensor(low), tensor(high)
        return x_orig

    def _counts(self, x: Any, low: float, high: float) -> np.ndarray:
        return np.asarray(x.histc(self.bins, low, high).numpy(), np.float32)

    def calculate_qparams(self, **options: Any) -> Any:
        if float(self.min_val) > float(self.max_val):
            return self._unseen()
        low, high = float(self.min_val), float(self.max_val)
        found = best_range(self.histogram.numpy(), low, high, self.dst_nbins)
        return qparams(self, *map(tensor, found))
