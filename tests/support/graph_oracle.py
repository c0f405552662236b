"""Graphs over NumPy inputs: evaluated node by node, and differentiated."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops, reference
from tilewright.ir.node import Node, reachable
from tilewright.ir.op import Kind
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size


@dataclass(frozen=True, eq=False)
class Case:
    """f(*nodes) on `inputs`. The float64 inputs are differentiated. `torch(t, *tensors)` is the
    same in PyTorch, with t as the module."""

    name: str
    f: Callable[..., Node]
    torch: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]

    def leaves(self, dtype: Any = None) -> dict[Node, np.ndarray]:
        """The input nodes -> their values, with floats in `dtype`."""
        out = {}
        for i, value in enumerate(self.inputs):
            array = value.astype(dtype) if dtype and value.dtype.kind == "f" else value
            node = ops.leaf(i, Size(array.shape), dtypes.from_numpy(array.dtype))
            out[ops.variable(node, i) if array.dtype.kind in "fV" else node] = array
        return out


def run(roots: Sequence[Node], values: Mapping[Node, np.ndarray]) -> list[np.ndarray]:
    """The roots, lowered and evaluated node by node."""
    roots = lower_graph(roots, check=True)
    known = {node.operands[0] if node.op is ops.variable else node: v for node, v in values.items()}
    with np.errstate(all="ignore"):
        for node in reachable(roots):
            if node.op.kind is Kind.CONSTANT:
                known[node] = np.asarray(ops.constant_value(node))
            elif node not in known:
                known[node] = reference.evaluate(node, [known[o] for o in node.operands])
    return [known[r] for r in roots]


def inner(a: Node, b: Node) -> Node:
    return ops.reshape(ops.sum(a * b, tuple(range(a.rank))), ())


def random_like(name: str, shape: Sequence[int]) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(name.encode())).normal(size=shape)


def gradients(y: Node, inputs: Sequence[Node]) -> list[Node]:
    """Cotangents of `inputs` for a scalar y, zeros where none arrives."""
    found = pullback({y: ops.constant(1.0, y.dtype)}, inputs, create_graph=True)
    return [found.get(x, ops.zeros_like(x)) for x in inputs]


def assert_close(actual: Any, expected: Any, tolerance: float) -> None:
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)
