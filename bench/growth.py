"""Growth of time with the length of loops: training, gradients through them, and values at the end.

    python bench/growth.py [--json FILE] [--most ROUNDS] [NAME ...]

Each figure is from a fresh process with empty caches, for recording, compilation and run together.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import processes
import timing

ROUNDS = (10, 30, 100, 300, 1000)


def laplace(torch: Any, rounds: int) -> Any:
    x = torch.arange(1024.0).reshape(32, 32)
    for _ in range(rounds):
        x[1:-1, 1:-1] = (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) / 4
    return x.sum()


def wave(torch: Any, rounds: int) -> Any:
    u = torch.arange(100.0).sin()
    v = torch.zeros(100)
    for _ in range(rounds):
        v[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
        u = u + 0.1 * v
    return u.sum()


def rolls(torch: Any, rounds: int) -> Any:
    y = torch.arange(64.0).cos()
    for j in range(rounds):
        y = 0.6 * y.roll(j) + 0.4 * y.flip(0)
    return y.square().sum()


def prefixes(torch: Any, rounds: int) -> Any:
    x = torch.ones(50)
    for _ in range(rounds):
        x[1:] += x[:-1] * 0.01
    return x.sum()


def butterflies(torch: Any, rounds: int) -> Any:
    x = torch.arange(64.0).sin()
    for _ in range(rounds):
        e, o = x[::2], x[1::2]
        x = torch.cat([e + o, e - o]) * 0.7
    return x.square().sum()


def tiles(torch: Any, rounds: int) -> Any:
    """Many pictures copied to a grid, as by torchvision's make_grid."""
    wide = math.isqrt(rounds - 1) + 1
    grid = torch.zeros(3, 10 * wide, 10 * wide)
    for k in range(rounds):
        i, j = divmod(k, wide)
        image = torch.full((3, 8, 8), float(k))
        grid.narrow(1, 10 * i, 8).narrow(2, 10 * j, 8).copy_(image)
    return grid.sum()


def truncated(torch: Any, rounds: int) -> Any:
    """Truncated backpropagation through time: each round is a step whose loss is read."""
    model = torch.nn.LSTM(8, 8)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.linspace(-0.4, 0.4, p.numel()).reshape(p.shape))
    state = (torch.zeros(1, 2, 8),) * 2
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, total = torch.linspace(-1, 1, 80).reshape(5, 2, 8), 0.0
    for _ in range(rounds):
        state = tuple(s.detach() for s in state)
        optimizer.zero_grad()
        out, state = model(x, state)
        loss = out.pow(2).sum()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return torch.tensor(total)


def written(torch: Any, rounds: int) -> Any:
    """Rows written one by one, with gradients."""
    w = torch.linspace(0, 1, 3).requires_grad_()
    x = torch.zeros(rounds, 3)
    for i in range(rounds):
        x[i] += w * (i / rounds)
    x.square().sum().backward()
    return w.grad.sum()


def scaled(torch: Any, rounds: int) -> Any:
    """Slices that overlap, each scaled in place, with gradients."""
    w = torch.tensor([0.9, 1.1], requires_grad=True)
    x = torch.ones(rounds + 1)
    for i in range(rounds):
        x[i : i + 2] *= w
    x.sum().backward()
    return w.grad.sum()


def seen(torch: Any, rounds: int) -> Any:
    """The gradient of a gradient by one of many views."""
    x = torch.linspace(0, 1, 4).requires_grad_()
    views = [(x * (1 + i / rounds)).view(2, 2) for i in range(rounds)]
    total = sum((v**3).sum() for v in views)
    (g,) = torch.autograd.grad(total, x, create_graph=True)
    (by_view,) = torch.autograd.grad((g * g).sum(), views[0])
    return by_view.sum()


def parted(torch: Any, rounds: int) -> Any:
    """Gradients, and gradients of these, by all parts of a tensor."""
    parts = torch.linspace(0, 1, rounds).requires_grad_().unbind()
    first = torch.autograd.grad(sum(p**3 for p in parts), parts, create_graph=True)
    second = torch.autograd.grad(sum(first), parts)
    return torch.stack(second).sum()


def adapted(torch: Any, rounds: int) -> Any:
    """Steps of an inner loop, and the gradient through all of them."""
    w = torch.linspace(0.5, 1, 8).requires_grad_()
    fast = w
    for _ in range(rounds):
        (g,) = torch.autograd.grad((fast**2).sum(), fast, create_graph=True)
        fast = fast - 0.1 / rounds * g
    fast.sum().backward()
    return w.grad.sum()


def hooked(torch: Any, rounds: int) -> Any:
    """A layer for each round, with hooks on its call and on its gradient."""
    noted: list[Any] = []
    layers = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(rounds)])
    with torch.no_grad():
        for layer in layers:
            layer.weight.copy_(torch.eye(4))
            layer.bias.fill_(1 / rounds)
    for layer in layers:
        layer.register_forward_hook(lambda layer, args, out: noted.append(out.mean()))
        layer.register_full_backward_hook(lambda layer, down, up: noted.append(up[0].sum()))
    layers(torch.ones(2, 4, requires_grad=True)).sum().backward()
    return torch.stack(noted).sum()


LOOPS: dict[str, Callable[[Any, int], Any]] = {
    "Laplace, 32x32": laplace,
    "wave, 100": wave,
    "rolls and flips, 64": rolls,
    "prefix updates, 50": prefixes,
    "butterflies of cat, 64": butterflies,
    "tiles of a picture": tiles,
    "truncated LSTM steps": truncated,
    "rows written, with gradients": written,
    "slices scaled, with gradients": scaled,
    "by one of many views, twice": seen,
    "by all parts, twice": parted,
    "inner steps": adapted,
    "hooks on layers": hooked,
}


def grown(framework: str, name: str, rounds: str) -> dict[str, float]:
    """Seconds of a loop in this process, and its result."""
    torch = importlib.import_module(framework)
    for part in ("nn", "optim"):
        importlib.import_module(f"{framework}.{part}")
    torch.zeros(1).add(1).item()  # loads the engine
    start = time.perf_counter()
    result = LOOPS[name](torch, int(rounds)).item()
    return {"s": time.perf_counter() - start, "result": result}


def _row(name: str, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as cache:
        ours = processes.measure("growth", "tilewright", name, str(rounds), cache=cache)
        warm = processes.measure("growth", "tilewright", name, str(rounds), cache=cache)
    theirs = processes.measure("growth", "torch", name, str(rounds))
    if not math.isclose(ours["result"], theirs["result"], rel_tol=1e-3):
        raise AssertionError(f"{name}: {ours['result']} differs from {theirs['result']}")
    return {
        "loop": name,
        "rounds": rounds,
        "cold, s": ours["s"],
        "disk cache warm, s": warm["s"],
        "torch, s": theirs["s"],
    }


def exponent(before: dict[str, Any], row: dict[str, Any], size: str) -> float:
    """Of the time as a power of the column `size`, between two rows: 1 is linear."""
    times = math.log(row["cold, s"] / before["cold, s"])
    return times / math.log(row[size] / before[size])


def main() -> None:
    parser = timing.parser(__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of names of loops")
    parser.add_argument("--most", type=int, default=ROUNDS[-1], help="the most rounds")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in LOOPS:
        if options.names and not any(part in name for part in options.names):
            continue
        before = None
        for rounds in (r for r in ROUNDS if r <= options.most):
            row = _row(name, rounds)
            if before is not None:
                row["exponent"] = exponent(before, row, "rounds")
            rows.append(row)
            timing.save(rows, options)
            before = row
    columns = ("loop", "rounds", "cold, s", "disk cache warm, s", "torch, s", "exponent")
    timing.report(rows, columns, options)


if __name__ == "__main__":
    main()
