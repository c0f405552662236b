"""Products of matrices and vectors."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.dtype import bool_, float32, float64, int64
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.node import Node
from tilewright.ir.shape import broadcast

from .. import recording
from ..recording import Handle, lowered, record
from ..recording.builders import FLOAT32, LOWER, LOWER_BEFORE, WIDEST, builder
from . import shapes
from .arguments import as_handle, into, need_tensor
from .call import public
from .promotion import to
from .reduction import _norm, _sum
from .spellings import also_named, in_older_order

if TYPE_CHECKING:
    from .._tensor import Tensor


def _matmul(a: Node, b: Node) -> Node:
    if a.rank == 0 or b.rank == 0:
        raise RuntimeError(
            "both arguments to matmul need to be at least 1D, but they are "
            f"{a.rank}D and {b.rank}D{at_user_line()}"
        )
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != "
            f"{b.dtype}{at_user_line()}"
        )
    left, right = a, b
    if a.rank == 1:
        left = ops.unsqueeze(a, 0)
    if b.rank == 1:
        right = ops.unsqueeze(b, 1)
    if left.shape[-1] != right.shape[-2]:
        raise RuntimeError(
            f"matmul: inner sizes differ: {tuple(a.shape)} @ {tuple(b.shape)}{at_user_line()}"
        )
    if right.rank == 2 and left.rank > 2:
        # One large product instead of many: the leading dimensions are rows.
        rows = ops.reshape(left, (math.prod(left.shape[:-1]), left.shape[-1]))
        out = ops.reshape(ops.matmul(rows, right), (*left.shape[:-1], right.shape[-1]))
    else:
        out = ops.matmul(left, right)
    out = to(out, a.dtype)  # float8 is summed in float32
    drop = [out.rank - 2] if a.rank == 1 else []
    drop += [out.rank - 1] if b.rank == 1 else []
    return ops.squeeze(out, drop) if drop else out


def _product_name(args: Sequence[Any]) -> str:
    """PyTorch's name for the kernel of a matmul of these ranks."""
    ranks = tuple(a.rank for a in args)
    names = {(1, 1): "Dot", (2, 2): "Mm", (2, 1): "Mv", (1, 2): "Squeeze", (3, 3): "Bmm"}
    return f"{names.get(ranks, 'UnsafeView')}Backward0"


_times = recording.binary(_matmul, "matmul", numbers=False)


def _matmul_by(self: Tensor, other: Tensor) -> Tensor:
    return _times(self, other) if isinstance(other, Handle) else NotImplemented


def _matmul_of(self: Tensor, other: Tensor) -> Tensor:
    return _times(other, self) if isinstance(other, Handle) else NotImplemented


@public(
    "matmul",
    _matmul,
    method=_times,
    casts=LOWER,
    gradient=_product_name,
    operators={
        "__matmul__": _matmul_by,
        "__rmatmul__": _matmul_of,
    },
)
def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The matrix product, with PyTorch's rules for vectors and broadcast batches."""
    need_tensor("matmul", input)
    if out is None:
        return _times(input, other)  # type: ignore[no-any-return]
    if out.dtype is not input.dtype:
        raise RuntimeError(
            f"Expected out tensor to have dtype {input.dtype}, but got {out.dtype} instead"
            f"{at_user_line()}"
        )
    return into(out, _times(input, other))


# Products that autocast treats each in its own way.


def _mv(a: Node, b: Node) -> Node:
    return _matmul(a, b)


def _dot(a: Node, b: Node) -> Node:
    return _matmul(a, b)


def _ranks(name: str, input: Any, other: Any, a: int, b: int) -> None:
    if input.dim() != a or other.dim() != b:
        raise RuntimeError(
            f"{name}: expected {a}D and {b}D tensors, got {input.dim()}D and "
            f"{other.dim()}D{at_user_line()}"
        )


@public("mm")
def mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    _ranks("mm", input, mat2, 2, 2)
    return matmul(input, mat2, out=out)


@public("bmm")
def bmm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    _batches(input, mat2)
    return matmul(input, mat2, out=out)


def _batches(a: Any, b: Any) -> None:
    _ranks("bmm", a, b, 3, 3)
    if a.shape[0] != b.shape[0]:
        raise RuntimeError(
            f"bmm: batch sizes differ: {a.shape[0]} and {b.shape[0]}{at_user_line()}"
        )


@public("mv", _mv, casts={"cuda": LOWER}, gradient="MvBackward0")
def mv(input: Tensor, vec: Tensor, *, out: Tensor | None = None) -> Tensor:
    _ranks("mv", input, vec, 2, 1)
    return into(out, record(_mv, input, vec))


@public("dot", _dot, casts={"cuda": WIDEST}, gradient="DotBackward0")
@also_named(tensor="other")
def dot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inner product of two vectors."""
    _ranks("dot", input, other, 1, 1)
    return into(out, record(_dot, input, other))


@public("outer", aliases=("ger",))
def outer(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The outer product of two vectors."""
    _ranks("outer", input, vec2, 1, 1)
    return into(out, input.unsqueeze(1) * vec2)


def _with_addend(name: str, op: Callable[..., Node]) -> Callable[..., Node]:
    """The builder of a product with an addend. `lowered` casts its operands for autocast."""

    def build(c: Node, a: Node, b: Node, beta: Any, alpha: Any) -> Node:
        if c.dtype is not b.dtype:
            raise RuntimeError(
                f"{name}: expected an addend of the factors' dtype, got {c.dtype} and "
                f"{b.dtype}{at_user_line()}"
            )
        return op(c, a, b, beta, alpha)

    return build


_addmm, _baddbmm = _with_addend("addmm", ops.addmm), _with_addend("baddbmm", ops.baddbmm)
_addmv, _addr = _with_addend("addmv", ops.addmv), _with_addend("addr", ops.addr)
_addbmm = _with_addend("addbmm", ops.addbmm)


def _added(build: Callable[..., Node], c: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
    if not c.dtype.is_differentiable:  # PyTorch truncates the factors of whole numbers
        beta, alpha = (bool(f) if c.dtype is bool_ else int(f) for f in (beta, alpha))
    factors = (f if f in (0, 1) else as_handle(f, c, wide=True) for f in (beta, alpha))
    return record(build, c, a, b, *factors)


_FACTORS = ("beta", "alpha")


@public("addmm", _addmm, in_place=True, casts=LOWER_BEFORE)
def addmm(
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *last: Tensor,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """beta * input + alpha * mat1 @ mat2."""
    if last:
        return in_older_order(addmm, (input, mat1, mat2, *last), _FACTORS, out=out)  # type: ignore[no-any-return]
    input, mat1, mat2 = lowered(_addmm, input, mat1, mat2)
    _ranks("mm", mat1, mat2, 2, 2)
    return into(out, _added(_addmm, input, mat1, mat2, beta, alpha))


@public("baddbmm", _baddbmm, in_place=True, casts=LOWER_BEFORE)
def baddbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *last: Tensor,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    if last:
        return in_older_order(baddbmm, (input, batch1, batch2, *last), _FACTORS, out=out)  # type: ignore[no-any-return]
    input, batch1, batch2 = lowered(_baddbmm, input, batch1, batch2)
    _batches(batch1, batch2)
    return into(out, _added(_baddbmm, input, batch1, batch2, beta, alpha))


@public("addmv", _addmv, in_place=True, casts={"cuda": LOWER_BEFORE}, in_place_function=True)
def addmv(
    input: Tensor,
    mat: Tensor,
    vec: Tensor,
    *last: Tensor,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    if last:
        return in_older_order(addmv, (input, mat, vec, *last), _FACTORS, out=out)  # type: ignore[no-any-return]
    input, mat, vec = lowered(_addmv, input, mat, vec)
    _ranks("mv", mat, vec, 2, 1)
    return into(out, _added(_addmv, input, mat, vec, beta, alpha))


def _einsum(*args: Any) -> Node:
    *operands, equation = args
    inputs, output = _parse_einsum(equation, operands)
    term, current = inputs[0], operands[0]
    current, term = _diagonals(current, term)
    for i, (other, letters) in enumerate(zip(operands[1:], inputs[1:], strict=True), 2):
        other, letters = _diagonals(other, letters)
        later = set(output).union(*inputs[i:])
        current, term = _contract(current, term, other, letters, later)
    gone = [i for i, c in enumerate(term) if c not in output]
    if gone and not current.dtype.is_differentiable:
        current = ops.cast(current, int64)
    current = ops.squeeze(ops.sum(current, gone), gone) if gone else current
    term = "".join(c for c in term if c in output)
    return ops.permute(current, [term.index(c) for c in output])


def _diagonals(x: Node, term: str) -> tuple[Node, str]:
    """Take the diagonals of one operand where its letters repeat."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            a = term.index(c)
            b = term.index(c, a + 1)
            x = ops.diagonal(x, 0, a, b)
            term = term[:a] + term[a + 1 : b] + term[b + 1 :] + c
    return x, term


def _letters(term: Any) -> str:
    """The term of an equation for a list of numbers."""
    for each in term:
        if each is not ... and not 0 <= each < len(string.ascii_letters):
            raise ValueError(
                f"einsum(): subscript {each} is not within the valid range [0, 52){at_user_line()}"
            )
    return "".join("..." if each is ... else string.ascii_letters[each] for each in term)


_TERM = re.compile(r"[a-zA-Z]*(\.\.\.[a-zA-Z]*)?")


def _parse_einsum(equation: str, operands: Sequence[Node]) -> tuple[list[str], str]:
    text = equation.replace(" ", "")
    left, arrow, output = text.partition("->")
    inputs = left.split(",")
    for term in (*inputs, output):
        if not _TERM.fullmatch(term):
            raise RuntimeError(
                f"einsum(): invalid subscripts {term!r} in {equation!r}: expected letters, and ... "
                f"at most once{at_user_line()}"
            )
    for i, c in enumerate(output.replace("...", "")):
        if c not in left or c in output.replace("...", "")[:i]:
            raise RuntimeError(
                f"einsum(): output subscript {c} "
                + ("appears more than once" if c in left else "is in no term of an operand")
                + f" of {equation!r}{at_user_line()}"
            )
    if len(inputs) != len(operands):
        raise RuntimeError(
            f"einsum(): {len(inputs)} terms in {equation!r} for {len(operands)} "
            f"operands{at_user_line()}"
        )
    free = iter(c for c in string.ascii_letters if c not in text)
    widest = max(
        (
            x.rank - len(t.replace("...", ""))
            for t, x in zip(inputs, operands, strict=True)
            if "..." in t
        ),
        default=0,
    )
    rest = "".join(next(free) for _ in range(widest))
    terms = []
    for t, x in zip(inputs, operands, strict=True):
        own = x.rank - len(t.replace("...", ""))
        t = t.replace("...", rest[len(rest) - own :] if own else "")
        if len(t) != x.rank:
            raise RuntimeError(
                f"einsum(): the term {t!r} of {equation!r} doesn't fit a tensor of dimension "
                f"{x.rank}{at_user_line()}"
            )
        extents = dict(zip(t, x.shape))
        for c, size in zip(t, x.shape):
            if t.count(c) > 1 and size != extents[c]:
                raise RuntimeError(
                    f"einsum(): subscript {c} is repeated in {t!r} but its sizes differ, "
                    f"{extents[c]} and {size}{at_user_line()}"
                )
        terms.append(t)
    if not arrow:
        letters = "".join(terms)
        output = rest + "".join(
            sorted(c for c in set(letters) - set(rest) if letters.count(c) == 1)
        )
    return terms, output.replace("...", rest)


def _contract(a: Node, s: str, b: Node, t: str, later: set[str]) -> tuple[Node, str]:
    """One pair of operands as a batched matmul."""
    for c in [c for c in s if c not in t and c not in later]:
        i = s.index(c)
        a, s = ops.squeeze(ops.sum(a, (i,)), (i,)), s.replace(c, "")
    for c in [c for c in t if c not in s and c not in later]:
        i = t.index(c)
        b, t = ops.squeeze(ops.sum(b, (i,)), (i,)), t.replace(c, "")
    batch = [c for c in s if c in t and c in later]
    inner = [c for c in s if c in t and c not in later]
    rows, columns = [c for c in s if c not in t], [c for c in t if c not in s]
    size = {
        c: n for term, x in ((s, a), (t, b)) for c, n in zip(term, x.shape, strict=True) if n != 1
    }

    def extent(letters: Sequence[str]) -> int:
        n = 1
        for c in letters:
            n *= size.get(c, 1)
        return n

    def arranged(x: Node, term: str, order: Sequence[str], shape: Sequence[int]) -> Node:
        x = ops.permute(x, [term.index(c) for c in order])
        x = ops.expand(x, [size.get(c, 1) for c in order])
        return ops.reshape(x, shape)

    left = arranged(a, s, [*batch, *rows, *inner], (extent(batch), extent(rows), extent(inner)))
    right = arranged(
        b, t, [*batch, *inner, *columns], (extent(batch), extent(inner), extent(columns))
    )
    order = [*batch, *rows, *columns]
    out = to(ops.matmul(left, right), left.dtype)
    out = ops.reshape(out, [size.get(c, 1) for c in order])
    return out, "".join(order)


@public("einsum", _einsum, method=False, casts=LOWER)
def einsum(*args: Any) -> Tensor:
    """Sums of products by index letters, einsum("ij,jk->ik", a, b), or by numbers,
    einsum(a, [0, 1], b, [1, 2], [0, 2])."""
    if len(args) < 2:
        raise ValueError(
            f"einsum(): expected an equation and at least one operand, got {len(args)} arguments"
            f"{at_user_line()}"
        )
    if isinstance(args[0], Handle):
        terms = [_letters(term) for term in args[1::2]]
        output = [f"->{_letters(args[-1])}"] if len(args) % 2 else []
        equation, operands = "".join([",".join(terms), *output]), args[: len(args) // 2 * 2 : 2]
    else:
        equation, operands = args[0], args[1:]
    if not isinstance(equation, str):
        raise TypeError(
            "einsum(): argument 'equation' (position 1) must be str, not "
            f"{type(equation).__name__}{at_user_line()}"
        )
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    return record(_einsum, *operands, equation)


def _tensordot(a: Node, b: Node, equation: str) -> Node:
    return _einsum(a, b, equation)


@public("tensordot", _tensordot, method=False, casts={"cuda": WIDEST})
def tensordot(
    a: Tensor,
    b: Tensor,
    dims: int | Sequence[Sequence[int]] | Tensor = 2,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Sum of products over the given dimensions of `a` and `b`."""
    first: Any
    second: Any
    if isinstance(dims, int):
        first, second = list(range(a.dim() - dims, a.dim())), list(range(dims))
    else:
        first, second = ([d] if isinstance(d, int) else list(d) for d in dims)
    letters = string.ascii_letters
    s = list(letters[: a.dim()])
    t = list(letters[a.dim() : a.dim() + b.dim()])
    for i, j in zip(first, second, strict=True):
        t[j % b.dim()] = s[i % a.dim()]
    kept = [c for c in s if c not in t] + [c for c in t if c not in s]
    return into(out, record(_tensordot, a, b, f"{''.join(s)},{''.join(t)}->{''.join(kept)}"))


# ---- matrices made of others -----------------------------------------------------------------


@public("inner")
def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sums of products over the last dimensions."""
    if not input.dim() or not other.dim():
        return into(out, input * other)
    return into(out, tensordot(input, other, ([-1], [-1])))


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """torch.diagonal of the last two dimensions."""
    return shapes.diagonal(A, offset, dim1, dim2)


def _trace(x: Node) -> Node:
    return _sum(ops.diagonal(x, 0, 0, 1), None, False, None)


@public("trace", _trace)
def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix."""
    if input.dim() != 2:
        raise RuntimeError(
            f"trace: expected a matrix, but got tensor with dim {input.dim()}{at_user_line()}"
        )
    return record(_trace, input)


@public("kron")
def kron(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Kronecker's product: each element of `input` times all of `other`."""
    rank = max(input.dim(), other.dim())
    a = input.reshape((1,) * (rank - input.dim()) + tuple(input.shape))
    b = other.reshape((1,) * (rank - other.dim()) + tuple(other.shape))
    wide = a.reshape([s for n in a.shape for s in (n, 1)]) * b.reshape(
        [s for n in b.shape for s in (1, n)]
    )
    return into(out, wide.reshape([m * n for m, n in zip(a.shape, b.shape, strict=True)]))


@public("cross")
def cross(
    input: Tensor, other: Tensor, dim: int | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The vector product along `dim`, by default the first dimension of size 3."""
    shape = broadcast(input.shape, other.shape)
    if dim is None:
        warn(
            "Using torch.cross without specifying the dim arg is deprecated. Please either pass "
            "the dim explicitly or simply use torch.linalg.cross.",
            once=True,
        )
        dim = next((i for i, s in enumerate(shape) if s == 3), None)
    if dim is None or shape[dim] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {-1 if dim is None else dim} must have length 3. Got "
            f"{list(shape)}{at_user_line()}"
        )
    axis = dim % len(shape)
    a, b = input.expand(shape), other.expand(shape)
    return into(out, a.roll(-1, axis) * b.roll(-2, axis) - a.roll(-2, axis) * b.roll(-1, axis))


_MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)
_FEW = 25  # up to so many rows PyTorch subtracts by default


@builder("cdist", gradient="EuclideanDistBackward0", casts=FLOAT32)
def _euclidean(a: Node, b: Node) -> Node:
    """The distances of rows from their products: |a|^2 + |b|^2 - 2 a b. Rows that are equal, or so
    near that this is not positive, have the distance and the slope 0."""
    first, second = (ops.sum(x * x, (x.rank - 1,)) for x in (a, b))
    squares = first + ops.transpose(second) - _matmul(a, ops.transpose(b)) * 2.0
    none = squares <= 0
    roots = ops.sqrt(ops.where(none, ops.full_like(squares, 1), squares))
    return ops.where(none, ops.full_like(squares, 0), roots)


@builder("cdist", casts=FLOAT32)
def _apart(a: Node, b: Node, p: float) -> Node:
    return _norm(ops.unsqueeze(a, a.rank - 1) - ops.unsqueeze(b, b.rank - 2), p, (-1,), False)


@public("cdist", method=False)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = _MODES[0]) -> Tensor:
    """The p-distance of every row of `x1` to every row of `x2`.

    compute_mode: whether Euclidean distances come from a product of matrices, which is faster and
    cancels digits of small distances; by default they do from 26 rows on.
    """
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(
            f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: "
            f"{x2.shape[-1]}{at_user_line()}"
        )
    if not (x1.dtype.is_floating_point and x2.dtype.is_floating_point):
        raise RuntimeError(f"cdist only supports floating-point dtypes{at_user_line()}")
    if compute_mode not in _MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode{at_user_line()}")
    x1, x2 = lowered(_euclidean, x1, x2)
    many = max(x1.shape[-2], x2.shape[-2]) > _FEW
    chosen = compute_mode == _MODES[1] or (compute_mode == _MODES[0] and many)
    if p == 2 and chosen and x1.dtype in (float32, float64):
        return record(_euclidean, x1, x2)  # type: ignore[return-value]
    return record(_apart, x1, x2, float(p))


@builder("pdist", casts={"cuda": FLOAT32})
def _pdist(rows: Node, others: Node, p: float) -> Node:
    return _norm(rows - others, p, (-1,), False)


@public("pdist", method=False)
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-distance of every two rows of a matrix."""
    from .joining import triu_indices

    i, j = triu_indices(input.shape[0], input.shape[0], 1)
    return record(_pdist, input[i], input[j], float(p))


def _vdot(a: Node, b: Node) -> Node:
    return _matmul(ops.conj(a), b)


@public("vdot", _vdot, casts={"cuda": WIDEST})
def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inner product of two vectors, of which the first is conjugated."""
    _ranks("vdot", input, other, 1, 1)
    return into(out, record(_vdot, input, other))


@public("addr", _addr, in_place=True, casts={"cuda": LOWER_BEFORE})
def addr(
    input: Tensor,
    vec1: Tensor,
    vec2: Tensor,
    *last: Tensor,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """beta * input + alpha * vec1 vec2^T."""
    if last:
        return in_older_order(addr, (input, vec1, vec2, *last), _FACTORS, out=out)  # type: ignore[no-any-return]
    input, vec1, vec2 = lowered(_addr, input, vec1, vec2)
    _ranks("outer", vec1, vec2, 1, 1)
    return into(out, _added(_addr, input, vec1, vec2, beta, alpha))


@public("addbmm", _addbmm, in_place=True, casts=LOWER_BEFORE)
def addbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *last: Tensor,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """beta * input + alpha * (the sum of a batch of products)."""
    if last:
        return in_older_order(addbmm, (input, batch1, batch2, *last), _FACTORS, out=out)  # type: ignore[no-any-return]
    input, batch1, batch2 = lowered(_addbmm, input, batch1, batch2)
    _batches(batch1, batch2)
    return into(out, _added(_addbmm, input, batch1, batch2, beta, alpha))


@public("chain_matmul", method=False)
def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """The product of matrices, in the order that takes the fewest multiplications."""
    warn(
        "torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use "
        "torch.linalg.multi_dot instead, which accepts a list of two or more tensors.",
        once=True,
    )
    if not matrices:
        raise RuntimeError(f"chain_matmul(): Expected one or more matrices{at_user_line()}")
    for m in matrices:
        if m.dim() != 2:
            raise RuntimeError(
                f"Tensor dimension is {m.dim()}, expected 2 instead.{at_user_line()}"
            )
    return into(out, matrices[0] if len(matrices) == 1 else multi_dot(matrices))


def multi_dot(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The product of two or more matrices, in the order that takes the fewest multiplications
    (Cormen et al., Introduction to Algorithms, 15.2).

    The first may be a vector, taken as a row, and the last one, taken as a column. The result then
    lacks that dimension.
    """
    count = len(tensors)
    if count < 2:
        raise RuntimeError(
            f"multi_dot(): expected at least 2 tensors but got {count}{at_user_line()}"
        )
    for i, t in enumerate(tensors):
        if t.dim() != 2 and not (t.dim() == 1 and i in (0, count - 1)):
            end = {0: "the first tensor", count - 1: "the last tensor"}.get(i)
            wanted = f"{end} must be 1D or 2D" if end else f"tensor {i} must be 2D"
            raise RuntimeError(f"multi_dot(): {wanted} but got {t.dim()}D{at_user_line()}")
    matrices = list(tensors)
    row, column = matrices[0].dim() == 1, matrices[-1].dim() == 1
    if row:
        matrices[0] = matrices[0].unsqueeze(0)
    if column:
        matrices[-1] = matrices[-1].unsqueeze(1)
    for i, (a, b) in enumerate(pairwise(matrices)):
        if a.shape[1] != b.shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(tensors[i].shape)} and "
                f"{list(tensors[i + 1].shape)} cannot be multiplied{at_user_line()}"
            )
    cuts = _cheapest_cuts([matrices[0].shape[0], *(m.shape[1] for m in matrices)])

    def product(first: int, last: int) -> Any:
        if first == last:
            return matrices[first]
        cut = cuts[first, last]
        return matmul(product(first, cut), product(cut + 1, last))

    result = product(0, count - 1)
    result = result.squeeze(0) if row else result
    return into(out, result.squeeze(-1) if column else result)


def _cheapest_cuts(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """(first, last) -> the factor after which their product is cut. Matrix i has sizes[i] rows and
    sizes[i + 1] columns."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    cuts: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            costs = [
                cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                for k in range(i, j)
            ]
            cost[i, j] = min(costs)
            cuts[i, j] = i + costs.index(cost[i, j])
    return cuts


@public("vander", method=False)
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of a vector's elements, in columns."""
    from .creation import arange

    n = x.shape[0] if N is None else N
    ends = (0, n, 1) if increasing else (n - 1, -1, -1)
    powers = arange(*ends, device=x.device)
    return x.unsqueeze(-1) ** powers
