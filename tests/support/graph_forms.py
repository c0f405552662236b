"""Graphs of every family of ops, by name."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import ops
from tilewright.ir.dtype import bool_, float64, int64
from tilewright.ir.node import Node
from tilewright.ir.shape import Size


def leaf(index: int, *shape: int, dtype=float64) -> Node:
    return ops.leaf(index, Size(shape), dtype)


def _elementwise() -> list[Node]:
    a, b, c = leaf(0, 3, 4), leaf(1, 4), leaf(2, 3, 1)
    return [ops.exp(a) * b + c, ops.where(a > 0, b, c), ops.cast(a * 3, int64)]


def _scalars() -> list[Node]:
    a, lr, step = leaf(0, 3, 4), ops.scalar(1, float64), ops.scalar(2, int64)
    return [a * lr, ops.cast(step, float64) + lr, lr]


def _movement() -> list[Node]:
    a = leaf(0, 4, 6, 2)
    moved = ops.permute(ops.reshape(a, (4, 2, 3, 2)), (2, 0, 3, 1))
    return [
        moved + 1,
        ops.reshape(moved, (6, 8)),
        ops.slice_(a, (1, 0, 0), (4, 6, 2), (2, 3, 1)),
        ops.flip(a, (0, 2)) * a,
        ops.expand(ops.slice_axis(a, 1, 2, 3), (4, 6, 2)) - a,
        ops.reshape(ops.permute(a, (2, 1, 0)), (12, 4)),
    ]


def _reshape_chain() -> list[Node]:
    a = leaf(0, 6, 8)
    b = ops.permute(ops.reshape(a, (2, 3, 4, 2)), (1, 3, 0, 2))
    c = ops.reshape(ops.exp(b), (6, 8))
    return [c, ops.reshape(ops.permute(ops.reshape(c, (3, 16)), (1, 0)), (48,)) * 2]


def _pad() -> list[Node]:
    a = leaf(0, 3, 4)
    return [
        ops.pad(a, (1, 0), (2, 1), (1, 2)),
        ops.pad(a, (1, 2), (0, 1), (0, 0), ops.constant(5.0, float64)) * 2,
        ops.pad(ops.slice_axis(a, 0, 0, 0), (2, 0), (1, 0)) + 1,
        ops.pad(leaf(1, 1, 2), (2, 1), (1, 1), (3, 1)),
    ]


def _cat() -> list[Node]:
    a, b, c = leaf(0, 2, 3), leaf(1, 4, 3), leaf(2, 1, 3)
    joined = ops.cat([a, b, ops.slice_axis(a, 0, 0, 0), ops.exp(c)], 0)
    return [joined * 2, ops.slice_axis(joined, 0, 1, 3), ops.reshape(joined, (3, 7))]


def _windows() -> list[Node]:
    a = leaf(0, 2, 9, 7)
    w = ops.windows(ops.exp(a), (1, 2), (3, 2), (2, 1), (2, 3))
    return [ops.max(w, (3, 4)), ops.fold(w, a.shape, (1, 2), (3, 2), (2, 1), (2, 3))]


def _gather() -> list[Node]:
    x, i, j = leaf(0, 5, 4, 3), leaf(1, 2, 3, dtype=int64), leaf(2, 3, dtype=int64)
    rows = ops.gather(x, i, 0)
    position = ops.iota(3)
    return [
        rows,
        ops.gather(x, i, j, 0),
        ops.gather(ops.exp(x) * 2, j, 1),
        ops.gather(x, position + 1, j, 0),
        ops.gather(x, ops.constant(2, int64), 1),
    ]


def _reduce() -> list[Node]:
    x, b = leaf(0, 3, 4, 5), leaf(1, 3, 4, dtype=bool_)
    whole = [f(x, (0, 2)) for f in (ops.sum, ops.prod, ops.max, ops.min)]
    return [
        *whole,
        ops.argmax(x, (1, 2)),
        ops.argmin(x, (0,)),
        ops.any(b, (1,)),
        ops.all(b, (0,)),
        ops.sum(ops.permute(x, (2, 0, 1)), (0, 1)),
        ops.sum(ops.exp(ops.sum(x, (2,))), (0,)),
        ops.prod(ops.expand(leaf(2, 3, 1), (3, 4)), (1,)),
        ops.sum(ops.slice_axis(x, 1, 0, 1), (1,)),
    ]


def _empty() -> list[Node]:
    x = leaf(0, 3, 0, 2)
    return [
        ops.sum(x, (1,)) + 1,
        ops.prod(x, (1, 2)),
        ops.all(x > 0, (1,)),
        ops.any(x > 0, (0, 1)),
        ops.exp(x),
        ops.sum(x, (0,)),
        ops.matmul(leaf(1, 2, 0), leaf(2, 0, 3)),
        ops.gather(x, ops.slice_axis(leaf(3, 2, dtype=int64), 0, 0, 0), 0),
        ops.scatter(leaf(4, 3, 2), ops.slice_axis(leaf(4, 3, 2), 0, 0, 0),
                    ops.slice_axis(leaf(3, 2, dtype=int64), 0, 0, 0), 0, "add"),
    ]  # fmt: skip


def _normalization() -> list[Node]:
    x, w, b = leaf(0, 3, 4, 6), leaf(1, 6), leaf(2, 6)
    return [ops.softmax(x, 1), ops.layer_norm(x, 1, w, b, 1e-5), ops.log_softmax(x, 2)]


def _scan() -> list[Node]:
    x = leaf(0, 3, 5)
    return [
        ops.cumsum(x, 1),
        ops.exp(ops.cumprod(x * 2, 0)) + 1,
        ops.cumsum(ops.sum(x, (0,)), 1),
        ops.cummax_index(x, 1),
        ops.cummin_index(x, 0),
        ops.cumsum(ops.cumsum(x, 0), 1),
        ops.cumsum(ops.softmax(x, 1), 1),
        ops.sum(ops.cumsum(x, 1), (1,)),
    ]


def _sort() -> list[Node]:
    x, i = leaf(0, 3, 6), leaf(1, 2, 7, dtype=int64)
    order = ops.argsort(ops.exp(x), 1)
    return [order, ops.argsort(i, 1, True), ops.argsort(x, 0), ops.take_along(x, order, 1)]


def _matmul() -> list[Node]:
    a, b, bias = leaf(0, 4, 3), leaf(1, 3, 5), leaf(2, 5)
    y = ops.relu(ops.matmul(a, b) + bias)
    return [y, ops.matmul(ops.transpose(a), ops.exp(y)), ops.permute(ops.matmul(a * 2, b), (1, 0))]


def _batched() -> list[Node]:
    a, b, c = leaf(0, 2, 1, 3, 4), leaf(1, 5, 4, 2), leaf(2, 3, 1)
    heads = ops.matmul(ops.permute(a, (1, 0, 2, 3)), leaf(3, 2, 4, 2))
    merged = ops.reshape(ops.permute(heads, (0, 2, 1, 3)), (3, 4))
    return [ops.matmul(a, b), ops.matmul(c, leaf(4, 1, 3)), ops.matmul(merged, leaf(5, 4, 2))]


def _conv(**settings: tuple) -> Callable[[], list[Node]]:
    def build() -> list[Node]:
        stride, padding = settings["stride"], settings["padding"]
        dilation, groups = settings["dilation"], settings["groups"]
        x, w, bias = leaf(0, 2, 4, 6, 5), leaf(1, 6, 4 // groups, 3, 2), leaf(2, 6, 1, 1)
        attrs = (stride, padding, dilation, groups)
        y = ops.conv(x, w, *attrs)
        g = leaf(3, *y.shape)
        return [
            ops.relu(y + bias),
            ops.conv_input_grad(g, w, (6, 5), *attrs),
            ops.conv_weight_grad(g, x, (3, 2), *attrs),
        ]

    return build


def _scatter() -> list[Node]:
    x, v = leaf(0, 5, 3), leaf(1, 4, 3)
    i, j = leaf(2, 4, dtype=int64), leaf(3, 5, dtype=int64)
    own = ops.iota(5)
    return [
        *(ops.scatter(x, v * 2, i, 0, mode) for mode in ("set", "add", "mul", "max", "min")),
        ops.scatter(ops.zeros_like(x), leaf(4, 5), own, j, 0, "add"),
        ops.scatter(ops.scatter(x, v, i, 0, "add"), v, i, 0, "set") + 1,
        ops.scatter(ops.exp(x), ops.expand(v, (2, 4, 3)), leaf(5, 2, 4, dtype=int64), 0, "add"),
    ]


def _random() -> list[Node]:
    seed, offset = ops.scalar(0, int64), ops.scalar(1, int64)
    bits = ops.random_bits(seed, offset, (3, 4))
    x = leaf(0, 3, 4)
    keep = ops.cast(bits, float64) * (1 / 2**32) > 0.5
    words = ops.random_words(seed, offset, (3, 4))
    return [bits, words, ops.where(keep, x, ops.zeros_like(x)) * 2, ops.transpose(bits)]


def _copies() -> list[Node]:
    x = leaf(0, 3, 4)
    return [
        x,
        ops.reshape(x, (12,)),
        ops.transpose(x),
        ops.constant(3.0, float64),
        ops.zeros_like(x),
        ops.reshape(ops.exp(x), (2, 6)),
        ops.exp(x),
        ops.iota(4),
        ops.scalar(1, float64),
    ]


def _shared() -> list[Node]:
    x = leaf(0, 4, 6)
    y = ops.exp(ops.sin(x)) * 2
    return [
        ops.sum(y, (0,)),
        ops.sum(y, (1,)),
        ops.transpose(y) + 1,
        ops.matmul(y, ops.transpose(y)),
    ]


GRAPHS: dict[str, Callable[[], list[Node]]] = {
    "elementwise": _elementwise,
    "scalars": _scalars,
    "movement": _movement,
    "reshape_chain": _reshape_chain,
    "pad": _pad,
    "cat": _cat,
    "windows": _windows,
    "gather": _gather,
    "reduce": _reduce,
    "empty": _empty,
    "normalization": _normalization,
    "scan": _scan,
    "sort": _sort,
    "matmul": _matmul,
    "batched": _batched,
    "scatter": _scatter,
    "random": _random,
    "copies": _copies,
    "shared": _shared,
}


for number, (stride, padding, dilation, groups) in enumerate(
    [
        ((1, 1), ((0, 0), (0, 0)), (1, 1), 1),
        ((1, 1), ((1, 1), (1, 0)), (1, 1), 1),
        ((2, 1), ((2, 1), (0, 1)), (1, 2), 1),
        ((2, 3), ((1, 1), (1, 1)), (2, 1), 2),
    ]
):
    GRAPHS[f"conv{number}"] = _conv(
        stride=stride, padding=padding, dilation=dilation, groups=groups
    )
