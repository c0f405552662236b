"""The tuner on this machine: the default and the tuned schedule beside the best one.

    python bench/tune.py [--json FILE] [--effort full] [--rounds N] [--offline] [NAME ...]

Each shape gets a search of the usual effort and an exhaustive one, with separate databases. Then
the default and the choices of both searches are measured against one another, interleaved. `share`
is the part of the space that the search measured. With --offline the cost model ranks schedules of
products and attention for sm_90 instead.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import timing

GOALS = {"default": 0.9, "tuned": 0.98, "share": 0.2, "seconds": 30.0}
CASES = (
    ("matmul", "256x256x256"),
    ("matmul", "512x512x512"),
    ("matmul", "1024x1024x1024"),
    ("matmul", "32x1024x1024"),
    ("matmul", "128x512x784"),
    ("matmul", "48x64x64x64"),
    ("matmul", "12x256x256x64"),
    ("conv2d", "8x64x28x28x64x3"),
    ("conv2d", "8x128x28x28x256x3x2"),
    ("conv2d", "8x256x14x14x512x1"),
    ("softmax", "4096x1024"),
    ("layer_norm", "4096x768"),
    ("reduce", "4096x1024"),
    ("reduce-columns", "4096x1024"),
    ("elementwise", "2048x1024"),
    ("attention", "4x8x256x64"),
    ("causal-attention", "2x8x512x64"),
)
OFFLINE = (
    ("matmul", "512x512x512"),
    ("matmul", "4096x4096x4096"),
    ("matmul", "16x4096x4096"),
    ("attention", "4x16x2048x64"),
    ("causal-attention", "4x16x8192x128"),
)
COLUMNS = {
    "kernel": "kernel",
    "space": "space",
    "measured": "measured",
    "share": "share",
    "search_s": "search s",
    "exhaustive_s": "exhaustive s",
    "default": "default / best",
    "tuned": "tuned / best",
    "best_us": "best us",
    "schedule": "schedule",
}


def rows(cases: Sequence[tuple[str, str]], effort: str, rounds: int) -> Iterator[dict[str, Any]]:
    from tilewright.runtime.results.database import Database
    from tilewright.runtime.tuner.engines import named
    from tilewright.runtime.tuner.session import Session
    from tilewright.tuning import families
    from tilewright.tuning.report import options_text

    engine = named("cpu")
    with tempfile.TemporaryDirectory() as folder:
        searched = Database(Path(folder) / "searched.sqlite")
        whole = Database(Path(folder) / "whole.sqlite")
        for family, shape in cases:
            (work,) = families.kernels_of(family, [families.parse_shape(family, shape)])
            found = Session(engine, searched, effort).tune(work.kernel, family)
            best = Session(engine, whole, "exhaustive").tune(work.kernel, family)
            space = engine.space(work.kernel)
            chosen = [engine.schedule(r.record.chosen or {}) for r in (found, best)]
            default, tuned, exhaustive = duel(work.kernel, engine, space.default, chosen, rounds)
            least = min(default, tuned, exhaustive)
            yield {
                "kernel": f"{family} {shape}",
                "space": found.space,
                "measured": found.measured,
                "share": found.measured / found.space,
                "search_s": found.seconds,
                "exhaustive_s": best.seconds,
                "default": least / default,
                "tuned": least / tuned,
                "best_us": least * 1e6,
                "schedule": options_text(found.record.chosen),
            }


def duel(kernel: Any, engine: Any, default: Any, chosen: Sequence[Any], rounds: int) -> list[float]:
    """Seconds of the default and of the others, as medians of interleaved rounds. They are measured
    again, because a search's figure for its winner is too good."""
    from tilewright.runtime.tuner.bench import Bench

    wanted = list(dict.fromkeys([default, *chosen]))
    with Bench(kernel, engine) as bench:
        seen = bench.measure(wanted, rounds)
    return [statistics.median(seen[s]) for s in (default, *chosen)]


def offline_rows(target: str, effort: str) -> Iterator[dict[str, Any]]:
    from tilewright.ir.dtype import bfloat16
    from tilewright.runtime.results.database import Database
    from tilewright.runtime.tuner.gpu import Offline
    from tilewright.runtime.tuner.session import rank
    from tilewright.tuning import families
    from tilewright.tuning.report import options_text

    with tempfile.TemporaryDirectory() as folder, Database(Path(folder) / "db.sqlite") as database:
        for family, shape in OFFLINE:
            sizes = [families.parse_shape(family, shape)]
            (work,) = families.kernels_of(family, sizes, bfloat16, target=target)
            start = time.perf_counter()
            ranking = rank(Offline(target), database, work.kernel, effort, family)
            options, seconds = ranking.first[0]
            yield {
                "kernel": f"{family} {shape} bfloat16",
                "space": ranking.about.space,
                "compiled": ranking.compiled,
                "seconds": time.perf_counter() - start,
                "default_us": ranking.default * 1e6,
                "first_us": seconds * 1e6,
                "schedule": options_text(options),
            }


def main() -> None:
    parser = timing.parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows with one of these in them")
    parser.add_argument("--effort", default="full", choices=("quick", "full"))
    parser.add_argument("--rounds", type=int, default=40, help="of the last comparison")
    parser.add_argument("--offline", action="store_true", help="rank schedules for sm_90 instead")
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    if options.offline:
        for row in offline_rows("sm_90", options.effort):
            found.append(row)
            timing.save(found, options)
        timing.table(found, list(found[0]))
        return
    cases = [c for c in CASES if not options.names or any(n in " ".join(c) for n in options.names)]
    if not cases:
        parser.error(f"no row has one of {', '.join(options.names)} in its name")
    for row in rows(cases, options.effort, options.rounds):
        print(" ".join(f"{k} {timing.text(v)}" for k, v in row.items()), file=sys.stderr)
        found.append(row)
        timing.save(found, options)
    timing.table([{title: row[key] for key, title in COLUMNS.items()} for row in found],
                 list(COLUMNS.values()))  # fmt: skip
    for name in ("default", "tuned"):
        mean = statistics.geometric_mean(row[name] for row in found)
        least = min(row[name] for row in found)
        print(f"{name} / best: mean {mean:.3f}, least {least:.3f}; goal {GOALS[name]}")
    share = sum(r["measured"] for r in found) / sum(r["space"] for r in found)
    print(f"measured {share:.1%} of all spaces; goal below {GOALS['share']:.0%}")


if __name__ == "__main__":
    main()
