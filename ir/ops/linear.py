"""Affine maps: the layer `linear`, and PyTorch's products with an addend.

Matmuls read half types as they are and sum in float32. Addends are added in float32 too, so the
whole is rounded once.
"""

from __future__ import annotations

import math

from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op
from ..shape import Size
from .composite import as_dtype, widen
from .contraction import matmul, product
from .movement import reshape, sum_to, transpose, unsqueeze
from .reduce import sum


def _linear_infer(x: Node, weight: Node, *bias: Node) -> Aval:
    if weight.rank != 2 or x.rank == 0 or x.shape[-1] != weight.shape[1]:
        raise RuntimeError(
            f"linear: expected an input of shape (..., {weight.shape[-1] if weight.rank else '?'}) "
            f"for a weight of shape {tuple(weight.shape)} (out, in), got {tuple(x.shape)}"
            f"{at_user_line()}"
        )
    for other in (weight, *bias):
        if other.dtype is not x.dtype:
            raise RuntimeError(
                f"linear: expected operands of one dtype, got {x.dtype} and {other.dtype}"
                f"{at_user_line()}"
            )
    if bias and bias[0].shape not in ((), (1,), (weight.shape[0],)):
        raise RuntimeError(
            f"linear: expected a bias of shape ({weight.shape[0]},), got {tuple(bias[0].shape)}"
            f"{at_user_line()}"
        )
    return Size((*x.shape[:-1], weight.shape[0])), x.dtype


def _rows(x: Node) -> Node:
    """`x` as a matrix, so that the layer is one product, and the weight's gradient is one too."""
    return reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _linear(x: Node, weight: Node, *bias: Node) -> Node:
    if bias:
        y = as_dtype(product(_rows(x), transpose(weight)) + widen(bias[0]), x.dtype)
    else:
        y = matmul(_rows(x), transpose(weight))
    return reshape(y, (*x.shape[:-1], weight.shape[0]))


def _linear_vjp(g: Node, out: Node, x: Node, weight: Node, *bias: Node) -> tuple[Node | None, ...]:
    dx = linear_input_grad(g, weight) if x.requires_grad else None
    dw = linear_weight_grad(g, x) if weight.requires_grad else None
    return dx, dw, *[linear_bias_grad(g, b.shape) if b.requires_grad else None for b in bias]


linear_input_grad = Op(
    "linear_input_grad",
    Kind.COMPOSITE,
    lambda g, weight: (Size((*g.shape[:-1], weight.shape[1])), g.dtype),
    decompose=lambda g, weight: reshape(matmul(_rows(g), weight), (*g.shape[:-1], weight.shape[1])),
    complex=True,
    aten="mm",
)
"""linear_input_grad(g[..., out], weight[out, in]): the cotangent of the input, [..., in]."""

linear_weight_grad = Op(
    "linear_weight_grad",
    Kind.COMPOSITE,
    lambda g, x: (Size((g.shape[-1], x.shape[-1])), g.dtype),
    # In this order the result has the layout of the weight, ready for the optimizer.
    decompose=lambda g, x: matmul(transpose(_rows(g)), _rows(x)),
    complex=True,
    aten="mm",
)
"""linear_weight_grad(g[..., out], x[..., in]): the cotangent of the weight, [out, in]."""

linear_bias_grad = Op(
    "linear_bias_grad",
    Kind.COMPOSITE,
    lambda g, shape: (Size(shape), g.dtype),
    params=("shape",),
    decompose=lambda g, shape: sum_to(_rows(g), shape),
    complex=True,
    aten="sum",
)
"""linear_bias_grad(g[..., out], shape): the cotangent of a bias of shape (out,), (1,) or ()."""


linear = Op(
    "linear",
    Kind.COMPOSITE,
    _linear_infer,
    vjp=_linear_vjp,
    decompose=_linear,
    onnx="Gemm",
    complex=True,
)
"""linear(x[..., in], weight[out, in], bias[out]?): x @ weight^T + bias, of shape [..., out].
ONNX's Gemm (with transB = 1) where `x` is a matrix."""


def mv(a: Node, x: Node) -> Node:
    """a[m, k] @ x[k]."""
    return reshape(matmul(a, unsqueeze(x, 1)), (a.shape[0],))


def dot(x: Node, y: Node) -> Node:
    """The 0-d inner product of two vectors."""
    return reshape(matmul(unsqueeze(x, 0), unsqueeze(y, 1)), ())


def outer(x: Node, y: Node) -> Node:
    """x[m] and y[n] to x_i y_j of shape [m, n]."""
    return unsqueeze(x, 1) * unsqueeze(y, 0)


def _plus(addend: Node, summed: Node, beta: float, alpha: float) -> Node:
    """beta addend + alpha summed; with beta 0 the addend is ignored, even its NaN."""
    total = summed if alpha == 1 else summed * alpha
    if beta != 0:
        wide = widen(addend)
        total = (wide if beta == 1 else wide * beta) + total
    return as_dtype(total, addend.dtype)


def addmm(c: Node, a: Node, b: Node, beta: float = 1, alpha: float = 1) -> Node:
    """beta c + alpha (a[m, k] @ b[k, n])."""
    return _plus(c, product(a, b), beta, alpha)


def addmv(c: Node, a: Node, x: Node, beta: float = 1, alpha: float = 1) -> Node:
    """beta c + alpha (a[m, k] @ x[k])."""
    return _plus(c, reshape(product(a, unsqueeze(x, 1)), (a.shape[0],)), beta, alpha)


def addr(c: Node, x: Node, y: Node, beta: float = 1, alpha: float = 1) -> Node:
    """beta c + alpha x y^T for vectors x[m] and y[n]."""
    return _plus(c, outer(widen(x), widen(y)), beta, alpha)


def baddbmm(c: Node, a: Node, b: Node, beta: float = 1, alpha: float = 1) -> Node:
    """beta c + alpha (a[n, m, k] @ b[n, k, p])."""
    return _plus(c, product(a, b), beta, alpha)


def addbmm(c: Node, a: Node, b: Node, beta: float = 1, alpha: float = 1) -> Node:
    """beta c + alpha times the sum over the batch of a[n, m, k] @ b[n, k, p]."""
    total = sum(product(a, b), (0,))
    return _plus(c, reshape(total, total.shape[1:]), beta, alpha)


def bilinear(x: Node, y: Node, weight: Node, bias: Node | None = None) -> Node:
    """x[..., i] and y[..., j] to x^T weight[o, i, j] y + bias[o] of shape [..., o]."""
    out, left, right = weight.shape
    a, b = _rows(x), _rows(y)
    half = product(a, reshape(transpose(weight, 0, 1), (left, out * right)))
    terms = reshape(half, (a.shape[0], out, right)) * unsqueeze(widen(b), 1)
    z = reshape(sum(terms, (2,)), (*x.shape[:-1], out))
    return as_dtype(z if bias is None else z + widen(bias), x.dtype)
