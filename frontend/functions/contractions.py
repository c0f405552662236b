"""Sums of products over named dimensions."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.dtype import BOOL, int64
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ..recording import Handle, record
from ..recording.builders import LOWER, WIDEST
from .arguments import into, is_whole
from .call import public
from .promotion import refuse, result_dtype, to

if TYPE_CHECKING:
    from .._tensor import Tensor


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
    refuse("bmm", a, BOOL)
    for c in [c for c in s if c not in t and c not in later]:
        i = s.index(c)
        a, s = ops.squeeze(ops.sum(a, (i,)), (i,)), s.replace(c, "")
    for c in [c for c in t if c not in s and c not in later]:
        i = t.index(c)
        b, t = ops.squeeze(ops.sum(b, (i,)), (i,)), t.replace(c, "")
    batch = [c for c in s if c in t and c in later]
    inner = [c for c in s if c in t and c not in later]
    if not inner:  # a product without a sum, whose operands may have several dtypes
        dtype = result_dtype(a, b)
        a, b = to(a, dtype), to(b, dtype)
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


def _gradient_of_einsum(args: Sequence[Any]) -> str:
    """The last call that PyTorch makes of one: of a single operand a sum or a permutation, else a
    product, which is a matrix product where it sums over letters."""
    *operands, equation = args
    (*before, last), output = _parse_einsum(equation, operands)
    known = {c for term in before for c in term if len(before) == 1 or c in output or c in last}
    gone = known.union(last).difference(output)
    if not before:
        return "SumBackward1" if gone else "PermuteBackward0"
    return "ViewBackward0" if gone else "MulBackward0"


@public("einsum", _einsum, method=False, casts=LOWER, gradient=_gradient_of_einsum)
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
    if isinstance(dims, int) or is_whole(dims):
        dims = int(dims)  # type: ignore[arg-type]
        if not 0 <= dims <= min(a.dim(), b.dim()):
            raise RuntimeError(
                f"tensordot expects dims <= ndim_a and ndim_b, but got dims={dims}{at_user_line()}"
            )
        first, second = list(range(a.dim() - dims, a.dim())), list(range(dims))
    else:
        first, second = ([d] if isinstance(d, int) else list(d) for d in dims)
    letters = string.ascii_letters
    s = list(letters[: a.dim()])
    t = list(letters[a.dim() : a.dim() + b.dim()])
    for i, j in zip(first, second, strict=True):
        t[j % b.dim()] = s[i % a.dim()]
    kept = [c for c in s if c not in t] + [c for c in t if c not in s]
    return into(
        out, record(_tensordot, a, b, f"{''.join(s)},{''.join(t)}->{''.join(kept)}"), cast=False
    )
