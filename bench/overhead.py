"""What the Python of a step costs: recording, plan hits, first compiles; beside PyTorch eager.

    python bench/overhead.py [--json FILE]

The GPT has width 8, so that PyTorch's time is its overhead; ours is measured with the kernels left
out (`Plan.run` answers with the buffers of the run before).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import models
import timing

SHAPE = {"layers": 4, "heads": 2, "width": 8, "context": 8, "vocab": 16}
BATCH = 2


def step_of(torch: Any) -> Callable[[], Any]:
    """One training step of the small GPT, through the public API."""
    torch.manual_seed(0)
    model = models.gpt(torch, **SHAPE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, SHAPE["vocab"], (BATCH, SHAPE["context"]))
    targets = torch.randint(0, SHAPE["vocab"], (BATCH, SHAPE["context"]))

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(tokens, targets)
        loss.backward()
        optimizer.step()
        return loss

    return step


@contextlib.contextmanager
def kernels_left_out() -> Iterator[None]:
    """Plans answer with what their last run gave."""
    from tilewright.runtime.plan import Plan

    run, last = Plan.run, {}

    def replay(plan: Any, buffers: Any, scalars: Any, donated: Any = ()) -> Any:
        found = last.get(plan)
        if found is None:
            found = last[plan] = run(plan, buffers, scalars)
        return found

    Plan.run = replay  # type: ignore[method-assign]
    try:
        yield
    finally:
        Plan.run = run  # type: ignore[method-assign]


def op_times(torch: Any) -> dict[str, Callable[[], Any]]:
    """A thousand calls of common ops."""
    a, b = torch.ones(4, 4), torch.ones(4, 4)
    c = torch.ones(4, 4)

    def add() -> None:
        for _ in range(1000):
            a + b

    def scale() -> None:
        for _ in range(1000):
            a * 2.0

    def view() -> None:
        for _ in range(1000):
            a.view(16)

    def in_place() -> None:
        nonlocal c
        c = torch.zeros(4, 4)
        for _ in range(1000):
            c += b

    return {"a + b": add, "a * 2.0": scale, "a.view(16)": view, "c += b": in_place}


def plan_hit(torch: Any) -> Callable[[], Any]:
    """Reading one value of a graph that was met before."""
    a = torch.ones(4, 4)

    def read() -> float:
        return float((a + a).sum())

    return read


def first_step(torch: Any) -> float:
    """Seconds of the first training step of a 2-layer MLP in this process."""
    start = time.perf_counter()
    model = models.mlp(torch, 64, 128, 10)
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    loss.item()
    return time.perf_counter() - start


def main() -> None:
    options = timing.parser(__doc__.splitlines()[0]).parse_args()
    import tilewright

    importlib.import_module("tilewright.nn")
    importlib.import_module("tilewright.optim")
    cold = first_step(tilewright)
    try:
        import torch
    except ImportError:
        torch = None
        print("torch is not installed: its column stays empty", file=sys.stderr)
    else:
        # Tensors this small gain nothing from threads, and waking them would count against it.
        torch.set_num_threads(1)
    rows = []

    def row(
        name: str, ours: float, theirs: float | None, scale: float, unit: str, goal: str
    ) -> None:
        rows.append(
            {
                "what": name,
                "ours": ours * scale,
                "torch": None if theirs is None else theirs * scale,
                "unit": unit,
                "ratio": None if theirs is None else theirs / ours,
                "goal": goal,
            }
        )

    mine = op_times(tilewright)
    peers = op_times(torch) if torch else {}
    for name, function in mine.items():
        candidates = {"ours": function}
        if torch:
            candidates["torch"] = peers[name]
        found = timing.interleaved(candidates)
        goal = "0.3" if name == "a + b" else ""
        row(
            f"record {name}",
            found["ours"] / 1000,
            found.get("torch", 0) / 1000 or None,
            1e6,
            "µs",
            goal,
        )
    candidates = {"ours": plan_hit(tilewright)}
    if torch:
        candidates["torch"] = plan_hit(torch)
    found = timing.interleaved(candidates, inner=50)
    row("read one value, plan hit", found["ours"], found.get("torch"), 1e6, "µs", "")
    ours = step_of(tilewright)
    for _ in range(3):
        ours()
    peer = step_of(torch) if torch else None
    whole = timing.interleaved({"ours": ours, **({"torch": peer} if peer else {})})
    with kernels_left_out():
        candidates = {"ours": ours, **({"torch": peer} if peer else {})}
        found = timing.interleaved(candidates, inner=10)
    row("GPT step, width 8: Python", found["ours"], found.get("torch"), 1e3, "ms", "0.2")
    row("GPT step, width 8: with kernels", whole["ours"], whole.get("torch"), 1e3, "ms", "")
    row("first step of a 2-layer MLP", cold, first_step(torch) if torch else None, 1e3, "ms", "300")
    timing.report(rows, ("what", "ours", "torch", "unit", "ratio", "goal"), options)


if __name__ == "__main__":
    main()
