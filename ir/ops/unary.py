"""Elementwise functions of one operand.

Each record is one block: its NumPy and Triton forms, its derivative, its ONNX operator, the domain
of its test inputs. In the templates `special` is `ir/numeric/special.py`, and Triton names that
begin with `tw_` are functions of the Triton emitter's prelude.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..dtype import BOOL, COMPLEX, FLOAT, DType, accumulator, bool_
from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op, not_implemented
from . import ternary
from .generate import constant


def _float_only(name: str) -> Callable[[Node], Aval]:
    def infer(x: Node) -> Aval:
        if x.dtype.category < FLOAT:
            raise not_implemented(name, x.dtype, "expected a floating point tensor")
        return x.shape, x.dtype

    return infer


def _numeric(name: str) -> Callable[[Node], Aval]:
    def infer(x: Node) -> Aval:
        if x.dtype.category == BOOL:
            raise not_implemented(name, x.dtype, "expected numbers, as x.int() gives")
        return x.shape, x.dtype

    return infer


def float_unary(name: str, numpy: str, triton: str, vjp: Any, **more: Any) -> Op:
    """A smooth function of a float; `vjp(g, out, x)` gives the one cotangent. With `complex` it is
    the derivative of a holomorphic function, too."""
    return Op(
        name,
        Kind.ELEMENTWISE,
        _float_only(name),
        vjp=lambda g, out, x: (vjp(g, out, x),),
        numpy=numpy,
        triton=triton,
        **{"llvm": name, "cost": 12, "error": 2, **more},
    )


def _steep(g: Node, out: Node) -> Node:
    """g / (2 out), and 0 where out is 0. The quotient is finite there, for second derivatives."""
    from .binary import eq

    is_zero = eq(out, zeros_like(out))
    slope = g / ternary.where(is_zero, full_like(out, 1), out * 2)
    return ternary.where(is_zero, zeros_like(g), slope)


def _step(name: str, numpy: str, triton: str, **more: Any) -> Op:
    """A piecewise constant function: its derivative is zero."""
    return Op(
        name,
        Kind.ELEMENTWISE,
        _numeric(name),
        vjp=lambda g, out, x: (zeros_like(x),),
        numpy=numpy,
        triton=triton,
        error=0,
        **more,
    )


def _predicate(name: str, numpy: str, triton: str, **more: Any) -> Op:
    return Op(
        name,
        Kind.ELEMENTWISE,
        lambda x: (x.shape, bool_),
        numpy=numpy,
        triton=triton,
        **more,
    )


def zeros_like(x: Node) -> Node:
    return full_like(x, 0)


def full_like(x: Node, value: Any) -> Node:
    from .movement import expand

    return expand(constant(value, x.dtype), x.shape)


neg = Op(
    "neg",
    Kind.ELEMENTWISE,
    _numeric("neg"),
    vjp=lambda g, out, x: (-g,),
    numpy="-{0}",
    triton="tw_neg({0})",
    onnx="Neg",
    error=0,
    complex=True,
    complex_half=True,
)
abs = Op(
    "abs",
    Kind.ELEMENTWISE,
    _numeric("abs"),
    vjp=lambda g, out, x: (g * sign(x),),
    numpy="np.abs({0})",
    triton="tl.abs({0})",
    onnx="Abs",
    error=0,
    float8=True,
)
sign = _step("sign", "special.sign({0})", "tw_sign({0})", onnx="Sign")
floor = _step("floor", "np.floor({0})", "tw_floor({0})", onnx="Floor")
ceil = _step("ceil", "np.ceil({0})", "tw_ceil({0})", onnx="Ceil")
round = _step("round", "np.rint({0})", "tw_rint({0})", onnx="Round")
trunc = _step("trunc", "np.trunc({0})", "tw_trunc({0})", onnx=None)

exp = float_unary(
    "exp", "np.exp({0})", "tl.exp({0})", lambda g, out, x: g * out, onnx="Exp", complex=True
)
exp2 = float_unary(
    "exp2", "np.exp2({0})", "tl.exp2({0})", lambda g, out, x: g * out * math.log(2), complex=True
)
expm1 = float_unary(
    "expm1", "np.expm1({0})", "tw_expm1({0})", lambda g, out, x: g * (out + 1), complex=True
)
log = float_unary(
    "log",
    "np.log({0})",
    "tl.log({0})",
    lambda g, out, x: g / x,
    onnx="Log",
    domain=(0.1, 4),
    complex=True,
)
log2 = float_unary(
    "log2",
    "np.log2({0})",
    "tl.log2({0})",
    lambda g, out, x: g / (x * math.log(2)),
    domain=(0.1, 4),
    complex=True,
)
log10 = float_unary(
    "log10",
    "np.log10({0})",
    "tw_log10({0})",
    lambda g, out, x: g / (x * math.log(10)),
    domain=(0.1, 4),
    complex=True,
)
log1p = float_unary(
    "log1p",
    "np.log1p({0})",
    "tw_log1p({0})",
    lambda g, out, x: g / (x + 1),
    domain=(-0.9, 4),
    complex=True,
)
sqrt = float_unary(
    "sqrt",
    "np.sqrt({0})",
    "tw_sqrt({0})",
    lambda g, out, x: g / (out * 2),
    onnx="Sqrt",
    domain=(0.1, 4),
    cost=4,
    error=0.5,
    complex=True,
)
root = float_unary(
    "root",
    "np.sqrt({0})",
    "tw_sqrt({0})",
    lambda g, out, x: _steep(g, out),
    onnx="Sqrt",
    domain=(0.1, 4),
    cost=4,
    error=0.5,
)
"""The square root of a sum of squares. It has no derivative at 0, and PyTorch takes 0 there."""
rsqrt = float_unary(
    "rsqrt",
    "special.rsqrt({0})",
    "tw_rsqrt({0})",
    lambda g, out, x: g * out * out * out * -0.5,
    domain=(0.1, 4),
    cost=5,
    complex=True,
)
reciprocal = float_unary(
    "reciprocal",
    "special.reciprocal({0})",
    "tw_reciprocal({0})",
    lambda g, out, x: -g * out * out,
    onnx="Reciprocal",
    domain=(0.3, 4),
    cost=4,
    error=0.5,
    complex=True,
)
sin = float_unary(
    "sin", "np.sin({0})", "tl.sin({0})", lambda g, out, x: g * cos(x), onnx="Sin", complex=True
)
cos = float_unary(
    "cos", "np.cos({0})", "tl.cos({0})", lambda g, out, x: -g * sin(x), onnx="Cos", complex=True
)
tan = float_unary(
    "tan",
    "np.tan({0})",
    "tw_tan({0})",
    lambda g, out, x: g * (out * out + 1),
    onnx="Tan",
    domain=(-1.2, 1.2),
    complex=True,
)
asin = float_unary(
    "asin",
    "np.arcsin({0})",
    "tw_asin({0})",
    lambda g, out, x: g * rsqrt(1 - x * x),
    onnx="Asin",
    domain=(-0.9, 0.9),
    complex=True,
)
acos = float_unary(
    "acos",
    "np.arccos({0})",
    "tw_acos({0})",
    lambda g, out, x: -g * rsqrt(1 - x * x),
    onnx="Acos",
    domain=(-0.9, 0.9),
    complex=True,
)
atan = float_unary(
    "atan",
    "np.arctan({0})",
    "tw_atan({0})",
    lambda g, out, x: g / (x * x + 1),
    onnx="Atan",
    complex=True,
)
sinh = float_unary(
    "sinh", "np.sinh({0})", "tw_sinh({0})", lambda g, out, x: g * cosh(x), onnx="Sinh", complex=True
)
cosh = float_unary(
    "cosh", "np.cosh({0})", "tw_cosh({0})", lambda g, out, x: g * sinh(x), onnx="Cosh", complex=True
)
tanh = float_unary(
    "tanh",
    "np.tanh({0})",
    "tw_tanh({0})",
    lambda g, out, x: g * (1 - out * out),
    onnx="Tanh",
    complex=True,
)
asinh = float_unary(
    "asinh",
    "np.arcsinh({0})",
    "tw_asinh({0})",
    lambda g, out, x: g * rsqrt(x * x + 1),
    onnx="Asinh",
    complex=True,
)


def _acosh_vjp(g: Node, out: Node, x: Node) -> Node:
    if x.dtype.category == COMPLEX:  # sqrt(xy) isn't sqrt(x) sqrt(y) there
        return g * rsqrt(x - 1) * rsqrt(x + 1)
    return g * rsqrt(x * x - 1)


acosh = float_unary(
    "acosh",
    "np.arccosh({0})",
    "tw_acosh({0})",
    _acosh_vjp,
    onnx="Acosh",
    domain=(1.2, 4),
    complex=True,
)
atanh = float_unary(
    "atanh",
    "np.arctanh({0})",
    "tw_atanh({0})",
    lambda g, out, x: g / (1 - x * x),
    onnx="Atanh",
    domain=(-0.9, 0.9),
    complex=True,
)
sigmoid = float_unary(
    "sigmoid",
    "special.sigmoid({0})",
    "tw_sigmoid({0})",
    lambda g, out, x: g * (out * (1 - out)),
    onnx="Sigmoid",
    complex=True,
)
erf = float_unary(
    "erf",
    "special.erf({0})",
    "tw_erf({0})",
    lambda g, out, x: g * exp(-(x * x)) * (2 / math.sqrt(math.pi)),
    onnx="Erf",
    cost=20,
)
erfc = float_unary(
    "erfc",
    "special.erfc({0})",
    "tw_erfc({0})",
    lambda g, out, x: g * exp(-(x * x)) * (-2 / math.sqrt(math.pi)),
    cost=25,
)
erfinv = float_unary(
    "erfinv",
    "special.erfinv({0})",
    "tw_erfinv({0})",
    lambda g, out, x: g * exp(out * out) * (math.sqrt(math.pi) / 2),
    domain=(-0.9, 0.9),
    cost=25,
    spares_result=True,
)

relu = Op(
    "relu",
    Kind.ELEMENTWISE,
    _numeric("relu"),
    # NaN passes the gradient on, as in PyTorch.
    vjp=lambda g, out, x: (ternary.where(out <= 0, zeros_like(g), g),),
    numpy="np.maximum({0}, 0)",
    triton="tw_relu({0})",
    onnx="Relu",
    error=0,
)

isnan = _predicate("isnan", "np.isnan({0})", "{0} != {0}", onnx="IsNaN", float8=True)
isinf = _predicate("isinf", "np.isinf({0})", "tw_isinf({0})", onnx="IsInf", float8=True)
isfinite = _predicate("isfinite", "np.isfinite({0})", "tw_isfinite({0})", float8=True)
logical_not = _predicate("logical_not", "np.logical_not({0})", "({0}) == 0", onnx="Not")


def _bits(x: Node) -> Aval:
    if x.dtype.category >= FLOAT:
        raise TypeError(
            f"bitwise_not: expected an integer or bool tensor, got {x.dtype}{at_user_line()}"
        )
    return x.shape, x.dtype


bitwise_not = Op(
    "bitwise_not",
    Kind.ELEMENTWISE,
    _bits,
    numpy="np.invert({0})",
    triton="tw_invert({0})",
)


def _cast_vjp(g: Node, out: Node, x: Node, dtype: DType) -> tuple[Node | None]:
    return (cast(g, x.dtype) if x.dtype.is_differentiable else None,)


cast = Op(
    "cast",
    Kind.ELEMENTWISE,
    lambda x, dtype: (x.shape, dtype),
    params=("dtype",),
    vjp=_cast_vjp,
    numpy="special.cast({0}, np_dtype)",
    triton="tw_cast",
    float8=True,
    complex=True,
    complex_half=True,
    aten="_to_copy",
)
"""The value in another dtype: its real part, if that is a real one. The emitters write it from the
dtypes on both sides."""


widened = Op(
    "widened",
    Kind.ELEMENTWISE,
    lambda x: (x.shape, accumulator(x.dtype)),
    vjp=lambda g, out, x: (cast(g, x.dtype),),
    numpy="special.cast({0}, np_dtype)",
    error=0,
    float8=True,
    complex=True,
    complex_half=True,
    shows="operands",
)
"""A half type read by a record: the same number in float32. It compiles to a cast, from which it
differs in the backward pass. A user's cast gives a float32 tensor, whose cotangents are added in
float32; the cotangent of a `widened` is rounded for each record by itself."""


def _bitcast_infer(x: Node, dtype: DType) -> Aval:
    if dtype.itemsize != x.dtype.itemsize:
        raise RuntimeError(
            f"view: expected a dtype of {x.dtype.itemsize} bytes, as {x.dtype} has, got {dtype}"
            f"{at_user_line()}"
        )
    return x.shape, dtype


bitcast = Op(
    "bitcast",
    Kind.ELEMENTWISE,
    _bitcast_infer,
    params=("dtype",),
    numpy="special.bitcast({0}, np_dtype)",
    triton="tw_bitcast",
    float8=True,
)
"""The same bits read as a dtype of the same size."""
