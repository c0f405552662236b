"""The form of the negative log-likelihood of rows, by native code: an element of each row."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.codegen.llvm import losses
from tilewright.ir.dtype import DType, float32, float64
from tilewright.ir.node import Node

from . import maps


def likelihood(node: Node) -> Callable[..., Any] | None:
    """The form of a sum or mean over rows[n, c], without weights of classes; None for others."""
    x, *others = node.operands
    ignored, reduction = node.attrs
    if x.rank != 2 or len(others) != 1 or reduction == "none":
        return None
    run, is_mean, kind = _native(x.dtype), reduction == "mean", node.dtype.np.type
    if run is None:
        return None

    def likelihood(x: Any, target: Any) -> Any:
        x, target = np.asarray(x, order="C"), np.asarray(target, order="C")
        out, flag = np.empty(2), np.empty(1, np.int64)
        run((out, x, target, flag), (*x.shape, ignored))
        if flag[0]:
            raise IndexError("a target is no class")
        total, count = out
        return kind(total / count if is_mean else total)

    return likelihood


def all_code() -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every piece of code, for the pack."""
    for dtype in (float32, float64):
        yield _name(dtype), losses.text(dtype)


def _name(dtype: DType) -> str:
    return f"elements of rows summed {dtype.name}"


@functools.cache
def _native(dtype: DType) -> Callable[..., Any] | None:
    if dtype not in (float32, float64):
        return None
    code = maps.linked(_name(dtype), lambda: losses.text(dtype))
    return None if code is None else maps.function(code, losses.WORDS, len(losses.BUFFERS))
