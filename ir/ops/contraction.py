"""Sums of products: matmul, convolution, and the convolution's two gradients.

Each is linear in both operands, so their VJPs are one another and derivatives of any order exist.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtype import FLOAT8, HALVES, accumulator, float32, from_numpy
from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op
from ..shape import Ints, Pairs, Size, broadcast, require_positive
from .composite import as_dtype
from .movement import slice_, sum_to, transpose, window_count


def _same_float(name: str, a: Node, b: Node) -> None:
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"{name}: expected both operands of one dtype, got {a.dtype} and {b.dtype}"
            f"{at_user_line()}"
        )


def _wide(x: Any) -> Any:
    """Half types and float8 are multiplied and summed in float32."""
    return x.astype(accumulator(from_numpy(x.dtype)).np, copy=False)


def _matmul_infer(a: Node, b: Node) -> Aval:
    narrow = a.dtype in FLOAT8 and b.dtype in FLOAT8
    if not narrow:
        _same_float("matmul", a, b)
    if a.rank < 2 or b.rank < 2 or a.shape[-1] != b.shape[-2]:
        raise RuntimeError(
            f"matmul: inner sizes differ: {tuple(a.shape)} @ {tuple(b.shape)}{at_user_line()}"
        )
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    return Size((*batch, a.shape[-2], b.shape[-1])), float32 if narrow else a.dtype


def _matmul_vjp(g: Node, out: Node, a: Node, b: Node) -> tuple[Node | None, ...]:
    if a.dtype in FLOAT8:
        raise NotImplementedError(f"a product of float8 has no derivative{at_user_line()}")
    da = sum_to(matmul(g, transpose(b)), a.shape) if a.requires_grad else None
    db = sum_to(matmul(transpose(a), g), b.shape) if b.requires_grad else None
    return da, db


def _matmul_numpy(a: Any, b: Any) -> Any:
    product = np.matmul(_wide(a), _wide(b))
    return product if from_numpy(a.dtype) in FLOAT8 else product.astype(a.dtype)


matmul = Op(
    "matmul",
    Kind.CONTRACTION,
    _matmul_infer,
    vjp=_matmul_vjp,
    numpy=_matmul_numpy,
    onnx="MatMul",
    float8=True,
    complex=True,
)
"""a[..., m, k] @ b[..., k, n] with broadcast batches; half types accumulate in float32. Products of
float8, also of its two kinds with each other, give float32."""


def _in_float32(op: Op, vjp: Any = None) -> Op:
    """The record of a product that isn't rounded: half types give their float32 sums."""

    def infer(*args: Any) -> Aval:
        shape, dtype = op.infer(*args)
        return shape, accumulator(dtype)

    def numpy(a: Any, b: Any, *attrs: Any) -> Any:
        assert callable(op.numpy)
        return op.numpy(_wide(a), _wide(b), *attrs)

    return Op(
        f"{op.name}_wide",
        Kind.CONTRACTION,
        infer,
        op.params,
        vjp=vjp,
        aten=op.aten,
        numpy=numpy,
        convolution=op.convolution,
    )


matmul_wide = _in_float32(matmul, lambda g, out, a, b: _matmul_vjp(as_dtype(g, a.dtype), out, a, b))


def product(a: Node, b: Node) -> Node:
    """a @ b as it is summed: half types give float32."""
    return matmul_wide(a, b) if a.dtype in HALVES else matmul(a, b)


matmul_fast = Op(
    "matmul_fast",
    Kind.CONTRACTION,
    _matmul_infer,
    numpy=_matmul_numpy,
    float8=True,
)
"""`matmul` of float8 with the hardware's fastest sums, however short: 14 bits on Hopper."""


# Convolution: x[n, c, *in], w[o, c / groups, *kernel] -> y[n, o, *out]. The attrs are tuples, one
# entry for each spatial dimension; `padding` holds pairs (low, high).
_CONV = ("stride", "padding", "dilation", "groups")


def conv_output_size(
    size: int, kernel: int, stride: int, padding: tuple[int, int], dilation: int
) -> int:
    return window_count(size + padding[0] + padding[1], kernel, stride, dilation)


def _conv_infer(
    x: Node, w: Node, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Aval:
    _same_float("conv", x, w)
    if x.rank != w.rank or x.rank < 3:
        raise RuntimeError(
            f"conv: expected input and weight of one rank of 3 or more, "
            f"got {tuple(x.shape)} and {tuple(w.shape)}{at_user_line()}"
        )
    if x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise RuntimeError(
            f"conv: weight of shape {tuple(w.shape)} with groups={groups} expects "
            f"{w.shape[1] * groups} input channels (and a multiple of {groups} output channels), "
            f"got input {tuple(x.shape)}{at_user_line()}"
        )
    require_positive("conv", stride=stride, dilation=dilation)
    out = [
        conv_output_size(*each)
        for each in zip(x.shape[2:], w.shape[2:], stride, padding, dilation, strict=True)
    ]
    if min(out) <= 0:
        raise RuntimeError(
            f"conv: kernel {tuple(w.shape[2:])} is larger than the padded input "
            f"{tuple(x.shape[2:])}{at_user_line()}"
        )
    return Size((x.shape[0], w.shape[0], *out)), x.dtype


def _padded(x: Any, padding: Pairs) -> Any:
    return np.pad(x, [(0, 0), (0, 0), *padding])


def _patches(x: Any, kernel: Ints, stride: Ints, dilation: Ints) -> Any:
    """[n, c, *out, *kernel] windows of a padded input, as a strided view."""
    shape, strides = list(x.shape[:2]), list(x.strides[:2])
    for axis, (k, s, d) in enumerate(zip(kernel, stride, dilation, strict=True), 2):
        shape.append(window_count(x.shape[axis], k, s, d))
        strides.append(x.strides[axis] * s)
    for axis, (k, d) in enumerate(zip(kernel, dilation, strict=True), 2):
        shape.append(k)
        strides.append(x.strides[axis] * d)
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)


def _conv_numpy(x: Any, w: Any, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
    dims = x.ndim - 2
    patches = _patches(_padded(_wide(x), padding), w.shape[2:], stride, dilation)
    n, o, out = x.shape[0], w.shape[0], patches.shape[2 : 2 + dims]
    parts = []
    for p, q in zip(np.split(patches, groups, 1), np.split(_wide(w), groups, 0), strict=True):
        rows = np.moveaxis(p, 1, 1 + dims).reshape(n * math.prod(out), -1)
        parts.append((rows @ q.reshape(q.shape[0], -1).T).reshape(n, *out, -1))
    y = np.concatenate(parts, -1) if groups > 1 else parts[0]
    return np.ascontiguousarray(np.moveaxis(y, -1, 1)).astype(x.dtype).reshape(n, o, *out)


def _conv_vjp(g: Node, out: Node, x: Node, w: Node, *attrs: Any) -> tuple[Node | None, ...]:
    dx = conv_input_grad(g, w, tuple(x.shape[2:]), *attrs) if x.requires_grad else None
    dw = conv_weight_grad(g, x, tuple(w.shape[2:]), *attrs) if w.requires_grad else None
    return dx, dw


conv = Op(
    "conv",
    Kind.CONTRACTION,
    _conv_infer,
    params=_CONV,
    vjp=_conv_vjp,
    numpy=_conv_numpy,
    onnx="Conv",
    complex=True,
    convolution=True,
    aten="convolution",
)
"""Cross-correlation of x[n, c, *in] with w[o, c / groups, *kernel]."""


def _input_grad_infer(
    g: Node, w: Node, size: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Aval:
    _same_float("conv_input_grad", g, w)
    if g.rank != w.rank or g.shape[1] != w.shape[0]:
        raise RuntimeError(
            f"transposed conv: weight of shape {tuple(w.shape)} expects {w.shape[0]} channels, "
            f"got {tuple(g.shape)}{at_user_line()}"
        )
    return Size((g.shape[0], w.shape[1] * groups, *size)), g.dtype


def _input_grad_numpy(
    g: Any, w: Any, size: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Any:
    dims = g.ndim - 2
    n, kernel, out = g.shape[0], w.shape[2:], g.shape[2:]
    padded = [s + lo + hi for s, (lo, hi) in zip(size, padding, strict=True)]
    dx = np.zeros((n, w.shape[1] * groups, *padded), dtype=_wide(g[:0]).dtype)
    per = w.shape[1]
    for i, (gg, q) in enumerate(
        zip(np.split(_wide(g), groups, 1), np.split(_wide(w), groups, 0), strict=True)
    ):
        rows = np.moveaxis(gg, 1, -1).reshape(-1, gg.shape[1])
        cols = (rows @ q.reshape(q.shape[0], -1)).reshape(n, *out, per, *kernel)
        cols = np.moveaxis(cols, 1 + dims, 1)  # [n, c, *out, *kernel]
        target = dx[:, i * per : (i + 1) * per]
        for place in np.ndindex(*kernel):
            region = tuple(
                slice(p * d, p * d + (m - 1) * s + 1, s)
                for p, d, m, s in zip(place, dilation, out, stride, strict=True)
            )
            target[(slice(None), slice(None), *region)] += cols[(..., *place)]
    inner = tuple(slice(lo, lo + s) for s, (lo, _) in zip(size, padding, strict=True))
    return np.ascontiguousarray(dx[(slice(None), slice(None), *inner)]).astype(g.dtype)


def _windows_of(g: Node, x: Node, w: Node, *attrs: Any) -> Node:
    """The convolution of x by w in the windows that `g` has. A transposed convolution may have so
    much padding behind it that further windows fit."""
    y = conv(x, w, *attrs)
    return y if y.shape == g.shape else slice_(y, (0,) * g.rank, tuple(g.shape), (1,) * g.rank)


def _input_grad_vjp(
    h: Node, out: Node, g: Node, w: Node, size: Ints, *attrs: Any
) -> tuple[Node | None, Node | None]:
    dg = _windows_of(g, h, w, *attrs) if g.requires_grad else None
    dw = conv_weight_grad(g, h, tuple(w.shape[2:]), *attrs) if w.requires_grad else None
    return dg, dw


conv_input_grad = Op(
    "conv_input_grad",
    Kind.CONTRACTION,
    _input_grad_infer,
    params=("size", *_CONV),
    vjp=_input_grad_vjp,
    numpy=_input_grad_numpy,
    onnx="ConvTranspose",
    complex=True,
    convolution=True,
    aten="convolution_backward",
)
"""The adjoint of `conv` in x: (g[n, o, *out], w) -> [n, c, *size]. Also the transposed conv."""


def _weight_grad_infer(
    g: Node, x: Node, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Aval:
    _same_float("conv_weight_grad", g, x)
    return Size((g.shape[1], x.shape[1] // groups, *kernel)), g.dtype


def _weight_grad_numpy(
    g: Any, x: Any, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Any:
    dims = g.ndim - 2
    padded = _padded(_wide(x), padding)
    out = g.shape[2:]
    # Only the windows of the output: a stride may leave a rest at the end of the input.
    patches = _patches(padded, kernel, stride, dilation)
    patches = patches[(slice(None), slice(None), *[slice(m) for m in out])]
    parts = []
    for gg, p in zip(np.split(_wide(g), groups, 1), np.split(patches, groups, 1), strict=True):
        rows = np.moveaxis(gg, 1, 0).reshape(gg.shape[1], -1)
        cols = np.moveaxis(p, 1, 1 + dims).reshape(rows.shape[1], -1)
        parts.append((rows @ cols).reshape(gg.shape[1], p.shape[1], *kernel))
    return np.concatenate(parts, 0).astype(g.dtype)


def _weight_grad_vjp(
    h: Node, out: Node, g: Node, x: Node, kernel: Ints, *attrs: Any
) -> tuple[Node | None, Node | None]:
    dg = _windows_of(g, x, h, *attrs) if g.requires_grad else None
    dx = conv_input_grad(g, h, tuple(x.shape[2:]), *attrs) if x.requires_grad else None
    return dg, dx


conv_weight_grad = Op(
    "conv_weight_grad",
    Kind.CONTRACTION,
    _weight_grad_infer,
    params=("kernel", *_CONV),
    vjp=_weight_grad_vjp,
    numpy=_weight_grad_numpy,
    complex=True,
    convolution=True,
    aten="convolution_backward",
)
"""The adjoint of `conv` in w: (g[n, o, *out], x[n, c, *in]) -> [o, c / groups, *kernel]."""

conv_weight_grad_wide = _in_float32(conv_weight_grad)
