"""Elementwise functions of two operands of one dtype, broadcast against each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dtype import BOOL, COMPLEX, FLOAT, bool_, real_of
from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op, Part, not_implemented
from ..shape import broadcast
from .ternary import where
from .unary import cast, floor, log, sign, trunc, zeros_like


def _same_dtype(name: str, a: Node, b: Node) -> None:
    if a.dtype is not b.dtype:
        raise RuntimeError(f"{name}: dtypes differ: {a.dtype} and {b.dtype}{at_user_line()}")


def _arithmetic(
    name: str, numpy: str, triton: str, vjp: Any = None, *, bools: bool = True, **more: Any
) -> Op:
    def infer(a: Node, b: Node) -> Aval:
        _same_dtype(name, a, b)
        if a.dtype.category == BOOL and not bools:
            raise not_implemented(name, a.dtype, "expected numbers, as x.int() gives")
        return broadcast(a.shape, b.shape), a.dtype

    return Op(name, Kind.ELEMENTWISE, infer, vjp=vjp, numpy=numpy, triton=triton, **more)


def _float_arithmetic(name: str, numpy: str, triton: str, vjp: Any, **more: Any) -> Op:
    def infer(a: Node, b: Node) -> Aval:
        _same_dtype(name, a, b)
        if a.dtype.category < FLOAT:
            raise not_implemented(name, a.dtype, "expected floating point tensors")
        return broadcast(a.shape, b.shape), a.dtype

    return Op(name, Kind.ELEMENTWISE, infer, vjp=vjp, numpy=numpy, triton=triton, **more)


def _comparison(name: str, numpy: str, triton: str, **more: Any) -> Op:
    def infer(a: Node, b: Node) -> Aval:
        _same_dtype(name, a, b)
        return broadcast(a.shape, b.shape), bool_

    return Op(name, Kind.ELEMENTWISE, infer, numpy=numpy, triton=triton, **more)


def _of_integers(name: str, numpy: str, triton: str, *, bools: bool = True, **more: Any) -> Op:
    def infer(a: Node, b: Node) -> Aval:
        _same_dtype(name, a, b)
        if a.dtype.category >= FLOAT or (a.dtype.category == BOOL and not bools):
            expected = "integer or bool tensors" if bools else "integer tensors"
            raise NotImplementedError(f"{name}: expected {expected}, got {a.dtype}{at_user_line()}")
        return broadcast(a.shape, b.shape), a.dtype

    return Op(name, Kind.ELEMENTWISE, infer, numpy=numpy, triton=triton, **more)


add = _arithmetic(
    "add",
    "{0} + {1}",
    "{0} + {1}",
    lambda g, out, a, b: (g, g),
    onnx="Add",
    commutative=True,
    complex=True,
    complex_half=True,
)
sub = _arithmetic(
    "sub",
    "{0} - {1}",
    "{0} - {1}",
    lambda g, out, a, b: (g, lambda: -g),
    onnx="Sub",
    bools=False,
    complex=True,
    complex_half=True,
)
mul = _arithmetic(
    "mul",
    "{0} * {1}",
    "{0} * {1}",
    lambda g, out, a, b: (lambda: g * b, lambda: g * a),
    onnx="Mul",
    commutative=True,
    complex=True,
    complex_half=True,
    float8=True,
)
div = _float_arithmetic(
    "div",
    "{0} / {1}",
    "tw_div({0}, {1})",
    lambda g, out, a, b: (lambda: g / b, lambda: -(g * out) / b),
    onnx="Div",
    complex=True,
    domain=(0.4, 3),
    cost=4,
    spares_result=True,
)


def _is_no_less_than_zero(x: Node) -> Node:
    if x.dtype.category != COMPLEX:
        return x >= 0
    part = cast(x, real_of(x.dtype))  # the real one
    return bitwise_and(eq(x, cast(part, x.dtype)), part >= 0)


def _pow_vjp(g: Node, out: Node, a: Node, b: Node) -> tuple[Part, Part]:
    zero = zeros_like(out)

    def in_exponent() -> Node:
        # x**y has slope 0 in y at x = 0 for y >= 0; the formula gives 0 * -inf there.
        flat = bitwise_and(eq(a, zeros_like(a)), _is_no_less_than_zero(b))
        return where(flat, zero, g * out * log(a))

    return lambda: where(eq(b, zeros_like(b)), zero, g * b * pow(a, b - 1)), in_exponent


pow = _arithmetic(
    "pow",
    "special.pow({0}, {1})",
    "tw_pow({0}, {1})",
    _pow_vjp,
    onnx="Pow",
    domain=(0.4, 2.5),
    cost=30,
    error=2,
    llvm="pow",
    complex=True,
    bools=False,
)
floor_divide = _arithmetic(
    "floor_divide",
    "special.floor_divide({0}, {1})",
    "tw_floor_divide({0}, {1})",
    lambda g, out, a, b: (zeros_like(a), zeros_like(b)),
    domain=(0.4, 3),
    cost=8,
    divides=True,
    error=1,
)
remainder = _arithmetic(
    "remainder",
    "special.remainder({0}, {1})",
    "tw_remainder({0}, {1})",
    lambda g, out, a, b: (g, lambda: -g * floor(a / b)),
    domain=(0.4, 3),
    cost=8,
    divides=True,
    error=1,
    bools=False,
)
fmod = _arithmetic(
    "fmod",
    "special.fmod({0}, {1})",
    "tw_fmod({0}, {1})",
    lambda g, out, a, b: (g, lambda: -g * trunc(a / b)),
    domain=(0.4, 3),
    cost=8,
    divides=True,
    llvm="fmod",
    bools=False,
)


def _atan2_vjp(g: Node, out: Node, a: Node, b: Node) -> tuple[Node, Node]:
    # At the origin the slope is zero, as in PyTorch.
    square = a * a + b * b
    scale = g / where(eq(square, zeros_like(square)), zeros_like(square) + 1, square)
    return scale * b, -(scale * a)


atan2 = _float_arithmetic(
    "atan2",
    "np.arctan2({0}, {1})",
    "tw_atan2({0}, {1})",
    _atan2_vjp,
    domain=(0.4, 3),
    cost=30,
    error=2,
    llvm="atan2",
)
copysign = _float_arithmetic(
    "copysign",
    "np.copysign({0}, {1})",
    "tw_copysign({0}, {1})",
    lambda g, out, a, b: (g * sign(a) * sign(out), zeros_like(b)),
    error=0,
)


def _zeta_vjp(g: Node, out: Node, s: Node, x: Node) -> tuple[Node | None, Node]:
    if s.requires_grad:
        raise NotImplementedError(f"zeta has no derivative in its first argument{at_user_line()}")
    return None, -(g * s) * zeta(s + 1, x)


zeta = _float_arithmetic(
    "zeta",
    "special.zeta({0}, {1})",
    "tw_zeta({0}, {1})",
    _zeta_vjp,
    domain=(1.5, 4),
    cost=200,
    error=4,
    llvm="zeta",
)
"""Hurwitz's zeta(s, x), the sum over k >= 0 of (x + k)^-s."""


def _extremum_vjp(beats: Op) -> Callable[..., tuple[Part, Part]]:
    def vjp(g: Node, out: Node, a: Node, b: Node) -> tuple[Part, Part]:
        # As in PyTorch, ties share the gradient evenly, and where one is NaN both get all of it.
        half, zero = g * 0.5, zeros_like(g)
        tie = eq(a, b)
        return (
            lambda: where(tie, half, where(beats(b, a), zero, g)),
            lambda: where(tie, half, where(beats(a, b), zero, g)),
        )

    return vjp


eq = _comparison(
    "eq",
    "{0} == {1}",
    "{0} == {1}",
    onnx="Equal",
    commutative=True,
    float8=True,
    complex=True,
    complex_half=True,
)
ne = _comparison(
    "ne", "{0} != {1}", "{0} != {1}", commutative=True, float8=True, complex=True, complex_half=True
)
lt = _comparison("lt", "{0} < {1}", "{0} < {1}", onnx="Less")
le = _comparison("le", "{0} <= {1}", "{0} <= {1}", onnx="LessOrEqual")
gt = _comparison("gt", "{0} > {1}", "{0} > {1}", onnx="Greater")
ge = _comparison("ge", "{0} >= {1}", "{0} >= {1}", onnx="GreaterOrEqual")

maximum = _arithmetic(
    "maximum",
    "np.maximum({0}, {1})",
    "tw_maximum({0}, {1})",
    _extremum_vjp(gt),
    onnx="Max",
    error=0,
    commutative=True,
)
minimum = _arithmetic(
    "minimum",
    "np.minimum({0}, {1})",
    "tw_minimum({0}, {1})",
    _extremum_vjp(lt),
    onnx="Min",
    error=0,
    commutative=True,
)

bitwise_and = _of_integers(
    "bitwise_and", "{0} & {1}", "{0} & {1}", commutative=True, onnx="BitwiseAnd"
)
bitwise_or = _of_integers(
    "bitwise_or", "{0} | {1}", "{0} | {1}", commutative=True, onnx="BitwiseOr"
)
bitwise_xor = _of_integers(
    "bitwise_xor", "{0} ^ {1}", "{0} ^ {1}", commutative=True, onnx="BitwiseXor"
)
gcd = _of_integers(
    "gcd", "special.gcd({0}, {1})", "tw_gcd({0}, {1})", bools=False, commutative=True, cost=60
)
"""The greatest common divisor of the magnitudes of integers; gcd(0, n) is n. Beside the least
integer, which has no magnitude, it has the sign that Euclid's algorithm leaves."""
shift_left = _of_integers("shift_left", "{0} << {1}", "tw_shift_left({0}, {1})")
shift_right = _of_integers("shift_right", "{0} >> {1}", "tw_shift_right({0}, {1})")
