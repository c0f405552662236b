"""First calls of ops on 512 x 512 elements by dtype, run op by op, beside PyTorch eager.

    python bench/sweep_dtypes.py [--json FILE] [--dtype NAME] [--below RATIO] [NAME ...]

One thread, forward only. A call that PyTorch refuses for a dtype is left out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

os.environ["TW_TIER"] = "baseline"
sys.path.insert(0, os.path.dirname(__file__))

import timing

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "uint8", "bool",
    "complex64",
)  # fmt: skip
SIZE = 512
Call = Callable[[], Any]


def calls(t: Any, dtype: str) -> dict[str, Call]:
    """The calls on tensors of a library."""
    F, kind = t.nn.functional, getattr(t, dtype)
    t.manual_seed(0)

    def drawn(*shape: int) -> Any:
        drawn = t.randn(*shape)
        return drawn > 0 if dtype == "bool" else (drawn * 3).to(kind)

    a, b = drawn(SIZE, SIZE), drawn(SIZE, SIZE)
    i, at = t.randint(0, SIZE, (SIZE,)), t.randint(0, SIZE, (SIZE, SIZE))
    image, mask = a[None, None], t.randn(SIZE, SIZE) > 0
    channels = a.view(1, 16, 128, 128)
    return {
        "gather": lambda: a.gather(1, at),
        "scatter": lambda: a.scatter(1, at, b),
        "scatter_add(0)": lambda: a.scatter_add(0, at, b),
        "scatter_add(1)": lambda: a.scatter_add(1, at, b),
        "scatter_reduce amax": lambda: a.scatter_reduce(0, at, b, "amax"),
        "index_add(0)": lambda: a.index_add(0, i, b),
        "index_add(1)": lambda: a.index_add(1, i, b),
        "index_select(1)": lambda: a.index_select(1, i),
        "index_put": lambda: a.index_put((i,), b),
        "embedding": lambda: F.embedding(i, a),
        "cumsum(1)": lambda: a.cumsum(1),
        "cumsum(0)": lambda: a.cumsum(0),
        "cumprod(1)": lambda: a.cumprod(1),
        "cummax(1)": lambda: a.cummax(1)[0],
        "sort": lambda: a.sort()[0],
        "topk": lambda: a.topk(5)[0],
        "median": lambda: a.median(1)[0],
        "unique": lambda: a.unique(),
        "searchsorted": lambda: t.searchsorted(a[0].sort()[0], b),
        "argmax(1)": lambda: a.argmax(1),
        "amax(1)": lambda: a.amax(1),
        "sum()": lambda: a.sum(),
        "sum(1)": lambda: a.sum(1),
        "prod(1)": lambda: a.prod(1),
        "softmax(1)": lambda: a.softmax(1),
        "softmax(0)": lambda: a.softmax(0),
        "logsumexp(1)": lambda: a.logsumexp(1),
        "layer_norm": lambda: F.layer_norm(a, (SIZE,)),
        "add": lambda: a + b,
        "neg": lambda: -a,
        "sign": lambda: a.sign(),
        "clamp": lambda: a.clamp(0, 2),
        "where": lambda: t.where(mask, a, b),
        "to float32": lambda: a.to(t.float32),
        "to float16": lambda: a.to(t.float16),
        "to int64": lambda: a.to(t.int64),
        "transpose": lambda: a.T.contiguous(),
        "cat": lambda: t.cat([a, b], 1),
        "flip": lambda: a.flip(1),
        "tril": lambda: a.tril(),
        "repeat_interleave": lambda: a.repeat_interleave(2, 1),
        "interpolate nearest": lambda: F.interpolate(image, scale_factor=2),
        "avg_pool2d": lambda: F.avg_pool2d(image, 2),
        "max_pool2d": lambda: F.max_pool2d(image, 2),
        "conv2d of 1 channel": lambda: F.conv2d(image, image[..., :3, :3]),
        "conv2d of 16 channels": lambda: F.conv2d(
            channels, a.flatten()[: 16 * 16 * 9].view(16, 16, 3, 3)
        ),
        "mm of 128 x 128": lambda: a[:128, :128] @ b[:128, :128],
        "bmm": lambda: t.bmm(a.view(8, 64, SIZE), b.view(8, SIZE, 64)),
    }


def measure(name: str, dtype: str, ours: Call, theirs: Call, clock: Any) -> dict[str, Any] | None:
    """One row; None if PyTorch refuses the call."""
    from tilewright import recording

    try:
        theirs()
    except RuntimeError:
        return None

    def flushed() -> Any:
        result = ours()
        recording.flush()
        return result

    seconds = timing.interleaved({"ours": flushed, "torch": theirs}, rounds=5, clock=clock)
    return {
        "name": name,
        "dtype": dtype,
        "ours_us": seconds["ours"] * 1e6,
        "torch_us": seconds["torch"] * 1e6,
        "ratio": seconds["torch"] / seconds["ours"],
    }


def main() -> None:
    parser = timing.parser((__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="ops whose name contains this")
    parser.add_argument("--dtype", choices=DTYPES, help="measure only this dtype")
    parser.add_argument("--below", type=float, default=0.5, help="list the rows below this ratio")
    options = parser.parse_args()
    clock = timing.clock(options)
    import torch

    import tilewright as tw

    tw.set_num_threads(1)
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    with torch.no_grad(), tw.no_grad():
        for dtype in [options.dtype] if options.dtype else DTYPES:
            mine, other = calls(tw, dtype), calls(torch, dtype)
            for name in mine:
                if options.names and not any(n in name for n in options.names):
                    continue
                row = measure(name, dtype, mine[name], other[name], clock)
                if row is not None:
                    rows.append(row)
                    timing.save(rows, options)
    listed = sorted([r for r in rows if r["ratio"] < options.below], key=lambda r: r["ratio"])
    print(f"{len(rows)} measured, {len(listed)} listed")
    timing.table(listed, ("name", "dtype", "ours_us", "torch_us", "ratio"))


if __name__ == "__main__":
    main()
