"""Elementwise functions: PyTorch's names for the elementwise ops, with type promotion."""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.op import Kind, not_implemented

from ..recording import Handle, clock, default_dtype, direct, record
from ..recording.builders import FLOAT32, WIDEST, blind, builder, refuses_bools
from .arguments import as_first, as_handle, into, truth
from .call import arithmetic, binary, public, unary, without_operator
from .fitting import fitting
from .promotion import (
    WHOLE,
    beside,
    floating,
    is_number,
    on_float,
    promoted,
    promoting,
    promoting_float,
    refuse,
    result_dtype,
    to,
)
from .spellings import also_named, in_older_order

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..types import Number

# ---- one operand -----------------------------------------------------------------------------


def _abs(x: Node) -> Node:
    if x.dtype.is_complex:
        return ops.modulus(x)
    refuse("abs_cpu", x, dtypes.BOOL)
    return ops.abs(x)


def _rounding(op: Any) -> Any:
    def build(x: Node) -> Node:
        refuse(f"{op.name}_vml_cpu", x, dtypes.BOOL)
        return op(x) if x.dtype.is_differentiable else x

    return build


def _isnan(x: Node) -> Node:
    if x.dtype.is_complex:
        return ops.bitwise_or(ops.isnan(ops.real(x)), ops.isnan(ops.imag(x)))
    return ops.isnan(floating(x))


def _isinf(x: Node) -> Node:
    if x.dtype.is_complex:
        return ops.bitwise_or(ops.isinf(ops.real(x)), ops.isinf(ops.imag(x)))
    return ops.isinf(floating(x))


def _isfinite(x: Node) -> Node:
    if x.dtype.is_complex:
        return ops.bitwise_and(ops.isfinite(ops.real(x)), ops.isfinite(ops.imag(x)))
    return ops.isfinite(floating(x))


def _square(x: Node) -> Node:
    x = to(x, dtypes.int64) if x.dtype is dtypes.bool_ else x
    return x * x


def _sign(x: Node) -> Node:
    if x.dtype.is_complex:
        raise NotImplementedError(
            "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use "
            f"torch.sgn instead.{at_user_line()}"
        )
    return x if x.dtype is dtypes.bool_ else ops.sign(x)


def _frac(x: Node) -> Node:
    refuse("frac_cpu", x, *WHOLE)
    return x - ops.trunc(x)


def _no_complex(name: str, x: Node) -> None:
    if x.dtype.is_complex:
        raise RuntimeError(f"{name} is not supported for complex tensors.{at_user_line()}")


def _deg2rad(x: Node) -> Node:
    _no_complex("deg2rad", x)
    return floating(x) * 0.017453292519943295


def _rad2deg(x: Node) -> Node:
    _no_complex("rad2deg", x)
    return floating(x) * 57.29577951308232


def _logical_not(x: Node) -> Node:
    return ops.logical_not(truth(x))


def _neg(x: Node) -> Node:
    if x.dtype is dtypes.bool_:
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. Use the `~` or "
            f"`logical_not()` operator instead{at_user_line()}"
        )
    return ops.neg(x)


def _invert(x: Node) -> Node:
    return ops.logical_not(x) if x.dtype is dtypes.bool_ else ops.bitwise_not(x)


ON_A_GPU = {"cuda": FLOAT32}  # autocast is more careful there

exp = unary("exp", on_float(ops.exp), casts=ON_A_GPU)
exp2 = unary("exp2", on_float(ops.exp2))
expm1 = unary("expm1", on_float(ops.expm1), casts=ON_A_GPU)
log = unary("log", on_float(ops.log), casts=ON_A_GPU)
log2 = unary("log2", on_float(ops.log2), casts=ON_A_GPU)
log10 = unary("log10", on_float(ops.log10), casts=ON_A_GPU)
log1p = unary("log1p", on_float(ops.log1p), casts=ON_A_GPU, gradient="Log1PBackward0")
sqrt = unary("sqrt", on_float(ops.sqrt))
rsqrt = unary("rsqrt", on_float(ops.rsqrt), casts=ON_A_GPU)
reciprocal = unary("reciprocal", on_float(ops.reciprocal), casts=ON_A_GPU)
sin = unary("sin", on_float(ops.sin))
cos = unary("cos", on_float(ops.cos))
tan = unary("tan", on_float(ops.tan), casts=ON_A_GPU)
asin = unary("asin", on_float(ops.asin), casts=ON_A_GPU, aliases=("arcsin",))
acos = unary("acos", on_float(ops.acos), casts=ON_A_GPU, aliases=("arccos",))
atan = unary("atan", on_float(ops.atan), aliases=("arctan",))
sinh = unary("sinh", on_float(ops.sinh), casts=ON_A_GPU)
cosh = unary("cosh", on_float(ops.cosh), casts=ON_A_GPU)
tanh = unary("tanh", on_float(ops.tanh))
asinh = unary("asinh", on_float(ops.asinh), aliases=("arcsinh",))
acosh = unary("acosh", on_float(ops.acosh), aliases=("arccosh",))
atanh = unary("atanh", on_float(ops.atanh), aliases=("arctanh",))
sigmoid = unary("sigmoid", on_float(ops.sigmoid))
erf = unary("erf", on_float(ops.erf))
erfc = unary("erfc", on_float(ops.erfc))
erfinv = unary(
    "erfinv",
    on_float(ops.erfinv),
    casts=ON_A_GPU,
    in_place_function=False,
    unexportable=without_operator(ops.erfinv),
)
lgamma = unary(
    "lgamma",
    on_float(ops.lgamma),
    in_place_function=False,
    unexportable=without_operator(ops.lgamma),
)
digamma = unary(
    "digamma",
    on_float(ops.digamma),
    in_place_function=False,
    unexportable=without_operator(ops.digamma),
)
abs = unary("abs", _abs, operator="abs", aliases=("absolute",), same_out=True)
neg = unary("neg", _neg, operator="neg", aliases=("negative",), same_out=True)
sign = unary("sign", _sign, in_place_function=False, same_out=True)
floor = unary("floor", _rounding(ops.floor), same_out=True)
ceil = unary("ceil", _rounding(ops.ceil), same_out=True)
trunc = unary("trunc", _rounding(ops.trunc), aliases=("fix",), same_out=True)
frac = unary("frac", _frac, same_out=True)
square = unary("square", _square, gradient="PowBackward0")
relu = unary("relu", ops.relu)
isnan = unary("isnan", _isnan, in_place=False)
isinf = unary("isinf", _isinf, in_place=False)
isfinite = unary("isfinite", _isfinite, in_place=False)
logical_not = unary("logical_not", _logical_not, in_place_function=False)
bitwise_not = unary(
    "bitwise_not", _invert, operator="invert", in_place_function=False, same_out=True
)
deg2rad = unary("deg2rad", _deg2rad, gradient="Deg2RadBackward0")
rad2deg = unary("rad2deg", _rad2deg, gradient="Rad2DegBackward0")

# ---- two operands ----------------------------------------------------------------------------


@blind
def _add(a: Node, b: Node) -> Node:
    a, b = promoted(a, b)
    return ops.bitwise_or(a, b) if a.dtype is dtypes.bool_ else ops.add(a, b)


@blind
def _mul(a: Node, b: Node) -> Node:
    a, b = promoted(a, b)
    return ops.bitwise_and(a, b) if a.dtype is dtypes.bool_ else ops.mul(a, b)


@blind
def _sub(a: Node, b: Node) -> Node:
    if a.dtype is dtypes.bool_ and b.dtype is dtypes.bool_:
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
            f"`logical_xor()` operator instead{at_user_line()}"
        )
    if a.dtype is dtypes.bool_ or b.dtype is dtypes.bool_:
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying "
            f"to invert a mask, use the `~` or `logical_not()` operator instead{at_user_line()}"
        )
    a, b = promoted(a, b)
    return ops.sub(a, b)


refuses_bools.add(_sub)


def _pow(a: Node, b: Node) -> Node:
    whole = not (a.dtype.is_differentiable or b.dtype.is_differentiable)
    if whole and b.op.kind is Kind.CONSTANT and ops.constant_value(b) < 0:
        raise RuntimeError(f"Integers to negative integer powers are not allowed.{at_user_line()}")
    a, b = promoted(a, b)
    if a.dtype is dtypes.bool_ and b.op.kind is Kind.CONSTANT:
        return ops.bitwise_or(a, ops.logical_not(b))
    if b.op.kind is Kind.CONSTANT:
        exponent = ops.constant_value(b).item()
        if exponent == 1:
            return a
        if exponent == 2:
            return a * a
        if exponent == 3:
            return a * a * a
        if exponent == 0.5 and a.dtype.is_differentiable:
            return ops.sqrt(a)
    return ops.pow(a, b)


def _logical(op: Any) -> Any:
    def build(a: Node, b: Node) -> Node:
        return op(truth(a), truth(b))

    return build


def _fmax(a: Node, b: Node) -> Node:
    """The first takes the gradient where both are equal."""
    a, b = promoted(a, b)
    if not a.dtype.is_floating_point:
        return ops.maximum(a, b)
    return ops.where(ops.bitwise_or(ops.ge(a, b), ops.isnan(b)), a, b)


def _fmin(a: Node, b: Node) -> Node:
    a, b = promoted(a, b)
    if not a.dtype.is_floating_point:
        return ops.minimum(a, b)
    return ops.where(ops.bitwise_or(ops.le(a, b), ops.isnan(b)), a, b)


def _hypot(a: Node, b: Node) -> Node:
    return ops.hypot(*promoted(a, b))


def of_power(args: Any) -> str:
    """PyTorch numbers the forms of pow: the exponent is a number, both are tensors, the base is a
    number."""
    base, exponent = args
    if is_number(base):
        return "PowBackward2"
    return f"PowBackward{0 if is_number(exponent) else 1}"


def _by_second(name: str) -> Callable[[Any], str]:
    """PyTorch numbers the forms of a call: the second operand is a number (0), or a tensor (1)."""
    return lambda args: f"{name}Backward{int(not is_number(args[1]))}"


mul = binary("mul", _mul, operator="mul", widens=True, both_numbers=True, aliases=("multiply",))


def _floored(a: Node, b: Node) -> Node:
    refuse("div_floor_cpu", a, dtypes.BOOL)
    return ops.floor_divide(a, b)


floor_divide = binary("floor_divide", promoting(_floored), operator="floordiv", both_numbers=True)
remainder = binary(
    "remainder", promoting(ops.remainder), operator="mod", gradient=_by_second("Remainder")
)
fmod = binary("fmod", promoting(ops.fmod), number_first=False, gradient=_by_second("Fmod"))
pow = binary("pow", _pow, operator="pow", second="exponent", casts=ON_A_GPU, gradient=of_power)
atan2 = binary(
    "atan2",
    promoting_float(ops.atan2),
    numbers=False,
    aliases=("arctan2",),
    casts={"cuda": WIDEST},
    floats=True,
)
copysign = binary(
    "copysign",
    promoting_float(ops.copysign),
    number_first=False,
    floats=True,
    gradient=lambda args: f"CopysignBackward{int(is_number(args[1]))}",
)
maximum = binary("maximum", promoting(ops.maximum), numbers=False, in_place=False)
minimum = binary("minimum", promoting(ops.minimum), numbers=False, in_place=False)
fmax = binary("fmax", _fmax, numbers=False, in_place=False)
fmin = binary("fmin", _fmin, numbers=False, in_place=False)
hypot = binary("hypot", _hypot, numbers=False)
eq = binary("eq", promoting(ops.eq), compares="eq")
ne = binary("ne", promoting(ops.ne), compares="ne", aliases=("not_equal",))
lt = binary("lt", promoting(ops.lt), compares="lt", aliases=("less",))
le = binary("le", promoting(ops.le), compares="le", aliases=("less_equal",))
gt = binary("gt", promoting(ops.gt), compares="gt", aliases=("greater",))
ge = binary("ge", promoting(ops.ge), compares="ge", aliases=("greater_equal",))
logical_and = binary("logical_and", _logical(ops.bitwise_and), numbers=False)
logical_or = binary("logical_or", _logical(ops.bitwise_or), numbers=False)
logical_xor = binary("logical_xor", _logical(ops.bitwise_xor), numbers=False)
bitwise_and = binary("bitwise_and", promoting(ops.bitwise_and), operator="and")
bitwise_or = binary("bitwise_or", promoting(ops.bitwise_or), operator="or")
bitwise_xor = binary("bitwise_xor", promoting(ops.bitwise_xor), operator="xor")
bitwise_left_shift = binary("bitwise_left_shift", promoting(ops.shift_left), operator="lshift")
bitwise_right_shift = binary("bitwise_right_shift", promoting(ops.shift_right), operator="rshift")


# ---- functions with options ------------------------------------------------------------------


@public("add", _add, in_place=True, operators=arithmetic("add", _add))
def add(
    input: Tensor,
    other: Number | Tensor,
    *last: Tensor,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """input + alpha * other."""
    if last:
        return in_older_order(add, (input, other, *last), ("alpha",), out=out)  # type: ignore[no-any-return]
    input = as_first(input, other)
    if alpha.__class__ is bool:
        _need_bools(input, other)
    if alpha != 1 and _are_floats(input, other):
        return into(out, record(_add_scaled, input, other, as_handle(alpha, other, wide=True)))
    if alpha != 1:
        other = _scaled(input, other, alpha)
    return into(out, input + other)


def _are_floats(*given: Any) -> bool:
    return all(isinstance(t, Handle) and t.dtype.is_floating_point for t in given) or all(
        isinstance(t, Handle) and t.dtype.is_complex for t in given
    )


@builder("add")
def _add_scaled(a: Node, b: Node, alpha: Node) -> Node:
    return _add(a, b * to(alpha, b.dtype))


@builder("sub")
def _sub_scaled(a: Node, b: Node, alpha: Node) -> Node:
    return _sub(a, b * to(alpha, b.dtype))


def _need_bools(*given: Any) -> None:
    """Raise unless all tensors are of bools, as a factor that is one needs."""
    if any(t.dtype is not dtypes.bool_ for t in given if isinstance(t, Handle)):  # type: ignore[attr-defined]
        raise RuntimeError(f"Boolean alpha only supported for Boolean results.{at_user_line()}")


def _scaled(input: Any, other: Any, alpha: Any) -> Any:
    """alpha * other, in the category of the two."""
    whole = [
        not t.dtype.is_differentiable
        if isinstance(t, Handle)
        else not isinstance(t, (float, builtins.complex))
        for t in (input, other)
    ]
    if isinstance(alpha, builtins.complex) and not any(
        t.dtype.is_complex for t in (input, other) if isinstance(t, Handle)
    ):
        raise RuntimeError(
            "For non-complex input tensors, argument alpha must not be a complex number."
            f"{at_user_line()}"
        )
    if isinstance(alpha, float) and whole == [True, True]:
        raise RuntimeError(
            "For integral input tensors, argument alpha must not be a floating point number."
            f"{at_user_line()}"
        )
    result = other * alpha
    if not isinstance(other, Handle):
        return result
    if isinstance(input, Handle) and whole[1] and (not whole[0] or other.dtype is dtypes.bool_):  # type: ignore[attr-defined]
        # The factor has no type of its own: what is whole takes the type of what isn't.
        return result.to(input.dtype)  # type: ignore[attr-defined]
    return result.to(other.dtype) if isinstance(input, bool) else result  # type: ignore[attr-defined]


def _of_sub(args: Any) -> str:
    return "RsubBackward1" if is_number(args[0]) else "SubBackward0"


@public(
    "sub",
    _sub,
    in_place=True,
    operators=arithmetic("sub", _sub),
    aliases=("subtract",),
    gradient=_of_sub,
)
def sub(
    input: Tensor,
    other: Number | Tensor,
    *last: Tensor,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """input - alpha * other."""
    if last:
        return in_older_order(sub, (input, other, *last), ("alpha",), out=out)  # type: ignore[no-any-return]
    input = as_first(input, other)
    if alpha.__class__ is bool:
        _need_bools(input, other)
    if alpha != 1 and _are_floats(input, other):
        return into(out, record(_sub_scaled, input, other, as_handle(alpha, other, wide=True)))
    given: Any = (input, other)
    bools = any(isinstance(t, bool) or getattr(t, "dtype", None) is dtypes.bool_ for t in given)
    if alpha != 1 and not bools:  # which `-` refuses
        other = _scaled(input, other, alpha)
    return into(out, input - other)


_div = builder("div", floats=True, widens=True)(promoting_float(ops.div))
# `2 / x` is x.reciprocal() * 2 in PyTorch: autocast treats it as that.
_number_by = builder("reciprocal", gradient="MulBackward0", casts=ON_A_GPU, floats=True)(
    promoting_float(ops.div)
)


@public(
    "div",
    in_place=True,
    operators=arithmetic("truediv", _div, _number_by),
    aliases=("divide", "true_divide"),
)
def div(
    input: Tensor,
    other: Number | Tensor,
    *,
    rounding_mode: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """input / other; rounding_mode None, 'trunc' or 'floor'."""
    input = as_first(input, other)
    if rounding_mode is None:
        return into(out, input / other)
    if rounding_mode == "floor":
        return into(out, record(_div_floor, as_handle(input), as_handle(other, input)))
    if rounding_mode != "trunc":
        raise RuntimeError(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' "
            f"but found '{rounding_mode}'{at_user_line()}"
        )
    return into(out, record(_div_trunc, as_handle(input), as_handle(other, input)))


_div_floor = builder("div", gradient="DivBackward2")(promoting(_floored))


@builder("div", gradient="DivBackward2")
def _div_trunc(a: Node, b: Node) -> Node:
    a, b = promoted(a, b)
    refuse("div_trunc_cpu", a, dtypes.BOOL)
    if a.dtype.is_differentiable:
        return ops.trunc(a / b)
    quotient = ops.floor_divide(a, b)
    # floor and trunc differ by one where the signs differ and a rest is left.
    differs = ops.bitwise_and(quotient < 0, ops.ne(quotient * b, a))
    return quotient + to(differs, a.dtype)


_round = builder("round")(_rounding(ops.round))


@public("round", in_place=True, in_place_function=True)
@also_named(a="input", x="input")
def round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """Nearest integer, halves to even; or the nearest multiple of 10**-decimals."""
    if decimals == 0:
        return into(out, record(_round, input), cast=False)
    if not input.dtype.is_floating_point:
        raise NotImplementedError(
            f"round: expected floats where `decimals` is given, got {input.dtype}{at_user_line()}"
        )
    factor = 10.0 ** builtins.abs(decimals)  # 10.0**-3 is no float, and 1000.0 is one
    if decimals < 0:
        return into(out, record(_round, input / factor) * factor, cast=False)
    return into(out, record(_round, input * factor) / factor, cast=False)


@public("clamp", in_place=True, in_place_function=True, aliases=("clip",))
def clamp(
    input: Tensor,
    min: Number | Tensor | None = None,
    max: Number | Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Elements limited to [min, max]; each bound is a number, a tensor or None."""
    if min is None and max is None:
        raise RuntimeError(
            f"torch.clamp: at least one of 'min' or 'max' must not be None{at_user_line()}"
        )
    bounds = [each for each in (min, max) if each is not None]
    if type(min) is not type(max) and len(bounds) == 2 and _are_numbers(bounds, bool):
        kind = float if float in (type(min), type(max)) else int
        min, max = bounds = [kind(each) for each in bounds]  # the result's dtype holds for both
    are_numbers = _are_numbers(bounds)
    if are_numbers and not _are_bounds(input.dtype, *bounds):
        return into(out, record(_clamp_to_nan, input), cast=False)
    if clock.volatile and are_numbers:
        low_or_high = _clamp_high if min is None else _clamp_low
        build = _clamp_between if len(bounds) == 2 else low_or_high
        made = direct.between(build, input, bounds)
        if made is not None:
            return into(out, made, cast=False)
    if input.dtype is dtypes.bool_ and all(type(each) is bool for each in bounds):
        names = [] if len(bounds) == 2 else ["max" if min is None else "min"]
        raise not_implemented("_".join(["clamp", *names, "scalar_cpu"]), dtypes.bool_)
    if len(bounds) == 2:
        result = record(_clamp_between, input, *(as_handle(each, input) for each in bounds))
    elif max is None:
        result = record(_clamp_low, input, as_handle(min, input))
    else:
        result = record(_clamp_high, input, as_handle(max, input))
    return into(out, result, cast=False)


def _are_numbers(bounds: Sequence[Any], *others: type) -> bool:
    return all([type(each) in (int, float, *others) for each in bounds])


@functools.lru_cache(1024, typed=True)
def _are_bounds(dtype: dtypes.DType, *bounds: int | float) -> bool:
    """Whether all numbers are some. RuntimeError for one that is out of the range of `dtype`."""
    if any(each != each for each in bounds):
        return False
    for each in bounds:
        if type(each) is float and not dtype.is_floating_point:  # the result has another dtype
            break
        if not math.isinf(each):
            fitting(each, dtype)
    return True


@builder("clamp", gradient="ClampBackward1")
def _clamp_to_nan(x: Node) -> Node:
    """With a bound that is no number, no element is; the gradient is 0."""
    x, nan = promoted(x, ops.constant(math.nan, default_dtype()))
    return ops.where(ops.lt(x, x), x, ops.expand(nan, x.shape))


def _of_clamp(args: Any) -> str:
    """PyTorch numbers the forms of clamp: the bounds are tensors, or numbers."""
    return f"ClampBackward{int(is_number(args[1]))}"


@builder("clamp", gradient=_of_clamp)
def _clamp_low(x: Node, low: Node) -> Node:
    x, low = promoted(x, low)
    if x.dtype.category in (dtypes.UNSIGNED, dtypes.SIGNED):
        return ops.maximum(x, low)
    return ops.at_least(x, low)


@builder("clamp", gradient=_of_clamp)
def _clamp_high(x: Node, high: Node) -> Node:
    x, high = promoted(x, high)
    if x.dtype.category in (dtypes.UNSIGNED, dtypes.SIGNED):
        return ops.minimum(x, high)
    return ops.at_most(x, high)


@builder("clamp", gradient=_of_clamp)
def _clamp_between(x: Node, low: Node, high: Node) -> Node:
    x, low, high = promoted(x, low, high)
    refuse("clamp_cpu", x, dtypes.BOOL)
    if x.dtype.category in (dtypes.UNSIGNED, dtypes.SIGNED):
        return ops.minimum(ops.maximum(x, low), high)
    return ops.within(x, low, high)


@public("lerp", in_place=True)
def lerp(
    input: Tensor, end: Tensor, weight: Number | Tensor, *, out: Tensor | None = None
) -> Tensor:
    """input + weight * (end - input), computed from the nearer end: a weight of 1 gives `end`."""
    build = _lerp
    if weight.__class__ is float and math.fabs(math.fabs(weight) - 0.5) > 1e-2:  # in any dtype
        build = _lerp_from_begin if math.fabs(weight) < 0.5 else _lerp_from_end
    return into(out, record(build, input, end, as_handle(weight, input, wide=True)))


def _lerp_operands(a: Node, b: Node, weight: Node) -> tuple[Node, Node, Node]:
    dtype = result_dtype(a, b)
    for each in (a, b):
        refuse("lerp_kernel_scalar", each, *WHOLE)
    a, b, weight = (to(n, dtype) for n in beside(a, b, weight))
    return a, b, weight


@builder("lerp", gradient=lambda args: f"LerpBackward{int(not is_number(args[2]))}")
def _lerp(a: Node, b: Node, weight: Node) -> Node:
    a, b, weight = _lerp_operands(a, b, weight)
    is_near = _abs(weight) < 0.5  # from the other end an infinite number would give NaN
    return ops.where(is_near, a, b) + ops.where(is_near, weight, weight - 1) * (b - a)


@builder("lerp", gradient="LerpBackward0")
def _lerp_from_begin(a: Node, b: Node, weight: Node) -> Node:
    a, b, weight = _lerp_operands(a, b, weight)
    return a + weight * (b - a)


@builder("lerp", gradient="LerpBackward0")
def _lerp_from_end(a: Node, b: Node, weight: Node) -> Node:
    a, b, weight = _lerp_operands(a, b, weight)
    return b + (weight - 1) * (b - a)


@public("addcmul", in_place=True)
def addcmul(
    input: Tensor,
    tensor1: Tensor,
    tensor2: Tensor,
    *last: Tensor,
    value: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """input + value * tensor1 * tensor2."""
    if last:
        given = (input, tensor1, tensor2, *last)
        return in_older_order(addcmul, given, ("value",), out=out)  # type: ignore[no-any-return]
    return into(out, record(_addcmul, input, tensor1, tensor2, as_handle(value, input, wide=True)))


@builder("addcmul")
def _addcmul(x: Node, a: Node, b: Node, value: Node) -> Node:
    refuse("addcmul_cpu_out", to(x, result_dtype(x, a, b)), dtypes.BOOL)
    return _plus_scaled(_mul, x, a, b, value)


def _plus_scaled(op: Any, x: Node, a: Node, b: Node, value: Node) -> Node:
    x, a, b, value = beside(x, a, b, value)
    dtype = result_dtype(x, a, b)
    if value.dtype.is_complex and not dtype.is_complex:
        raise RuntimeError(f"value cannot be converted to {dtype} without overflow{at_user_line()}")
    term = op(to(a, dtype), to(b, dtype))
    return _add(x, _mul(term, to(value, term.dtype)))


@public("addcdiv", in_place=True)
def addcdiv(
    input: Tensor,
    tensor1: Tensor,
    tensor2: Tensor,
    *last: Tensor,
    value: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """input + value * tensor1 / tensor2."""
    if last:
        given = (input, tensor1, tensor2, *last)
        return in_older_order(addcdiv, given, ("value",), out=out)  # type: ignore[no-any-return]
    if not (tensor1.dtype.is_differentiable or tensor2.dtype.is_differentiable):
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported; convert the tensors to floats"
            f"{at_user_line()}"
        )
    return into(out, record(_addcdiv, input, tensor1, tensor2, as_handle(value, input, wide=True)))


@builder("addcdiv")
def _addcdiv(x: Node, a: Node, b: Node, value: Node) -> Node:
    return _plus_scaled(_div, x, a, b, value)


@public("nan_to_num", in_place=True, in_place_function=True)
def nan_to_num(
    input: Tensor,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """NaN and infinities replaced by finite numbers (by default 0 and the largest finite ones)."""
    if input.dtype.is_complex:
        parts = (nan_to_num(part, nan, posinf, neginf) for part in (input.real, input.imag))
        return record(ops.complex, *parts)
    if not input.dtype.is_floating_point:
        return into(out, input.clone(), cast=False)
    import ml_dtypes

    largest = float(ml_dtypes.finfo(input.dtype.np).max)
    high = as_handle(largest if posinf is None else float(posinf), input)
    low = as_handle(-largest if neginf is None else float(neginf), input)
    return into(
        out, record(_nan_to_num, input, as_handle(float(nan), input), high, low), cast=False
    )


@builder("nan_to_num")
def _nan_to_num(x: Node, nan: Node, high: Node, low: Node) -> Node:
    def value(v: Node) -> Node:
        return ops.expand(to(v, x.dtype), x.shape)

    infinite = ops.isinf(x)
    finite = ops.where(infinite, ops.where(x > 0, value(high), value(low)), x)
    return ops.where(ops.isnan(x), value(nan), finite)


@public("isclose")
def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """|input - other| <= atol + rtol * |other|, elementwise."""
    if rtol < 0 or atol < 0:
        raise RuntimeError(
            f"rtol and atol must be greater than or equal to zero, but got {rtol} and {atol}"
            f"{at_user_line()}"
        )
    return record(_isclose, input, other, float(rtol), float(atol), bool(equal_nan))


@builder("isclose")
def _isclose(a: Node, b: Node, rtol: float, atol: float, equal_nan: bool) -> Node:
    if a.dtype is not b.dtype:
        raise RuntimeError(f"{a.dtype.kind} did not match {b.dtype.kind}{at_user_line()}")
    equal = ops.eq(a, b)
    if equal_nan and a.dtype.is_differentiable:
        equal = ops.bitwise_or(equal, ops.bitwise_and(_isnan(a), _isnan(b)))
    if rtol == atol == 0:
        return equal
    a, b = floating(a), floating(b)
    error = _abs(a - b)
    near = ops.bitwise_and(error <= _abs(b) * rtol + atol, ops.isfinite(error))
    return ops.bitwise_or(equal, near)
