"""Connectionist temporal classification; Graves et al., ICML 2006.

The labels of a target stand between blanks: the states blank, l1, blank, l2, …, blank. A path stays
in its state, goes to the next one, or skips a blank between two different labels. `reached` walks
over time with the logarithms of the forward variables: alpha[t, n, s] for all paths that are in
state s at time t.

Its derivative walks back with shares: what alpha[t, n, s] gives to each state that it leads to, as
a part of that state. These are probabilities, so the gradient has no logarithm.
"""

from __future__ import annotations

import math
from typing import Any

from .loop import loop, parts
from .node import Node, grad_enabled
from .ops.binary import eq, maximum
from .ops.generate import constant
from .ops.movement import cat, expand, pad, slice_axis
from .ops.ternary import where
from .ops.unary import exp, full_like, log, zeros_like
from .passes.autodiff import through_decomposition


def _shifted(x: Node, by: int, fill: float) -> Node:
    """x[n, s - by], with `fill` where that is outside."""
    size = x.shape[1]
    by = max(-size, min(by, size))
    low, high = max(by, 0), max(-by, 0)
    inner = slice_axis(x, 1, high, size - low)
    return pad(inner, (0, low), (0, high), value=constant(fill, x.dtype))


def log_sum(*terms: Node) -> Node:
    """log(sum of exp(terms)), also where all of them are -inf."""
    nothing = full_like(terms[0], -math.inf)
    largest = terms[0]
    for term in terms[1:]:
        largest = maximum(largest, term)
    # Differences of infinities are NaN, and so is the gradient of the logarithm of zero.
    dead = eq(largest, nothing)
    base = where(dead, zeros_like(largest), largest)
    total = exp(terms[0] - base)
    for term in terms[1:]:
        total = total + exp(term - base)
    return where(dead, nothing, log(where(dead, full_like(total, 1), total)) + base)


def _step(score: Node, entry: Node, before: Node, skips: Node) -> tuple[Node, ...]:
    """The forward variables after one more element: score[n, s] of it. entry: where paths begin.
    skips: the states that are reached over a blank."""
    nothing = full_like(before, -math.inf)
    start = where(entry, zeros_like(before), nothing)
    over = where(skips, _shifted(before, 2, -math.inf), nothing)
    return (log_sum(before, _shifted(before, 1, -math.inf), over, start) + score,)


def _back_step(
    above: Node, now: Node, later: Node, score: Node, gains: Node, skips: Node
) -> tuple[Node, ...]:
    """The cotangents of the forward variables `now`: `above`, and the shares of those of the next
    time, `gains`. later, score: the forward variables and scores of the next time."""
    nothing = full_like(later, -math.inf)
    # The part of `later` that came over a transition is exp(now + score - later).
    rest = where(eq(later, nothing), nothing, score - later)
    total = above + _share(now, rest, gains, 0)
    total = total + _share(now, rest, gains, 1)
    over = where(skips, rest, nothing)
    return (total + _share(now, over, gains, 2),)


def _share(now: Node, rest: Node, gains: Node, by: int) -> Node:
    """What each state gets from the state `by` further on."""
    return exp(now + _shifted(rest, -by, -math.inf)) * _shifted(gains, -by, 0)


def _later(x: Node) -> Node:
    """x[t + 1], with -inf behind the last."""
    nothing = expand(constant(-math.inf, x.dtype), (1, *x.shape[1:]))
    return cat([slice_axis(x, 0, 1, x.shape[0]), nothing], 0)


def _vjp(g: Node, out: Node, *_: Any) -> tuple[Node | None, ...]:
    scores, _entry, initial, skips = out.operands
    if grad_enabled():
        return through_decomposition(out, g)
    (above,), (now,) = parts(out, g), parts(out)
    nothing = expand(constant(0, initial.dtype), initial.shape)
    back = reached_grad(above, now, _later(now), _later(scores), nothing, skips, 4, 1, True)
    return parts(back)[0], None, None, None


_reached = loop("ctc", _step, (), vjp=_vjp)
reached_grad = loop("ctc_grad", _back_step, ())


def reached(scores: Node, entry: Node, skips: Node) -> Node:
    """The logarithms of the forward variables [t, n, s].

    scores[t, n, s]: log-probabilities of the states. entry[t, n, s]: bool, where a path may begin.
    skips[n, s]: bool, whether a path may come over the state before. A gradient flows to `scores`.
    """
    initial = expand(constant(-math.inf, scores.dtype), scores.shape[1:])
    return parts(_reached(scores, entry, initial, skips, 2, 1, False))[0]
