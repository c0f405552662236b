"""Factors of matrices in the routines of a GPU's library, which has its matrices by columns.

What turns matrices, keeps triangles and marks failures is written in ops that are fused with those
around them. Small matrices have kernels of their own (`triton/matrices.py`), and the routines that
are not here are left to the host.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from tilewright.ir import ops
from tilewright.ir.dtype import COMPLEX, float64, int32, int64
from tilewright.ir.node import Node
from tilewright.ir.op import Kind, Op
from tilewright.ir.ops import factors, lapack, matrices, solving
from tilewright.ir.ops.host import HOST, has_kernel, in_place
from tilewright.ir.rewrite import on

Form = Callable[..., tuple[Node, ...]]

FORMS: dict[Op, Form] = {}
"""By routine, its results in routines of a library."""

USES: dict[Op, tuple[Op, ...]] = {}
"""By routine, those that its form is written in."""


def _form(op: Op, *used: Op) -> Callable[[Form], Form]:
    def register(form: Form) -> Form:
        FORMS[op], USES[op] = form, used
        return form

    return register


@on(Kind.HOST)
def by_library(node: Node) -> Node | None:
    """A routine that stays on its device, in those of the device's library."""
    form = FORMS.get(node.op)
    if form is None or node.device in (None, HOST) or has_kernel(node.op, node.operands):
        return None
    *attrs, index = node.attrs
    results = form(*node.operands, *attrs)
    return results[int(index)]


def _succeeded(info: Node) -> Node:
    return ops.eq(info, ops.zeros_like(info))


def _finite(a: Node) -> tuple[Node, Node]:
    """The matrices without those that have an element which isn't finite, of which routines may
    never come to an end; and which ones are left, [...]."""
    parts = [ops.real(a), ops.imag(a)] if a.dtype.category == COMPLEX else [a]
    finite = functools.reduce(ops.bitwise_and, map(ops.isfinite, parts))
    holds = ops.all(finite, (a.rank - 2, a.rank - 1))  # [..., 1, 1]
    return ops.where(holds, a, ops.zeros_like(a)), ops.reshape(holds, a.shape[:-2])


def _marked(info: Node, holds: Node) -> Node:
    """The number of a fault: 2 for matrices that aren't finite, 1 for others without a result."""
    fault = ops.where(_succeeded(info), ops.zeros_like(info), ops.full_like(info, 1))
    return ops.where(holds, fault, ops.full_like(info, 2))


@_form(factors.cholesky, lapack.potrf)
def _cholesky(a: Node) -> tuple[Node, ...]:
    found, info = in_place(lapack.potrf, a)
    return matrices.kept(matrices.lower(found), _succeeded(info)), info


@_form(factors.lu, lapack.getrf)
def _lu(a: Node) -> tuple[Node, ...]:
    packed, pivots, info = in_place(lapack.getrf, ops.transpose(a))
    return ops.transpose(packed), ops.cast(pivots, int32), info


@_form(factors.permutation, lapack.laswp)
def _permutation(pivots: Node, rows: int) -> tuple[Node, ...]:
    shape = (*pivots.shape[:-1], rows)
    order = ops.expand(ops.cast(ops.iota(rows), float64), shape)
    return (ops.cast(in_place(lapack.laswp, order, pivots)[0], int64),)


@_form(solving.solve, lapack.getrf, lapack.getrs)
def _solve(a: Node, b: Node) -> tuple[Node, ...]:
    packed, pivots, info = in_place(lapack.getrf, ops.transpose(a))
    (found,) = in_place(lapack.getrs, packed, pivots, ops.transpose(b))
    return matrices.kept(ops.transpose(found), _succeeded(info)), info


@_form(solving.inv, lapack.getrf, lapack.getrs)
def _inv(a: Node) -> tuple[Node, ...]:
    return _solve(a, matrices.identity(a.shape[-1], a, a.shape[:-2]))


def _folded(fold: Callable[..., Node], x: Node) -> Node:
    return ops.reshape(fold(x, (x.rank - 1,)), x.shape[:-1])


def _pivots(a: Node) -> tuple[Node, Node]:
    """The pivots of an elimination, and the determinant of its exchanges, 1 or -1."""
    packed, exchanges, _ = in_place(lapack.getrf, ops.transpose(a))
    places = ops.positions_along(a.rank - 2, (*[1] * (a.rank - 2), a.shape[-1]))
    odd = ops.cast(ops.ne(exchanges, places + 1), a.dtype)
    turns = _folded(ops.prod, 1 - odd * 2)
    return ops.diagonal(packed, 0, a.rank - 2, a.rank - 1), turns


@_form(solving.det, lapack.getrf)
def _det(a: Node) -> tuple[Node, ...]:
    pivots, turns = _pivots(a)
    return (_folded(ops.prod, pivots) * turns,)


@_form(solving.slogdet, lapack.getrf)
def _slogdet(a: Node) -> tuple[Node, ...]:
    pivots, turns = _pivots(a)
    is_complex = a.dtype.category == COMPLEX
    signs = ops.sgn(pivots) if is_complex else ops.sign(pivots)
    sizes = ops.modulus(pivots) if is_complex else ops.abs(pivots)
    return _folded(ops.prod, signs) * turns, _folded(ops.sum, ops.log(sizes))


@_form(factors.geqrf, lapack.geqrf)
def _geqrf(a: Node) -> tuple[Node, ...]:
    packed, scales = in_place(lapack.geqrf, ops.transpose(a))
    return ops.transpose(packed), scales


@_form(factors.qr, lapack.geqrf, lapack.orgqr)
def _qr(a: Node, complete: bool) -> tuple[Node, ...]:
    m, n = a.shape[-2:]
    k = m if complete else min(m, n)
    packed, scales = in_place(lapack.geqrf, ops.transpose(a))
    rows = a.rank - 2  # of the array, which are the columns of the matrix
    if k > n:
        none = [0] * a.rank
        reflectors = ops.pad(packed, none, [k - n if i == rows else 0 for i in range(a.rank)])
    else:
        reflectors = ops.slice_axis(packed, rows, 0, k)
    (q,) = in_place(lapack.orgqr, reflectors, scales)
    r = matrices.upper(ops.transpose(packed))
    return ops.transpose(q), ops.slice_axis(r, rows, 0, k)


def _values(a: Node, is_lower: bool, vectors: bool) -> tuple[Node, Node]:
    clean, holds = _finite(a)
    w, v, info = in_place(lapack.syevd, clean, is_lower, vectors)
    good = ops.bitwise_and(holds, _succeeded(info))
    # The library's matrix is the transpose, which is the conjugate.
    return matrices.kept(w, good), (matrices.kept(matrices.adjoint(v), good) if vectors else v)


@_form(factors.eigh, lapack.syevd)
def _eigh(a: Node, is_lower: bool) -> tuple[Node, ...]:
    return _values(a, is_lower, True)


@_form(factors.eigvalsh, lapack.syevd)
def _eigvalsh(a: Node, is_lower: bool) -> tuple[Node, ...]:
    return _values(a, is_lower, False)[:1]


@_form(factors.eig, lapack.geev)
def _eig(a: Node) -> tuple[Node, ...]:
    return _roots(a, True)


@_form(factors.eigvals, lapack.geev)
def _eigvals(a: Node) -> tuple[Node, ...]:
    w, _, info = _roots(a, False)
    return w, info


def _roots(a: Node, vectors: bool) -> tuple[Node, Node, Node]:
    clean, holds = _finite(a)
    w, v, info = in_place(lapack.geev, ops.transpose(clean), vectors)
    info = _marked(info, holds)
    good = _succeeded(info)
    if vectors:
        v = ops.transpose(v)
        if a.dtype.category != COMPLEX:
            v = _unpacked(w, v)
        v = matrices.kept(v, good)
    return matrices.kept(w, good), v, info


def _unpacked(w: Node, v: Node) -> Node:
    """The eigenvectors of a real matrix. Those of conjugate values, the one above the real axis
    first, are two columns of `v`: the real part and the imaginary part of the first one."""
    side = matrices.by_column(ops.imag(w))
    zero = ops.zeros_like(side)
    first, second = ops.gt(side, zero), ops.lt(side, zero)
    n, last = v.shape[-1], v.rank - 1
    if n == 1:
        return ops.cast(v, w.dtype)
    none = [0] * last
    left = ops.pad(ops.slice_axis(v, last, 0, n - 1), (*none, 1), (*none, 0))
    right = ops.pad(ops.slice_axis(v, last, 1, n), (*none, 0), (*none, 1))
    imaginary = ops.where(first, right, ops.where(second, -v, ops.zeros_like(v)))
    return ops.complex(ops.where(second, left, v), imaginary)


def used(op: Op, operands: Sequence[Node]) -> tuple[Op, ...]:
    """The routines of a library that compute a routine of operands."""
    if op in (factors.svd, factors.svdvals):
        return (lapack.gesvdj if _are_small(operands[0]) else lapack.gesvd,)
    return USES.get(op, (op,))


def _are_small(a: Node) -> bool:
    """Whether Jacobi's method takes the whole batch of matrices in one call."""
    return a.rank > 2 and max(a.shape[-2:]) <= lapack.FEW and math.prod(a.shape[:-2]) > 1


@_form(factors.svd, lapack.gesvd, lapack.gesvdj)
def _svd(a: Node, full: bool) -> tuple[Node, ...]:
    return _singular(a, "A" if full else "S")


@_form(factors.svdvals, lapack.gesvd, lapack.gesvdj)
def _svdvals(a: Node) -> tuple[Node, ...]:
    _, s, _, info = _singular(a, "N")
    return s, info


def _singular(a: Node, job: str) -> tuple[Node, Node, Node, Node]:
    clean, holds = _finite(a)
    m, n = a.shape[-2:]
    k = max(m, n) if job == "A" else min(m, n)
    if _are_small(a):
        u, s, v, info = in_place(lapack.gesvdj, ops.transpose(clean), job != "N")
        if job != "N":
            u = ops.slice_axis(ops.transpose(u), a.rank - 1, 0, min(m, k))
            v = ops.slice_axis(ops.conj(v), a.rank - 2, 0, min(n, k))
        vh = v
    elif m > n:
        u, s, vh, info = in_place(lapack.gesvd, ops.transpose(clean), job)
        if job != "N":
            u, vh = ops.transpose(u), ops.transpose(vh)
    else:
        # The library's matrix is aᵀ = (Vᴴ)ᵀ diag(S) Uᵀ, of which arrays have the transposes.
        vh, s, u, info = in_place(lapack.gesvd, clean, job)
    info = _marked(info, holds)
    good = _succeeded(info)
    if job != "N":
        u, vh = matrices.kept(u, good), matrices.kept(vh, good)
    return u, matrices.kept(s, good), vh, info
