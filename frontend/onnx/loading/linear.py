"""Products and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import linalg
from .api import F, f
from .table import operator

_CONV = (F.conv1d, F.conv2d, F.conv3d)
_TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)

Pairs = list[tuple[int, int]]


@operator("MatMul")
def matmul(a: Any, b: Any) -> Any:
    return f.matmul(a, b)


@operator("Gemm")
def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    broadcast: int = 1,
) -> Any:
    a = a.t() if transA else a
    if alpha == 1 and (c is None or (beta == 1 and tuple(c.shape) == (b.shape[1 - transB],))):
        return F.linear(a, b if transB else b.t(), c)
    product = f.matmul(a, b.t() if transB else b)
    product = product if alpha == 1 else product * alpha
    return product if c is None else product + (c if beta == 1 else c * beta)


@operator("Det")
def determinant(x: Any) -> Any:
    return linalg.det(x)


@operator("Einsum")
def einsum(*tensors: Any, equation: str) -> Any:
    return f.einsum(equation, *tensors)


def padding(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int] | None,
    auto_pad: str,
) -> Pairs:
    """The padding before and after each dimension."""
    if auto_pad in ("NOTSET", "") and pads:
        return list(zip(pads[: len(sizes)], pads[len(sizes) :], strict=True))
    if not auto_pad.startswith("SAME"):
        return [(0, 0)] * len(sizes)
    out = []
    for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        small, large = total // 2, total - total // 2
        out.append((small, large) if auto_pad == "SAME_UPPER" else (large, small))
    return out


def flat(pairs: Pairs) -> list[int]:
    """Pairs as F.pad takes them, the last dimension first."""
    return [n for pair in pairs[::-1] for n in pair]


@operator("Conv")
def conv(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    dims, kernel = x.dim() - 2, tuple(weight.shape[2:])
    strides, dilations = strides or [1] * dims, dilations or [1] * dims
    pairs = padding(x.shape[2:], kernel, strides, dilations, pads, auto_pad)
    if any(low != high for low, high in pairs):
        x, pairs = F.pad(x, flat(pairs)), [(0, 0)] * dims
    low = [pair[0] for pair in pairs]
    return _of(_CONV, dims)(x, weight, bias, strides, low, dilations, group)


@operator("ConvTranspose")
def conv_transpose(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    dims = x.dim() - 2
    strides, dilations = strides or [1] * dims, dilations or [1] * dims
    extra = output_padding or [0] * dims
    full = [
        s * (n - 1) + e + d * (k - 1) + 1
        for s, n, e, d, k in zip(
            strides, x.shape[2:], extra, dilations, weight.shape[2:], strict=True
        )
    ]
    if output_shape is None and auto_pad.startswith("SAME"):
        output_shape = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    if output_shape is None:
        pairs = padding(x.shape[2:], weight.shape[2:], strides, dilations, pads, auto_pad)
    else:
        halves = [
            (t // 2, t - t // 2)
            for t in (n - out for n, out in zip(full, output_shape[-dims:], strict=True))
        ]
        pairs = halves if auto_pad == "SAME_UPPER" else [(high, low) for low, high in halves]
    transposed = _of(_TRANSPOSED, dims)
    if all(low == high >= 0 for low, high in pairs) and all(
        e < max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)
    ):
        low = [pair[0] for pair in pairs]
        return transposed(x, weight, bias, strides, low, extra, group, dilations)
    y = transposed(x, weight, None, strides, 0, 0, group, dilations)
    cut = [(-low, e - high) for (low, high), e in zip(pairs, extra, strict=True)]
    y = F.pad(y, flat(cut))
    return y if bias is None else y + bias.reshape([-1] + [1] * dims)


def _of(functions: Sequence[Any], dims: int) -> Any:
    if not 1 <= dims <= len(functions):
        raise ValueError(f"expected one to three spatial dimensions, got {dims}")
    return functions[dims - 1]
