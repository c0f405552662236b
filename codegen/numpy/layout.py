"""Layouts for sums of products: the matrices that a sum consists of, and their order.

BLAS wants stacks of matrices in which one of the two dimensions is dense. A group of dimensions can
be one dimension of a matrix without a copy if it merges: each stride is the next one's times its
size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .program import Array

# From this size on a gemm is worth a call for each item of a stack, if folding the stack into the
# rows would cost a transposed copy of the result.
_STACK_COLUMNS, _STACK_ROWS = 64, 8
# Operands are copied in pieces of about this many elements, which stay in cache.
_COPY_AT_ONCE = 1 << 19


@dataclass(frozen=True)
class Layout:
    """result[stack, left, right] = sum over inner of first[stack, left, inner] * second[...].

    flipped: `first` is the second operand of the dot, so that the result lies as it is stored.
    loop: a dimension along which the product is computed in steps, or None.
    """

    stack: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    inner: tuple[int, ...]
    flipped: bool
    loop: int | None
    step: int


def strides_of(array: Array) -> tuple[int, ...]:
    """The strides in elements: as known, or those of a dense array."""
    if array.strides is not None:
        return array.strides
    out, step = [], 1
    for size in reversed(array.extent):
        out.append(step if size != 1 else 0)
        step *= size
    return tuple(reversed(out))


def merged(array: Array, dims: Sequence[int]) -> int | None:
    """The stride of `dims` taken as one dimension; 0 if they hold one element; None if that takes a
    copy."""
    strides = strides_of(array)
    inner = 0
    span = 1
    for d in reversed(dims):
        if array.extent[d] == 1:
            continue
        if inner == 0:
            inner = strides[d]
        elif strides[d] != inner * span:
            return None
        span *= array.extent[d]
    return inner


def needs_copy(array: Array, rows: Sequence[int], columns: Sequence[int]) -> bool:
    a, b = merged(array, rows), merged(array, columns)
    if a is None or b is None:
        return True
    m, n = (math.prod(array.extent[d] for d in dims) for dims in (rows, columns))
    if b in (0, 1) and (a >= n or m == 1):
        return False
    return not (a in (0, 1) and (b >= m or n == 1))


def dense_last(array: Array, rows: Sequence[int], columns: Sequence[int]) -> bool:
    """Whether a copy is faster with `columns` innermost than with `rows`."""
    return _run(array, columns) >= _run(array, rows)


def _run(array: Array, dims: Sequence[int]) -> float:
    """About how many elements lie together along the innermost of `dims`."""
    strides = strides_of(array)
    for d in reversed(dims):
        if array.extent[d] != 1:
            return array.extent[d] / max(abs(strides[d]), 1)
    return 0.0


def plan(a: Array, b: Array, inner: Sequence[int], stored: Sequence[int]) -> Layout:
    """The layout of the dot of `a` and `b`.

    stored: the dimensions of the result from the slowest to the fastest in memory.
    """
    kind = {}
    for d in stored:
        if a.extent[d] != 1 or b.extent[d] != 1:
            kind[d] = "b" if a.extent[d] == 1 else "a" if b.extent[d] == 1 else "both"
    order = [d for d in stored if d in kind]
    right: list[int] = []
    while order and kind[order[-1]] != "both" and kind[order[-1]] == kind[(right or order)[-1]]:
        right.insert(0, order.pop())
    left: list[int] = []
    while order and right and kind[order[-1]] not in ("both", kind[right[0]]):
        left.insert(0, order.pop())
    stack = order
    extent = tuple(max(m, n) if m and n else 0 for m, n in zip(a.extent, b.extent))
    fine = (
        math.prod(extent[d] for d in right) >= _STACK_COLUMNS
        and math.prod(extent[d] for d in left) >= _STACK_ROWS
    )
    if any(kind[d] != "both" for d in stack) and not fine:
        of_right = kind[right[0]] if right else "b"
        stack = [d for d in stored if kind.get(d) == "both"]
        right = [d for d in stored if kind.get(d) == of_right]
        left = [d for d in stored if d in kind and d not in stack and d not in right]
    flipped = kind[right[0]] == "a" if right else bool(left) and kind[left[0]] == "b"
    loop, step = _steps(a, b, stack, left, right, inner, flipped)
    return Layout(tuple(stack), tuple(left), tuple(right), tuple(inner), flipped, loop, step)


def _steps(
    a: Array,
    b: Array,
    stack: Sequence[int],
    left: Sequence[int],
    right: Sequence[int],
    inner: Sequence[int],
    flipped: bool,
) -> tuple[int | None, int]:
    """The dimension along which to go in steps, for a large operand that is copied."""
    first, second = (b, a) if flipped else (a, b)
    copied = [x for x, dims in ((first, left), (second, right)) if needs_copy(x, dims, inner)]
    large = max(copied, key=lambda x: math.prod(x.extent), default=None)
    if large is None or math.prod(large.extent) < 2 * _COPY_AT_ONCE:
        return None, 0
    strides = strides_of(large)
    dims = [d for d in (*stack, *left, *right, *inner) if large.extent[d] > 1]
    loop = max(dims, key=lambda d: abs(strides[d]))
    each = math.prod(large.extent) // large.extent[loop]
    most = max(_COPY_AT_ONCE // each, 1)
    size = large.extent[loop]
    step = next(s for s in range(min(most, size), 0, -1) if size % s == 0)
    return (loop, step) if step < size else (None, 0)
