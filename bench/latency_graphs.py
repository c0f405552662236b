"""The graphs of bench/latency.py: rows, and curves of time against recorded operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import growth
import workloads
from latency_rows import Row, Values, Wrap, once, squares, trained


def mixed(torch: Any, x: Any, calls: int) -> Any:
    """Calls that all differ by a constant, over x[n]."""
    n, y = x.shape[0], x
    for j in range(calls):
        c = 1 + j * 1e-5
        kind = j % 8
        if kind == 0:
            y = y * c
        elif kind == 1:
            y = y.roll(j % n)
        elif kind == 2:
            y = (y + c).tanh()
        elif kind == 3:
            y = y.reshape(n // 4, 4).transpose(0, 1).reshape(n)
        elif kind == 4:
            y = y - y.sum() * (c / n)
        elif kind == 5:
            y = y.flip(0)
        elif kind == 6:
            y = (y * c).sin()
        else:
            y = torch.cat([y[j % n :], y[: j % n]]) + c * x
    return y.square().sum()


def _graph(function: Callable[..., Any]) -> Any:
    """function(torch, x, steps), without gradients."""

    def make(torch: Any, wrap: Wrap, steps: int) -> Callable[[], Values]:
        wrapped, x = wrap(lambda x: function(torch, x, steps)), torch.linspace(-0.45, 1, 64)
        return lambda: [wrapped(x)]

    return make


def _both_ways(function: Callable[..., Any], *shape: int) -> Any:
    """function(torch, x, steps), and the gradient of x[shape]."""

    def make(torch: Any, wrap: Wrap, steps: int) -> Callable[[], Values]:
        wrapped = wrap(lambda x: function(torch, x, steps))
        x = torch.linspace(-0.45, 1, math.prod(shape)).reshape(shape).requires_grad_()

        def run() -> Values:
            y = wrapped(x)
            y.backward()
            return [y, x.grad]

        return run

    return make


def tanhs(torch: Any, x: Any, steps: int) -> Any:
    y = x
    for j in range(steps):
        y = (y * 1.01 + j * 0.001).tanh()
    return y.sum()


def residual(torch: Any) -> Callable[[int], Any]:
    """Builds a residual MLP of so many blocks."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

        def forward(self, x: Any) -> Any:
            return x + 0.1 * self.down(self.up(x).relu())

    return lambda blocks: nn.Sequential(*(Block() for _ in range(blocks)))


def _residual(torch: Any, wrap: Wrap, steps: int) -> Callable[[], Values]:
    data = once(lambda torch: tuple(workloads.inputs(torch, (8, 16), (8, 16))))
    return trained(lambda torch: residual(torch)(steps), data, squares)(torch, wrap, 1)


GRAPHS = [
    Row("1,000 different calls in a graph", _graph(mixed), 1000),
    Row("chain of 300 tanh, both ways", _both_ways(tanhs, 64), 300),
    Row("residual MLP of 100 blocks, first step", _residual, 100),
]


# Curves.


def _loop(function: Callable[[Any, int], Any]) -> Any:
    """function(torch, steps)."""
    return lambda torch, wrap, steps: lambda: [function(torch, steps)]


def fan(torch: Any, x: Any, steps: int) -> Any:
    """Values that all read one tensor and end in one sum."""
    return torch.stack([(x * (1 + j * 1e-4)).tanh() for j in range(steps)]).square().sum()


def grid(torch: Any, x: Any, steps: int) -> Any:
    """A square in which each cell reads the one above and the one to its left."""
    side = max(1, math.isqrt(steps))
    above = [x * (1 + j * 1e-3) for j in range(side)]
    for _ in range(side):
        left, row = x, []
        for cell in above:
            left = (cell + 0.5 * left).tanh()
            row.append(left)
        above = row
    return above[-1].square().sum()


def gathers(torch: Any, y: Any, steps: int) -> Any:
    index = torch.arange(64)
    for j in range(steps):
        y = y.gather(0, (index * 5 + j) % 64) * 0.999
    return y.square().sum()


def recurrence(torch: Any, weight: Any, steps: int) -> Any:
    x, h = torch.linspace(-1, 1, 512).reshape(8, 4, 16), torch.zeros(4, 16)
    for t in range(steps):
        h = (h @ weight * 0.1 + x[t % 8]).tanh()
    return h.square().sum()


CURVES = {
    row.name: row
    for row in (
        Row("chain of tanh, both ways", _both_ways(tanhs, 64), ops=7),
        Row("different calls", _graph(mixed), ops=2),
        Row("fan", _graph(fan), ops=2),
        Row("grid", _graph(grid), ops=3),
        Row("residual MLP, both ways", _residual, ops=20),
        Row("rolls and flips", _loop(growth.rolls), ops=5),
        Row("gathers", _graph(gathers), ops=5),
        Row("updates in place", _loop(growth.wave), ops=7),
        Row("unrolled recurrence, both ways", _both_ways(recurrence, 16, 16), ops=12),
    )
}
