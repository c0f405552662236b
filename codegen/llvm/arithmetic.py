"""Elementwise ops as instructions, each with PyTorch's edge cases."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import ops
from tilewright.ir.dtype import BOOL
from tilewright.ir.op import Fold

from ..kernel import Apply
from ..ops import initial
from . import integers, math
from .body import Body, Mask
from .code import Level
from .folds import combine
from .machine import CannotLower
from .math.library import LIBM, library
from .routine import ROUTINES, Context, Routine, routine
from .types import Ref, constant


def apply(body: Body, value: Apply, args: Sequence[Ref], mask: Mask | None, at: Level) -> Ref:
    """The op's routine, or the function of floats named in its record."""
    context = Context(body, value, args, mask, at)
    found = ROUTINES.get(value.op)
    if found is not None:
        return found(context)
    function = value.op.llvm
    if function is None or not context.floating:
        raise CannotLower(f"{value.op.name} of {value.dtype}")
    return _function(context, function)


def _function(c: Context, name: str) -> Ref:
    kind = c.args[0].type
    if math.has(name, kind):
        return math.call(c.code, name, c.args, c.at)
    if kind == "double" and name in LIBM:
        return library(c.code, name, c.args, c.at)
    raise CannotLower(f"{name} of {c.dtype}")


# Arithmetic.


@routine(ops.add)
def _add(c: Context) -> Ref:
    op = "fadd" if c.floating else "or" if c.dtype.category == BOOL else "add"
    return c.binary(op, *c.args)


@routine(ops.sub)
def _sub(c: Context) -> Ref:
    return c.binary("fsub" if c.floating else "sub", *c.args)


@routine(ops.mul)
def _mul(c: Context) -> Ref:
    op = "fmul" if c.floating else "and" if c.dtype.category == BOOL else "mul"
    return c.binary(op, *c.args)


@routine(ops.div)
def _div(c: Context) -> Ref:
    return c.binary("fdiv", *c.args)


@routine(ops.neg)
def _neg(c: Context) -> Ref:
    (x,) = c.args
    if c.floating:
        return c.code.let(f"fneg {x.typed}", x.type, x.lanes, c.at)
    return c.binary("sub", c.like(0), x)


@routine(ops.abs)
def _abs(c: Context) -> Ref:
    (x,) = c.args
    if c.floating:
        return c.intrinsic("fabs", x)
    if not c.signed:
        return x
    return c.select(c.compare("icmp slt", x, c.like(0)), c.binary("sub", c.like(0), x), x)


@routine(ops.sign)
def _sign(c: Context) -> Ref:
    (x,) = c.args
    if not c.floating:
        more = c.compare("icmp sgt" if c.signed else "icmp ugt", x, c.like(0))
        out = c.code.convert("zext", more, x.type, c.at)
        less = c.compare("icmp slt", x, c.like(0))
        return c.select(less, c.like(-1), out) if c.signed else out
    out = c.select(c.compare("fcmp ogt", x, c.like(0)), c.like(1), c.like(0))
    return c.select(c.compare("fcmp olt", x, c.like(0)), c.like(-1), out)


def _rounding(name: str) -> Routine:
    def make(c: Context) -> Ref:
        return c.intrinsic(name, *c.args) if c.floating else c.args[0]

    return make


for _op, _intrinsic in (
    (ops.floor, "floor"),
    (ops.ceil, "ceil"),
    (ops.round, "rint"),
    (ops.trunc, "trunc"),
):
    ROUTINES[_op] = _rounding(_intrinsic)


@routine(ops.sqrt, ops.root)
def _sqrt(c: Context) -> Ref:
    return c.intrinsic("sqrt", *c.args)


@routine(ops.rsqrt)
def _rsqrt(c: Context) -> Ref:
    """1 / sqrt(x): 1 ulp, since both operations are rounded to nearest."""
    return c.binary("fdiv", c.like(1), c.intrinsic("sqrt", *c.args))


@routine(ops.reciprocal)
def _reciprocal(c: Context) -> Ref:
    return c.binary("fdiv", c.like(1), c.args[0])


@routine(ops.copysign)
def _copysign(c: Context) -> Ref:
    return c.intrinsic("copysign", *c.args)


@routine(ops.relu)
def _relu(c: Context) -> Ref:
    (x,) = c.args
    less = c.compare(
        "fcmp olt" if c.floating else "icmp slt" if c.signed else "icmp ult", x, c.like(0)
    )
    return c.select(less, c.like(0), x)


def _extremum(fold: Fold) -> Routine:
    def make(c: Context) -> Ref:
        return combine(c.body, fold, c.dtype, c.args[0], c.args[1], c.at)

    return make


ROUTINES[ops.maximum], ROUTINES[ops.minimum] = _extremum(Fold.MAX), _extremum(Fold.MIN)


@routine(ops.pow)
def _pow(c: Context) -> Ref:
    return _function(c, "pow") if c.floating else integers.power(c)


@routine(ops.gcd)
def _gcd(c: Context) -> Ref:
    return integers.divisor(c)


@routine(ops.floor_divide, ops.remainder, ops.fmod)
def _division(c: Context) -> Ref:
    if not c.floating:
        return integers.division(c)
    if c.value.op is ops.fmod:
        return _function(c, "fmod")
    return _floor_division(c, c.value.op is ops.remainder)


def _floor_division(c: Context, remainder: bool) -> Ref:
    """Division as in Python, except that a remainder of zero has the sign of the dividend."""
    a, b = c.args
    rest = _function(c, "fmod")
    other = c.binary(
        "xor", c.compare("fcmp olt", b, c.like(0)), c.compare("fcmp olt", rest, c.like(0))
    )
    number = c.compare("fcmp ord", rest, rest)
    other = c.binary("and", c.binary("and", other, number), c.compare("fcmp une", rest, c.like(0)))
    if remainder:
        return c.select(other, c.binary("fadd", rest, b), rest)
    whole = c.binary("fdiv", c.binary("fsub", a, rest), b)
    whole = c.select(other, c.binary("fsub", whole, c.like(1)), whole)
    floor = c.intrinsic("floor", whole)
    up = c.compare("fcmp ogt", c.binary("fsub", whole, floor), c.like(0.5))
    floor = c.select(up, c.binary("fadd", floor, c.like(1)), floor)
    ratio = c.binary("fdiv", a, b)
    floor = c.select(
        c.compare("fcmp oeq", whole, c.like(0)), c.intrinsic("copysign", c.like(0), ratio), floor
    )
    return c.select(c.compare("fcmp oeq", b, c.like(0)), ratio, floor)


# Comparisons and logic.


def _comparison(floating: str, integer: str) -> Routine:
    def make(c: Context) -> Ref:
        if c.floating:
            return c.compare(f"fcmp {floating}", *c.args)
        sign = "" if integer in ("eq", "ne") else "s" if c.signed else "u"
        return c.compare(f"icmp {sign}{integer}", *c.args)

    return make


for _op, _float, _int in (
    (ops.eq, "oeq", "eq"),
    (ops.ne, "une", "ne"),
    (ops.lt, "olt", "lt"),
    (ops.le, "ole", "le"),
    (ops.gt, "ogt", "gt"),
    (ops.ge, "oge", "ge"),
):
    ROUTINES[_op] = _comparison(_float, _int)


@routine(ops.where)
def _where(c: Context) -> Ref:
    return c.select(*c.args)


@routine(ops.isnan)
def _isnan(c: Context) -> Ref:
    (x,) = c.args
    return c.compare("fcmp uno", x, x) if c.floating else constant(False, "i1", c.lanes)


@routine(ops.isinf)
def _isinf(c: Context) -> Ref:
    if not c.floating:
        return constant(False, "i1", c.lanes)
    return c.compare("fcmp oeq", c.intrinsic("fabs", c.args[0]), c.like(float("inf")))


@routine(ops.isfinite)
def _isfinite(c: Context) -> Ref:
    if not c.floating:
        return constant(True, "i1", c.lanes)
    return c.compare("fcmp olt", c.intrinsic("fabs", c.args[0]), c.like(float("inf")))


@routine(ops.logical_not)
def _logical_not(c: Context) -> Ref:
    return c.compare("fcmp oeq" if c.floating else "icmp eq", c.args[0], c.like(0))


@routine(ops.bitwise_not)
def _bitwise_not(c: Context) -> Ref:
    return c.binary("xor", c.args[0], c.like(True if c.dtype.category == BOOL else -1))


def _bitwise(op: str) -> Routine:
    return lambda c: c.binary(op, *c.args)


for _op, _bits in ((ops.bitwise_and, "and"), (ops.bitwise_or, "or"), (ops.bitwise_xor, "xor")):
    ROUTINES[_op] = _bitwise(_bits)


@routine(ops.shift_left, ops.shift_right)
def _shift(c: Context) -> Ref:
    """Shifts by the width or more give 0, or -1 for a negative number shifted right."""
    a, b = c.args
    if c.dtype.category == BOOL:
        raise CannotLower(f"{c.value.op.name} of bools")
    bits = int(a.type[1:])
    fits = c.compare("icmp ult", b, c.like(bits))
    if c.value.op is ops.shift_left:
        return c.select(fits, c.binary("shl", a, b), c.like(0))
    if not c.signed:
        return c.select(fits, c.binary("lshr", a, b), c.like(0))
    return c.binary("ashr", a, c.select(fits, b, c.like(bits - 1)))


@routine(initial)
def _initial(c: Context) -> Ref:
    return c.args[0]
