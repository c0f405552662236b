"""Measurement for all benchmarks: interleaved rounds, medians, ratios within one run."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Repeated work is measured as it is after many repeats: compiled. (Set before the import.)
os.environ.setdefault("TW_TIER", "fused")

SETTLED = 0.02
"""Seconds after which the threads of OpenMP sleep. They spin for some milliseconds."""


def interleaved(
    candidates: Mapping[str, Callable[[], Any]],
    *,
    rounds: int = 15,
    inner: int = 5,
    warm: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Seconds a call of each candidate, by `clock`: the median over rounds of each round's
    median.

    Each turn begins with a pause and a call that doesn't count. The threads of the other candidate
    look for work for a while after its last call, and hold the cores that this one's threads need.
    """
    for function in candidates.values():
        for _ in range(warm):
            function()
    seen: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, function in candidates.items():
            time.sleep(SETTLED)
            function()
            times = []
            for _ in range(inner):
                start = clock()
                function()
                times.append(clock() - start)
            seen[name].append(statistics.median(times))
    return {name: statistics.median(times) for name, times in seen.items()}


def machine() -> dict[str, Any]:
    """The machine of the figures."""
    processor = platform.processor()
    try:
        with open("/proc/cpuinfo") as f:
            processor = (
                next(line for line in f if line.startswith("model name")).split(":")[1].strip()
            )
    except (OSError, StopIteration):
        pass
    return {"processor": processor, "cores": os.cpu_count(), "system": platform.system()}


def versions(*modules: str) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in modules:
        module = sys.modules.get(name)
        if module is not None:
            found[name] = str(getattr(module, "__version__", "?"))
    return found


def report(
    rows: Sequence[dict[str, Any]], columns: Sequence[str], options: argparse.Namespace
) -> None:
    """Print a table and, with --json FILE, save the rows as data."""
    table(rows, columns)
    save(rows, options)


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    """Print a table; lines where rich isn't installed, as on a rented machine."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        for row in rows:
            print(" ".join(f"{c} {text(row[c])}" for c in columns if row.get(c) is not None))
        return
    made = Table()
    for column in columns:
        made.add_column(column, justify="left" if column == columns[0] else "right")
    for row in rows:
        made.add_row(*[text(row.get(column)) for column in columns])
    # A log has no width.
    Console(width=None if sys.stdout.isatty() else 160).print(made)


def save(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    """With --json FILE, save the rows so far as data. The file is complete at any moment."""
    if not options.json:
        return
    data = {
        "rows": list(rows),
        "machine": machine(),
        "versions": versions("numpy", "torch", "tilewright", "triton", "llvmlite"),
        "date": datetime.date.today().isoformat(),
    }
    beside = f"{options.json}.part"
    with open(beside, "w") as f:
        json.dump(data, f, indent=1)
        f.write("\n")
    os.replace(beside, options.json)


def saved(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows in the file of --json, if it exists."""
    if not options.json or not os.path.exists(options.json):
        return []
    with open(options.json) as f:
        return list(json.load(f)["rows"])


def text(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def parser(description: str) -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(description=description)
    out.add_argument("--json", metavar="FILE", help="also write the rows as JSON")
    out.add_argument(
        "--processor", action="store_true", help="processor time, where others use the machine too"
    )
    return out


def clock(options: argparse.Namespace) -> Callable[[], float]:
    """The clock that the options ask for. Processor time is that of all threads together."""
    return time.process_time if options.processor else time.perf_counter
