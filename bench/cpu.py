"""The CPU rows of the goals beside PyTorch eager: the same work, data and threads, interleaved.

    python bench/cpu.py [--json FILE] [--threads N] [--compile] [--rounds N] [NAME ...]

Results are compared before anything is timed; for models these are the losses of several training
steps. Our calls end with a flush, which computes the recorded ops. Buffers come from each
framework's own allocator. TW_CPU chooses our engine (numpy, auto, llvm). Rows are saved one by one.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import numpy as np
import overhead
import processes
import timing
import workloads
from workloads import Row

COLUMNS = ("name", "ours_ms", "torch_ms", "ratio", "goal")


def _flat(results: Any) -> Iterator[np.ndarray]:
    """The values of tensors in nested lists, as arrays."""
    if isinstance(results, (list, tuple)):
        for each in results:
            yield from _flat(each)
    else:
        yield results.detach().double().numpy()


def compare(row: Row, ours: Any, theirs: Any) -> None:
    """Raise AssertionError unless both results are close, in units of their largest element."""
    for a, b in zip(_flat(ours), _flat(theirs), strict=True):
        scale = max(1.0, float(np.abs(b).max(initial=0)))
        np.testing.assert_allclose(
            a / scale, b / scale, rtol=row.tolerance, atol=row.tolerance, err_msg=row.name
        )


def measure(
    row: Row,
    tw: Any,
    torch: Any,
    compiled: bool = False,
    rounds: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """One row of the table: milliseconds of each, our speedup, and the goal.

    rounds: the number of rounds, if not the row's own.
    """
    from tilewright import recording

    mine = row.make(tw, lambda f: f)
    theirs = row.make(torch, lambda f: f)
    expected = theirs.results()
    compare(row, mine.results(), expected)

    def flushed() -> None:
        result = mine.step()
        recording.flush()
        del result

    candidates = {"ours": flushed, "torch": theirs.step}
    if compiled:
        other = row.make(torch, torch.compile)
        compare(row, other.results(), expected)
        candidates["compile"] = other.step
    seconds = timing.interleaved(
        candidates, rounds=rounds or row.rounds, inner=row.inner, clock=clock
    )
    found: dict[str, Any] = {"name": row.name}
    found |= {f"{name}_ms": s * 1e3 for name, s in seconds.items()}
    found["ratio"] = seconds["torch"] / seconds["ours"]
    found["goal"] = row.goal
    if compiled:
        found["compile_ratio"] = seconds["compile"] / seconds["ours"]
    return found


def _row(name: str, ours: float, theirs: float | None, goal: float, unit: str) -> dict[str, Any]:
    """A row with an absolute goal in `unit` (ms or mb), not a ratio."""
    ratio = None if theirs is None else theirs / ours
    return {
        "name": name,
        f"ours_{unit}": ours,
        f"torch_{unit}": theirs,
        "ratio": ratio,
        "goal": goal,
        "goal_unit": unit,
    }


def recording_rows(tw: Any, torch: Any) -> Iterator[dict[str, Any]]:
    """Rows for the cost of Python beside the kernels."""
    for name, ours, theirs in overhead.op_rows(tw, torch):
        yield _row(f"recording {name}", ours * 1e3, theirs * 1e3, 0.3e-3, "ms")
    ours, theirs = overhead.gpt_steps(tw, torch)["Python"]
    yield _row("recording a GPT step, width 8", ours * 1e3, theirs * 1e3, 0.2, "ms")


def process_rows(compiled: bool) -> Iterator[dict[str, Any]]:
    """Rows that need separate processes: medians of interleaved children."""
    found: dict[str, list[dict[str, float]]] = {"tilewright": [], "torch": []}
    for _ in range(5):
        for framework, seen in found.items():
            seen.append(processes.measure("import", framework))
    for unit, goal in (("ms", 200.0), ("mb", 40.0)):
        ours, theirs = (statistics.median(f[unit] for f in seen) for seen in found.values())
        yield _row(f"import, {unit}", ours, theirs, goal, unit)

    mode = "compile" if compiled else "eager"
    steps: dict[str, list[float]] = {"ours": [], "torch": [], "ours warm": [], "torch warm": []}
    for _ in range(3):
        for who, framework, how in (("ours", "tilewright", "eager"), ("torch", "torch", mode)):
            with tempfile.TemporaryDirectory() as cache:
                for label in (who, f"{who} warm"):
                    child = processes.measure("first", framework, how, cache=cache)
                    steps[label].append(child["ms"])
    for label, goal in (("", 300.0), (" warm", 100.0)):
        ours, theirs = (statistics.median(steps[who + label]) for who in ("ours", "torch"))
        name = "first step of a 2-layer MLP, " + ("disk cache warm" if label else "nothing cached")
        yield _row(name, ours, theirs, goal, "ms")

    for model in workloads.TRAINING:
        ours_mb, torch_mb = (processes.measure("peak", f, model) for f in ("tilewright", "torch"))
        for field, what in (("mb", "process"), ("step_mb", "beyond the import")):
            row = _row(f"peak memory, {model}, {what}", ours_mb[field], torch_mb[field], 1, "mb")
            yield {**row, "goal_unit": "ratio"}


def main() -> None:
    parser = timing.parser((__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows whose name contains this")
    parser.add_argument("--threads", type=int, default=0, help="threads of both (default: cores)")
    parser.add_argument("--compile", action="store_true", help="beside torch.compile too")
    parser.add_argument("--rounds", type=int, default=0, help="of measuring, if not the rows' own")
    options: argparse.Namespace = parser.parse_args()
    import torch

    import tilewright as tw

    for part in ("nn", "optim"):
        importlib.import_module(f"tilewright.{part}")
    threads = options.threads or tw.get_num_threads()
    tw.set_num_threads(threads)
    torch.set_num_threads(threads)
    rows: list[dict[str, Any]] = []

    def chosen(*names: str) -> bool:
        return not options.names or any(n in name for n in options.names for name in names)

    def add(row: dict[str, Any]) -> None:
        rows.append(row)
        timing.save(rows, options)
        figures = "  ".join(f"{k} {timing.text(v)}" for k, v in row.items() if k != "name")
        print(f"{row['name']}: {figures}", file=sys.stderr, flush=True)

    for row in workloads.ROWS:
        if chosen(row.name):
            try:
                add(measure(row, tw, torch, options.compile, options.rounds, timing.clock(options)))
            except Exception as error:  # keep the other rows
                add({"name": row.name, "goal": row.goal, "error": f"{error}"[:500]})
    if chosen("recording"):
        for found in recording_rows(tw, torch):
            add(found)
    if chosen("import", "first step", "peak memory"):
        for found in process_rows(options.compile):
            add(found)
    columns = (*COLUMNS, "compile_ms", "compile_ratio") if options.compile else COLUMNS
    timing.report(rows, columns, options)


if __name__ == "__main__":
    main()
