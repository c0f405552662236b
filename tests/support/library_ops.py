"""Ops made of user kernels, for several test files."""

from __future__ import annotations

from typing import Any

import library_kernels as kernels
import triton

import tilewright as tw
from tilewright.library import triton_op, wrap_triton

BLOCK = 16


def blocks(n: int) -> tuple[int]:
    return (triton.cdiv(n, BLOCK),)


@triton_op("tests::add", mutates_args={})
def add(x: tw.Tensor, y: tw.Tensor) -> tw.Tensor:
    out = tw.empty_like(x)
    n = out.numel()
    wrap_triton(kernels.add_kernel)[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](
        x, y, out, n, BLOCK=BLOCK
    )
    return out


@triton_op("tests::scale", mutates_args=())
def scale(x: tw.Tensor, factor: float) -> tw.Tensor:
    out = tw.empty_like(x)
    wrap_triton(kernels.scale_kernel)[blocks(x.numel())](x, out, factor, x.numel())
    return out


def _save_factor(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.factor = inputs[1]


add.register_autograd(lambda ctx, g: (g, g))
scale.register_autograd(lambda ctx, g: (scale(g, ctx.factor), None), setup_context=_save_factor)
