"""Families of kernels by name and shape, for `tilewright tune matmul 512x512x512`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..devices import default
from ..functions import creation, sampling
from ..nn import functional as F
from .work import Launched, launched_by, recorded

Sizes = tuple[int, ...]
Call = tuple[Callable[..., Any], Sequence[Any]]


@dataclass(frozen=True)
class Family:
    """A family of kernels. sizes: names of a shape's numbers, for messages; counts: allowed numbers
    of these. call: makes (function, operands) for a shape."""

    sizes: str
    counts: tuple[int, ...]
    call: Callable[..., Call]
    shape: str


def _matmul(make: Any, *sizes: int) -> Call:
    *batch, m, n, k = sizes
    return lambda a, b: a @ b, (make(*batch, m, k), make(*batch, k, n))


def _conv2d(
    make: Any, n: int, c: int, h: int, w: int, out: int, kernel: int, stride: int = 1
) -> Call:
    def call(x: Any, weight: Any) -> Any:
        return F.conv2d(x, weight, stride=stride, padding=kernel // 2)

    return call, (make(n, c, h, w), make(out, c, kernel, kernel))


def _attention(make: Any, *sizes: int) -> Call:
    return F.scaled_dot_product_attention, [make(*sizes) for _ in range(3)]


def _causal_attention(make: Any, *sizes: int) -> Call:
    causal = partial(F.scaled_dot_product_attention, is_causal=True)
    return causal, [make(*sizes) for _ in range(3)]


def _softmax(make: Any, *sizes: int) -> Call:
    return lambda x: F.softmax(x, -1), [make(*sizes)]


def _layer_norm(make: Any, *sizes: int) -> Call:
    def call(x: Any, weight: Any, bias: Any) -> Any:
        return F.layer_norm(x, sizes[-1:], weight, bias)

    return call, (make(*sizes), make(sizes[-1]), make(sizes[-1]))


def _reduce(make: Any, *sizes: int) -> Call:
    return lambda x: x.sum(-1), [make(*sizes)]


def _reduce_columns(make: Any, *sizes: int) -> Call:
    return lambda x: x.sum(0), [make(*sizes)]


def _elementwise(make: Any, *sizes: int) -> Call:
    return lambda x, y: F.gelu(x * y + x), (make(*sizes), make(*sizes))


_ANY = tuple(range(1, 9))
FAMILIES = {
    "matmul": Family("[BATCHx]MxNxK", (3, 4, 5), _matmul, "4096x4096x4096"),
    "conv2d": Family("NxCxHxWxOUTxKERNEL[xSTRIDE]", (6, 7), _conv2d, "8x64x56x56x64x3"),
    "attention": Family("BATCHxHEADSxLENGTHxWIDTH", (4,), _attention, "4x12x1024x64"),
    "causal-attention": Family("BATCHxHEADSxLENGTHxWIDTH", (4,), _causal_attention, "4x12x1024x64"),
    "softmax": Family("[...x]ROWSxCOLUMNS", _ANY, _softmax, "4096x1024"),
    "layer_norm": Family("[...x]ROWSxCOLUMNS", _ANY, _layer_norm, "4096x1024"),
    "reduce": Family("[...x]ROWSxCOLUMNS", _ANY, _reduce, "4096x1024"),
    "reduce-columns": Family("ROWSx...", _ANY, _reduce_columns, "4096x1024"),
    "elementwise": Family("any shape", _ANY, _elementwise, "4096x1024"),
}
"""The families, by name."""


def parse_shape(family: str, text: str) -> Sizes:
    """The numbers of a shape. ValueError with a message for the user."""
    about = FAMILIES[family]
    expected = f"{family} takes {about.sizes}, such as {about.shape}"
    try:
        sizes = tuple(int(part) for part in text.lower().split("x"))
    except ValueError:
        raise ValueError(f"{text!r} is no shape: {expected}") from None
    if len(sizes) not in about.counts or any(n < 1 for n in sizes):
        raise ValueError(f"{text!r}: {expected}")
    return sizes


def kernels_of(
    family: str,
    shapes: Sequence[Sizes],
    dtype: Any = None,
    device: str = "cpu",
    target: str | None = None,
) -> list[Launched]:
    """The busiest kernel of a family for each shape, in order. target: for a GPU that isn't
    present."""
    out: list[Launched] = []
    with default(device):

        def make(*sizes: int) -> Any:
            whole = creation.zeros if target else sampling.rand
            return whole(*sizes).to(dtype)

        for sizes in shapes:
            function, operands = FAMILIES[family].call(make, *sizes)
            if target is None:
                found = launched_by(function, operands)
            else:
                found = recorded(function, operands, target)
            out += [replace(each, family=family) for each in found[:1]]
    return out
