"""Products of complex numbers as products of real matrices and channels of twice the size.

A complex number a + ib multiplies (x, y) as the matrix [[a, -b], [b, a]]. One factor stays as it is
in memory, its parts side by side along the axis that is summed; the other one becomes such
matrices. So a product is one real product with as many terms as it has.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.ir import ops
from tilewright.ir.dtype import complex32, int64
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.shape import broadcast, contiguous_strides

from ..ops import flat, pair, unflat
from .arithmetic import Pair, mul, where


@dataclass(frozen=True)
class Factor:
    """An operand: its parts, and the complex node in memory that has them."""

    parts: Pair
    whole: Callable[[], Node]


def _stack(nodes: Pair, axis: int) -> Node:
    """Two nodes side by side along a new axis."""
    return ops.cat([ops.unsqueeze(n, axis) for n in nodes], axis)


def _along(x: Node, axis: int, i: int) -> Node:
    """The i-th elements along an axis, which goes."""
    part = ops.slice_axis(x, axis, i, i + 1)
    return ops.reshape(part, (*x.shape[:axis], *x.shape[axis + 1 :]))


SMALL = 128
"""The largest matrices of a batch whose products a library computes."""


def are_small(a: Node, b: Node) -> bool:
    """Whether the operands of a product are two batches of small matrices."""
    sizes = (*a.shape[-2:], b.shape[-1])
    batch = a.shape[:-2]
    is_batch = batch == b.shape[:-2] and math.prod(batch) > 1
    return is_batch and min(sizes) > 1 and max(sizes) <= SMALL and a.dtype is not complex32


def matmul(a: Factor, b: Factor) -> Node | Pair:
    """[m, 2k] @ [2k, 2n], where `a` and the result lie in memory as they are; a vector's product is
    a sum."""
    k, n = b.parts[0].shape[-2:]
    if 1 in (a.parts[0].shape[-2], n):
        return _vector(a.parts, b.parts)
    # Rows b and ib, each with its parts side by side.
    batch = b.parts[0].shape[:-2]
    real, imag = b.parts
    rows = (_stack((real, -imag), len(batch) + 1), _stack((imag, real), len(batch) + 1))
    factor = flat(ops.reshape(pair(*rows), (*batch, 2 * k, n)))
    return unflat(ops.matmul(flat(a.whole()), factor))


def _vector(a: Pair, b: Pair) -> Pair:
    m, k = a[0].shape[-2:]
    n = b[0].shape[-1]
    batch = broadcast(a[0].shape[:-2], b[0].shape[:-2])
    if n == 1:  # folds along rows of a
        turned = (ops.transpose(b[0]), ops.transpose(b[1]))
        axis, shape = len(batch) + 1, (*batch, m, k)
    else:  # folds down columns of b
        a, turned = (ops.transpose(a[0]), ops.transpose(a[1])), b
        axis, shape = len(batch), (*batch, k, n)
    a, b = ((ops.expand(p[0], shape), ops.expand(p[1], shape)) for p in (a, turned))
    real, imag = (ops.sum(p, (axis,)) for p in mul(a, b))
    return real, imag


# Channels of a convolution: the parts of channel c are the channels 2c and 2c + 1.


def _paired(z: Pair, axis: int = 1) -> Node:
    """z[n, c, …] as [n, 2c, …]."""
    stacked = _stack(z, axis + 1)
    shape = stacked.shape
    return ops.reshape(stacked, (*shape[:axis], 2 * shape[axis], *shape[axis + 2 :]))


def _unpaired(x: Node, axis: int = 1) -> Node:
    shape = x.shape
    return ops.reshape(x, (*shape[:axis], shape[axis] // 2, 2, *shape[axis + 1 :]))


def _parts(x: Node) -> Pair:
    """The parts of x[n, 2c, …]."""
    apart = _unpaired(x)
    return _along(apart, 2, 0), _along(apart, 2, 1)


def _weights(w: Pair, turned: bool) -> Node:
    """w[o, c, …] as [2o, 2c, …]: from parts of c to parts of o; from those of o to those of c if
    `turned`."""
    ahead = (_paired((w[0], -w[1])), _paired((w[1], w[0])))
    back = (_paired(w), _paired((-w[1], w[0])))
    first, second = back if turned else ahead
    return _paired((first, second), 0)


def conv(x: Factor, w: Factor, *attrs: object) -> Pair:
    return _parts(ops.conv(_paired(x.parts), _weights(w.parts, False), *attrs))


def conv_input_grad(g: Factor, w: Factor, *attrs: object) -> Pair:
    return _parts(ops.conv_input_grad(_paired(g.parts), _weights(w.parts, True), *attrs))


def conv_weight_grad(g: Factor, x: Factor, *attrs: object) -> Pair:
    """[2o, 2c, …]: the products of each part with each part."""
    made = ops.conv_weight_grad(_paired(g.parts), _paired(x.parts), *attrs)
    apart = _unpaired(_unpaired(made, 0), 2)
    (rr, ri), (ir, ii) = ([_along(_along(apart, 1, i), 2, j) for j in range(2)] for i in range(2))
    return rr - ii, ri + ir


PRODUCTS: dict[Op, Callable[..., Node | Pair]] = {
    ops.matmul: matmul,
    ops.conv: conv,
    ops.conv_input_grad: conv_input_grad,
    ops.conv_weight_grad: conv_weight_grad,
}


# ---- folds -----------------------------------------------------------------------------------


def prod(z: Pair, axes: tuple[int, ...]) -> Pair:
    """Halves multiplied with each other, until one element is left."""
    rank = z[0].rank
    kept = [i for i in range(rank) if i not in axes]
    count = math.prod(z[0].shape[i] for i in axes)
    shape = [1 if i in axes else s for i, s in enumerate(z[0].shape)]
    if count == 0:
        one = ops.expand(ops.constant(1, z[0].dtype), shape)
        return one, ops.zeros_like(one)
    rows = (*(z[0].shape[i] for i in kept), count)
    z = _each(z, lambda x: ops.reshape(ops.permute(x, (*kept, *axes)), rows))
    last = len(kept)
    while count > 1:
        half = count // 2
        low = _sliced(z, last, 0, half)
        high = _sliced(z, last, half, 2 * half)
        rest = _sliced(z, last, 2 * half, count)
        z = mul(low, high)
        if count % 2:
            z = ops.cat([z[0], rest[0]], last), ops.cat([z[1], rest[1]], last)
        count -= half
    return _each(z, lambda x: ops.reshape(x, shape))


def cumprod(z: Pair, axis: int) -> Pair:
    """Hillis and Steele, "Data parallel algorithms" (1986): each element by the product of those
    before it, at distances that double."""
    size = z[0].shape[axis]
    apart = 1
    while apart < size:
        done = mul(_sliced(z, axis, apart, size), _sliced(z, axis, 0, size - apart))
        first = _sliced(z, axis, 0, apart)
        z = ops.cat([first[0], done[0]], axis), ops.cat([first[1], done[1]], axis)
        apart *= 2
    return z


def multiply_at(base: Pair, values: Pair, *rest: Any) -> Pair:
    """`base` times the values for its elements, by the operands of a scatter.

    A stable sort of the places makes values for one element neighbours. Each of them is multiplied
    by those before it, as in `cumprod`. So the last one, which a scatter keeps, has all factors.
    """
    *indices, axis, _ = rest
    shape, sizes = values[0].shape, base[0].shape[axis : axis + len(indices)]
    behind = base[0].rank - len(indices) - axis
    placed = shape[axis : len(shape) - behind]
    count = math.prod(placed)
    if 0 in shape:
        return base
    lines = [ops.reshape(ops.expand(i, placed), (count,)) for i in indices]
    strides = [ops.constant(s, int64) for s in contiguous_strides(sizes)]
    place = functools.reduce(ops.add, map(ops.mul, lines, strides))
    order = ops.argsort(place, 0)
    *lines, place = [ops.gather(line, order, 0) for line in (*lines, place)]
    rows = (*shape[:axis], count, *shape[len(shape) - behind :])
    z = _each(values, lambda x: ops.gather(ops.reshape(x, rows), order, axis))
    apart = 1
    while apart < count:
        first, early = _sliced(z, axis, 0, apart), _sliced(z, axis, 0, count - apart)
        late = _sliced(z, axis, apart, count)
        meets = ops.eq(
            ops.slice_axis(place, 0, apart, count), ops.slice_axis(place, 0, 0, count - apart)
        )
        meets = ops.reshape(meets, (count - apart, *[1] * behind))
        done = where(ops.expand(meets, late[0].shape), mul(late, early), late)
        z = ops.cat([first[0], done[0]], axis), ops.cat([first[1], done[1]], axis)
        apart *= 2
    real, imag = mul(_each(base, lambda x: ops.gather(x, *lines, axis)), z)
    return ops.scatter(base[0], real, *lines, axis, "set"), ops.scatter(
        base[1], imag, *lines, axis, "set"
    )


def _each(z: Pair, function: Callable[[Node], Node]) -> Pair:
    return function(z[0]), function(z[1])


def _sliced(z: Pair, axis: int, start: int, stop: int) -> Pair:
    return _each(z, lambda x: ops.slice_axis(x, axis, start, stop))
