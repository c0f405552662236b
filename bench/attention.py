"""Scaled dot product attention beside PyTorch eager on the CPU, interleaved.

    python bench/attention.py [--json FILE] [--threads N] [--rounds N]

Times forward, and forward with backward. Results are compared before anything is timed.
`temporaries` is the memory of our plan beside operands and results. `scores` is the size of the
score matrix, which our plan never holds.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Callable
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import timing

SHAPES = ((12, 4, 64, 32), (4, 12, 256, 64), (4, 12, 1024, 64))
MB = 1 << 20


def make(torch: Any, shape: tuple[int, ...], causal: bool, backward: bool) -> Callable[[], Any]:
    """A step on the same numbers for both frameworks. It returns its results."""
    import numpy as np

    rng = np.random.default_rng(0)
    q, k, v, g = (torch.tensor(rng.standard_normal(shape).astype(np.float32)) for _ in range(4))
    attend = torch.nn.functional.scaled_dot_product_attention
    for x in (q, k, v):
        x.requires_grad_(backward)

    def step() -> list[Any]:
        for x in (q, k, v):
            x.grad = None
        y = attend(q, k, v, is_causal=causal)
        if not backward:
            return [y]
        y.backward(g)
        return [y.detach(), q.grad, k.grad, v.grad]

    return step


def measure(shape: tuple[int, ...], causal: bool, backward: bool, rounds: int) -> dict[str, Any]:
    import numpy as np
    import torch

    import tilewright as tw
    from tilewright import recording
    from tilewright.runtime.tiers import plans

    mine, theirs = (make(t, shape, causal, backward) for t in (tw, torch))
    for a, b in zip(mine(), theirs(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-4, atol=2e-4)

    def flushed() -> None:
        result = mine()
        recording.flush()
        del result

    seconds = timing.interleaved({"ours": flushed, "torch": theirs}, rounds=rounds, inner=1)
    temporaries = max(s.arena_bytes for s in plans()[-1].segments)
    return {
        "shape": "x".join(map(str, shape)) + (" causal" if causal else ""),
        "step": "both ways" if backward else "forward",
        "ours_ms": seconds["ours"] * 1e3,
        "torch_ms": seconds["torch"] * 1e3,
        "ratio": seconds["torch"] / seconds["ours"],
        "temporaries_MB": temporaries / MB,
        "scores_MB": math.prod(shape[:3]) * shape[2] * 4 / MB,
    }


def main() -> None:
    parser = timing.parser(__doc__ or "")
    parser.add_argument("--threads", type=int, default=0, help="threads of both (default: cores)")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    os.environ.setdefault("TW_CPU", "auto")
    import torch

    import tilewright as tw
    import tilewright.nn

    threads = options.threads or tw.get_num_threads()
    tw.set_num_threads(threads)
    torch.set_num_threads(threads)
    rows: list[dict[str, Any]] = []
    for shape, causal, backward in itertools.product(SHAPES, (False, True), (False, True)):
        rows.append(measure(shape, causal, backward, options.rounds))
        timing.save(rows, options)
    timing.table(rows, list(rows[0]))


if __name__ == "__main__":
    main()
