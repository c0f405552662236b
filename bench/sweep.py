"""Every kind of API op on 1,000 and on 1,000,000 elements, beside PyTorch eager.

    python bench/sweep.py [--json FILE] [--all] [--threads N] [--size N] [--processor] [NAME ...]

One call with its flush is timed against PyTorch's call, forward only, after results are compared.
Lists the ops below the goal: half as fast on 1,000 elements, as fast on 1,000,000.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import numpy as np
import timing

from tests.support import api_cases

GOALS = {1_000: 0.5, 1_000_000: 1.0}
ROW = {1_000: (10, 100), 1_000_000: (1000, 1000)}
IMAGE = {1_000: (1, 4, 16, 16), 1_000_000: (16, 64, 32, 32)}

Call = Callable[..., Any]
Maker = Callable[[Any, int], tuple[Any, ...]]

# Ops on floats whose inputs must lie above a bound.
ABOVE = {"acosh": 1.0, "log": 0.1, "log2": 0.1, "log10": 0.1, "sqrt": 0.0, "rsqrt": 0.1,
         "lgamma": 0.2, "digamma": 0.2, "pow": 0.1, "float_power": 0.1, "xlogy": 0.1,
         "igamma": 0.1, "igammac": 0.1}  # fmt: skip
# Ops on integers, and the bound of these.
INTEGER = {"bitwise_and": 100, "bitwise_or": 100, "bitwise_xor": 100, "bitwise_not": 100,
           "bitwise_left_shift": 31, "bitwise_right_shift": 31}  # fmt: skip
REDUCTIONS = (
    "sum prod mean amax amin any all var std norm nansum count_nonzero argmax argmin max min "
    "logsumexp"
).split()
POINTWISE = (
    "relu relu6 gelu silu mish elu selu celu leaky_relu hardtanh hardsigmoid hardswish softplus "
    "softsign logsigmoid tanhshrink softshrink hardshrink"
).split()
LOSSES = (
    "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits "
    "soft_margin_loss poisson_nll_loss"
).split()


def floats(count: int, low: float = -1.0) -> Maker:
    """`count` tensors of shape ROW, uniform between `low` and 1 (or 1 above `low`)."""

    def make(torch: Any, size: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        high = max(1.0, low + 1)
        arrays = (rng.uniform(low, high, ROW[size]).astype(np.float32) for _ in range(count))
        return tuple(torch.tensor(a) for a in arrays)

    return make


def integers(count: int, high: int = 100) -> Maker:
    def make(torch: Any, size: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        return tuple(torch.tensor(rng.integers(0, high, ROW[size])) for _ in range(count))

    return make


def numbers(count: int) -> Maker:
    """`count` complex tensors of shape ROW, both parts between -1 and 1."""

    def make(torch: Any, size: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        parts = (rng.uniform(-1, 1, (2, *ROW[size])).astype(np.float32) for _ in range(count))
        return tuple(torch.tensor(real + 1j * imag) for real, imag in parts)

    return make


def image(torch: Any, size: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    return (torch.tensor(rng.standard_normal(IMAGE[size]).astype(np.float32)),)


def matrices(n: int) -> Maker:
    """A batch of positive-definite n x n matrices, and right sides of three columns."""

    def make(torch: Any, size: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(0)
        a = rng.standard_normal((max(size // n**2, 1), n, n)).astype(np.float32)
        a = a @ a.swapaxes(-1, -2) / n + np.eye(n, dtype=np.float32)
        return torch.tensor(a), torch.tensor(a[..., :3] * 1)

    return make


def rows_and_index(torch: Any, size: int) -> tuple[Any, ...]:
    x = floats(1)(torch, size)[0]
    index = np.random.default_rng(1).integers(0, ROW[size][0], ROW[size][0])
    return x, torch.tensor(index)


def logits(torch: Any, size: int) -> tuple[Any, ...]:
    x = floats(1)(torch, size)[0]
    classes = np.random.default_rng(1).integers(0, ROW[size][1], ROW[size][0])
    return x, torch.tensor(classes)


def cases() -> Iterator[tuple[str, Call, Maker]]:
    """(name, call(torch, *tensors), maker of the tensors) for every op."""
    for name in api_cases.UNARY:
        makers = integers(1) if name in INTEGER else floats(1, ABOVE.get(name, -0.9))
        yield name, lambda t, x, name=name: getattr(t, name)(x), makers
    for name in api_cases.BINARY:
        makers = integers(2, INTEGER[name]) if name in INTEGER else floats(2, ABOVE.get(name, -0.9))
        yield name, lambda t, x, y, name=name: getattr(t, name)(x, y), makers
    for name in REDUCTIONS:
        if name != "logsumexp":
            yield f"{name}()", lambda t, x, name=name: getattr(x, name)(), floats(1)
        for dim in (0, 1):
            yield (
                f"{name}({dim})",
                lambda t, x, name=name, dim=dim: getattr(x, name)(dim=dim),
                floats(1),
            )
    for name in POINTWISE:
        yield f"F.{name}", lambda t, x, name=name: getattr(t.nn.functional, name)(x), floats(1)
    for name in LOSSES:
        yield (
            f"F.{name}",
            lambda t, x, y, name=name: getattr(t.nn.functional, name)(x, y),
            floats(2, 0.1),
        )
    yield from _others()
    yield from _of_complex_numbers()


def _others() -> Iterator[tuple[str, Call, Maker]]:
    one, two, three = floats(1), floats(2), floats(3)
    yield "add a number", lambda t, x: x + 1, one
    yield "mul a row", lambda t, x: x * x[0], one
    yield "where", lambda t, x, y: t.where(x > 0, x, y), two
    yield "clamp", lambda t, x: x.clamp(-0.5, 0.5), one
    yield "lerp", lambda t, x, y: t.lerp(x, y, 0.3), two
    yield "addcmul", lambda t, x, y, z: t.addcmul(x, y, z), three
    yield "masked_fill", lambda t, x: x.masked_fill(x > 0, 0.0), one
    yield "to int32", lambda t, x: x.to(t.int32), one
    yield "to bfloat16 and back", lambda t, x: x.to(t.bfloat16).to(t.float32), one
    yield "clone", lambda t, x: x.clone(), one
    yield "contiguous transpose", lambda t, x: x.t().contiguous(), one
    yield "cat", lambda t, x, y: t.cat([x, y], 1), two
    yield "stack", lambda t, x, y: t.stack([x, y]), two
    yield "flip", lambda t, x: x.flip(1), one
    yield "roll", lambda t, x: x.roll(3, 1), one
    yield "repeat", lambda t, x: x.repeat(1, 2), one
    yield "tril", lambda t, x: x.tril(), one
    yield "expand and sum", lambda t, x: x[:, None].expand(-1, 2, -1).sum(1), one
    yield "slice with step", lambda t, x: x[:, ::2] + 0, one
    yield "pad", lambda t, x: t.nn.functional.pad(x, (1, 1)), one
    yield "cumsum", lambda t, x: x.cumsum(1), one
    yield "cumprod", lambda t, x: x.cumprod(1), one
    yield "sort", lambda t, x: x.sort(1)[0], one
    yield "argsort", lambda t, x: t.argsort(x, dim=1, stable=True), one
    yield "topk", lambda t, x: x.topk(5, 1)[0], one
    yield "median(1)", lambda t, x: x.median(1)[0], one
    yield "unique", lambda t, x: x.unique(), integers(1)
    yield "bincount", lambda t, x: x.reshape(-1).bincount(), integers(1)
    yield "nonzero", lambda t, x: (x > 0).nonzero(), one
    yield "masked_select", lambda t, x: x[x > 0], one
    yield "softmax(1)", lambda t, x: x.softmax(1), one
    yield "softmax(0)", lambda t, x: x.softmax(0), one
    yield "log_softmax(1)", lambda t, x: x.log_softmax(1), one
    yield "layer_norm", lambda t, x: t.nn.functional.layer_norm(x, x.shape[1:]), one
    yield "rms_norm", lambda t, x: t.nn.functional.rms_norm(x, x.shape[1:]), one
    yield "normalize", lambda t, x: t.nn.functional.normalize(x), one
    yield "cross_entropy", lambda t, x, y: t.nn.functional.cross_entropy(x, y), logits
    yield "nll_loss", lambda t, x, y: t.nn.functional.nll_loss(x, y), logits
    yield "index_select", lambda t, x, i: x.index_select(0, i), rows_and_index
    yield "embedding", lambda t, x, i: t.nn.functional.embedding(i, x), rows_and_index
    yield "x[i]", lambda t, x, i: x[i], rows_and_index
    yield "index_add", lambda t, x, i: x.index_add(0, i, x), rows_and_index
    yield "gather", lambda t, x, i: x.gather(0, i[:, None].expand(-1, x.shape[1])), rows_and_index
    yield "matmul", lambda t, x, y: x @ y.t(), two
    yield "matrix times vector", lambda t, x: x @ x[0], one
    yield "linear", lambda t, x, w: t.nn.functional.linear(x, w), two
    yield "batch_norm", _batch_norm, image
    yield "group_norm", lambda t, x: t.nn.functional.group_norm(x, 2), image
    yield "instance_norm", lambda t, x: t.nn.functional.instance_norm(x), image
    yield "max_pool2d", lambda t, x: t.nn.functional.max_pool2d(x, 2), image
    yield "avg_pool2d", lambda t, x: t.nn.functional.avg_pool2d(x, 2), image
    yield (
        "adaptive_avg_pool2d",
        lambda t, x: t.nn.functional.adaptive_avg_pool2d(x, 1),
        image,
    )
    yield "conv2d", _conv, image
    yield "pixel_shuffle", lambda t, x: t.nn.functional.pixel_shuffle(x, 2), image
    yield "unfold", lambda t, x: t.nn.functional.unfold(x, 3), image
    yield "ones", lambda t, x: t.ones(x.shape), one
    yield "arange", lambda t, x: t.arange(x.numel()), one

    for n in (8, 64, 512):
        of = f"of {n} x {n}"
        yield f"cholesky {of}", lambda t, a, b: t.linalg.cholesky(a), matrices(n)
        yield f"solve {of}", lambda t, a, b: t.linalg.solve(a, b), matrices(n)
        yield f"inv {of}", lambda t, a, b: t.linalg.inv(a), matrices(n)
        yield f"eigh {of}", lambda t, a, b: t.linalg.eigh(a)[0], matrices(n)
        yield f"svd {of}", lambda t, a, b: t.linalg.svd(a)[1], matrices(n)
        yield f"qr {of}", lambda t, a, b: t.linalg.qr(a)[1].abs(), matrices(n)


COMPLEX = (
    "exp log sqrt rsqrt reciprocal sin tan acos asinh tanh atanh sigmoid abs angle sgn sum prod "
    "mean"
).split()
TRANSFORMS = "fft ifft rfft irfft fft2 ifft2 rfft2 irfft2".split()


def _of_complex_numbers() -> Iterator[tuple[str, Call, Maker]]:
    one, two = numbers(1), numbers(2)
    for name in COMPLEX:
        yield f"complex {name}", lambda t, x, name=name: getattr(t, name)(x), one
    yield "complex mul", lambda t, x, y: x * y, two
    yield "complex div", lambda t, x, y: x / y, two
    yield "complex pow", lambda t, x, y: x**y, two
    yield "complex chain", lambda t, x, y: (x * y + x).exp() * y.conj() - 1j, two
    yield "complex sum(0)", lambda t, x: x.sum(0), one
    yield "complex sum(1)", lambda t, x: x.sum(1), one
    yield "complex cumsum", lambda t, x: x.cumsum(1), one
    yield "complex cumprod", lambda t, x: x.cumprod(1), one
    yield "complex contiguous transpose", lambda t, x: x.t().contiguous(), one
    yield "complex cat", lambda t, x, y: t.cat([x, y], 1), two
    yield "complex from parts", lambda t, x: t.complex(x.imag, x.real), one
    yield "complex matmul", lambda t, x, y: x @ y.t(), two
    yield "complex matrix times vector", lambda t, x: x @ x[0], one
    yield "complex bmm", lambda t, x: x.view(-1, 10, 10) @ x.view(-1, 10, 10), one
    yield "complex einsum", lambda t, x, y: t.einsum("ij,ij->i", x, y), two
    yield "complex conv1d", lambda t, x: t.nn.functional.conv1d(x[:, None], x[:4, None, :5]), one
    for name in TRANSFORMS:
        make = floats(1) if name.startswith("rfft") else one
        if name.endswith("2"):
            yield f"fft.{name}", lambda t, x, name=name: getattr(t.fft, name)(x), make
        else:
            yield f"fft.{name}", lambda t, x, name=name: getattr(t.fft, name)(x.view(-1)), make
            yield f"fft.{name} of rows", lambda t, x, name=name: getattr(t.fft, name)(x), make


def _batch_norm(torch: Any, x: Any) -> Any:
    zero, one = x[0, :, 0, 0] * 0, x[0, :, 0, 0] * 0 + 1
    return torch.nn.functional.batch_norm(x, zero, one)


def _conv(torch: Any, x: Any) -> Any:
    return torch.nn.functional.conv2d(x, x[:1, :, :3, :3], padding=1)


def measure(
    name: str, call: Call, make: Maker, size: int, ours: Any, theirs: Any, clock: Any
) -> Any:
    """One row: microseconds of both, and our speedup."""
    from tilewright import recording

    mine, other = make(ours, size), make(theirs, size)
    a, b = (r[0] if isinstance(r, tuple) else r for r in (call(ours, *mine), call(theirs, *other)))
    wide = np.complex128 if b.is_complex() else np.float64
    scale = max(1.0, float(abs(b).max())) if b.is_complex() else 1.0
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

    inner = 20 if size == 1_000 else 3
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
