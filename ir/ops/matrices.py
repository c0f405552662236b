"""Formulas over batches of matrices, which the ops of linear algebra have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..dtype import int64
from ..failure import FAILURES
from ..node import Node
from .binary import eq, ge
from .check import check
from .complex import conj
from .generate import constant, iota
from .movement import expand, positions_along, reshape, transpose, unsqueeze
from .ternary import where
from .unary import cast, zeros_like


def adjoint(x: Node) -> Node:
    """The conjugate transpose."""
    return conj(transpose(x))


def conjugated(vjp: Callable[..., Any]) -> Callable[..., Any]:
    """A VJP that is written for PyTorch's gradients of complex values, dL/dx + i dL/dy, and their
    adjoints. Formulas of functions that aren't holomorphic are published so."""

    def of_conjugates(g: Node, out: Node, *args: Any) -> tuple[Node | None, ...]:
        return tuple(None if x is None else conj(x) for x in vjp(conj(g), out, *args))

    return of_conjugates


def rows(x: Node) -> Node:
    """The numbers of the rows of a matrix: [m, 1]."""
    return positions_along(0, (x.shape[-2], 1))


def columns(x: Node) -> Node:
    """The numbers of the columns of a matrix: [1, n]."""
    return positions_along(1, (1, x.shape[-1]))


def lower(x: Node, offset: int = 0) -> Node:
    """The elements on and below diagonal `offset`, zero above it."""
    return where(ge(rows(x) + offset, columns(x)), x, zeros_like(x))


def upper(x: Node, offset: int = 0) -> Node:
    """The elements on and above diagonal `offset`, zero below it."""
    return where(ge(columns(x), rows(x) + offset), x, zeros_like(x))


def from_lower(x: Node) -> Node:
    """The Hermitian matrix with the lower triangle of `x`, and the real part of its diagonal."""
    turned = adjoint(x)
    return on_diagonal(x, (x + turned) / 2, lower(x, -1) + upper(turned, 1))


def on_diagonal(x: Node, inside: Node, outside: Node) -> Node:
    """`inside` on the diagonal of matrices like `x`, `outside` elsewhere."""
    return where(eq(rows(x), columns(x)), inside, outside)


def identity(n: int, like: Node, batch: Sequence[int] = ()) -> Node:
    """[*batch, n, n] in the dtype of `like`."""
    is_diagonal = eq(positions_along(0, (n, 1)), positions_along(1, (1, n)))
    return expand(cast(is_diagonal, like.dtype), (*batch, n, n))


def by_column(x: Node, like: Node | None = None) -> Node:
    """A factor for each column: [..., 1, n] of [..., n], in the dtype of `like`."""
    return unsqueeze(_as(x, like), x.rank - 1)


def by_row(x: Node, like: Node | None = None) -> Node:
    """A factor for each row: [..., n, 1] of [..., n], in the dtype of `like`."""
    return unsqueeze(_as(x, like), x.rank)


def _as(x: Node, like: Node | None) -> Node:
    return x if like is None or like.dtype is x.dtype else cast(x, like.dtype)


def by_matrix(x: Node) -> Node:
    """A factor for each matrix: [..., 1, 1] of [...]."""
    return by_row(by_row(x))


def succeeded(info: Node, order: int, failure: str) -> Node:
    """bool, of the shape of `info`: that each number in it is zero. The run raises the error of
    `failure` otherwise, with the number, which is at most `order`, and the place in the batch."""
    if math.prod(info.shape) == 0:
        return eq(info, zeros_like(info))
    code = cast(info, int64)
    stride = order + 1
    if info.rank:
        failure = f"{failure} in a batch"
        place = reshape(iota(math.prod(info.shape)), info.shape)
        code = where(eq(code, zeros_like(code)), code, code + place * stride)
    assert failure in FAILURES, failure
    found = check(code, 1, stride, failure)
    return eq(found, zeros_like(found))


def kept(x: Node, holds: Node) -> Node:
    """A result of a routine where `holds`, one for each matrix, is true: elsewhere NaN."""
    shape = (*holds.shape, *[1] * (x.rank - holds.rank))
    return where(reshape(holds, shape), x, constant(math.nan, x.dtype))
