"""Every kind of API op on 1,000 and on 1,000,000 elements, beside PyTorch eager.

    python bench/sweep.py [--json FILE] [--all] [--threads N] [--size N] [--processor] [NAME ...]

One call with its flush is timed against PyTorch's call, forward only, after results are compared.
Lists the ops below the goal: half as fast on 1,000 elements, as fast on 1,000,000.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import numpy as np

os.environ.setdefault("TW_TIER", "auto")  # as a program has it that repeats one call

import timing
from sweep_numeric import RANDOM
from sweep_rows import cases
from sweep_tensors import Call, Maker

GOALS = {1_000: 0.5, 1_000_000: 1.0}
REPEATS = 16
"""The calls after which a program's work is compiled, if it will be."""
ROUND = 5e-3
"""The seconds of a round, by and large: of 3 to 100 calls."""


def measure(
    name: str, call: Call, make: Maker, size: int, ours: Any, theirs: Any, clock: Any
) -> Any:
    """One row: microseconds of both, and our speedup."""
    from tilewright import recording
    from tilewright.recording import epoch, novelty
    from tilewright.runtime import tiers

    mine, other = make(ours, size), make(theirs, size)
    a, b = (r[0] if isinstance(r, tuple) else r for r in (call(ours, *mine), call(theirs, *other)))
    wide = np.complex128 if b.is_complex() else np.float64
    scale = max(1.0, float(abs(b).max())) if b.is_complex() else 1.0
    if name in RANDOM:
        assert a.shape == b.shape, name
    else:
        np.testing.assert_allclose(
            a.numpy().astype(wide),
            b.resolve_conj().numpy().astype(wide),
            1e-3,
            1e-3 * scale,
            err_msg=name,
        )

    def flushed() -> None:
        result = call(ours, *mine)
        recording.flush()
        del result

    novelty.clear()
    epoch.clock.volatile = (
        tiers.mode == tiers.AUTO
    )  # as a program begins, whatever the rows before did
    for _ in range(REPEATS):
        begin = time.perf_counter()
        flushed()
        took = time.perf_counter() - begin
    inner = max(3, min(100, int(ROUND / took)))
    seconds = timing.interleaved(
        {"ours": flushed, "torch": lambda: call(theirs, *other)}, rounds=7, inner=inner, clock=clock
    )
    ratio = seconds["torch"] / seconds["ours"]
    return {
        "name": name,
        "elements": size,
        "ours_us": seconds["ours"] * 1e6,
        "torch_us": seconds["torch"] * 1e6,
        "ratio": ratio,
        "goal": GOALS[size],
    }


def main() -> None:
    parser = timing.parser((__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="ops whose name contains this")
    parser.add_argument("--threads", type=int, default=0, help="threads of both (default: cores)")
    parser.add_argument("--size", type=int, choices=GOALS, help="measure only this many elements")
    parser.add_argument("--all", action="store_true", help="list also what meets the goal")
    options = parser.parse_args()
    clock = timing.clock(options)
    import torch

    import tilewright as tw

    importlib.import_module("tilewright.nn")
    threads = options.threads or tw.get_num_threads()
    tw.set_num_threads(threads)
    torch.set_num_threads(threads)
    rows: list[dict[str, Any]] = []
    with torch.no_grad(), tw.no_grad():
        for name, call, make in cases():
            if options.names and not any(n in name for n in options.names):
                continue
            for size in [options.size] if options.size else GOALS:
                try:
                    rows.append(measure(name, call, make, size, tw, torch, clock))
                except Exception as error:  # keep the other ops
                    rows.append({"name": name, "elements": size, "error": f"{error}"[:300]})
                timing.save(rows, options)
    shown = [r for r in rows if options.all or "error" in r or r["ratio"] < r["goal"]]
    shown.sort(key=lambda r: r.get("ratio", 0) / r.get("goal", 1))
    columns = ("name", "elements", "ours_us", "torch_us", "ratio", "goal")
    print(f"{len(rows)} measured, {len(shown)} listed")
    timing.table(shown, (*columns, "error"))


if __name__ == "__main__":
    main()
