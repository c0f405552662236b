"""Evaluation of single nodes with NumPy: the reference by which every emitter is judged."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .dtype import FLOAT8, accumulator, complex32
from .node import Node, grad_mode
from .numeric import special
from .op import Kind, Op
from .ops.generate import constant_value
from .ops.unary import bitcast
from .rewrite import above

_HELD_ONLY = (*FLOAT8, complex32)


@functools.cache
def elementwise_function(op: Op, arity: int) -> Callable[..., Any]:
    """The NumPy template of an elementwise op, compiled: f(*arrays, np_dtype)."""
    assert isinstance(op.numpy, str), f"{op.name} has no NumPy template"
    names = [f"x{i}" for i in range(arity)]
    source = f"lambda {', '.join(names)}, np_dtype: {op.numpy.format(*names)}"
    scope = {"np": np, "special": special, "__name__": __name__}  # those who watch calls know it
    function: Callable[..., Any] = eval(source, scope)
    return function


def evaluate(node: Node, operands: Sequence[Any]) -> Any:
    """The value of `node`, an array of its dtype, given those of its operands."""
    op = node.op
    if op.kind is Kind.ELEMENTWISE:
        if op is not bitcast:  # what NumPy can't compute with is held exactly by a wider dtype
            operands = [
                special.cast(x, accumulator(o.dtype).np) if o.dtype in _HELD_ONLY else x
                for x, o in zip(operands, node.operands, strict=True)
            ]
        result = elementwise_function(op, len(operands))(*operands, node.dtype.np)
    elif op.decompose is not None:
        result = _decomposed(node, operands)
    elif op.kind is Kind.CONSTANT:
        result = constant_value(node)
    else:
        assert callable(op.numpy), f"{op.name} can't be evaluated"
        result = op.numpy(*operands, *node.attrs)
    result = np.asarray(result)
    return result if result.dtype == node.dtype.np else special.cast(result, node.dtype.np)


def _decomposed(node: Node, operands: Sequence[Any]) -> Any:
    """The value of the primitives that `node` decomposes into."""
    assert node.op.decompose is not None
    with grad_mode(False):
        inner = node.op.decompose(*node.operands, *node.attrs)
    known = dict(zip(node.operands, operands, strict=True))
    with np.errstate(all="ignore"):
        for each in above([inner], known):
            known[each] = evaluate(each, [known[o] for o in each.operands])
    return known[inner]
