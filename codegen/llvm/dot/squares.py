"""Squares of elements, transposed in registers."""

from __future__ import annotations

from collections.abc import Sequence

from ..code import Code
from ..types import Ref


def store(code: Code, value: Ref, at: Ref) -> None:
    align = 8 if value.type == "double" else 4
    code.add(f"store {value.typed}, ptr {at.text}, align {align}")


def _shuffle(code: Code, a: Ref, b: Ref, places: Sequence[int | None]) -> Ref:
    """The elements of two vectors at some places; None: any."""
    listed = ", ".join("i32 poison" if p is None else f"i32 {p}" for p in places)
    text = f"shufflevector {a.typed}, {b.typed}, <{len(places)} x i32> <{listed}>"
    return code.let(text, a.type, len(places))


def head(code: Code, a: Ref, count: int) -> Ref:
    """The first elements of a vector."""
    if count == 1:
        return code.let(f"extractelement {a.typed}, i64 0", a.type)
    return _shuffle(code, a, a, range(count))


def transposed(code: Code, rows: Sequence[Ref]) -> list[Ref]:
    """The columns of a square; perhaps only its first rows are given."""
    first = rows[0]
    lanes = first.lanes
    held = [*rows, *[Ref("poison", first.type, lanes)] * (lanes - len(rows))]
    # Within blocks of 16 bytes by interleaving, which is one instruction; then the blocks.
    inside = 16 // (8 if first.type == "double" else 4)
    step = 1
    while step < inside:
        held = _interleaved(code, held, inside, step)
        step *= 2
    step = inside
    while step < lanes:
        held = _swapped(code, held, step)
        step *= 2
    return held


def columns(code: Code, pieces: Sequence[Ref], lanes: int) -> list[Ref]:
    """The columns of some rows, at most `lanes`, of which 16 bytes each are given. A column fills
    the first lanes of a vector.

    Every so many rows, as many as pieces have elements, fill the same vector: then transposing
    blocks of 16 bytes is all that is left to do.
    """
    count = pieces[0].lanes
    held = [_joined(code, pieces[i::count], lanes, pieces[0]) for i in range(count)]
    step = 1
    while step < count:
        held = _interleaved(code, held, count, step)
        step *= 2
    return held


def _joined(code: Code, pieces: Sequence[Ref], lanes: int, like: Ref) -> Ref:
    """A vector of pieces, one after another; what is behind them is left open."""
    count = like.lanes
    if not pieces:
        return Ref("poison", like.type, lanes)
    every = range(lanes)
    joined = _shuffle(code, pieces[0], pieces[0], [i if i < count else None for i in every])
    for number, piece in enumerate(pieces[1:], 1):
        wide = _shuffle(code, piece, piece, [i % count for i in every])
        here = range(number * count, (number + 1) * count)
        joined = _shuffle(code, joined, wide, [lanes + i if i in here else i for i in every])
    return joined


def _interleaved(code: Code, rows: list[Ref], inside: int, step: int) -> list[Ref]:
    """One stage of transposing squares of `inside` rows: pairs of vectors, in pieces of `step`."""
    lanes, out = rows[0].lanes, list(rows)
    low = []
    for start in range(0, lanes, inside):
        for piece in range(0, inside // 2, step):
            at = range(start + piece, start + piece + step)
            low += [*at, *(lanes + p for p in at)]
    high = [p + inside // 2 for p in low]
    for i in range(0, len(rows), inside):
        for j in range(inside // 2):
            # The first stage pairs neighbours, the second those two apart.
            a = i + (2 * j if step == 1 else j)
            b = a + step
            out[i + 2 * j] = _shuffle(code, rows[a], rows[b], low)
            out[i + 2 * j + 1] = _shuffle(code, rows[a], rows[b], high)
    return out


def _swapped(code: Code, rows: list[Ref], step: int) -> list[Ref]:
    """Exchanges blocks of `step` lanes between rows that are `step` apart."""
    lanes, out = rows[0].lanes, list(rows)
    low = [p if not p & step else lanes + p - step for p in range(lanes)]
    high = [p + step if not p & step else lanes + p for p in range(lanes)]
    for i in range(lanes):
        if not i & step:
            out[i] = _shuffle(code, rows[i], rows[i + step], low)
            out[i + step] = _shuffle(code, rows[i], rows[i + step], high)
    return out
