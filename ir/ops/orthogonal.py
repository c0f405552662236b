"""Orthogonal polynomials: of a degree that is a number, a formula; else a record for each family.

PyTorch gives them no derivative, so the records have none.
"""

from __future__ import annotations

from ..dtype import float64
from ..node import Node
from ..numeric.orthogonal import (
    CHEBYSHEV_T,
    CHEBYSHEV_U,
    CHEBYSHEV_V,
    CHEBYSHEV_W,
    HERMITE_H,
    HERMITE_HE,
    LAGUERRE,
    LEGENDRE,
    Family,
)
from ..op import Aval, Kind, Op
from ..shape import broadcast
from .composite import as_dtype, require_float
from .generate import constant_value
from .unary import full_like

_MOST = 32  # terms of a formula


def _record(family: Family) -> Op:
    def infer(x: Node, n: Node) -> Aval:
        require_float(family.name, x, n)
        return broadcast(x.shape, n.shape), x.dtype

    numbers = ", ".join(repr(float(c)) for c in family.coefficients)
    return Op(
        family.name,
        Kind.ELEMENTWISE,
        infer,
        numpy=f"special.{family.name}({{0}}, {{1}})",
        triton=f"tw_three_terms({{0}}, {{1}}, {numbers}, {family.angles})",
        domain=(0.1, 6),
        cost=200,
        error=4,
        llvm=family.name,
    )


RECORDS = {
    family: _record(family)
    for family in (
        CHEBYSHEV_T,
        CHEBYSHEV_U,
        CHEBYSHEV_V,
        CHEBYSHEV_W,
        HERMITE_H,
        HERMITE_HE,
        LAGUERRE,
        LEGENDRE,
    )
}


def orthogonal(family: Family, x: Node, n: Node) -> Node:
    """The polynomial of degree n, truncated to an integer, at x; 0 for a negative degree."""
    if n.op.kind is not Kind.CONSTANT or n.shape or not -1 < constant_value(n) < _MOST:
        return RECORDS[family](x, n)
    degree, wide = int(constant_value(n)), as_dtype(x, float64)
    before, now = full_like(wide, 1), family.first(wide)
    for k in range(1, degree):
        before, now = now, family.next_term(k, wide, now, before)
    return as_dtype(now if degree else before, x.dtype)
