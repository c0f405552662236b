"""Long sums of few results, and long running ones, in two steps: first of parts, then of the parts.

One step would leave most of the machine idle. The parts are cut by size alone, so the order of
additions is the same on every run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from tilewright.ir import ops
from tilewright.ir.dtype import HALVES, DType, accumulator, highest, lowest
from tilewright.ir.node import Node
from tilewright.ir.op import Kind, Op
from tilewright.ir.ops.composite import as_dtype, to_accumulator
from tilewright.ir.passes.autodiff import decomposed
from tilewright.ir.rewrite import on

from ..target import Target
from .digits import is_of_digits

_MOST = 16
"""The most parts, in multiples of the number that is enough."""
_FEW = 8
"""The least rows of a part whose rows are folded too."""
_MOST_FOR_EACH = 4
"""The most parts of such rows for each multiprocessor."""


@on(Kind.REDUCE)
@dataclass(frozen=True)
class SplitFolds:
    """Splits folds of long rows or columns that are too few to keep the machine busy.

    rows: see `folded_rows`. Columns of such rows are cut so that one program may take all columns
    of a part, with the folds of its rows (kernel/columns.py).
    """

    target: Target
    rows: Container[tuple[int, int]] = ()

    def __call__(self, node: Node) -> Node | None:
        if node.op.fold is None or node.op.fold.picks:
            return None
        (x,) = node.operands
        (axes,) = node.attrs
        points = math.prod(node.shape)
        length = math.prod(x.shape[a] for a in axes)
        longest, least, parts = self.target.long_row, 64, None
        if self.target.columns and not {x.rank - 1, _innermost(x)} <= set(axes):
            x, axes = _merged(x, axes)
            points = -(-points // self.target.columns)  # one program folds `target.columns` columns
            longest, least = self.target.long_row >> 7, 16
            if axes == (0,):
                parts = self._parts_of_rows(length, math.prod(node.shape))
        short = points >= self.target.parallel or length < longest
        if not points or (short and parts is None):
            return None
        if _parts_of(x) is node.op and length <= _MOST_FOR_EACH * self.target.parallel:
            return None
        axis = max(axes, key=lambda a: x.shape[a])
        if parts is not None:
            least = _FEW
        else:
            parts = self._parts(x.shape[axis], points, length, least)
        if parts is None:  # no single axis has enough
            x, axes = _merged(x, axes)
            axis = max(axes, key=lambda a: x.shape[a])
            parts = self._parts(x.shape[axis], points, length, least)
        if parts is None:  # no number of parts divides it
            parts = min(self._enough(points, length), x.shape[axis])
        size = x.shape[axis] // parts
        if parts < 2 or length // parts < least:
            return None
        x = to_accumulator(x)  # sums of parts are not rounded
        even = ops.slice_axis(x, axis, 0, parts * size)
        cut = ops.reshape(even, (*x.shape[:axis], parts, size, *x.shape[axis + 1 :]))
        within = sorted(axis + 1 if a == axis else a + (a > axis) for a in axes)
        partial = node.op(cut, tuple(within))
        partial = ops.reshape(
            partial, tuple(n for i, n in enumerate(partial.shape) if i != axis + 1)
        )
        if parts * size < x.shape[axis]:
            rest = ops.slice_axis(x, axis, parts * size, x.shape[axis])
            others = tuple(a for a in axes if a != axis)
            partial = ops.cat([partial, node.op(rest, others) if others else rest], axis)
        return as_dtype(ops.reshape(node.op(partial, (axis,)), node.shape), node.dtype)

    def _parts_of_rows(self, rows: int, columns: int) -> int | None:
        """The number of equal parts of rows that are folded, too: about two for each
        multiprocessor."""
        if (rows, columns) not in self.rows or columns > self.target.column_limit:
            return None
        busy = self.target.parallel
        found = range(busy * 3 // 4, min(_MOST_FOR_EACH * busy, rows // _FEW) + 1)
        fits = [n for n in found if rows % n == 0 and rows // n != columns]
        return min(fits, key=lambda n: abs(math.log(n / (2 * busy))), default=None)

    def _enough(self, points: int, length: int) -> int:
        """The number of parts that fills the machine, or that equals the elements of a part. It is
        a power of two, so that lengths which differ by little are mostly cut alike."""
        least = min(-(-4 * self.target.parallel // points), math.isqrt(length - 1) + 1)
        return 1 << (least - 1).bit_length()

    def _parts(self, extent: int, points: int, length: int, least: int) -> int | None:
        """The number of equal parts, each of at least `least` elements, to cut an axis into."""
        enough = self._enough(points, length)
        for parts in range(max(2, enough), min(extent, _MOST * enough, length // least) + 1):
            if extent % parts == 0:
                return parts
        return None


def _parts_of(x: Node) -> Op | None:
    """The op of a fold, if these are its parts."""
    while x.op is ops.reshape_op:
        x = x.operands[0]
    return x.op if x.op.kind is Kind.REDUCE else None


def folded_rows(nodes: Iterable[Node]) -> frozenset[tuple[int, int]]:
    """The number and the length of the rows whose elements some nodes fold, and whose columns
    others fold."""
    rows, columns = set(), set()
    for node in nodes:
        if node.op.kind is Kind.REDUCE:
            (x,), (axes, *_) = node.operands, node.attrs
            length, points = math.prod(x.shape[a] for a in axes), math.prod(node.shape)
            if sorted(axes) == list(range(x.rank - len(axes), x.rank)):
                rows.add((points, length))
            else:
                columns.add((length, points))
    return frozenset(rows & columns)


def _innermost(x: Node) -> int:
    """The dimension along which neighbours are neighbours in memory, if `x` is computed from a
    permuted view and not in memory itself."""
    place = list(range(x.rank))
    while x.op is ops.permute_op or x.op.kind is Kind.ELEMENTWISE:
        if x.op is ops.permute_op:
            place = [x.attrs[0][p] for p in place]
            x = x.operands[0]
            continue
        whole = [o for o in x.operands if o.shape == x.shape and o.op is not ops.expand_op]
        if not whole:
            break
        x = whole[0]
    return place.index(x.rank - 1)


def _merged(x: Node, axes: tuple[int, ...]) -> tuple[Node, tuple[int, ...]]:
    """`x` with neighbouring dimensions among `axes` joined, so that it can be cut anywhere."""
    shape: list[int] = []
    folded: list[int] = []
    for axis, size in enumerate(x.shape):
        if axis in axes and axis - 1 in axes:
            shape[-1] *= size
        else:
            folded += [len(shape)] if axis in axes else []
            shape.append(size)
    return ops.reshape(x, shape), tuple(folded)


@on(Kind.SCAN)
@dataclass(frozen=True)
class SplitScans:
    """Splits running folds of long rows that are too few to keep the machine busy. Each part of a
    row is scanned by itself, on top of the fold of the parts before it."""

    target: Target

    def __call__(self, node: Node) -> Node | None:
        if node.op not in _FOLDS or not self.target.split_scans:
            return None
        (x,), (axis,) = node.operands, node.attrs
        length = x.shape[axis]
        rows = math.prod(x.shape) // max(length, 1)
        if not rows or rows >= self.target.parallel or length < self.target.long_row:
            return None
        fold, both, neutral = _FOLDS[node.op]
        dtype = accumulator(x.dtype)
        x = x if x.dtype is dtype else ops.cast(x, dtype)
        parts = -(-length // _PART)
        rest = parts * _PART - length
        nothing = ops.constant(neutral(dtype), dtype)
        if rest:
            x = ops.pad(x, _only(axis, 0, x.rank), _only(axis, rest, x.rank), value=nothing)
        cut = ops.reshape(x, (*x.shape[:axis], parts, _PART, *x.shape[axis + 1 :]))
        before = node.op(fold(cut, (axis + 1,)), axis)  # including the part itself
        before = ops.slice_axis(before, axis, 0, parts - 1)
        before = ops.pad(before, _only(axis, 1, cut.rank), _only(axis, 0, cut.rank), value=nothing)
        out = both(ops.expand(before, cut.shape), node.op(cut, axis + 1))
        out = ops.slice_axis(ops.reshape(out, x.shape), axis, 0, length)
        return out if node.dtype is dtype else ops.cast(out, node.dtype)


def _only(axis: int, count: int, rank: int) -> tuple[int, ...]:
    return tuple(count if i == axis else 0 for i in range(rank))


def _logsumexp(x: Node, axes: tuple[int, ...]) -> Node:
    return decomposed(ops.logsumexp(x, axes))


_FOLDS: dict[Op, tuple[Callable[..., Node], Callable[..., Node], Callable[[DType], float]]] = {
    ops.cumsum_op: (ops.sum, ops.add, lambda dtype: 0),
    ops.cumprod_op: (ops.prod, ops.mul, lambda dtype: 1),
    ops.cummax_op: (ops.max, ops.maximum, lowest),
    ops.cummin_op: (ops.min, ops.minimum, highest),
    ops.logcumsumexp_op: (_logsumexp, ops.logaddexp, lowest),
}
"""For each scan: its fold, the op that joins two parts, and the neutral element."""
_PART = 1024  # elements of a part: a tile's row


@on(Kind.CONTRACTION)
@dataclass(frozen=True)
class SplitProducts:
    """Splits products of few tiles and a long sum into batches of products, which are then summed:
    matrix products along K, and gradients of convolutions' weights along the batch.

    The sums of parts are in float32, for half types too.
    """

    target: Target

    def __call__(self, node: Node) -> Node | None:
        if 0 in node.shape:
            return None
        if node.op in (ops.matmul, ops.matmul_fast, ops.matmul_wide):
            return self._matmul(node)
        return self._weight_grad(node) if node.op is ops.conv_weight_grad else None

    def _matmul(self, node: Node) -> Node | None:
        a, b = node.operands
        *batch, rows, columns = node.shape
        inner = a.shape[-1]
        parts = self.parts(node, (math.prod(batch), rows, columns), inner, inner // _EVEN)
        if parts == 1 or inner % (_EVEN * parts):
            return None
        size = inner // parts
        left = ops.reshape(a, (*a.shape[:-1], parts, size))
        left = ops.permute(left, (*range(a.rank - 2), a.rank - 1, a.rank - 2, a.rank))
        right = ops.reshape(b, (*b.shape[:-2], parts, size, columns))
        products = (ops.matmul_wide if node.dtype in HALVES else node.op)(left, right)
        return total_of_parts(products, products.rank - 3, node.shape, node.dtype)

    def _weight_grad(self, node: Node) -> Node | None:
        """The gradient of a convolution's weight, with the parts of the batch as groups of
        channels."""
        g, x = node.operands
        *attrs, groups = node.attrs
        rows, columns = g.shape[1] // groups, math.prod(node.shape[1:])
        inner = g.shape[0] * math.prod(g.shape[2:])
        parts = self.parts(node, (groups, rows, columns), inner, g.shape[0])
        if parts == 1:
            return None

        def apart(operand: Node) -> Node:
            count, channels, *rest = operand.shape
            cut = ops.reshape(operand, (parts, count // parts, channels, *rest))
            turned = ops.permute(cut, (1, 0, *range(2, cut.rank)))
            return ops.reshape(turned, (count // parts, parts * channels, *rest))

        op = ops.conv_weight_grad_wide if node.dtype in HALVES else node.op
        products = op(apart(g), apart(x), *attrs, parts * groups)
        whole = ops.reshape(products, (parts, *node.shape))
        return total_of_parts(whole, 0, node.shape, node.dtype)

    def parts(self, node: Node, sizes: tuple[int, int, int], inner: int, extent: int) -> int:
        """The number of parts, a divisor of `extent`, that makes a sum of `inner` terms fastest.
        sizes: batch, rows and columns."""
        if node.dtype.name not in self.target.split_products:
            return 1
        most = min(inner // _LEAST, self.target.chip.multiprocessors)
        counts = [p for p in range(1, most + 1) if extent % p == 0] or [1]
        return min(counts, key=lambda p: self._seconds(node, sizes, inner, p))

    def _seconds(self, node: Node, sizes: tuple[int, int, int], inner: int, parts: int) -> float:
        """The time of a product in so many parts, with the best of `_TILES`. Tiles are whole, so
        the busiest multiprocessor decides. Parts are written, then read to be added."""
        chip, dtype = self.target.chip, node.operands[0].dtype
        batch, rows, columns = sizes
        each = 1 / chip.multiprocessors
        rounded = self.target.rounds(node.op.convolution)
        digits = is_of_digits(node.operands[0])
        rate = chip.flops(dtype, rounded, digits) * each, chip.cache_bandwidth * each
        products = math.inf
        for m, n in {(min(rows, m), min(columns, n)) for m, n in _TILES}:
            tiles = -(-rows // m) * -(-columns // n) * batch * parts
            step = max(2 * m * n / rate[0], (m + n) * dtype.itemsize / rate[1], _TERM)
            products = min(products, -(-tiles // chip.multiprocessors) * step * (inner / parts))
        read = sum(math.prod(o.shape) for o in node.operands) * dtype.itemsize / chip.bandwidth
        added = 8 * parts * math.prod(node.shape) / chip.bandwidth + _LAUNCH if parts > 1 else 0.0
        return max(products, read) + added


def total_of_parts(products: Node, axis: int, shape: Sequence[int], dtype: DType) -> Node:
    """The sum of `products` along an axis, rounded to `dtype` once."""
    total = products if products.shape[axis] == 1 else ops.sum(products, (axis,))
    return as_dtype(ops.reshape(total, shape), dtype)


_TILES = ((128, 256), (256, 128), (128, 128), (128, 64), (64, 128), (64, 64))
_EVEN = 64  # parts of K have a multiple of it, so that their rows are read by whole vectors
_LEAST = 256  # the least terms of a part
_TERM = 4e-9  # the least seconds of a term: three stages of 64 terms are on their way for 0.8 us
_LAUNCH = 3e-6  # seconds
