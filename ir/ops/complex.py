"""Complex numbers and their parts, elementwise.

These functions aren't holomorphic. Their VJPs follow the convention of `ir/passes/autodiff.py`: the
cotangent g of a complex z = x + iy is dL/dx - i dL/dy.
"""

from __future__ import annotations

from typing import Any

from ..dtype import COMPLEX, complex_of, float16, float32, float64, real_of
from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op
from ..shape import broadcast
from .unary import zeros_like


def require_complex(name: str, x: Node) -> None:
    """RuntimeError unless `x` is complex."""
    if x.dtype.category != COMPLEX:
        raise RuntimeError(
            f"{name}: expected a complex tensor, got one of {x.dtype}{at_user_line()}"
        )


def _part(name: str, numpy: str, vjp: Any) -> Op:
    def infer(x: Node) -> Aval:
        require_complex(name, x)
        return x.shape, real_of(x.dtype)

    return Op(
        name,
        Kind.ELEMENTWISE,
        infer,
        vjp=lambda g, out, x: (vjp(g),),
        numpy=numpy,
        error=0,
        complex=True,
        complex_half=True,
    )


real = _part("real", "special.real({0})", lambda g: make(g, zeros_like(g)))
imag = _part("imag", "special.imag({0})", lambda g: make(zeros_like(g), -g))


def _make_infer(x: Node, y: Node) -> Aval:
    if x.dtype is not y.dtype or x.dtype not in (float16, float32, float64):
        raise RuntimeError(
            f"complex: expected two tensors of float16, float32 or float64, got {x.dtype} and "
            f"{y.dtype}{at_user_line()}"
        )
    return broadcast(x.shape, y.shape), complex_of(x.dtype)


make = Op(
    "complex",
    Kind.ELEMENTWISE,
    _make_infer,
    vjp=lambda g, out, x, y: (lambda: real(g), lambda: -imag(g)),
    numpy="special.make_complex({0}, {1})",
    error=0,
)
"""x + iy, from real tensors."""


def _conj_infer(x: Node) -> Aval:
    require_complex("conj", x)
    return x.shape, x.dtype


conj_op = Op(
    "conj",
    Kind.ELEMENTWISE,
    _conj_infer,
    vjp=lambda g, out, x: (conj(g),),
    numpy="np.conj({0})",
    error=0,
    complex=True,
    complex_half=True,
)


def conj(x: Node) -> Node:
    """x - iy for x + iy. A real tensor is its own conjugate."""
    if x.dtype.category != COMPLEX:
        return x
    return x.operands[0] if x.op is conj_op else conj_op(x)
