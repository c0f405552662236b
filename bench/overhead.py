"""The cost of Python in a step: recording, plan hits, first compiles; beside PyTorch eager.

    python bench/overhead.py [--json FILE]

The GPT has width 8, so PyTorch's time is mostly overhead. Ours is measured without kernels:
`Plan.run` returns the buffers of the run before.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import models
import processes
import timing

SHAPE = {"layers": 4, "heads": 2, "width": 8, "context": 8, "vocab": 16}
BATCH = 2


def step_of(torch: Any, compiled: bool = False) -> Callable[[], Any]:
    """One training step of the small GPT, through the public API.

    compiled: whether the model's calls are replayed (torch.compile).
    """
    torch.manual_seed(0)
    model = models.gpt(torch, **SHAPE)
    if compiled:
        model = torch.compile(model)
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
    """Let plans return the results of their last run, inside the block."""
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
    """Functions that call a common op a thousand times."""
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
    """Reads one value of a known graph."""
    a = torch.ones(4, 4)

    def read() -> float:
        return float((a + a).sum())

    return read


def op_rows(tilewright: Any, torch: Any) -> Iterator[tuple[str, float, float]]:
    """(op, our seconds to record it, PyTorch's seconds to run it) for common ops."""
    mine, peers = op_times(tilewright), op_times(torch)
    for name, function in mine.items():
        found = timing.interleaved({"ours": function, "torch": peers[name]})
        yield name, found["ours"] / 1000, found["torch"] / 1000


def gpt_steps(tilewright: Any, torch: Any) -> dict[str, tuple[float, float]]:
    """Seconds of a step of the small GPT, ours and PyTorch's: for Python alone, and in all.

    PyTorch is eager in all rows. Only our side uses torch.compile.
    """
    ours, theirs, compiled = step_of(tilewright), step_of(torch), step_of(tilewright, True)
    for _ in range(3):
        ours()
        compiled()
    steps = {"ours": ours, "compiled": compiled, "torch": theirs}
    whole = timing.interleaved(steps)
    with kernels_left_out():
        python = timing.interleaved(steps, inner=10)
    return {
        "Python": (python["ours"], python["torch"]),
        "Python, compiled": (python["compiled"], python["torch"]),
        "with kernels": (whole["ours"], whole["torch"]),
        "with kernels, compiled": (whole["compiled"], whole["torch"]),
    }


def main() -> None:
    options = timing.parser(__doc__.splitlines()[0]).parse_args()
    import tilewright

    importlib.import_module("tilewright.nn")
    importlib.import_module("tilewright.optim")
    cold = processes.first_step(tilewright)
    import torch

    # Such small tensors gain nothing from threads, and waking threads would only cost PyTorch time.
    torch.set_num_threads(1)
    rows = []

    def row(what: str, ours: float, theirs: float, unit: str, goal: str = "") -> None:
        scale = {"µs": 1e6, "ms": 1e3}[unit]
        each = {"ours": ours * scale, "torch": theirs * scale, "unit": unit}
        rows.append({"what": what, **each, "ratio": theirs / ours, "goal": goal})
        timing.save(rows, options)

    for name, ours, theirs in op_rows(tilewright, torch):
        row(f"record {name}", ours, theirs, "µs", "0.3" if name == "a + b" else "")
    candidates = {"ours": plan_hit(tilewright), "torch": plan_hit(torch)}
    found = timing.interleaved(candidates, inner=50)
    row("read one value, plan hit", found["ours"], found["torch"], "µs")
    for what, (ours, theirs) in gpt_steps(tilewright, torch).items():
        row(f"GPT step, width 8: {what}", ours, theirs, "ms", "0.2" if "Python" in what else "")
    row("first step of a 2-layer MLP", cold, processes.first_step(torch), "ms", "300")
    timing.report(rows, ("what", "ours", "torch", "unit", "ratio", "goal"), options)


if __name__ == "__main__":
    main()
