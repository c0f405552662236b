"""Elementwise functions made of others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.op import not_implemented

from .. import return_types
from ..recording import record
from ..recording.builders import blind, builder
from .arguments import into, need_tensor
from .call import binary, public, unary, without_operator
from .elementwise import of_power
from .fitting import filling
from .promotion import WHOLE, beside, floating, promoted, promoting_float, refuse, to
from .sorting import complex_logaddexp
from .spellings import also_named

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..return_types import Parts
    from ..types import Number


def _full(value: Any, like: Node) -> Node:
    return ops.full_like(like, value)


def _logaddexp(a: Node, b: Node) -> Node:
    a, b = promoted(a, b)
    refuse("logaddexp_cpu", a, *WHOLE)
    return complex_logaddexp(a, b) if a.dtype.is_complex else ops.logaddexp(a, b)


def _logaddexp2(a: Node, b: Node) -> Node:
    ratio = math.log(2)
    a, b = promoted(a, b)
    return ops.logaddexp(a * ratio, b * ratio) / ratio


def _sinc(x: Node) -> Node:
    x = floating(x)
    zero = ops.eq(x, _full(0, x))
    angle = ops.where(zero, _full(1, x), x) * math.pi
    return ops.where(zero, _full(1, x), ops.sin(angle) / angle)


def _signbit(x: Node) -> Node:
    if x.dtype is dtypes.bool_:
        return _full(False, x)
    if not x.dtype.is_floating_point:
        return x < _full(0, x)
    return ops.copysign(_full(1, x), x) < 0


def _infinite(positive: bool) -> Any:
    def build(x: Node) -> Node:
        if x.dtype.is_complex:
            sign = "pos" if positive else "neg"
            raise RuntimeError(f"is{sign}inf does not support complex inputs.{at_user_line()}")
        if not x.dtype.is_floating_point:
            return ops.cast(_full(0, x), dtypes.bool_)
        bound = _full(0, x)
        return ops.bitwise_and(ops.isinf(x), x > bound if positive else x < bound)

    return build


def _isreal(x: Node) -> Node:
    if x.dtype.is_complex:
        return ops.eq(ops.imag(x), _full(0, ops.imag(x)))
    return ops.expand(ops.constant(True, dtypes.bool_, x.device), x.shape)


def _heaviside(x: Node, values: Node) -> Node:
    if x.dtype is not values.dtype:
        raise RuntimeError(
            f"heaviside is not yet implemented for tensors with different dtypes.{at_user_line()}"
        )
    zero = _full(0, x)
    step = ops.where(
        ops.eq(x, zero), ops.expand(values, _broadcast(x, values)), to(x > zero, x.dtype)
    )
    return step


def _broadcast(a: Node, b: Node) -> tuple[int, ...]:
    from tilewright.ir.shape import broadcast

    return broadcast(a.shape, b.shape)


def _float_power(a: Node, b: Node) -> Node:
    both = a.dtype.is_complex or b.dtype.is_complex
    dtype = dtypes.complex128 if both else dtypes.float64
    return ops.pow(to(a, dtype), to(b, dtype))


@blind
def _ldexp(x: Node, exponent: Node) -> Node:
    x, exponent = beside(x, exponent)
    whole = not exponent.dtype.is_differentiable
    if whole and x.dtype.is_floating_point:
        return _scaled(x, exponent)
    if whole and not x.dtype.is_differentiable:  # uint64 has no dtype in common with int64
        x, exponent = floating(x), floating(exponent)
    x, exponent = promoted(x, exponent)
    return x * ops.pow(_full(2, exponent), exponent)


def _scaled(x: Node, exponent: Node) -> Node:
    """x * 2**exponent, rounded once. Powers of two that a float can't hold are products of three
    that it can: the widest goes last, so a subnormal number arises there alone."""
    kind, bits, bias, fraction = (
        (dtypes.float64, dtypes.int64, 1023, 52)
        if x.dtype is dtypes.float64
        else (dtypes.float32, dtypes.int32, 127, 23)
    )
    rest, powers = to(exponent, dtypes.int64), []
    for _ in range(3):
        low, high = _full(1 - bias, rest), _full(bias, rest)
        part = ops.where(rest < low, low, ops.where(rest > high, high, rest))
        biased = ops.cast(part + _full(bias, part), bits)
        powers.append(ops.bitcast(ops.shift_left(biased, _full(fraction, biased)), kind))
        rest = rest - part
    result = to(x, kind)
    for power in reversed(powers):
        result = result * power
    return to(result, x.dtype)


sinc = unary("sinc", _sinc)
signbit = unary("signbit", _signbit, in_place=False, same_out=True)
isposinf = unary("isposinf", _infinite(True), in_place=False, same_out=True)
isneginf = unary("isneginf", _infinite(False), in_place=False, same_out=True)
isreal = unary("isreal", _isreal, in_place=False)

logaddexp = binary("logaddexp", _logaddexp, numbers=False, in_place=False)
logaddexp2 = binary("logaddexp2", _logaddexp2, numbers=False, in_place=False)
xlogy = binary("xlogy", promoting_float(ops.xlogy), in_place_function=True, floats=True)
heaviside = binary("heaviside", _heaviside, numbers=False, second="values")
float_power = binary("float_power", _float_power, floats=True, second="exponent", gradient=of_power)
ldexp = binary("ldexp", _ldexp, numbers=False, in_place_function=True)


def _nextafter(x: Node, towards: Node) -> Node:
    x, towards = promoted(x, towards)
    if not x.dtype.is_floating_point:
        raise not_implemented("nextafter", x.dtype)
    whole = {2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}[x.dtype.itemsize]
    zero = _full(0, x)
    # The bits of a float, read as an integer, grow with its magnitude.
    grows = ops.eq(towards > x, x > zero)
    bits = ops.bitcast(x, whole)
    stepped = ops.bitcast(bits + ops.where(grows, _full(1, bits), _full(-1, bits)), x.dtype)
    least = ops.bitcast(_full(1, bits), x.dtype)
    stepped = ops.where(ops.eq(x, zero), ops.where(towards > zero, least, -least), stepped)
    stepped = ops.where(ops.eq(x, towards), towards, stepped)
    value = ops.where(ops.isnan(x), x, ops.where(ops.isnan(towards), towards, stepped))
    # As in PyTorch the step is a constant, where there is one.
    return ops.with_value(ops.where(ops.eq(x, towards), ops.zeros_like(value), x), value)


nextafter = binary("nextafter", _nextafter, numbers=False)


@builder("logit")
def _logit(x: Node, eps: float | None) -> Node:
    refuse("logit_cpu", x, dtypes.COMPLEX)
    x = floating(x)
    if eps is not None:
        low, high = _full(eps, x), _full(1 - eps, x)
        x = ops.where(x < low, low, ops.where(x > high, high, x))
    value = ops.log(x / (1 - x))
    # Its slope 1 / (x (1 - x)) is infinite at the ends, and NaN beyond them.
    beyond = ops.where(ops.bitwise_or(x < 0, x > 1), _full(math.nan, x), ops.zeros_like(x))
    return ops.with_value(ops.log(x) - ops.log1p(-x) + x * beyond, value)


@public("logit", in_place=True, in_place_function=True)
def logit(input: Tensor, eps: float | None = None, *, out: Tensor | None = None) -> Tensor:
    """log(x / (1 - x)), x limited to [eps, 1 - eps]."""
    return into(out, record(_logit, input, None if eps is None else float(eps)))


@public("rsub", method=False)
def rsub(input: Tensor, other: Number | Tensor, *, alpha: float = 1) -> Tensor:
    """other - alpha * input."""
    need_tensor("rsub", input)
    return other - (input if alpha == 1 else input * alpha)


@public("clamp_min", in_place=True, in_place_function=True)
def clamp_min(input: Tensor, min: Number | Tensor, *, out: Tensor | None = None) -> Tensor:
    need_tensor("clamp_min", input)
    return into(out, input.clamp(min=min))


@public("clamp_max", in_place=True, in_place_function=True)
def clamp_max(input: Tensor, max: Number | Tensor, *, out: Tensor | None = None) -> Tensor:
    need_tensor("clamp_max", input)
    return into(out, input.clamp(max=max))


def _polygamma_of(self: Tensor, n: int) -> Tensor:
    return polygamma(n, self)


@public("polygamma", method=_polygamma_of, in_place=True, unexportable=without_operator(ops.zeta))
def polygamma(n: int, input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The n-th derivative of digamma."""
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n.{at_user_line()}")
    return into(out, record(_polygamma, input, int(n)))


@builder("polygamma")
def _polygamma(x: Node, n: int) -> Node:
    return ops.polygamma(n, floating(x))


@builder("fill")
def _fill(x: Node, value: Node) -> Node:
    return ops.flat_in(x, ops.expand(to(value, x.dtype), x.shape))


@public("fill", method=False)
def fill(input: Tensor, value: Number | Tensor) -> Tensor:
    """A tensor like `input`, filled."""
    return record(_fill, input, filling(value, input))


def _frexp(x: Node) -> tuple[Node, Node]:
    if not x.dtype.is_floating_point:
        raise RuntimeError(f"torch.frexp() only supports floating-point dtypes{at_user_line()}")
    wide = to(x, dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32)
    whole, digits, most = (
        (dtypes.int64, 52, 0x7FF) if wide.dtype is dtypes.float64 else (dtypes.int32, 23, 0xFF)
    )
    bias = most // 2
    # A subnormal number has leading zeros: multiply it by a power of two first.
    tiny = ops.bitwise_and(ops.abs(wide) < 2.0 ** (1 - bias), ops.ne(wide, _full(0, wide)))
    wide = ops.where(tiny, wide * 2.0**digits, wide)
    bits = ops.bitcast(wide, whole)
    shift = _full(digits, bits)
    stored = ops.bitwise_and(ops.shift_right(bits, shift), _full(most, bits))
    plain = ops.bitwise_and(stored > 0, stored < most)  # not zero, infinite or NaN
    exponent = ops.where(plain, stored - (bias - 1), _full(0, bits))
    # Split 2 ** -exponent into two factors, each a normal number.
    half = ops.shift_right(exponent, _full(1, bits))
    for part in (half, exponent - half):
        wide = wide * ops.bitcast(ops.shift_left(bias - part, shift), wide.dtype)
    shifted = ops.where(tiny, exponent - digits, exponent)
    return to(wide, x.dtype), to(shifted, dtypes.int32)


@public("frexp", _frexp)
@also_named(a="input", x="input")
def frexp(input: Tensor, *, out: Sequence[Tensor] | None = None) -> Parts:
    """(mantissa, exponent) such that input = mantissa * 2**exponent and 0.5 <= |mantissa| < 1.

    The exponent is int32. Zeros, infinities and NaN are their own mantissa, with exponent 0. Only
    the mantissa has a gradient.
    """
    return into(out, return_types.frexp(*record(_frexp, input)))
