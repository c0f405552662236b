"""Contractions as dot products: the elements of the operands that meet at a point of the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.ops.scaled import BLOCK

from ..kernel import Condition
from ..kernel import index as ix
from ..kernel.domain import Domain, Place
from ..kernel.index import Index
from ..ops import conv_input_grad_last, conv_last, conv_weight_grad_last, plain
from .movement import narrow


@dataclass(frozen=True)
class Term:
    """An operand's element in the sum; zero where a condition fails (padding)."""

    node: Node
    place: Place
    conditions: tuple[Condition, ...] = ()


Terms = tuple[Term, Term]


@dataclass(frozen=True)
class Contraction:
    """A contraction over one iteration space.

    shape: the result, with a grouped channel as two dimensions.
    summed: the extents of the dimensions summed over.
    terms(place, summed place): the two factors at a place of the result (in the node's own shape).
    segment(place, summed place): for a product in groups, the row and the group at a point. It is
        summed if the row lies between the third operand's entries at the group and behind it.
    scales(place, summed place): two more factors of each term, if there are any.
    """

    shape: tuple[int, ...]
    summed: tuple[int, ...]
    terms: Callable[[Place, Place], Terms]
    segment: Callable[[Place, Place], tuple[Index, Index]] | None = None
    scales: Callable[[Place, Place], Terms] | None = None

    @property
    def domain(self) -> Domain:
        rank = len(self.shape)
        reduced = tuple(range(rank, rank + len(self.summed)))
        return Domain((*self.shape, *self.summed), reduced)


def contraction(node: Node) -> Contraction:
    """The Contraction of a node, made once a node."""
    found = node.memo.get("contraction")
    if found is None:
        found = node.memo["contraction"] = _RULES[node.op](node)
    return found


def _matmul(node: Node) -> Contraction:
    a, b = node.operands

    def terms(place: Place, k: Place) -> Terms:
        *batch, m, n = place
        return (
            Term(a, narrow((*batch, m, *k), a.shape)),
            Term(b, narrow((*batch, *k, n), b.shape)),
        )

    return Contraction(tuple(node.shape), (a.shape[-1],), terms)


def _matmul_by_blocks(node: Node) -> Contraction:
    a, b, *scales = node.operands

    def terms(place: Place, summed: Place) -> Terms:
        m, n = place
        block, k = summed
        at = block * BLOCK + k
        return Term(a, narrow((m, at), a.shape)), Term(b, narrow((at, n), b.shape))

    def factors(place: Place, summed: Place) -> Terms:
        m, n = place
        left, right = scales
        return (
            Term(left, narrow((m, summed[0]), left.shape)),
            Term(right, narrow((summed[0], n), right.shape)),
        )

    summed = (a.shape[1] // BLOCK, BLOCK)
    return Contraction(tuple(node.shape), summed, terms, scales=factors)


def _grouped_matmul(node: Node) -> Contraction:
    x, w, _ = node.operands

    def terms(place: Place, summed: Place) -> Terms:
        row, n = place
        group, k = summed
        return Term(x, narrow((row, k), x.shape)), Term(w, narrow((group, k, n), w.shape))

    def segment(place: Place, summed: Place) -> tuple[Index, Index]:
        return place[0], summed[0]

    return Contraction(tuple(node.shape), tuple(w.shape[:2]), terms, segment)


def _grouped_weight_grad(node: Node) -> Contraction:
    x, g, _ = node.operands

    def terms(place: Place, summed: Place) -> Terms:
        _, m, n = place
        (row,) = summed
        return Term(x, narrow((row, m), x.shape)), Term(g, narrow((row, n), g.shape))

    def segment(place: Place, summed: Place) -> tuple[Index, Index]:
        return summed[0], place[0]

    return Contraction(tuple(node.shape), (x.shape[0],), terms, segment)


def _grouped(shape: tuple[int, ...], axis: int, groups: int) -> tuple[int, ...]:
    if groups == 1:
        return shape
    return (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])


def _split(channel: Index, groups: int, per_group: int) -> tuple[Index, Index]:
    """(group, channel within the group)."""
    if groups == 1:
        return ix.ZERO, channel
    return ix.floordiv(channel, per_group), ix.mod(channel, per_group)


def _drop_ones(place: Place, shape: tuple[int, ...]) -> Place:
    return tuple(ix.ZERO if s == 1 else p for p, s in zip(place, shape, strict=True))


def _input_term(
    x: Node, batch: Index, channel: Index, out: Place, kernel: Place, node: Node
) -> Term:
    """The element of a convolution's input under one place of the kernel."""
    stride, padding, dilation, _ = node.attrs[-4:]
    place: list[Index] = []
    conditions: list[Condition] = []
    for o, k, n, s, (low, high), d in zip(
        out, kernel, x.shape[2:], stride, padding, dilation, strict=True
    ):
        position = o * s + k * d - low
        if low or high:
            conditions.append(Condition(position, 0, n))
        place.append(position)
    whole = (batch, channel, *place)
    return Term(x, _drop_ones(whole, x.shape), tuple(conditions))


def _conv(node: Node) -> Contraction:
    x, w = node.operands
    groups = node.attrs[-1]
    per_output, per_input = w.shape[0] // groups, w.shape[1]

    def terms(place: Place, k: Place) -> Terms:
        n, o, *out = place
        c, *kernel = k
        group, _ = _split(o, groups, per_output)
        return (
            _input_term(x, n, group * per_input + c, tuple(out), tuple(kernel), node),
            Term(w, _drop_ones((o, c, *kernel), w.shape)),
        )

    return Contraction(_grouped(node.shape, 1, groups), tuple(w.shape[1:]), terms)


def _conv_input_grad(node: Node) -> Contraction:
    g, w = node.operands
    _, stride, padding, dilation, groups = node.attrs
    per_output, per_input = w.shape[0] // groups, w.shape[1]

    def terms(place: Place, k: Place) -> Terms:
        n, channel, *position = place
        o, *kernel = k
        group, c = _split(channel, groups, per_input)
        output = group * per_output + o
        at: list[Index] = []
        conditions: list[Condition] = []
        for p, j, count, s, (low, _), d in zip(
            position, kernel, g.shape[2:], stride, padding, dilation, strict=True
        ):
            # The window whose tap j lies on input position p began at p + low - j * d.
            start = p + low - j * d
            conditions.append(Condition(start, 0, (count - 1) * s + 1))
            if s > 1 and count > 1:
                conditions.append(Condition(ix.mod(start, s), 0, 1))
            at.append(ix.floordiv(start, s))
        return (
            Term(g, _drop_ones((n, output, *at), g.shape), tuple(conditions)),
            Term(w, _drop_ones((output, c, *kernel), w.shape)),
        )

    summed = (per_output, *w.shape[2:])
    return Contraction(_grouped(node.shape, 1, groups), summed, terms)


def _conv_weight_grad(node: Node) -> Contraction:
    g, x = node.operands
    groups = node.attrs[-1]
    per_output, per_input = g.shape[1] // groups, x.shape[1] // groups

    def terms(place: Place, k: Place) -> Terms:
        o, c, *kernel = place
        n, *out = k
        group, _ = _split(o, groups, per_output)
        return (
            Term(g, _drop_ones((n, o, *out), g.shape)),
            _input_term(x, n, group * per_input + c, tuple(out), tuple(kernel), node),
        )

    summed = (g.shape[0], *g.shape[2:])
    return Contraction(_grouped(node.shape, 0, groups), summed, terms)


def _moved_first(place: Place) -> Place:
    return (place[0], place[-1], *place[1:-1])


def _channels_last(node: Node) -> Contraction:
    """The same sum with channels behind places, over neighbouring channels first."""
    rule = contraction(plain(node))
    groups = node.attrs[-1]
    shape = _grouped(node.shape, node.rank - 1, groups)

    def terms(place: Place, k: Place) -> Terms:
        return rule.terms(_moved_first(place), (k[-1], *k[:-1]))

    return Contraction(shape, (*rule.summed[1:], rule.summed[0]), terms)


def _weight_grad_last(node: Node) -> Contraction:
    rule = contraction(plain(node))
    *_, groups, parts = node.attrs
    each = rule.summed[0] // parts

    def terms(place: Place, k: Place) -> Terms:
        part, *own = place
        return rule.terms(_moved_first(tuple(own)), (part * each + k[0], *k[1:]))

    return Contraction(_grouped(node.shape, 1, groups), (each, *rule.summed[1:]), terms)


_RULES: dict[Op, Callable[[Node], Contraction]] = {
    ops.matmul: _matmul,
    ops.integer_matmul: _matmul,
    ops.matmul_fast: _matmul,
    ops.matmul_wide: _matmul,
    ops.matmul_by_blocks: _matmul_by_blocks,
    ops.grouped_matmul: _grouped_matmul,
    ops.grouped_weight_grad: _grouped_weight_grad,
    ops.conv: _conv,
    ops.conv_input_grad: _conv_input_grad,
    ops.conv_weight_grad: _conv_weight_grad,
    ops.conv_weight_grad_wide: _conv_weight_grad,
    conv_last: _channels_last,
    conv_input_grad_last: _channels_last,
    conv_weight_grad_last: _weight_grad_last,
}
