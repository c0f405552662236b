"""Boxes: non-maximum suppression."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line

from ..functions.from_data import beside


def nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
    """The places of the boxes that stay, by falling score.

    dets: boxes [n, 4] as x1, y1, x2, y2. scores: [n]. A box goes where one with a higher score
    stays and their areas' intersection over union is more than the threshold. Its work depends on
    values, so it runs at once.
    """
    if dets.dim() != 2 or dets.shape[1] != 4:
        raise RuntimeError(f"nms: boxes should be [n, 4], got {tuple(dets.shape)}{at_user_line()}")
    if tuple(scores.shape) != (dets.shape[0],):
        raise RuntimeError(
            f"nms: boxes and scores should have same number of elements in dimension 0, got "
            f"{dets.shape[0]} and {tuple(scores.shape)}{at_user_line()}"
        )
    boxes = dets.detach().cpu().float() if dets.element_size() < 4 else dets.detach().cpu()
    x1, y1, x2, y2 = np.ascontiguousarray(boxes.numpy().T)
    order = np.argsort(-scores.detach().cpu().float().numpy(), kind="stable")
    kept = np.array(_kept(x1[order], y1[order], x2[order], y2[order], iou_threshold), np.intp)
    return beside(order[kept].astype(np.int64), dets)


def _kept(x1: Any, y1: Any, x2: Any, y2: Any, threshold: float) -> list[int]:
    """The places of the boxes that stay among those that are sorted by their scores."""
    areas = (x2 - x1) * (y2 - y1)
    left = np.arange(len(x1))
    kept = []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(int(best))
        wide = np.minimum(x2[best], x2[left]) - np.maximum(x1[best], x1[left])
        high = np.minimum(y2[best], y2[left]) - np.maximum(y1[best], y1[left])
        shared = np.maximum(wide, 0) * np.maximum(high, 0)
        with np.errstate(invalid="ignore", divide="ignore"):  # two boxes without areas: NaN stays
            left = left[~(shared / (areas[best] + areas[left] - shared) > threshold)]
    return kept
