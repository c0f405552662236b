"""Products of matrices and vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import bool_
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.node import Node
from tilewright.ir.op import not_implemented
from tilewright.ir.shape import broadcast

from .. import recording
from ..recording import Handle, lowered, record
from ..recording.builders import LOWER, LOWER_BEFORE, WIDEST
from . import shapes
from .arguments import as_handle, into, need_tensor
from .call import public
from .contractions import tensordot
from .elementwise import _mul
from .promotion import refuse, to
from .reduction import _sum
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
    if 0 not in (*a.shape, *b.shape):  # PyTorch calls no routine then
        refuse("addmm_impl_cpu_", a, dtypes.BOOL)
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
    need_tensor(name, input)
    need_tensor(name, other, "other", 2)
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
    return into(out, record(_mv, input, vec), cast=False)


@public("dot", _dot, casts={"cuda": WIDEST}, gradient="DotBackward0")
@also_named(tensor="other")
def dot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inner product of two vectors."""
    _ranks("dot", input, other, 1, 1)
    if input.shape != other.shape:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor {list(input.shape)} and src "
            f"{list(other.shape)} to have the same number of elements{at_user_line()}"
        )
    return into(out, record(_dot, input, other), cast=False)


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
        if name != "addr":
            refuse(f"{name}_impl_cpu_", c, dtypes.BOOL)
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
    return into(out, _added(_addmm, input, mat1, mat2, beta, alpha), cast=False)


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
    return into(out, _added(_baddbmm, input, batch1, batch2, beta, alpha), cast=False)


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
    return into(out, _added(_addmv, input, mat, vec, beta, alpha), cast=False)


# ---- matrices made of others -----------------------------------------------------------------


@public("inner")
def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sums of products over the last dimensions."""
    if not input.dim() or not other.dim():
        return into(out, input * other, cast=False)
    return into(out, tensordot(input, other, ([-1], [-1])), cast=False)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """torch.diagonal of the last two dimensions."""
    return shapes.diagonal(A, offset, dim1, dim2)


def _trace(x: Node) -> Node:
    refuse("trace", x, dtypes.BOOL)
    return _sum(ops.diagonal(x, 0, 0, 1), None, False, None)


@public("trace", _trace)
def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix."""
    if input.dim() != 2:
        raise RuntimeError(
            f"trace: expected a matrix, but got tensor with dim {input.dim()}{at_user_line()}"
        )
    return record(_trace, input)


def _kron(a: Node, b: Node) -> Node:
    rank = max(a.rank, b.rank)
    sizes, others = ((1,) * (rank - x.rank) + tuple(x.shape) for x in (a, b))
    wide = _mul(
        ops.reshape(a, [s for n in sizes for s in (n, 1)]),
        ops.reshape(b, [s for n in others for s in (1, n)]),
    )
    return ops.reshape(wide, [m * n for m, n in zip(sizes, others, strict=True)])


@public("kron", _kron)
def kron(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Kronecker's product: each element of `input` times all of `other`."""
    need_tensor("kron", input)
    need_tensor("kron", other, "other", 2)
    return into(out, record(_kron, input, other))


def _turned_product(a: Node, b: Node, axis: int, by: int) -> Node:
    """The product of two arrays of vectors, of which the first are turned by so many places, and
    the others by as many back."""
    shape = broadcast(a.shape, b.shape)

    def turned(x: Node, by: int) -> Node:
        x = ops.expand(x, shape)
        return ops.cat([ops.slice_axis(x, axis, by, 3), ops.slice_axis(x, axis, 0, by)], axis)

    return turned(a, by) * turned(b, 3 - by)


@public("cross", _turned_product, gradient="MulBackward0")
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
    if input.dim() != other.dim():
        raise RuntimeError(
            "linalg.cross: inputs must have the same number of dimensions, got "
            f"{input.dim()} and {other.dim()}{at_user_line()}"
        )
    if input.dtype is not other.dtype:
        raise RuntimeError(
            f"linalg.cross: expected inputs of one dtype, got {input.dtype} and {other.dtype}"
            f"{at_user_line()}"
        )
    if input.dtype is bool_:
        raise not_implemented("cross", bool_)
    products = [record(_turned_product, input, other, dim % len(shape), by) for by in (1, 2)]
    return into(out, products[0] - products[1], cast=False)


def _vdot(a: Node, b: Node) -> Node:
    return _matmul(ops.conj(a), b)


@public("vdot", _vdot, casts={"cuda": WIDEST})
def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inner product of two vectors, of which the first is conjugated."""
    _ranks("vdot", input, other, 1, 1)
    return into(out, record(_vdot, input, other), cast=False)


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
    return into(out, _added(_addbmm, input, batch1, batch2, beta, alpha), cast=False)


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
    return into(out, result.squeeze(-1) if column else result, cast=False)


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
    from .ranges import arange

    n = x.shape[0] if N is None else N
    ends = (0, n, 1) if increasing else (n - 1, -1, -1)
    powers = arange(*ends, device=x.device)
    return x.unsqueeze(-1) ** powers
