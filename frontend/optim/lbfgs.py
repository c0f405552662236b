"""L-BFGS: a quasi-Newton method that keeps the last steps instead of a matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line

from .. import recording
from ..autograd import enable_grad, no_grad
from ..functions.complexes import view_as_real
from ..functions.creation import zeros
from ..functions.from_data import beside
from ..functions.joining import cat
from .hooks import with_hooks
from .optimizer import Optimizer, check, number

if TYPE_CHECKING:
    from .._tensor import Tensor
    from .optimizer import ParamsT


def _parts(x: Any) -> Any:
    """The numbers of a tensor: of a complex one, its real and imaginary parts."""
    return view_as_real(x) if x.dtype.is_complex else x


class Point(NamedTuple):
    """A point on the line of a search: the length of the step, the loss there, its gradient, and
    the slope along the direction."""

    t: float
    loss: float
    gradient: Any
    slope: float


class Search:
    """A search for a step that meets the strong Wolfe conditions; Nocedal and Wright, Numerical
    Optimization, algorithms 3.5 and 3.6. The steps that it tries are PyTorch's (minFunc's).

    evaluate: the point at the end of a step. least: the length of an interval that isn't searched
    further. most: the number of points that may be evaluated after the first; count: of all.
    """

    decrease, curvature = 1e-4, 0.9

    def __init__(
        self, evaluate: Callable[[float], Point], start: Point, least: float, most: int
    ) -> None:
        self.evaluate, self.start, self.least, self.most = evaluate, start, least, most
        self.count = 0

    def from_step(self, t: float) -> Point:
        """The step that is found from a first guess `t`."""
        before, new = self.start, self._next(t)
        while self.count <= self.most:
            if self._is_too_high(new) or (self.count > 2 and new.loss >= before.loss):
                return self._between(before, new)
            if self._is_flat(new):
                return new
            if new.slope >= 0:
                return self._between(before, new)
            t = _least(before, new, new.t + 0.01 * (new.t - before.t), 10 * new.t)
            before, new = new, self._next(t)
        return new if new.loss < self.start.loss else self.start

    def _between(self, a: Point, b: Point) -> Point:
        """The step that is found between two points."""
        low, high = _by_loss(a, b)
        was_near = False
        while self.count <= self.most and abs(high.t - low.t) >= self.least:
            left, right = sorted((low.t, high.t))
            t, margin = _least(low, high, left, right), 0.1 * (right - left)
            is_near = min(t - left, right - t) < margin
            if is_near and (was_near or t in (left, right)):
                t = right - margin if right - t < t - left else left + margin
                is_near = False
            was_near = is_near
            new = self._next(t)
            if self._is_too_high(new) or new.loss >= low.loss:
                low, high = _by_loss(low, new)
                continue
            if self._is_flat(new):
                return new
            if new.slope * (high.t - low.t) >= 0:
                high = low
            low = new
        return low

    def _next(self, t: float) -> Point:
        self.count += 1
        return self.evaluate(t)

    def _is_too_high(self, p: Point) -> bool:
        # A loss that is NaN is too high.
        return not p.loss <= self.start.loss + self.decrease * p.t * self.start.slope

    def _is_flat(self, p: Point) -> bool:
        return abs(p.slope) <= -self.curvature * self.start.slope


def _by_loss(a: Point, b: Point) -> tuple[Point, Point]:
    """Two points, the one with the lower loss first: `a` if one is NaN or both are the same."""
    return (b, a) if b.loss < a.loss else (a, b)


def _least(a: Point, b: Point, least: float, most: float) -> float:
    """Where the cubic with these losses and slopes has its minimum (eq. 3.59), between bounds;
    their middle if it has none, or if both points are the same."""
    a, b = sorted((a, b), key=lambda p: p.t)
    if a.t == b.t:
        return (least + most) / 2
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if square >= 0:
        d2 = math.sqrt(square)
        below = b.slope - a.slope + 2 * d2
        if below:
            at = b.t - (b.t - a.t) * (b.slope + d2 - d1) / below
            return min(max(at, least), most)
    return (least + most) / 2


def _pairwise_dot(a: np.ndarray, b: np.ndarray) -> Any:
    """The dot product in an order that doesn't depend on the number of threads."""
    return (a * b).sum()


class LBFGS(Optimizer):
    """Steps along -H g, H being an inverse Hessian made of the last `history_size` steps; Liu and
    Nocedal, Mathematical Programming 45, 1989.

    A step calls the closure up to max_eval times, in up to max_iter iterations. line_search_fn:
    None, or 'strong_wolfe'. There is one group of parameters.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check("learning rate", lr)
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn,
        })  # fmt: skip
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._params = self.param_groups[0]["params"]

    def _gradient(self) -> Any:
        """The gradients of all parameters as one vector, with the parts of complex ones."""
        grads = (
            zeros(p.shape, dtype=p.dtype, device=p.device) if p.grad is None else p.grad.to_dense()
            for p in self._params
        )
        return cat([_parts(g).reshape(-1) for g in grads])

    def _move(self, t: float, direction: Any) -> None:
        start = 0
        for p in map(_parts, self._params):
            count = p.numel()
            p.add_(direction[start : start + count].view_as(p), alpha=t)
            start += count

    def _evaluated(
        self, closure: Callable[[], Any], direction: Any, origin: list[Any], t: float
    ) -> Point:
        """The point at the end of a step of length `t`, from which it goes back."""
        self._move(t, direction)
        with enable_grad():
            loss = closure()
        g = self._gradient()
        for p, old in zip(self._params, origin, strict=True):
            p.copy_(old)
        return Point(t, float(loss), g, g.dot(direction).item())

    def _direction(self, state: dict[str, Any], g: Any, history_size: int) -> Any:
        """-H g, by the two loops of Nocedal and Wright, algorithm 7.4.

        On the host NumPy computes them: recorded, they would be another graph for each length of
        the history.
        """
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return g.neg()
        y = g - state["prev_flat_grad"]
        s = state["d"] * state["t"]
        curvature = y.dot(s).item()
        if curvature > 1e-10:
            if len(state["old_dirs"]) == history_size:
                for name in ("old_dirs", "old_stps", "ro"):
                    state[name].pop(0)
            state["old_dirs"].append(y)
            state["old_stps"].append(s)
            state["ro"].append(1.0 / curvature)
            state["H_diag"] = curvature / y.dot(y).item()
        is_host = g._typed()[2] == "cpu" and g.dtype in (dtypes.float32, dtypes.float64)
        values = (
            [t._array() for t in (g, *state["old_dirs"], *state["old_stps"])]
            if is_host
            else [g, *state["old_dirs"], *state["old_stps"]]
        )
        dot = _pairwise_dot if is_host else type(g).dot
        count = len(state["ro"])
        history = list(zip(values[1 : count + 1], values[count + 1 :], state["ro"], strict=True))
        q = -values[0]
        shares = []
        for y, s, ro in reversed(history):
            share = dot(s, q) * ro
            shares.append(share)
            q = q - y * share
        shares.reverse()
        d = q * state["H_diag"]
        for (y, s, ro), share in zip(history, shares, strict=True):
            d = d + s * (share - dot(y, d) * ro)
        kept = [beside(np.asarray(a), g) for a in shares] if is_host else shares
        # PyTorch keeps the shares in a list of fixed length.
        state["al"] = [*kept, *[None] * (history_size - count)]
        return beside(d, g) if is_host else d

    @with_hooks
    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Make up to max_iter iterations. closure: computes the loss and calls backward. Returns
        the first loss."""
        with no_grad():
            made = self._iterate(closure)
        recording.end_step()
        return made

    def _iterate(self, closure: Callable[[], Any]) -> Any:
        group = self.param_groups[0]
        lr, search = number(group["lr"]), group["line_search_fn"]
        if search not in (None, "strong_wolfe"):
            raise RuntimeError(f"only 'strong_wolfe' is supported{at_user_line()}")
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        with enable_grad():
            first = closure()
        loss = float(first)
        evaluations = 1
        state["func_evals"] += 1
        g = self._gradient()
        if g.abs().max().item() <= group["tolerance_grad"]:
            return first
        iterations = 0
        while iterations < group["max_iter"]:
            iterations += 1
            state["n_iter"] += 1
            d = self._direction(state, g, group["history_size"])
            state["d"], state["prev_flat_grad"] = d, g.clone()
            before = state["prev_loss"] = loss
            shorter = min(1.0, 1.0 / g.abs().sum().item())
            t = state["t"] = shorter * lr if state["n_iter"] == 1 else lr
            slope = g.dot(d).item()
            if slope > -group["tolerance_change"]:
                break
            count = 0
            if search:
                origin = [p.clone() for p in self._params]
                line = Search(
                    partial(self._evaluated, closure, d, origin),
                    Point(0.0, loss, g, slope),
                    group["tolerance_change"] / d.abs().max().item(),
                    group["max_eval"] - evaluations,
                )
                t, loss, g, _ = line.from_step(t)
                state["t"], count = t, line.count
                self._move(t, d)
            else:
                self._move(t, d)
                if iterations != group["max_iter"]:
                    with enable_grad():
                        last = closure()
                    loss = float(last)
                    g = self._gradient()
                    count = 1
            evaluations += count
            state["func_evals"] += count
            if (
                iterations == group["max_iter"]
                or evaluations >= group["max_eval"]
                or g.abs().max().item() <= group["tolerance_grad"]
                or (d * t).abs().max().item() <= group["tolerance_change"]
                or abs(loss - before) < group["tolerance_change"]
            ):
                break
        return first
