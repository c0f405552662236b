"""The best alignment of labels with frames: Viterbi's way through CTC's states."""

from __future__ import annotations

import numpy as np

from tilewright.ir.location import at_user_line

from .._tensor import Tensor
from ..functions.from_data import beside


def forced_align(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int
) -> tuple[Tensor, Tensor]:
    """(the label of each frame [1, frames], `log_probs`) for one example.

    log_probs: [1, frames, classes]. targets: [1, labels], without blanks. The work depends on
    values, so it runs at once.
    """
    if log_probs.dim() != 3 or targets.dim() != 2 or log_probs.shape[0] != 1:
        raise RuntimeError(
            "forced_align: expected log_probs [1, frames, classes] and targets [1, labels], got "
            f"{tuple(log_probs.shape)} and {tuple(targets.shape)}{at_user_line()}"
        )
    frames, count = int(input_lengths[0]), int(target_lengths[0])
    if frames != log_probs.shape[1] or count != targets.shape[1]:
        raise RuntimeError(
            f"forced_align: expected the lengths of log_probs and targets, {log_probs.shape[1]} "
            f"and {targets.shape[1]}, got {frames} and {count}{at_user_line()}"
        )
    labels = targets[0].cpu().numpy()
    repeats = int((labels[1:] == labels[:-1]).sum())
    if frames < count + repeats:
        raise RuntimeError(
            f"forced_align: {count} labels, {repeats} of them repeated, don't fit into {frames} "
            f"frames{at_user_line()}"
        )
    states = np.full(2 * count + 1, blank)
    states[1::2] = labels
    scores = log_probs[0].detach().cpu().double().numpy()[:, states]
    found = states[_best(scores, _can_skip(states, blank))]
    return beside(found[None].astype(targets.dtype.np), targets), log_probs


def _can_skip(states: np.ndarray, blank: int) -> np.ndarray:
    """Whether a state may follow that before the last one: a label other than the last label."""
    out = np.zeros(len(states), bool)
    out[2:] = (states[2:] != blank) & (states[2:] != states[:-2])
    return out


def _best(scores: np.ndarray, can_skip: np.ndarray) -> np.ndarray:
    """The state of each frame on the way with the highest sum of scores [frames, states]."""
    frames, count = scores.shape
    best = np.full(count, -np.inf)
    best[:2] = scores[0, :2]
    steps = np.zeros((frames, count), np.int64)
    for t in range(1, frames):
        ways = np.full((3, count), -np.inf)
        ways[0], ways[1, 1:] = best, best[:-1]
        ways[2, 2:] = np.where(can_skip[2:], best[:-2], -np.inf)
        steps[t] = ways.argmax(0)
        best = ways.max(0) + scores[t]
    way = np.empty(frames, np.int64)
    way[-1] = count - 1 if count == 1 or best[-1] > best[-2] else count - 2
    for t in range(frames - 1, 0, -1):
        way[t - 1] = way[t] - steps[t, way[t]]
    return way
