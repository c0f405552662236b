"""The schedules of kernels on one card, each measured: how far the default is from the best.

    python bench/schedules.py [--json FILE] [--rows TEXT ...] [--kernels TEXT] [--count 16]
        [--only FIELD=VALUE,… ...] [--least 5] [--minutes 9]

The kernels are those of the rows of bench/gpu.py that have a name with one of the texts in it. Of
each one the default schedule, schedules that differ from it in one choice, and the best predicted
of each kind of tile (with --only, those with the values named) are compiled side by side; those
that spill are left out. Each one's results are compared with those of the default before it is
timed, by events around single launches, with the cache flushed before each. What is measured
belongs in `codegen/schedule`: in its tables of tiles, and in its model of what they cost. Rows
are saved one by one.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import itertools
import math
import os
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import gpu_rows
import numpy as np
import predicted
import timing

COLUMNS = ("kernel", "schedule", "registers", "KB", "predicted_us", "us", "share", "error")
FLUSHED = 256 << 20
"""Bytes written to flush the cache."""
SAMPLE, MOST = 5e3, 15
"""Microseconds of a candidate's launches, and their number at most."""
TOLERANCE = 0.02
"""Largest difference from the default's results, in units of their largest element."""


def alike(kernel: Any, target: Any, count: int, only: dict[str, list[str]]) -> list[Any]:
    """The default schedule, and the best predicted of those with the values that `only` names."""
    from tilewright.codegen.schedule.choices import space

    found = space(kernel, target)
    named = (s for s in found.ranked if all(str(getattr(s, n)) in v for n, v in only.items()))
    return list(dict.fromkeys([found.default, *named]))[:count]


def candidates(kernel: Any, target: Any, count: int) -> list[Any]:
    """The default schedule, half of `count` neighbours, and the best predicted of each kind of
    tile: of those that are predicted alike, the nearest to the default."""
    from tilewright.codegen.schedule.choices import space
    from tilewright.codegen.schedule.dots import ALIKE

    found = space(kernel, target)
    here = found.places[found.default]

    def away(schedule: Any) -> int:
        there = found.places[schedule]
        return sum(abs(a - b) for a, b in zip(here, there)) if len(here) == len(there) else 0

    kinds: dict[Any, list[Any]] = {}
    for s in found.ranked:
        tile = s.block, s.turned, s.block_r, s.block_m, s.block_n, s.box
        kind = *tile, s.persistent > 0, s.descriptors, s.specialized, s.registers, s.ahead
        kinds.setdefault(kind, []).append(s)
    best = []
    for of_kind in kinds.values():
        least = ALIKE * found.predicted[of_kind[0]]
        best.append(min((s for s in of_kind if found.predicted[s] <= least), key=away))
    near = sorted(found.neighbours(found.default), key=lambda s: found.predicted[s])
    return list(dict.fromkeys([found.default, *near[: count // 2], *best]))[:count]


def written(schedule: Any) -> str:
    """The fields of a schedule that aren't the usual ones."""
    usual = type(schedule)()
    named = {f.name: getattr(schedule, f.name) for f in dataclasses.fields(schedule)}
    tile = "x".join(str(named[n]) for n in ("block_m", "block_n", "block_k"))
    rest = {n: v for n, v in named.items() if not n.startswith("block_") and v != getattr(usual, n)}
    return " ".join([tile, *(f"{n}={v}".replace(" ", "") for n, v in rest.items())])


class Measured:
    """A kernel on a card, with its operands."""

    def __init__(self, device: Any, kernel: Any, flushed: Any):
        from tilewright.runtime.tuner.operands import inputs_of, scalars_of

        self.device, self.flushed = device, flushed
        self.inputs = [device.from_numpy(x) for x in inputs_of(kernel)]
        self.scalars = scalars_of(kernel)
        self.outputs = [device.empty((b.size,), b.dtype) for b in kernel.outputs]
        self.expected: list[np.ndarray] | None = None

    def away(self, launch: Any) -> float:
        """The largest difference from the results of the first launch."""
        for output in self.outputs:  # some kernels add to what is there
            self.device.write(output, np.zeros(output.size, output.dtype.np))
        launch([*self.outputs, *self.inputs], self.scalars)
        self.device.synchronize()
        found = [self.device.to_numpy(b).reshape(-1)[::17].astype(np.float32) for b in self.outputs]
        self.expected = self.expected or found
        gaps = (
            np.abs(a - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-30)
            for a, b in zip(found, self.expected)
        )
        return float(max(gaps))

    def microseconds(self, launch: Any) -> float:
        """The median of single launches."""
        from tilewright.runtime.cuda.context import Event

        device, buffers = self.device, [*self.outputs, *self.inputs]
        times: list[float] = []
        while len(times) < MOST and sum(times) < SAMPLE:
            start, end = Event(device.context), Event(device.context)
            device.fill(self.flushed, 0)  # also gives the host time to prepare the launch
            start.record()
            launch(buffers, self.scalars)
            end.record()
            device.synchronize()
            times.append(start.milliseconds_to(end) * 1e3)
        return statistics.median(times)


def of_kernel(kernel: Any, device: Any, flushed: Any, wanted: list[Any]) -> Iterator[Any]:
    """A row for each schedule. The first one, the default, is measured also if it spills."""
    from tilewright.codegen.schedule import predict

    measured = Measured(device, kernel, flushed)
    for schedule, launch in zip(wanted, device.engine.compile(device, kernel, wanted)):
        row: dict[str, Any] = {"kernel": kernel.name, "schedule": written(schedule)}
        if isinstance(launch, Exception):
            yield {**row, "error": str(launch)[:200]}
            continue
        usage = launch.usage
        row |= {"registers": usage.registers, "KB": usage.shared >> 10, "spills": usage.spills}
        row["predicted_us"] = predict(kernel, schedule, device.target, usage).seconds * 1e6
        if usage.spills and schedule != wanted[0]:
            yield {**row, "error": "it spills"}
            continue
        away = measured.away(launch)
        if not away <= TOLERANCE:  # NaN too
            yield {**row, "error": f"results differ by {away:.3g}"}
            continue
        yield {**row, "us": measured.microseconds(launch)}


def rows(options: argparse.Namespace, tw: Any) -> Iterator[list[dict[str, Any]]]:
    """The rows of each kernel, the best first, with shares of the best one's speed."""
    end = time.monotonic() + 60 * options.minutes
    only = {name: values.split(",") for name, values in (o.split("=") for o in options.only)}
    seen: set[Any] = set()
    flushed = None
    for row in itertools.chain(*gpu_rows.PIECES.values()):
        if not any(text in row.name for text in options.rows):
            continue
        step = row.make(tw, options.device, row.dtype)[0]
        for device, kernel in list(predicted.kernels(tw, step)):
            if options.kernels not in kernel.name or kernel in seen or time.monotonic() > end:
                continue
            seen.add(kernel)
            flushed = flushed or device.arena(FLUSHED)
            default = device._schedule(kernel, device.target)
            if predicted.microseconds(kernel, default, device.target) < options.least:
                continue
            wanted = candidates(kernel, device.target, options.count)
            if options.only:
                wanted = alike(kernel, device.target, options.count, only)
            try:
                found = list(of_kernel(kernel, device, flushed, wanted))
            except Exception as error:  # keep the others
                yield [{"row": row.name, "kernel": kernel.name, "error": str(error)[:300]}]
                continue
            best = min((r["us"] for r in found if "us" in r), default=0.0)
            found[0]["schedule"] += ", the default"
            for each in found:
                each["row"] = row.name
                if "us" in each:
                    each["share"] = best / each["us"]
            yield sorted(found, key=lambda r: r.get("us", math.inf))


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    parser = timing.parser((__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", nargs="+", default=[""], metavar="TEXT", help="part of a name")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="FIELD=VALUE,…", help="schedules that have these"
    )
    parser.add_argument("--kernels", default="", metavar="TEXT", help="part of a kernel's name")
    parser.add_argument("--count", type=int, default=16, help="schedules of a kernel")
    parser.add_argument("--least", type=float, default=5, help="predicted microseconds of a kernel")
    parser.add_argument("--minutes", type=float, default=9, help="after which no kernel is begun")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(arguments)
    import tilewright as tw

    importlib.import_module("tilewright.nn")
    found: list[dict[str, Any]] = []
    for of_one in rows(options, tw):
        print(of_one[0]["row"])
        for row in of_one:
            print("  ", "  ".join(f"{c} {timing.text(row[c])}" for c in COLUMNS if c in row))
        sys.stdout.flush()
        found += of_one
        timing.save(found, options)
    shares = [r["share"] for r in found if "default" in r["schedule"] and "share" in r]
    if shares:
        mean = math.exp(statistics.fmean(map(math.log, shares)))
        print(f"the default reaches {mean:.2f} of the best, at least {min(shares):.2f}")
    return found


if __name__ == "__main__":
    main()
