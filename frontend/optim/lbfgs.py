"""L-BFGS: a quasi-Newton method that keeps the last steps instead of a matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from .. import recording
from ..autograd import enable_grad, no_grad
from ..functions.creation import zeros
from ..functions.joining import cat
from .hooks import with_hooks
from .optimizer import Optimizer, check, number

if TYPE_CHECKING:
    from .._tensor import Tensor
    from .optimizer import ParamsT

Point = tuple[float, float, Any, float]
"""A step length, the loss there, its gradient, and the slope along the direction."""


def _cubic_minimum(
    x1: float, f1: float, g1: float, x2: float, f2: float, g2: float,
    bounds: tuple[float, float] | None = None,
) -> float:  # fmt: skip
    """The minimum of the cubic with these values and slopes, within the bounds; Nocedal and Wright,
    Numerical Optimization, eq. 3.59."""
    low, high = bounds or (min(x1, x2), max(x1, x2))
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    if square < 0:
        return (low + high) / 2
    d2 = math.sqrt(square)
    if x1 <= x2:
        at = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
    else:
        at = x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    return min(max(at, low), high)


def _strong_wolfe(
    evaluate: Callable[[float], Point], t: float, length: float, start: Point, tolerance: float,
    *, c1: float = 1e-4, c2: float = 0.9, most: int = 25,
) -> tuple[Point, int]:  # fmt: skip
    """A step that meets the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6),
    and how many points were evaluated. length: the largest element of the direction."""
    _, loss, _, slope = start
    before, new = start, evaluate(t)
    count, steps, done = 1, 0, False
    bracket: list[Point] = []
    while steps < most:
        at, value, _, along = new
        if value > loss + c1 * at * slope or (steps > 1 and value >= before[1]):
            bracket = [before, new]
            break
        if abs(along) <= -c2 * slope:
            bracket, done = [new], True
            break
        if along >= 0:
            bracket = [before, new]
            break
        low, high = at + 0.01 * (at - before[0]), at * 10
        t = _cubic_minimum(before[0], before[1], before[3], at, value, along, (low, high))
        before, new = new, evaluate(t)
        count, steps = count + 1, steps + 1
    if steps >= most:
        bracket = [start, new]
    close = False  # whether the last point was near an end of the bracket
    low, high = (0, 1) if bracket[0][1] <= bracket[-1][1] else (1, 0)
    while not done and steps < most:
        width = abs(bracket[1][0] - bracket[0][0])
        if width * length < tolerance:
            break
        (x1, f1, _, g1), (x2, f2, _, g2) = bracket
        t = _cubic_minimum(x1, f1, g1, x2, f2, g2)
        ends = (min(x1, x2), max(x1, x2))
        margin = 0.1 * (ends[1] - ends[0])
        if min(ends[1] - t, t - ends[0]) < margin:
            if close or t >= ends[1] or t <= ends[0]:
                t = ends[1] - margin if abs(t - ends[1]) < abs(t - ends[0]) else ends[0] + margin
                close = False
            else:
                close = True
        else:
            close = False
        new = evaluate(t)
        count, steps = count + 1, steps + 1
        at, value, _, along = new
        if value > loss + c1 * at * slope or value >= bracket[low][1]:
            bracket[high] = new
            low, high = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
        else:
            if abs(along) <= -c2 * slope:
                done = True
            elif along * (bracket[high][0] - bracket[low][0]) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = new
    return bracket[low if len(bracket) > 1 else 0], count


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
        """The gradients of all parameters as one vector."""
        return cat([
            zeros(p.numel(), dtype=p.dtype, device=p.device) if p.grad is None
            else p.grad.reshape(-1)
            for p in self._params
        ])  # fmt: skip

    def _move(self, t: float, direction: Any) -> None:
        start = 0
        for p in self._params:
            count = p.numel()
            p.add_(direction[start : start + count].view_as(p), alpha=t)
            start += count

    def _evaluated(
        self, closure: Callable[[], Any], direction: Any, origin: list[Any], t: float
    ) -> Point:
        """The loss and the gradient at a step of length `t`, from which it goes back."""
        self._move(t, direction)
        with enable_grad():
            loss = float(closure())
        g = self._gradient()
        for p, old in zip(self._params, origin, strict=True):
            p.copy_(old)
        return t, loss, g, g.dot(direction).item()

    def _direction(self, state: dict[str, Any], g: Any, history_size: int) -> Any:
        """-H g, by the two loops of Nocedal and Wright, algorithm 7.4."""
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
        q = g.neg()
        history = list(zip(state["old_dirs"], state["old_stps"], state["ro"], strict=True))
        shares = []
        for y, s, ro in reversed(history):
            share = s.dot(q) * ro
            shares.append(share)
            q = q - y * share
        d = q * state["H_diag"]
        for (y, s, ro), share in zip(history, reversed(shares), strict=True):
            d = d + s * (share - y.dot(d) * ro)
        return d

    @with_hooks
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make up to max_iter iterations. closure: computes the loss and calls backward. Returns
        the first loss."""
        if closure is None:
            raise TypeError(f"LBFGS.step() needs a closure that computes the loss{at_user_line()}")
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
                (t, loss, g, _), count = _strong_wolfe(
                    partial(self._evaluated, closure, d, origin),
                    t, d.abs().max().item(), (0.0, loss, g, slope), group["tolerance_change"],
                    most=min(25, group["max_eval"] - evaluations),
                )  # fmt: skip
                state["t"] = t
                self._move(t, d)
            else:
                self._move(t, d)
                if iterations != group["max_iter"]:
                    with enable_grad():
                        loss = float(closure())
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
