"""Forms of convolutions and their gradients: products of matrices over windows.

Windows are written to memory, or added from there, for a block of the output at a time: some
places of a sample, or several samples. A native piece of code moves them, for any sizes
(codegen/llvm/windows.py).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.codegen.llvm import windows as moving
from tilewright.ir import ops
from tilewright.ir.dtype import DType, float32, float64
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.shape import Ints, Pairs

from . import linking, products

Form = Callable[..., Any]

_BLOCK = 1 << 21
"""Elements of the windows of a block. Smaller ones are no faster on an idle machine, and on a busy
one BLAS's threads wait for each other at the end of each product."""

_LEAST, _MOST = 128, 2048
"""Places of a block: products of fewer columns are slow, and so are those of many more."""

_LANES = 16
"""What a part of the places of a sample is a multiple of, except the last one."""


def has_form(node: Node) -> bool:
    """Whether a convolution or a gradient of one has a form; else the reference computes it."""
    x, y = node.operands
    plain = node.dtype in (float32, float64) and x.dtype is node.dtype and y.dtype is node.dtype
    if (
        not plain
        or x.rank > 2 + moving.DIMENSIONS
        or 0 in (*x.shape[1:], *y.shape[1:], *node.shape[1:])
    ):
        return False
    return node.op in _FORMS and _code(node.dtype, False) is not None


def form_of(node: Node) -> Form:
    """The form of a node that has one."""
    return _by_samples(node) or _FORMS[node.op](node)


def _by_samples(node: Node) -> Form | None:
    """The form where each window is a single place: products over the samples as they are. None for
    other windows, and for samples of few places."""
    a, b = node.operands
    stride, padding, _, groups = node.attrs[-4:]
    weights = node if node.op is ops.conv_weight_grad else b
    n, places = a.shape[0], math.prod(a.shape[2:])
    plain = set(weights.shape[2:]) | set(stride) <= {1} and not any(map(any, padding))
    if not plain or places < _LEAST or not n:
        return None
    shape, inputs, outputs = tuple(node.shape), weights.shape[1], weights.shape[0] // groups
    matrices, ins, outs = (
        (groups, outputs, inputs),
        (n, groups, inputs, places),
        (n, groups, outputs, places),
    )
    if node.op is ops.conv:
        return lambda x, w: products.matmul(w.reshape(matrices), x.reshape(ins)).reshape(shape)
    if node.op is ops.conv_input_grad:
        return lambda g, w: products.matmul(
            w.reshape(matrices).swapaxes(1, 2), g.reshape(outs)
        ).reshape(shape)

    def weight_grad(g: Any, x: Any) -> Any:
        parts = products.matmul(g.reshape(outs), x.reshape(ins).swapaxes(2, 3))
        return np.add.reduce(parts, 0).reshape(shape)

    return weight_grad


def all_code() -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every piece of code, for the pack."""
    for dtype in (float32, float64):
        for adds in (False, True):
            yield _name(dtype, adds), moving.text(dtype, adds)


def _name(dtype: DType, adds: bool) -> str:
    return f"windows {'added' if adds else 'copied'} {dtype.name}"


@functools.cache
def _code(dtype: DType, adds: bool) -> Any:
    return linking.linked(_name(dtype, adds), lambda: moving.text(dtype, adds))


class _Windows:
    """The windows of images x[n, c, *size] at all places of an output g[n, o, *out].

    A block of them has the shape [c, *kernel, samples, *places]. rows: the elements of a window in
    a group of channels.
    """

    def __init__(
        self, x: Ints, kernel: Ints, out: Ints, dtype: DType,
        stride: Ints, padding: Pairs, dilation: Ints, groups: int,
    ):  # fmt: skip
        self.samples, self.channels, *size = x
        self.dtype, self.groups = dtype, groups
        self.rows = self.channels // groups * math.prod(kernel)
        self.places = math.prod(out)
        self.fitting = min(max(_BLOCK // (self.rows * groups), _LEAST), _MOST)
        before = [low for low, _ in padding]
        self._words = [0, 0, 0, 0, 0, 0, self.channels]
        for values in (size, kernel, out, stride, before, dilation):
            missing = moving.DIMENSIONS - len(values)
            self._words += [int(values is not before)] * missing + list(values)

    def mover(self, adds: bool) -> Callable[..., None]:
        """(windows, image, *block) -> None: copies windows, or adds them to the image. block: the
        first sample, the number of samples, the first place, the number of places."""
        from ..native.calls import bound

        code = _code(self.dtype, adds)
        buffers, numbers = np.arange(2), [[i, 2 + i, 2] for i in range(4)]
        move = bound(
            code, np.array(self._words), buffers, np.array(numbers).ravel(), self.channels, False
        )
        return lambda windows, image, *block: move((windows, image), block)

    def blocks(self) -> Iterator[tuple[Any, tuple[int, int, int, int]]]:
        """(index, block) of each block of the output, which is [n, groups, o / groups, places]."""
        together = max(self.fitting // self.places, 1)
        together = -(-self.samples // -(-self.samples // together)) if self.samples else 1
        parts = -(-self.places // self.fitting)
        step = -(-self.places // (parts * _LANES)) * _LANES
        for i in range(0, self.samples, together):
            n = min(together, self.samples - i)
            samples = i if n == 1 else slice(i, i + n)
            for j in range(0, self.places, step):
                count = min(step, self.places - j)
                yield (samples, ..., slice(j, j + count)), (i, n, j, count)

    def memory(self) -> Callable[[Ints], Any]:
        """block -> memory for its windows, as matrices [groups, rows, places]; the same for all."""
        most = max((n * count for _, (_, n, _, count) in self.blocks()), default=0)
        room = np.empty(self.groups * self.rows * most, self.dtype.np)

        def of(block: Ints) -> Any:
            shape = (self.groups, self.rows, block[1] * block[3])
            return room[: math.prod(shape)].reshape(shape)

        return of

    def by_groups(self, g: Any) -> Any:
        """The output as [n, groups, o / groups, places]."""
        return g.reshape(self.samples, self.groups, g.shape[1] // self.groups, self.places)


def _columns(part: Any) -> Any:
    """A block of the output, [..., places] or [n, ..., places], as matrices of columns."""
    if part.ndim == 3:
        return part
    n, groups, rows, places = part.shape
    return part.transpose(1, 2, 0, 3).reshape(groups, rows, n * places)


def _conv(node: Node) -> Form:
    x, w = node.operands
    shape, np_dtype = tuple(node.shape), node.dtype.np
    windows = _Windows(x.shape, w.shape[2:], shape[2:], node.dtype, *node.attrs)
    copy, blocks = windows.mover(False), list(windows.blocks())

    def conv(x: Any, w: Any) -> Any:
        x, weights = np.ascontiguousarray(x), w.reshape(windows.groups, -1, windows.rows)
        memory = windows.memory()
        out = np.empty(shape, np_dtype)
        whole = windows.by_groups(out)
        for where, block in blocks:
            seen = memory(block)
            copy(seen, x, *block)
            place = whole[where]
            if place.ndim == 3:
                products.matmul(weights, seen, place)
            else:
                n, groups, rows, places = place.shape
                found = products.matmul(weights, seen).reshape(groups, rows, n, places)
                place[...] = found.transpose(2, 0, 1, 3)
        return out

    return conv


def _input_grad(node: Node) -> Form:
    g, w = node.operands
    attrs = node.attrs[1:]
    shape, np_dtype = tuple(node.shape), node.dtype.np
    windows = _Windows(shape, w.shape[2:], g.shape[2:], node.dtype, *attrs)
    add, blocks = windows.mover(True), list(windows.blocks())
    # BLAS is slow at products of a column by a row.
    product = np.multiply if g.shape[1] == windows.groups else products.matmul

    def input_grad(g: Any, w: Any) -> Any:
        weights = w.reshape(windows.groups, -1, windows.rows).swapaxes(1, 2)
        weights = np.ascontiguousarray(weights)
        whole, out = windows.by_groups(g), np.zeros(shape, np_dtype)
        for where, block in blocks:
            found = product(weights, _columns(whole[where]))
            add(np.ascontiguousarray(found), out, *block)
        return out

    return input_grad


def _weight_grad(node: Node) -> Form:
    g, x = node.operands
    kernel, *attrs = node.attrs
    shape, np_dtype = tuple(node.shape), node.dtype.np
    windows = _Windows(x.shape, kernel, g.shape[2:], node.dtype, *attrs)
    copy, blocks = windows.mover(False), list(windows.blocks())

    def weight_grad(g: Any, x: Any) -> Any:
        x, whole, total = np.ascontiguousarray(x), windows.by_groups(g), None
        memory = windows.memory()
        for where, block in blocks:
            seen = memory(block)
            copy(seen, x, *block)
            found = products.matmul(_columns(whole[where]), seen.swapaxes(1, 2))
            total = found if total is None else np.add(total, found, total)
        if total is None:
            return np.zeros(shape, np_dtype)
        return total.reshape(shape)

    return weight_grad


_FORMS: dict[Op, Callable[[Node], Form]] = {
    ops.conv: _conv,
    ops.conv_input_grad: _input_grad,
    ops.conv_weight_grad: _weight_grad,
}
