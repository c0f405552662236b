"""Forms of convolutions in which each channel has its own kernel, and of their gradients.

A single channel has, too. Products of matrices over windows would be products of single rows. A
native loop over padded images
(codegen/llvm/depthwise.py) takes their place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.codegen.llvm import depthwise
from tilewright.ir import ops
from tilewright.ir.dtype import DType, float32, float64
from tilewright.ir.node import Node
from tilewright.ir.shape import Ints

from . import linking

Form = Callable[..., Any]


def form_of(node: Node) -> Form | None:
    """The form of a convolution or a gradient of one; None for others."""
    a, b = node.operands
    if node.op is ops.conv:
        x, w, g = a.shape, b.shape, node.shape
    elif node.op is ops.conv_input_grad:
        x, w, g = node.shape, b.shape, a.shape
    else:
        x, w, g = b.shape, node.shape, a.shape
    stride, padding, dilation, groups = node.attrs[-4:]
    if not (groups == x[1] == g[1] and w[1] == 1 and 3 <= len(x) <= 4):
        return None
    of_weights = node.op is ops.conv_weight_grad
    if 0 in (*x, *g, *w) or _code(node.dtype, of_weights) is None:
        return None
    low = [before for before, _ in padding]
    reach = [(k - 1) * d for k, d in zip(w[2:], dilation)]
    np_dtype = node.dtype.np
    if node.op is ops.conv_input_grad:
        # The convolution of the cotangent, with zeros between its elements, by the turned kernel.
        ones = (1,) * len(reach)
        before = [r - p for r, p in zip(reach, low)]
        ends = [b + (n - 1) * s + 1 for b, n, s in zip(before, g[2:], stride)]
        size = tuple([n + r for n, r in zip(x[2:], reach)])
        if min(before) < 0 or any(end > n for end, n in zip(ends, size)):
            return None
        run = _runner(node.dtype, False, x[:2], size, w[2:], x[2:], ones, dilation)
        spread = _padded(g, size, before, stride, np_dtype)
        turned: Any = (slice(None), slice(None), *[slice(None, None, -1)] * len(reach))

        def input_grad(g: Any, w: Any) -> Any:
            out = np.empty(tuple(x), np_dtype)
            run((out, spread(g), np.ascontiguousarray(w[turned])))
            return out

        return input_grad
    size = tuple(
        [max((n - 1) * s + r + 1, p + m) for n, s, r, p, m in zip(g[2:], stride, reach, low, x[2:])]
    )
    run = _runner(node.dtype, of_weights, x[:2], size, w[2:], g[2:], stride, dilation)
    pad = _padded(x, size, low, (1,) * len(reach), np_dtype)
    if of_weights:

        def weight_grad(g: Any, x: Any) -> Any:
            total = np.zeros(tuple(w), np.float64)
            run((np.ascontiguousarray(g), pad(x), total))
            return total.astype(np_dtype, copy=False)

        return weight_grad

    def conv(x: Any, w: Any) -> Any:
        out = np.empty(tuple(g), np_dtype)
        run((out, pad(x), np.ascontiguousarray(w)))
        return out

    return conv


def _padded(
    shape: Ints, size: Ints, before: Sequence[int], step: Sequence[int], np_dtype: Any
) -> Form:
    """The function that writes images into zeros of `size`: from `before` on, in steps."""
    whole = (*shape[:2], *size)
    every = (slice(None), slice(None))
    place: Any = tuple(
        [slice(b, b + (n - 1) * s + 1, s) for b, n, s in zip(before, shape[2:], step)]
    )
    place = (*every, *place)
    if tuple(size) == tuple(shape[2:]):
        return np.ascontiguousarray

    def padded(x: Any) -> Any:
        out = np.zeros(whole, np_dtype)
        out[place] = x
        return out

    return padded


def _runner(
    dtype: DType, of_weights: bool, planes: Ints, *pairs: Sequence[int]
) -> Callable[[Sequence[Any]], None]:
    """The native function of (out, image, w) for these sizes. A line is a plane of one row."""
    samples, channels = planes
    missing = 2 - len(pairs[0])
    numbers = [samples, channels]
    for values in pairs:
        numbers += [1] * missing + list(values)
    move = linking.function(_code(dtype, of_weights), depthwise.WORDS, 3, channels)
    return lambda arrays: move(arrays, numbers)


@functools.cache
def _code(dtype: DType, of_weights: bool) -> Any:
    if dtype not in (float32, float64):
        return None
    return linking.linked(_name(dtype, of_weights), lambda: depthwise.text(dtype, of_weights))


def _name(dtype: DType, of_weights: bool) -> str:
    return f"depthwise {'weights' if of_weights else 'outputs'} {dtype.name}"


def all_code() -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every piece of code, for the pack."""
    for dtype in (float32, float64):
        for of_weights in (False, True):
            yield _name(dtype, of_weights), depthwise.text(dtype, of_weights)
