"""Parts of a training step's graph: leaves, gradients, an update by Adam."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import ops
from tilewright.ir.dtype import float64
from tilewright.ir.node import Node
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.shape import Size


def leaf(index: int, *shape: int, dtype=float64) -> Node:
    return ops.leaf(index, Size(shape), dtype)


def parameter(index: int, *shape: int, dtype=float64) -> Node:
    return ops.variable(leaf(index, *shape, dtype=dtype), index)


def gradients(loss: Node, inputs: Sequence[Node], seed: Node | None = None) -> list[Node]:
    found = pullback({loss: ops.full_like(loss, 1) if seed is None else seed}, inputs)
    return [found[i] for i in inputs]


def adam(parameters: Sequence[Node], grads: Sequence[Node], index: int) -> list[Node]:
    lr, step = ops.scalar(100, float64), ops.scalar(101, float64)
    correction = [1 - ops.pow(ops.constant(beta, float64), step) for beta in (0.9, 0.999)]
    out = []
    for p, g in zip(parameters, grads, strict=True):
        m = leaf(index, *p.shape) * 0.9 + g * 0.1
        v = leaf(index + 1, *p.shape) * 0.999 + g * g * 0.001
        index += 2
        denominator = ops.sqrt(v / correction[1]) + 1e-8
        out += [p - lr * (m / correction[0]) / denominator, m, v]
    return out
