"""Convolutions and their gradients beside PyTorch's (oneDNN), over the layers of a ResNet-18.

    python bench/conv.py [--json FILE] [--threads N] [--batch N] [NAME ...]

Results are compared before anything is timed. Our calls end with a flush, which computes the
recorded ops. Buffers come from each framework's own allocator.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TW_CPU", "llvm")
sys.path.insert(0, os.path.dirname(__file__))

import timing

GOAL = 1.1
# (input channels, output channels, kernel, stride, size of the square images)
LAYERS = [
    (3, 64, 3, 1, 32),
    (64, 64, 3, 1, 32),
    (64, 128, 3, 2, 32),
    (64, 128, 1, 2, 32),
    (128, 128, 3, 1, 16),
    (128, 256, 3, 2, 16),
    (128, 256, 1, 2, 16),
    (256, 256, 3, 1, 8),
    (256, 512, 3, 2, 8),
    (256, 512, 1, 2, 8),
    (512, 512, 3, 1, 4),
]
PASSES = ("forward", "dX", "dW")


def ours(tw: Any, arrays: list[Any], which: str, stride: int, padding: int) -> Callable[[], Any]:
    x, w, g = (tw.tensor(a) for a in arrays)
    if which != "forward":
        (x if which == "dX" else w).requires_grad_()

    def step() -> Any:
        y = tw.nn.functional.conv2d(x, w, None, stride, padding)
        if which == "forward":
            return y
        return tw.autograd.grad(y, x if which == "dX" else w, g)[0]

    return step


def theirs(
    torch: Any, arrays: list[Any], which: str, stride: int, padding: int
) -> Callable[[], Any]:
    x, w, g = (torch.tensor(a) for a in arrays)
    if which == "forward":
        return lambda: torch.nn.functional.conv2d(x, w, None, stride, padding)
    mask = [which == "dX", which == "dW", False]
    rest = [[stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, mask]
    backward = torch.ops.aten.convolution_backward
    return lambda: backward(g, x, w, None, *rest)[0 if which == "dX" else 1]


def name_of(layer: tuple[int, ...], which: str) -> str:
    inputs, outputs, kernel, stride, size = layer
    return f"{inputs}->{outputs} {kernel}x{kernel}/{stride} {size}x{size} {which}"


def measure(
    torch: Any, tw: Any, layer: tuple[int, ...], which: str, options: Any
) -> dict[str, Any]:
    import numpy as np

    from tilewright import recording

    inputs, outputs, kernel, stride, size = layer
    padding, batch = kernel // 2, options.batch
    out = (size + 2 * padding - kernel) // stride + 1
    rng = np.random.default_rng(0)
    shapes = [
        (batch, inputs, size, size),
        (outputs, inputs, kernel, kernel),
        (batch, outputs, out, out),
    ]
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    mine = ours(tw, arrays, which, stride, padding)
    other = theirs(torch, arrays, which, stride, padding)
    expected = other().numpy()
    got = mine().detach().numpy()
    name = name_of(layer, which)
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(got / scale, expected / scale, atol=1e-5, err_msg=name)

    def flushed() -> None:
        result = mine()
        recording.flush()
        del result

    with torch.no_grad():
        clock = timing.clock(options)
        seconds = timing.interleaved(
            {"ours": flushed, "torch": other}, rounds=9, inner=2, clock=clock
        )
    products = batch * outputs * out * out * inputs * kernel * kernel
    return {
        "name": name,
        "ours_ms": seconds["ours"] * 1e3,
        "torch_ms": seconds["torch"] * 1e3,
        "gflops": 2e-9 * products / seconds["ours"],
        "ratio": seconds["torch"] / seconds["ours"],
        "goal": GOAL,
    }


def main() -> None:
    parser = timing.parser(__doc__ or "")
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows whose name contains this")
    parser.add_argument("--threads", type=int, default=0, help="threads of both (default: cores)")
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    import torch

    import tilewright as tw
    import tilewright.nn

    threads = options.threads or tw.get_num_threads()
    tw.set_num_threads(threads)
    torch.set_num_threads(threads)
    rows = []
    for layer in LAYERS:
        for which in PASSES:
            name = name_of(layer, which)
            if not options.names or any(n in name for n in options.names):
                rows.append(measure(torch, tw, layer, which, options))
    columns = ("name", "ours_ms", "torch_ms", "gflops", "ratio", "goal")
    timing.report(rows, columns, options)


if __name__ == "__main__":
    main()
