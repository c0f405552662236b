"""Sorting: of few elements only, if no more are wanted, and for targets that sort only words.

Words are integers made of an element's key and its position. Keys have the order of the elements
(NaN last, both zeros alike). Positions make the order stable and are the result. So a sort needs no
pairs and compares only integers. One program sorts a row that it can hold (`ordered` in
codegen/ops.py); longer rows are merged from two runs at a time.
"""

from __future__ import annotations

from tilewright.ir import ops
from tilewright.ir.dtype import BOOL, DType, float64, int16, int32, int64, uint64
from tilewright.ir.node import Node
from tilewright.ir.rewrite import on

from ..ops import leading, ordered

MOST = 2048
"""The most elements that one program sorts. With more, registers and the compiler's time grow
faster than merging costs."""
FEW = 2
"""Only the first positions are brought in order if the square of their number is at most so many
times the length of the row: a new one among them moves half of those that were found so far."""
EVEN = 16  # runs have a multiple of it, so that they are read by vectors


@on(ops.argsort_op)
def sort_words(node: Node) -> Node | None:
    """argsort by words."""
    (x,) = node.operands
    axis, descending = node.attrs
    if x.shape[axis] < 2 or 0 in x.shape:
        return None
    low, high = _keys(x, bool(descending))
    if low is None:
        return _order(high, _bits(x.dtype), axis)
    # By the lower half first, then by the upper half, which keeps that order among equals.
    first = _order(low, 32, axis)
    second = _order(ops.take_along(high, first, axis), 32, axis)
    return ops.take_along(first, second, axis)


@on(ops.slice_op)
def sort_first(node: Node) -> Node | None:
    """The first few positions of a long argsort: only as many of each run are kept."""
    found = _first_of(node)
    if found is None:
        return None
    x, axis, descending, count = found
    if x.shape[axis] <= MOST or count > MOST // 8:
        return None
    low, key = _keys(x, descending)
    if low is not None:
        return None
    last = x.rank - 1
    words = _moved(words_of(key, _bits(x.dtype), axis), axis, last)
    while (length := words.shape[last]) > MOST:
        runs = -(-length // MOST)
        run = _even(-(-length // runs))
        parts = ordered(_cut(words, runs, run), last + 1, 0)
        parts = ops.slice_axis(parts, last + 1, 0, min(count, run))
        words = ops.reshape(parts, (*words.shape[:last], runs * parts.shape[-1]))
    words = ops.slice_axis(ordered(words, last, 0), last, 0, count)
    order = positions_of(_moved(words, last, axis), x.shape[axis])
    return ops.slice_(order, *node.attrs)


@on(ops.slice_op)
def sort_leading(node: Node) -> Node | None:
    """The first few positions of an argsort: only these are brought in order."""
    found = _first_of(node)
    if found is None:
        return None
    x, axis, descending, count = found
    if count * count > FEW * x.shape[axis]:
        return None
    return ops.slice_(leading(x, axis, descending, count), *node.attrs)


def _first_of(node: Node) -> tuple[Node, int, bool, int] | None:
    """(x, axis, descending, count) of a slice of an argsort that reads its first `count`
    positions."""
    if node.operands[0].op is not ops.argsort_op:
        return None
    (order,) = node.operands
    (x,), (axis, descending) = order.operands, order.attrs
    _, stops, steps = node.attrs
    if steps[axis] < 0 or not stops[axis] > 0 or 0 in x.shape:
        return None
    return x, axis, bool(descending), stops[axis]


def _bits(dtype: DType) -> int:
    return 8 if dtype.category == BOOL else min(8 * dtype.itemsize, 32)


def _keys(x: Node, descending: bool) -> tuple[Node | None, Node]:
    """Keys: signed integers of `_bits` bits in the order of the elements. Elements of 64 bits give
    a lower and an upper half, both signed."""
    dtype = x.dtype
    if dtype.is_floating_point:
        key = _float_key(x)
    elif dtype is uint64:
        key = ops.bitwise_xor(ops.bitcast(x, int64), _number(-(1 << 63), int64))
    elif dtype.category == BOOL or dtype.name.startswith("uint"):
        key = ops.cast(x, int64) - _number(1 << (8 * dtype.itemsize - 1), int64)
        key = ops.cast(key, int32)
    else:
        key = x if dtype.itemsize == 8 else ops.cast(x, int32)
    if descending:
        key = ops.bitwise_not(key)
    if dtype.itemsize < 8:
        return None, key
    low = ops.bitwise_and(key, _number((1 << 32) - 1, int64)) - _number(1 << 31, int64)
    return ops.cast(low, int32), ops.cast(ops.shift_right(key, _number(32, int64)), int32)


def _float_key(x: Node) -> Node:
    """The bits of a float, sign and magnitude, as a number: both zeros are 0, every NaN is last."""
    same = {2: int16, 4: int32, 8: int64}[x.dtype.itemsize]
    kind = int64 if x.dtype is float64 else int32
    bits = ops.cast(ops.bitcast(x, same), kind)
    most = _number((1 << (8 * x.dtype.itemsize - 1)) - 1, kind)
    key = ops.where(ops.lt(bits, _number(0, kind)), -ops.bitwise_and(bits, most), bits)
    return ops.where(ops.isnan(x), most, key)


def _number(value: int, dtype: DType) -> Node:
    return ops.constant(value, dtype)


def _order(key: Node, bits: int, axis: int) -> Node:
    """The stable order of integers of so many bits."""
    return positions_of(in_order(words_of(key, bits, axis), axis), key.shape[axis])


def words_of(key: Node, bits: int, axis: int) -> Node:
    """Words: each key in front of its position, in an int32 if both fit."""
    length = key.shape[axis]
    places = _places(length)
    kind = int32 if bits + places <= 32 else int64
    position = ops.reshape(ops.iota(length), [length if i == axis else 1 for i in range(key.rank)])
    moved = ops.shift_left(ops.cast(key, kind), _number(places, kind))
    return ops.bitwise_or(moved, ops.cast(position, kind))


def positions_of(words: Node, length: int) -> Node:
    """The positions in words that `words_of` made from so many elements along an axis."""
    mask = _number((1 << _places(length)) - 1, words.dtype)
    return ops.cast(ops.bitwise_and(words, mask), int64)


def _places(length: int) -> int:
    """The number of bits of a position."""
    return (length - 1).bit_length()


def in_order(words: Node, axis: int) -> Node:
    """Words in ascending order: first runs that one program sorts, then pairs of runs, pairs of
    these, and so on."""
    length = words.shape[axis]
    if length <= MOST:
        return ordered(words, axis, 0)
    last = words.rank - 1
    words = _moved(words, axis, last)
    lead = words.shape[:last]
    merges = (-(-length // MOST) - 1).bit_length()
    run = _even(-(-length // (1 << merges)))
    words = ordered(_cut(words, 1 << merges, run), last + 1, 0)
    for left in range(merges, 0, -1):
        words = ops.reshape(words, (*lead, 1 << left - 1, 2 * run))
        words = ordered(words, last + 1, run)
        run *= 2
    words = ops.slice_axis(ops.reshape(words, (*lead, run)), last, 0, length)
    return _moved(words, last, axis)


def _even(length: int) -> int:
    return -(-length // EVEN) * EVEN


def _cut(words: Node, runs: int, run: int) -> Node:
    """The last axis cut into runs; the last run is filled up with the largest integer."""
    last = words.rank - 1
    more = runs * run - words.shape[last]
    if more:
        most = _number((1 << (8 * words.dtype.itemsize - 1)) - 1, words.dtype)
        none = (0,) * words.rank
        words = ops.pad(words, none, (*none[:last], more), value=most)
    return ops.reshape(words, (*words.shape[:last], runs, run))


def _moved(x: Node, axis: int, to: int) -> Node:
    """`x` with an axis moved to another place."""
    if axis == to:
        return x
    order = [i for i in range(x.rank) if i != axis]
    order.insert(to, axis)
    return ops.permute(x, order)
