"""Convolutions with channels last: their operands and results lie in memory as [n, *in, c].

So a tile of a convolution reads vectors of neighbouring channels: along its sum where that is over
channels, along its rows or columns elsewhere. Only the compiler knows of the layout, the graph says
[n, c, *in]. A convolution becomes the same sum over turned operands. Elementwise work, folds,
pooling and other convolutions behind it are turned alike, so a turned value stays turned. To turn
back is a view: only results are stored in PyTorch's order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir import ops
from tilewright.ir.node import Node, grad_mode, intern, reachable
from tilewright.ir.op import Kind

from ..ops import CHANNELS_LAST, conv_input_grad_last, conv_last, conv_weight_grad_last, first, last
from ..target import Target
from .few_channels import VECTOR, Convolution, Packing, filled, is_vector, packing
from .split import SplitProducts, total_of_parts


def turn_convolutions(
    roots: Sequence[Node], target: Target, inner: Sequence[Node] = ()
) -> list[Node]:
    """`roots`, then `inner`, with convolutions and all between them over channels that come
    last."""
    nodes = reachable(roots)
    if not any(_is_worth_turning(n, target) for n in nodes):
        return [*roots, *inner]
    turned = _Turned(target)
    with grad_mode(False):
        for node in nodes:
            turned.add(node)
        return [turned.plain.get(n, n) for n in (*roots, *inner)]


def held(node: Node) -> list[Node]:
    """The operands of one of `CHANNELS_LAST` that must lie in memory as it reads them."""
    taps = node.attrs[0] if node.op is conv_weight_grad_last else node.operands[1].shape[1:-1]
    if set(taps) == {1}:  # a product of matrices reads places as well
        return [o for o in node.operands if is_vector(o.shape[-1], o.dtype)]
    return [o for o in node.operands if o.shape[-1] % VECTOR == 0]


def _gains(node: Node, target: Target) -> bool:
    """Whether a convolution reads vectors of channels, for tensor cores."""
    if not _is_taken(node, target):
        return False
    groups = node.attrs[-1]
    read = _channels(node)
    if node.op is ops.conv or (node.op is ops.conv_weight_grad and groups == 1):
        read = read[1:]  # the result's channels don't matter: a cotangent's are filled up
    if groups > 1 and not any(c % VECTOR for c in read):
        return True  # read as they lie; those of a single group would be filled up
    return all(is_vector(c, node.dtype) for c in read)


def _is_worth_turning(node: Node, target: Target) -> bool:
    found = _packing(node, target) is not None
    return found or (_gains(node, target) and _has_windows(node))


def _is_taken(node: Node, target: Target) -> bool:
    """Whether a node is a convolution of a dtype that the target takes with channels last."""
    if node.op not in CHANNELS_LAST.values() or not target.turns(node.dtype):
        return False
    return all(0 not in n.shape for n in (node, *node.operands))


def _has_windows(node: Node) -> bool:
    """Whether a convolution is more than a matrix product for each image. The rows of such a
    product are whole vectors with channels first too."""
    kernel = node.attrs[0] if node.op is ops.conv_weight_grad else node.operands[1].shape[2:]
    return set(kernel) != {1} or set(node.attrs[-4]) != {1}


def _few(node: Node, target: Target) -> Convolution | None:
    """The convolution that a node is, or whose weight's gradient it is, if it has few channels or
    no whole vectors of them."""
    if node.op not in (ops.conv, ops.conv_weight_grad) or not _is_taken(node, target):
        return None
    outputs, inputs = _channels(node)
    *_, stride, padding, dilation, groups = node.attrs
    if groups != 1 or is_vector(inputs, node.dtype):
        return None
    x, y, kernel = node.operands[0], node, node.operands[1].shape[2:]
    if node.op is ops.conv_weight_grad:
        y, x, kernel = *node.operands, node.attrs[0]
    sizes = tuple(x.shape[2:]), tuple(y.shape[2:]), tuple(kernel)
    return Convolution(x.shape[0], inputs, outputs, *sizes, stride, padding, dilation)


def _packing(node: Node, target: Target, beside: int = 0) -> Packing | None:
    """The layout of the image for a convolution of few channels, or for the gradient of its weight;
    None if it needs none. beside: bytes that would have to be copied as well."""
    of = _few(node, target)
    return None if of is None else packing(of, node.dtype, target, beside)


def _channels(node: Node) -> tuple[int, ...]:
    """(outputs, inputs) of a group."""
    a, b = node.operands
    groups = node.attrs[-1]
    if node.op is ops.conv_weight_grad:
        return a.shape[1] // groups, b.shape[1] // groups
    return b.shape[0] // groups, b.shape[1]


class _Turned:
    """plain: the new node for each old one. last: its form with channels last, if any."""

    def __init__(self, target: Target):
        self.target = target
        self.plain: dict[Node, Node] = {}
        self.last: dict[Node, Node] = {}

    def add(self, node: Node) -> None:
        found = self._turn(node)
        if found is not None:
            self.last[node], self.plain[node] = found, first(found)
        elif node.op is ops.conv_weight_grad and self._is_turned(node):
            self.plain[node] = self._weight_grad(node)
        else:
            operands = tuple(self.plain[o] for o in node.operands)
            same = operands == node.operands
            self.plain[node] = node if same else intern(node.op, operands, node.attrs, loc=node.loc)

    def of(self, node: Node) -> Node:
        """A node with channels last."""
        return self.last[node] if node in self.last else last(self.plain[node])

    def _turn(self, node: Node) -> Node | None:
        """A node over channels that come last; None where that gains nothing."""
        if node.op is ops.conv and (found := _packing(node, self.target)) is not None:
            x, w = map(self.of, node.operands)
            return intern(conv_last, (found.image(x), found.weight(w)), found.attrs, loc=node.loc)
        if node.op in (ops.conv, ops.conv_input_grad) and self._is_turned(node):
            op, (x, w), attrs = conv_input_grad_last, node.operands, node.attrs
            image = self.of(x)
            if node.op is ops.conv:
                op = conv_last
                image, attrs = self._read(x, w.shape[2:], attrs)
            return intern(op, (image, self.of(w)), attrs, loc=node.loc)
        if node.op.kind is Kind.ELEMENTWISE:
            if not any(o in self.last and o.shape == node.shape for o in node.operands):
                return None
            operands = tuple(self._aligned(o, node.rank) for o in node.operands)
            return intern(node.op, operands, node.attrs, loc=node.loc)
        if not node.operands or node.operands[0] not in self.last:
            return None
        if node.op.kind is Kind.REDUCE:
            axes = node.attrs[0]
            if 1 in axes and node.op in (ops.argmax, ops.argmin):
                return None  # positions count channels before places
            axes = tuple(sorted(_place(a, node.rank) for a in axes))
            return intern(node.op, (self.last[node.operands[0]],), (axes,), loc=node.loc)
        return self._moved(node) if node.op.kind is Kind.MOVEMENT else None

    def _read(
        self, x: Node, kernel: Sequence[int], attrs: tuple[Any, ...]
    ) -> tuple[Node, tuple[Any, ...]]:
        """The image of a convolution with channels last, and the convolution's attributes. Of an
        image that is copied, a kernel of one tap needs only the places that it meets."""
        strides, padding, dilation, groups = attrs
        skips = set(kernel) == {1} and set(strides) != {1}
        if x in self.last or not skips or any(n for pair in padding for n in pair):
            return self.of(x), attrs
        steps = (1, 1, *strides)
        met = ops.slice_(self.plain[x], (0,) * x.rank, tuple(x.shape), steps)
        return last(met), ((1,) * len(strides), padding, dilation, groups)

    def _is_turned(self, node: Node) -> bool:
        """Whether a node reads its operands with channels last. An image of few channels too is
        best stored as the next convolution reads it."""
        if node.op is ops.conv and _is_taken(node, self.target):
            few = _few(node, self.target)
            if few is not None and few.has_vectors:
                return False
            return is_vector(_channels(node)[0], node.dtype) or _gains(node, self.target)
        return _gains(node, self.target) or self._packing(node) is not None

    def _packing(self, node: Node) -> Packing | None:
        """The packing for a weight's gradient. Its cotangent is copied unless it has channels last
        by now."""
        g = node.operands[0]
        apart = node.op is ops.conv_weight_grad and g not in self.last
        copied = math.prod(g.shape) * g.dtype.itemsize if apart else 0
        return _packing(node, self.target, copied)

    def _moved(self, node: Node) -> Node | None:
        """Movement that leaves the batch and the channels where they are."""
        x, *rest = node.operands
        z, attrs, rank = self.last[x], node.attrs, x.rank

        def places(each: Sequence[int]) -> tuple[int, ...]:
            return (each[0], *each[2:], each[1])

        if node.op is ops.reshape_op and node.rank > 1 and node.shape[:2] == x.shape[:2]:
            return ops.reshape(z, places(node.shape))
        if node.op is ops.permute_op and attrs[0][:2] == (0, 1):
            return ops.permute(z, (0, *(_place(a, rank) for a in attrs[0][2:]), rank - 1))
        if node.op is ops.windows_op and 1 not in attrs[0]:
            axes = tuple(_place(a, rank) for a in attrs[0])
            turned = intern(node.op, (z,), (axes, *attrs[1:]), loc=node.loc)
            inner = range(rank, turned.rank)
            return ops.permute(turned, (*range(rank - 1), *inner, rank - 1))
        if node.op in (ops.slice_op, ops.pad_op, ops.expand_op) and node.rank == rank:
            others = (self.plain[o] for o in rest)
            return intern(node.op, (z, *others), tuple(map(places, attrs)), loc=node.loc)
        return None

    def _aligned(self, operand: Node, rank: int) -> Node:
        """An operand that broadcasts against channels that come last."""
        if operand.rank in (0, rank):
            return self.of(operand) if operand.rank else self.plain[operand]
        x = self.plain[operand]
        return last(ops.reshape(x, (*(1,) * (rank - x.rank), *x.shape)))

    def _weight_grad(self, node: Node) -> Node:
        """The gradient of a weight; the batch is cut in parts that keep the machine busy."""
        g, x = node.operands
        kernel, *convolved = node.attrs
        outputs, groups = node.shape[0], node.attrs[-1]
        g = filled(self.of(g)) if groups == 1 else self.of(g)
        columns = math.prod(node.shape[1:])
        packed = self._packing(node)
        if packed is not None:
            image, attrs = packed.image(self.of(x)), (packed.kernel, *packed.attrs)
            columns = math.prod(packed.kernel) * packed.channels
        else:
            image, convolution = self._read(x, kernel, tuple(convolved))
            attrs = (kernel, *convolution)
        sizes = groups, outputs // groups, columns
        inner = math.prod(g.shape[:-1])
        parts = SplitProducts(self.target).parts(node, sizes, inner, g.shape[0])
        products = intern(conv_weight_grad_last, (g, image), (*attrs, parts), loc=node.loc)
        total = total_of_parts(products, 0, products.shape[1:], node.dtype)
        total = ops.slice_axis(total, 0, 0, outputs)
        return first(total if packed is None else packed.unpacked(total))


def _place(axis: int, rank: int) -> int:
    """The place in [n, *in, c] of an axis of [n, c, *in]."""
    if axis == 1:
        return rank - 1
    return axis - 1 if axis > 1 else axis
