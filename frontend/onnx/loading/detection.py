"""NonMaxSuppression. How many boxes are left depends on values, so the host finds out."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import operator


@operator(
    "NonMaxSuppression",
    host=("boxes", "scores", "most", "overlap", "least"),
    known="function",
)
def non_max_suppression(
    boxes: Any,
    scores: Any,
    most: Any = None,
    overlap: Any = None,
    least: Any = None,
    *,
    center_point_box: int = 0,
) -> Any:
    """(batch, class, box) of the boxes that are kept, by falling score in each class."""
    count = 0 if most is None else int(most.item())
    threshold = 0.0 if overlap is None else float(overlap.item())
    found: list[tuple[int, int, int]] = []
    for n in range(scores.shape[0]):
        low, high = _corners(boxes[n], bool(center_point_box))
        for c in range(scores.shape[1]):
            kept = _kept(low, high, scores[n, c], count, threshold, least)
            found += [(n, c, box) for box in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def _corners(boxes: np.ndarray, centred: bool) -> tuple[np.ndarray, np.ndarray]:
    if centred:
        middle, half = boxes[:, :2], boxes[:, 2:] / 2
        return middle - half, middle + half
    return np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])


def _kept(
    low: np.ndarray,
    high: np.ndarray,
    scores: np.ndarray,
    count: int,
    threshold: float,
    least: np.ndarray | None,
) -> list[int]:
    """The boxes of one class that overlap no better one by more than `threshold`."""
    order = np.argsort(-scores, kind="stable")
    if least is not None:
        order = order[scores[order] > float(least.item())]
    areas = (high - low).prod(1)
    kept: list[int] = []
    while order.size and len(kept) < count:
        best, order = int(order[0]), order[1:]
        kept.append(best)
        sides = np.minimum(high[best], high[order]) - np.maximum(low[best], low[order])
        shared = np.maximum(sides, 0).prod(1)
        union = areas[best] + areas[order] - shared
        ratio = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
        order = order[ratio <= threshold]
    return kept
