"""The loss of recurrent neural network transducers: Graves, Sequence Transduction with Recurrent
Neural Networks (2012)."""

from __future__ import annotations

import numpy as np

from tilewright.ir.location import at_user_line

from .._tensor import Tensor
from ..functions.from_data import beside


def rnnt_loss_forward(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    clamp: float,
    fused_log_softmax: bool,
) -> tuple[Tensor, Tensor]:
    """(costs [batch], their gradient by the logits).

    logits: [batch, frames, labels + 1, classes], log-probabilities unless `fused_log_softmax`.
    targets: [batch, labels]. clamp: the bound of the gradient's elements, none if it is not
    positive. The work depends on lengths, so it runs at once, in float64.
    """
    if logits.dim() != 4 or targets.dim() != 2 or logits.shape[0] != targets.shape[0]:
        raise RuntimeError(
            "rnnt_loss: expected logits [batch, frames, labels + 1, classes] and targets "
            f"[batch, labels], got {tuple(logits.shape)} and {tuple(targets.shape)}"
            f"{at_user_line()}"
        )
    scores = logits.detach().cpu().double().numpy()
    labels = targets.cpu().numpy()
    frames, counts = logit_lengths.cpu().numpy(), target_lengths.cpu().numpy()
    if frames.max() != scores.shape[1] or counts.max() + 1 != scores.shape[2]:
        raise RuntimeError(
            f"rnnt_loss: expected as many frames and labels as the longest lengths, {frames.max()} "
            f"and {counts.max()}, got logits {tuple(logits.shape)}{at_user_line()}"
        )
    if fused_log_softmax:
        scores = scores - scores.max(-1, keepdims=True)
        scores = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    costs, grad = np.empty(len(scores)), np.zeros(scores.shape)
    for i, (t, u) in enumerate(zip(frames.tolist(), counts.tolist())):
        costs[i], grad[i, :t, : u + 1] = _one(
            scores[i, :t, : u + 1], labels[i, :u], blank, fused_log_softmax
        )
    if clamp > 0:
        grad = grad.clip(-clamp, clamp)
    kind = logits.dtype.np
    return beside(costs.astype(kind), logits), beside(grad.astype(kind), logits)


def _one(
    scores: np.ndarray, labels: np.ndarray, blank: int, fused: bool
) -> tuple[float, np.ndarray]:
    """The cost of one example, and the gradient: scores [frames, labels + 1, classes]."""
    frames, rows = scores.shape[:2]
    at = np.arange(rows - 1)
    stay, emit = scores[..., blank], np.full((frames, rows), -np.inf)
    emit[:, :-1] = scores[:, at, labels]
    before = _sums(stay, emit)
    total = before[-1, -1] + stay[-1, -1]
    following = _sums_after(stay, emit)
    by_blank = np.exp(before + stay + following[1:, :-1] - total)
    by_label = np.exp(before + emit + following[:-1, 1:] - total)
    grad = np.exp(scores) * (by_blank + by_label)[..., None] if fused else np.zeros(scores.shape)
    grad[..., blank] -= by_blank
    grad[:, at, labels] -= by_label[:, :-1]
    return -total, grad


def _diagonals(frames: int, rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The points (t, u) with t + u = 0, 1, …: none depends on others of its diagonal."""
    found = []
    for d in range(frames + rows - 1):
        t = np.arange(max(0, d - rows + 1), min(frames, d + 1))
        found.append((t, d - t))
    return found


def _sums(stay: np.ndarray, emit: np.ndarray) -> np.ndarray:
    """The logarithm of the sum over all ways to each point [frames, labels + 1]. stay, emit: the
    scores of a step from a point to the next frame, and to the next label."""
    out = np.full(stay.shape, -np.inf)
    out[0, 0] = 0
    for t, u in _diagonals(*stay.shape)[1:]:
        by_blank = np.where(t > 0, out[t - 1, u] + stay[t - 1, u], -np.inf)
        by_label = np.where(u > 0, out[t, u - 1] + emit[t, u - 1], -np.inf)
        out[t, u] = np.logaddexp(by_blank, by_label)
    return out


def _sums_after(stay: np.ndarray, emit: np.ndarray) -> np.ndarray:
    """The same over all ways from each point to the end, the last blank of the last point. It has
    a frame and a label more, beyond which only the end is."""
    frames, rows = stay.shape
    out = np.full((frames + 1, rows + 1), -np.inf)
    out[frames, rows - 1] = 0
    for t, u in reversed(_diagonals(frames, rows)):
        out[t, u] = np.logaddexp(out[t + 1, u] + stay[t, u], out[t, u + 1] + emit[t, u])
    return out
