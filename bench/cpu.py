"""CPU rows of the goals beside PyTorch eager: the same work, data and threads, interleaved.

    python bench/cpu.py [--json FILE] [--threads N] [NAME ...]

Results are compared before anything is timed. Ours end with a flush, which computes what was
recorded; buffers come from each framework's own allocator.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import timing


@dataclass(frozen=True)
class Row:
    """One comparison. make(torch) -> (step, results): `step()` is timed, `results()` compared."""

    name: str
    goal: float
    make: Callable[[Any], tuple[Callable[[], Any], Callable[[], list[Any]]]]
    rounds: int = 15
    inner: int = 5


def _inputs(torch: Any, *shapes: tuple[int, ...], grad: bool = False) -> list[Any]:
    """The same numbers for both frameworks."""
    import numpy as np

    rng = np.random.default_rng(0)
    out = []
    for shape in shapes:
        tensor = torch.tensor(rng.standard_normal(shape).astype(np.float32))
        out.append(tensor.requires_grad_() if grad else tensor)
    return out


def _forward(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[Any], Any]:
    """function(torch, *tensors), without gradients."""

    def make(torch: Any) -> Any:
        tensors = _inputs(torch, *shapes)

        def step() -> Any:
            with torch.no_grad():
                return function(torch, *tensors)

        return step, lambda: [step()]

    return make


def _both_ways(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[Any], Any]:
    """function(torch, *tensors), then the gradients of its sum weighted by fixed numbers."""

    def make(torch: Any) -> Any:
        tensors = _inputs(torch, *shapes, grad=True)
        (weight,) = _inputs(torch, shapes[0])

        def step() -> list[Any]:
            for t in tensors:
                t.grad = None
            y = function(torch, *tensors)
            if y.dim():
                y.backward(weight)
            else:
                y.backward()
            return [y.detach(), *(t.grad for t in tensors)]

        return step, step

    return make


def _cross_entropy(torch: Any) -> Any:
    logits = _inputs(torch, (2048, 1000), grad=True)[0]
    import numpy as np

    targets = torch.tensor(np.random.default_rng(1).integers(0, 1000, 2048))

    def step() -> list[Any]:
        logits.grad = None
        loss = torch.nn.functional.cross_entropy(logits, targets)
        loss.backward()
        return [loss.detach(), logits.grad]

    return step, step


def _adam(fused: bool) -> Callable[[Any], Any]:
    def make(torch: Any) -> Any:
        sizes = [(1024, 1024)] * 9 + [(1024, 512), (512,), (1024,)]
        parameters = _inputs(torch, *sizes, grad=True)
        gradients = _inputs(torch, *sizes)
        for p, g in zip(parameters, gradients):
            p.grad = g
        options = {"fused": True} if fused and torch.__name__ == "torch" else {}
        optimizer = torch.optim.Adam(parameters, lr=1e-3, **options)
        return optimizer.step, lambda: [p.detach() for p in parameters[-3:]]

    return make


def _gelu(torch: Any, x: Any, w: Any, b: Any) -> Any:
    return torch.nn.functional.gelu(x * w + b, approximate="tanh")


def _layer_norm(torch: Any, x: Any, w: Any, b: Any) -> Any:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), w, b)


def _softmax(torch: Any, x: Any) -> Any:
    return torch.nn.functional.softmax(x, -1)


ROWS = [
    Row("fused chain, forward", 4, _forward(_gelu, (4096, 1024), (1024,), (1024,))),
    Row("fused chain, both ways", 4, _both_ways(_gelu, (4096, 1024), (1024,), (1024,))),
    Row("layer norm, forward", 1.6, _forward(_layer_norm, (4096, 768), (768,), (768,))),
    Row("layer norm, both ways", 1.6, _both_ways(_layer_norm, (4096, 768), (768,), (768,))),
    Row("softmax, forward", 2, _forward(_softmax, (3072, 256))),
    Row("softmax, both ways", 2, _both_ways(_softmax, (3072, 256))),
    Row("cross entropy, both ways", 2, _cross_entropy),
    Row("Adam 10M, against fused", 1.0, _adam(fused=True), rounds=9, inner=2),
    Row("Adam 10M, against default", 6, _adam(fused=False), rounds=9, inner=2),
]


def measure(row: Row, ours: Any, theirs: Any) -> dict[str, Any]:
    import numpy as np

    from tilewright import recording

    mine, my_results = row.make(ours)
    other, other_results = row.make(theirs)
    mine()
    other()
    for a, b in zip(my_results(), other_results(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-4, atol=2e-4, err_msg=row.name)

    def flushed() -> None:
        result = mine()
        recording.flush()
        del result

    seconds = timing.interleaved(
        {"ours": flushed, "torch": other}, rounds=row.rounds, inner=row.inner
    )
    return {
        "name": row.name,
        "ours_ms": seconds["ours"] * 1e3,
        "torch_ms": seconds["torch"] * 1e3,
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
    import tilewright.nn

    threads = options.threads or tw.get_num_threads()
    tw.set_num_threads(threads)
    torch.set_num_threads(threads)
    rows = []
    for row in ROWS:
        if not options.names or any(n in row.name for n in options.names):
            rows.append(measure(row, tw, torch))
    timing.report(rows, ("name", "ours_ms", "torch_ms", "ratio", "goal"), options)


if __name__ == "__main__":
    main()
