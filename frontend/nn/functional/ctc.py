"""The loss of connectionist temporal classification; Graves et al., ICML 2006."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import ctc, ops
from tilewright.ir.dtype import SIGNED, UNSIGNED, float32, float64, int64
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.op import not_implemented

from ..._tensor import Tensor
from ...functions.call import public
from ...functions.from_data import beside
from ...functions.promotion import to
from ...recording import record_fallible
from ...recording.builders import FLOAT32

# States come in the order blank, label, blank, …, label, blank: label i is state 2 i + 1.


def _by_state(scores: Node, targets: Node, blank: int) -> tuple[Node, Node]:
    """The class of each state, [n, s], and whether it is reached over the blank before it."""
    rows, labels = targets.shape
    gaps = ops.expand(ops.constant(blank, int64), (rows, labels, 1))
    pairs = ops.reshape(ops.cat([gaps, ops.unsqueeze(targets, 2)], 2), (rows, 2 * labels))
    classes = ops.cat([pairs, ops.expand(ops.constant(blank, int64), (rows, 1))], 1)
    count = 2 * labels + 1
    two = min(2, count)
    earlier = ops.pad(
        ops.slice_axis(classes, 1, 0, count - two), (0, two), (0, 0),
        value=ops.constant(blank, int64),
    )  # fmt: skip
    differs = ops.bitwise_and(
        ops.ne(classes, ops.full_like(classes, blank)), ops.ne(classes, earlier)
    )
    return classes, differs


def _ctc(x: Node, targets: Node, lengths: Node, counts: Node, blank: int) -> Node:
    """-log p(target) of each row. x[t, n, c]: log-probabilities; targets[n, s], of which the first
    counts[n] labels hold; the first lengths[n] elements of a row hold."""
    steps, rows, classes = x.shape
    held = ops.lt(ops.reshape(ops.iota(targets.shape[1]), (1, -1)), ops.reshape(counts, (-1, 1)))
    targets = ops.where(held, targets, ops.full_like(targets, blank))
    targets = ops.checked(targets, classes, 1, "target")
    states, skips = _by_state(x, targets, blank)
    size = states.shape[1]
    shape = (steps, rows, size)
    time = ops.expand(ops.reshape(ops.iota(steps), (steps, 1, 1)), shape)
    state = ops.expand(ops.reshape(ops.iota(size), (1, 1, size)), shape)
    entry = ops.bitwise_and(
        ops.eq(time, ops.full_like(time, 0)), ops.lt(state, ops.full_like(state, 2))
    )
    at = (
        ops.reshape(ops.iota(steps), (steps, 1, 1)),
        ops.reshape(ops.iota(rows), (1, rows, 1)),
        ops.unsqueeze(states, 0),
    )
    scores = ops.gather(x, *at, 0)
    reached = ctc.reached(scores, entry, skips)
    # A path ends in the last label or in the blank behind it, at the last element.
    row = ops.iota(rows)
    last = ops.maximum(lengths - 1, ops.full_like(lengths, 0))
    end = counts * 2

    def at_end(state: Node) -> Node:
        return ops.gather(reached, last, row, ops.maximum(state, ops.full_like(state, 0)), 0)

    none = ops.full_like(at_end(end), -math.inf)
    label = ops.where(ops.gt(counts, ops.full_like(counts, 0)), at_end(end - 1), none)
    loss = -ctc.log_sum(at_end(end), label)
    empty = ops.eq(lengths, ops.full_like(lengths, 0))
    sure = ops.eq(counts, ops.full_like(counts, 0))
    nothing = ops.where(sure, ops.full_like(loss, 0), ops.full_like(loss, math.inf))
    loss = ops.where(empty, nothing, loss)
    # PyTorch's gradient is that for scores before log_softmax: the probabilities are added.
    length = ops.reshape(lengths, (1, rows, 1))
    held = ops.lt(ops.reshape(ops.iota(steps), (steps, 1, 1)), length)
    p = ops.exp(x)
    p = ops.where(ops.expand(held, p.shape), p, ops.full_like(p, 0))
    mass = ops.squeeze(ops.sum(p, (0, 2)), (0, 2))
    return loss + (mass - ops.detach(mass))


def _losses(
    x: Node, targets: Node, lengths: Node, counts: Node, blank: int, zero_infinity: bool,
    reduction: str,
) -> Node:  # fmt: skip
    if x.dtype not in (float32, float64):  # autocast makes float32 of others
        raise not_implemented("ctc_loss_cpu", x.dtype)
    loss = _ctc(x, targets, lengths, counts, blank)
    if zero_infinity:
        zero = ops.full_like(loss, 0)
        loss = ops.where(ops.eq(loss, ops.full_like(loss, math.inf)), zero, loss)
    if reduction == "mean":
        labels = to(ops.maximum(counts, ops.full_like(counts, 1)), loss.dtype)
        return _mean(loss / labels)
    return ops.squeeze(ops.sum(loss, (0,)), (0,)) if reduction == "sum" else loss


def _mean(x: Node) -> Node:
    return ops.squeeze(ops.sum(x, (0,)), (0,)) / x.shape[0]


def _lengths(name: str, given: Any, like: Any) -> np.ndarray:
    values = np.asarray(given.cpu()._array() if isinstance(given, Tensor) else given)
    if values.size and values.dtype.kind not in "iu":
        raise RuntimeError(f"{name}_lengths must be integral{at_user_line()}")
    return values.astype(np.int64).reshape(-1)


def _rows_of(targets: Any, counts: np.ndarray) -> Any:
    """targets[n, s] of concatenated targets: each row repeats its last label, which isn't read."""
    widest = int(counts.max(initial=0))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
    index = starts[:, None] + np.minimum(np.arange(widest), np.maximum(counts[:, None] - 1, 0))
    if widest:
        index = np.minimum(index, max(targets.shape[0] - 1, 0))
    return targets[beside(index, targets)] if widest else targets[:0].reshape(len(counts), 0)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability that log_probs[t, n, c] (or [t, c]) give the target of each row.

    targets[n, s], or all of them one after another. input_lengths[n] and target_lengths[n] say how
    many elements and labels of a row hold. `blank` is the class of no label. The mean is over rows,
    each divided by the length of its target. zero_infinity: rows that are too short for their
    target count as 0, and have no gradient.
    """
    if targets.dtype.category not in (SIGNED, UNSIGNED):
        raise RuntimeError(f"targets must be integral, got {targets.dtype}{at_user_line()}")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction{at_user_line()}")
    alone = log_probs.dim() == 2
    lengths = _lengths("input", input_lengths, log_probs)
    counts = _lengths("target", target_lengths, log_probs)
    if alone:
        log_probs = log_probs.unsqueeze(1)
    steps, rows, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError(f"blank must be in label range{at_user_line()}")
    for name, values in (("input", lengths), ("target", counts)):
        if len(values) != rows:
            raise RuntimeError(f"{name}_lengths must be of size batch_size{at_user_line()}")
        if (values < 0).any():
            bad = values[values < 0][0]
            raise RuntimeError(
                f"Expected {name}_lengths to have value at least 0, but got value {bad}"
                f"{at_user_line()}"
            )
    if (lengths > steps).any():
        raise RuntimeError(
            f"Expected input_lengths to have value at most {steps}, but got value "
            f"{lengths.max()}{at_user_line()}"
        )
    if targets.dim() == 1:
        if alone or int(counts.sum()) == targets.shape[0]:
            targets = _rows_of(targets, counts)
        else:
            raise RuntimeError(
                f"Expected tensor to have size {int(counts.sum())} at dimension 0, but got size "
                f"{targets.shape[0]} for argument 'targets'{at_user_line()}"
            )
    elif targets.shape[0] != rows or targets.shape[1] < counts.max(initial=0):
        raise RuntimeError(
            f"Expected tensor to have size at least {counts.max(initial=0)} at dimension 1, but "
            f"got size {tuple(targets.shape)} for argument 'targets'{at_user_line()}"
        )
    made = record_fallible(
        _losses, log_probs, targets.long(), beside(lengths, log_probs), beside(counts, log_probs),
        int(blank), bool(zero_infinity), reduction,
    )  # fmt: skip
    return made.squeeze(0) if alone and reduction == "none" else made


def _name(args: Any) -> str:
    return {"mean": "MeanBackward0", "sum": "SumBackward0"}.get(args[-1], "CtcLossBackward0")


@public("ctc_loss", _losses, method=False, casts=FLOAT32, gradient=_name)
def ctc_loss_by_number(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: int = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """torch.ctc_loss: that of nn.functional, with a number for the reduction: 0 is none, 1 the
    mean, 2 the sum."""
    named = ("none", "mean", "sum")[reduction]
    return ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, named, zero_infinity)
