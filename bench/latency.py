"""What new work costs: first steps, lengths and programs that were never met before.

    python bench/latency.py [--json FILE] [--compile] [--lengths STEPS] [--repeats N] [NAME ...]
    python bench/latency.py --curves [--most OPS] [--json FILE] [NAME ...]

Each figure is from a fresh process. Ours is measured with an empty disk cache and again with the
cache that this left. Models and data are made before the clock starts, results are read before it
ends, and those of both frameworks are compared.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import math
import os
import sys
import tempfile
import time
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import growth
import latency_graphs
import numpy as np
import processes
import timing
from latency_rows import FIRST, LENGTHS, OTHERS, PROGRAMS, Row

ROWS = {row.name: row for row in (*FIRST, *LENGTHS, *PROGRAMS, *latency_graphs.GRAPHS, *OTHERS)}
OPS = (10, 100, 1000, 3000, 10_000, 20_000)


def _framework(name: str) -> Any:
    """The framework, with its engine loaded."""
    torch = importlib.import_module(name)
    for part in ("nn", "optim"):
        importlib.import_module(f"{name}.{part}")
    torch.zeros(1).add(1).item()
    return torch


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(v) for v in value]
    return value.detach().numpy() if hasattr(value, "detach") else value


def _magnitude(value: Any) -> float:
    """The sum of magnitudes of a number, an array or a list of arrays."""
    if isinstance(value, list):
        return sum(map(_magnitude, value))
    return float(np.abs(np.asarray(value, dtype=np.float64)).sum())


def timed(torch: Any, row: Row, steps: int | None = None, compiled: bool = False) -> dict[str, Any]:
    """Seconds of a row in this process, and the magnitudes of its results.

    compiled: whether its model goes through torch.compile(dynamic=True).
    """

    def wrap(model: Any) -> Any:
        return torch.compile(model, dynamic=True) if compiled else model

    run = row.make(torch, wrap, steps or row.steps)
    gc.collect()  # what the imports left, which would fall into one row or another by chance
    start = time.perf_counter()
    values = _read(run())
    return {"s": time.perf_counter() - start, "results": [_magnitude(v) for v in values]}


def measured(framework: str, name: str, steps: str, mode: str = "eager") -> dict[str, Any]:
    """A row or a point of a curve, in this process (bench/processes.py)."""
    row = {**ROWS, **latency_graphs.CURVES}[name]
    return timed(_framework(framework), row, int(steps), mode == "compile")


def _agree(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for a, b in zip(ours["results"], theirs["results"], strict=True):
        if not math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-9):
            raise AssertionError(f"{name}: {a} differs from {b}")


def measure_row(row: Row, steps: int, compiled: bool = False, repeats: int = 1) -> dict[str, Any]:
    """A row of the table: the least of so many times. compiled: whether torch.compile is measured
    too."""
    runs = [_all_ways(row, steps, compiled and row.compiles) for _ in range(repeats)]
    least = {name: min(run[name] for run in runs) for name in runs[0]}
    ratio = {"torch / cold": least["torch, s"] / least["cold, s"]}
    return {"row": row.name, "steps": steps, **least, **ratio}


def _all_ways(row: Row, steps: int, compiled: bool) -> dict[str, float]:
    """Seconds by column."""
    with tempfile.TemporaryDirectory() as cache:
        ours = _child("tilewright", row, steps, cache=cache)
        warm = _child("tilewright", row, steps, cache=cache)
    theirs = _child("torch", row, steps)
    _agree(row.name, ours, theirs)
    found = {"cold, s": ours["s"], "disk cache warm, s": warm["s"], "torch, s": theirs["s"]}
    if compiled:
        with tempfile.TemporaryDirectory() as cache:
            again = _child("torch", row, steps, "compile", cache=cache)
        _agree(f"{row.name}, compiled", again, theirs)
        found["torch.compile, s"] = again["s"]
    return found


def _child(
    framework: str, row: Row, steps: int, mode: str = "eager", cache: str | None = None
) -> dict[str, Any]:
    return processes.measure("latency", framework, row.name, str(steps), mode, cache=cache)


def _write_bytecode(row: Row, steps: int) -> None:
    """Run a row, so that none of the modules that it imports is compiled from source later."""
    with tempfile.TemporaryDirectory() as cache:
        _child("tilewright", row, steps, cache=cache)
    _child("torch", row, steps)


def measure_curve(row: Row, ops: int) -> dict[str, Any]:
    """A row of the table of curves, for about so many recorded operations."""
    steps = max(1, ops // row.ops)
    with tempfile.TemporaryDirectory() as cache:
        ours = _child("tilewright", row, steps, cache=cache)
    theirs = _child("torch", row, steps)
    _agree(row.name, ours, theirs)
    return {"curve": row.name, "ops": ops, "cold, s": ours["s"], "torch, s": theirs["s"]}


def _chosen(names: Any, options: argparse.Namespace) -> list[str]:
    return [n for n in names if not options.names or any(part in n for part in options.names)]


def _rows(options: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    for name in _chosen(ROWS, options):
        row = ROWS[name]
        steps = options.lengths if row.lengths and options.lengths else row.steps
        _write_bytecode(row, steps)
        rows.append(measure_row(row, steps, options.compile, options.repeats))
        timing.save(rows, options)
    columns = ["row", "steps", "cold, s", "disk cache warm, s", "torch, s", "torch / cold"]
    timing.table(rows, columns + ["torch.compile, s"] * options.compile)


def _curves(options: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    for name in _chosen(latency_graphs.CURVES, options):
        curve, before = latency_graphs.CURVES[name], None
        _write_bytecode(curve, 10)
        for ops in (n for n in OPS if n <= options.most):
            row = measure_curve(curve, ops)
            if before is not None:
                row["exponent"] = growth.exponent(before, row, "ops")
            rows.append(row)
            timing.save(rows, options)
            before = row
    timing.table(rows, ("curve", "ops", "cold, s", "torch, s", "exponent"))


def main() -> None:
    parser = timing.parser(__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of names of rows or curves")
    parser.add_argument("--compile", action="store_true", help="also measure torch.compile")
    parser.add_argument("--lengths", type=int, help="steps of rows that meet new lengths")
    parser.add_argument("--repeats", type=int, default=1, help="processes a figure of a row")
    parser.add_argument("--curves", action="store_true", help="time against recorded operations")
    parser.add_argument("--most", type=int, default=OPS[-1], help="the most operations of a curve")
    options = parser.parse_args()
    (_curves if options.curves else _rows)(options)


if __name__ == "__main__":
    main()
