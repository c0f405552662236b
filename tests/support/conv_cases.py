"""Convolutions in half precision: cases, their graphs with gradients, values by definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.codegen.kernel import Kernel
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.shape import Size


@dataclass(frozen=True)
class Case:
    """Shapes of the image and of the kernel, and what a convolution takes beside."""

    name: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: int = 1
    padding: tuple[int, int] = (0, 0)
    dilation: int = 1
    groups: int = 1

    @property
    def attrs(self) -> tuple[Any, ...]:
        dims = len(self.x) - 2
        return (self.stride,) * dims, (self.padding,) * dims, (self.dilation,) * dims, self.groups


def leaves(*shapes: tuple[int, ...]) -> dict[Node, Any]:
    rng = np.random.default_rng(sum(map(sum, shapes)))
    return {
        ops.leaf(i, Size(s), dt.bfloat16): rng.standard_normal(s).astype(dt.bfloat16.np)
        for i, s in enumerate(shapes)
    }


def three(each: Case) -> tuple[list[Node], dict[Node, Any]]:
    """A convolution with its two gradients, and the values of its leaves."""
    shape = ops.conv(*leaves(each.x, each.w), *each.attrs).shape
    values = leaves(each.x, each.w, tuple(shape))
    x, w, g = values
    inputs = [ops.variable(n, i) for i, n in enumerate((x, w))]
    y = ops.conv(*inputs, *each.attrs)
    found = pullback({y: g}, inputs, create_graph=True)
    return [y, *(found[n] for n in inputs)], values


def expected(each: Case, values: dict[Node, Any]) -> list[np.ndarray]:
    x, w, g = (v.astype(np.float32) for v in values.values())
    spatial, kernel = each.x[2:], each.w[2:]
    return [
        ops.conv.numpy(x, w, *each.attrs),  # type: ignore[operator]
        ops.conv_input_grad.numpy(g, w, spatial, *each.attrs),  # type: ignore[operator]
        ops.conv_weight_grad.numpy(g, x, kernel, *each.attrs),  # type: ignore[operator]
    ]


def kinds(program: Any) -> set[str]:
    kernels = (step.kernel for step in program.steps if isinstance(step.kernel, Kernel))
    return {name for kernel in kernels for name, *_ in kernel.notes}
