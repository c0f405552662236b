"""The forms of losses of classes x[n, c], and of their gradients, without weights of classes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.codegen.llvm import losses
from tilewright.ir import ops
from tilewright.ir.dtype import DType, float32, float64, int64
from tilewright.ir.node import Node
from tilewright.ir.numeric.positions import are_inside

from . import linking
from .forms import Form, elementwise
from .quiet import bare

_CODE = {losses.LOSS: losses.loss, losses.GRADIENT: losses.gradient}


def likelihood(node: Node) -> Form | None:
    """The form of the negative log-likelihood of rows, as a sum or mean; None for others."""
    x, *others = node.operands
    ignored, reduction = node.attrs
    if x.rank != 2 or len(others) != 1 or reduction == "none":
        return None
    return _picked_native(x.dtype, ignored, reduction)


def _picked_native(dtype: DType, ignored: int, reduction: str) -> Form | None:
    run, np_dtype, is_mean = _native(losses.LOSS, dtype), dtype.np, int(reduction == "mean")
    if run is None:
        return None

    def loss(x: Any, target: Any) -> Any:
        if not (x.flags.c_contiguous and target.flags.c_contiguous):
            x, target = (np.ascontiguousarray(each) for each in (x, target))
        out = np.empty((), np_dtype)
        if run((out, x, target), (*x.shape, ignored, is_mean)) is not None:
            raise IndexError(_NO_CLASS)
        return out

    return bare(loss)


_NO_CLASS = "a target is no class"


# ---- cross entropy ---------------------------------------------------------------------------


Parts = tuple[list[tuple[Any, tuple[int, ...], Form]], Form]
"""See `composites.Parts`. A loss and its gradient share the logarithms of the probabilities."""


def cross_entropy(node: Node, log_softmax: Form) -> Parts | None:
    """The parts of the loss of scores, whose classes aren't smoothed; None for others."""
    if not _is_plain(node, 0):
        return None
    ignored, _, reduction = node.attrs
    native = None if reduction == "none" else _picked_native(node.dtype, ignored, reduction)
    logs = (_LOGS, (0,), lambda x, _: log_softmax(x))
    if native is not None:
        run = native
        return [logs], lambda _, target, found: run(found, target)

    def last(_: Any, target: Any, found: Any) -> Any:
        counts, rows, at = _picked(found, target, ignored)
        loss = -found[rows, at]
        if counts is not None:
            loss = np.where(counts, loss, found.dtype.type(0))
        if reduction == "none":
            return loss
        total = np.add.reduce(loss)
        return total if reduction == "sum" else total / _number_of(counts, loss)

    return [logs], last


def cross_entropy_grad(node: Node, log_softmax: Form) -> Parts | None:
    """The same of its gradient for the scores."""
    if not _is_plain(node, 1):
        return None
    dtype, (ignored, _, reduction) = node.dtype, node.attrs
    native, is_mean = _native(losses.GRADIENT, dtype), reduction == "mean"
    logs = (_LOGS, (1,), lambda g, x, _: log_softmax(x))
    if native is not None:
        run, np_dtype = native, dtype.np

        def filled(g: Any, _: Any, target: Any, found: Any) -> Any:
            g, target = (np.asarray(each, order="C") for each in (g, target))
            out, numbers = np.empty(found.shape, np_dtype), (*found.shape, ignored, is_mean, g.ndim)
            if run((out, found, target, g), numbers) is not None:
                raise IndexError(_NO_CLASS)
            return out

        return [logs], filled

    exp = elementwise(ops.exp, (dtype,), dtype)

    def last(g: Any, _: Any, target: Any, found: Any) -> Any:
        counts, rows, at = _picked(found, target, ignored)
        out = exp(found)
        out[rows, at] -= 1
        if is_mean:
            g = g / _number_of(counts, out)
        if counts is not None:
            g = np.where(counts, g, out.dtype.type(0))
        out *= g[:, None] if g.ndim else g
        return out

    return [logs], last


_LOGS = "log of the probabilities"


def _is_plain(node: Node, at: int) -> bool:
    """Whether operand number `at` is scores [n, c], and the last one their classes."""
    x, (_, smoothing, _) = node.operands[at], node.attrs
    is_plain = x.rank == 2 and node.operands[-1].dtype is int64 and not smoothing
    return is_plain and x.dtype is node.dtype


def _picked(x: Any, target: Any, ignored: int) -> tuple[Any, Any, Any]:
    """(which rows of x[n, c] count, or None for all; rows; the class of each, or 0)."""
    count, classes = x.shape
    counts = None
    if 0 <= ignored < classes or not are_inside(target, classes):
        counts = target != ignored
        target = np.where(counts, target, 0)
        if not are_inside(target, classes):
            raise IndexError(_NO_CLASS)
    return counts, np.arange(count), target


def _number_of(counts: Any, rows: Any) -> Any:
    """How many rows count, in their dtype."""
    return rows.dtype.type(len(rows) if counts is None else np.add.reduce(counts))


# ---- code ------------------------------------------------------------------------------------


def all_code() -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every piece of code, for the pack."""
    for words, text in _CODE.items():
        for dtype in (float32, float64):
            yield _name(words, dtype), text(dtype)


def _name(words: tuple[str, ...], dtype: DType) -> str:
    what = "loss" if words == losses.LOSS else "gradient of the loss"
    return f"{what} of rows {dtype.name}"


@functools.cache
def _native(words: tuple[str, ...], dtype: DType) -> Callable[..., Any] | None:
    if dtype not in (float32, float64):
        return None
    code = linking.linked(_name(words, dtype), lambda: _CODE[words](dtype))
    return None if code is None else linking.function(code, words, losses.BUFFERS[words], errors=1)
