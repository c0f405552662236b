"""Matrix products beside PyTorch (MKL, oneDNN): the same data and threads, interleaved.

    python bench/gemm.py [--json FILE] [--threads N] [NAME ...]

A row is `a @ b` of the given shapes. T marks an operand that is transposed in memory. Results are
compared with NumPy's in float64 before anything is timed.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from dataclasses import dataclass
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import timing


@dataclass(frozen=True)
class Row:
    """a [*batch, m, k] @ b [*batch of b, k, n]; form: NN, NT, TN or TT."""

    m: int
    n: int
    k: int
    form: str = "NN"
    batch: tuple[int, ...] = ()
    goal: float = 1.05

    @property
    def name(self) -> str:
        lead = f"{'x'.join(map(str, self.batch))} x " if self.batch else ""
        return f"{lead}{self.m}x{self.k} @ {self.k}x{self.n} {self.form}"


SQUARE = [Row(n, n, n) for n in (512, 1024, 2048)]
TURNED = [Row(n, n, n, form) for n in (512, 1024) for form in ("NT", "TN", "TT")]
LAYERS = [
    Row(512, 768, 768, "NT"),
    Row(512, 3072, 768, "NT"),
    Row(512, 768, 3072, "NT"),
    Row(512, 768, 768),
    Row(768, 768, 512, "TN"),
    Row(768, 512, 128, "NT"),
    Row(768, 128, 512, "NT"),
    Row(768, 384, 128, "NT"),
    Row(128, 128, 768, "TN"),
    Row(128, 512, 784, "NT"),
    Row(1000, 1000, 1000),
]
BATCHED = [
    Row(256, 256, 64, "NT", (48,), 1.3),
    Row(256, 64, 256, "NN", (48,), 1.3),
    Row(64, 64, 32, "NT", (48,), 1.3),
    Row(64, 32, 64, "NN", (48,), 1.3),
    Row(128, 128, 64, "NT", (4, 12), 1.3),
]
SMALL = [Row(n, n, n, goal=1.0) for n in (16, 32, 64, 128, 256)]
SKINNY = [
    Row(1, 4096, 1024, "NT", goal=1.0),
    Row(4096, 1, 1024, goal=1.0),
    Row(8, 2048, 1024, "NT", goal=1.0),
    Row(8, 2048, 1024, goal=1.0),
    Row(2048, 10, 512, "NT", goal=1.0),
    Row(4096, 64, 8, goal=1.0),
    Row(32, 32, 8192, "TN", goal=1.0),
    Row(4, 4, 65536, "NT", goal=1.0),
]
ROWS = SQUARE + TURNED + LAYERS + BATCHED + SMALL + SKINNY


def _operand(torch: Any, array: Any, turned: bool) -> Any:
    import numpy as np

    if not turned:
        return torch.tensor(array)
    return torch.tensor(np.ascontiguousarray(array.swapaxes(-1, -2))).transpose(-1, -2)


def measure(row: Row, ours: Any, theirs: Any) -> dict[str, Any]:
    import numpy as np

    from tilewright import recording

    rng = np.random.default_rng(0)
    a = rng.standard_normal((*row.batch, row.m, row.k)).astype(np.float32)
    b = rng.standard_normal((*row.batch, row.k, row.n)).astype(np.float32)
    mine = [_operand(ours, x, row.form[i] == "T") for i, x in enumerate((a, b))]
    other = [_operand(theirs, x, row.form[i] == "T") for i, x in enumerate((a, b))]
    exact = a.astype(np.float64) @ b.astype(np.float64)
    with theirs.no_grad(), ours.no_grad():
        for found in (ours.matmul(*mine), theirs.matmul(*other)):
            error = abs(found.numpy() - exact).max()
            assert error < 1e-5 * math.sqrt(row.k) * 4, f"{row.name}: off by {error}"

        def step() -> None:
            result = ours.matmul(*mine)
            recording.flush()
            del result

        work = 2 * math.prod(row.batch) * row.m * row.n * row.k
        inner = max(min(int(2e9 // work), 50), 3)
        seconds = timing.interleaved(
            {"ours": step, "torch": lambda: theirs.matmul(*other)}, rounds=15, inner=inner
        )
    return {
        "name": row.name,
        "ours_us": seconds["ours"] * 1e6,
        "torch_us": seconds["torch"] * 1e6,
        "gflops": work / seconds["ours"] / 1e9,
        "ratio": seconds["torch"] / seconds["ours"],
        "goal": row.goal,
    }


def main() -> None:
    parser = timing.parser(__doc__ or "")
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows whose name contains this")
    parser.add_argument("--threads", type=int, default=0, help="threads of both (default: cores)")
    options: argparse.Namespace = parser.parse_args()
    import torch

    import tilewright as tw

    threads = options.threads or tw.get_num_threads()
    tw.set_num_threads(threads)
    torch.set_num_threads(threads)
    rows = []
    for row in ROWS:
        if not options.names or any(n in row.name for n in options.names):
            rows.append(measure(row, tw, torch))
    timing.report(rows, ("name", "ours_us", "torch_us", "gflops", "ratio", "goal"), options)


if __name__ == "__main__":
    main()
