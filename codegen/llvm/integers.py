"""Integer division, common divisors and powers, kept from operands for which LLVM's are
undefined."""

from __future__ import annotations

from tilewright.ir import ops
from tilewright.ir.dtype import BOOL

from ..kernel.index import Check
from .arms import on_demand
from .checks import fail
from .machine import CannotLower
from .routine import Context
from .types import Ref, constant, suffix, vector


def division(c: Context) -> Ref:
    """floor_divide and remainder round down; fmod's result has the sign of the dividend.

    A divisor of zero is recorded as a failure. A divisor of -1 skips the instruction, which would
    trap at the least integer.
    """
    a, b = c.args
    op = c.value.op
    if c.dtype.category == BOOL:
        raise CannotLower(f"{op.name} of bools")
    safe = b
    if c.value.may_fail:
        zero = c.compare("icmp eq", b, c.like(0))
        fail_at = constant(0, "i64", zero.lanes)
        fail(c.body, zero, fail_at, Check(0, 0, ("", 0), "division"), c.mask, c.at)
        safe = c.select(zero, c.like(1), b)
    if not c.signed:
        return c.binary("udiv" if op is ops.floor_divide else "urem", a, safe)
    minus = c.compare("icmp eq", b, c.like(-1))
    safe = c.select(minus, c.like(1), safe)
    rest = c.select(minus, c.like(0), c.binary("srem", a, safe))
    if op is ops.fmod:
        return rest
    uneven = c.compare("icmp ne", rest, c.like(0))
    apart = c.compare("icmp slt", c.binary("xor", rest, safe), c.like(0))
    down = c.binary("and", uneven, apart)
    if op is ops.remainder:
        return c.select(down, c.binary("add", rest, safe), rest)
    whole = c.select(minus, c.binary("sub", c.like(0), a), c.binary("sdiv", a, safe))
    return c.select(down, c.binary("sub", whole, c.like(1)), whole)


def divisor(c: Context) -> Ref:
    """The greatest common divisor by shifts and differences (Stein, "Computational problems
    associated with Racah algebra", 1967): no vector unit divides integers. All lanes step until
    the last one is done."""
    a, b = c.args
    if c.dtype.category == BOOL:
        raise CannotLower("gcd of bools")
    if c.signed:
        a, b = (
            c.select(c.compare("icmp slt", x, c.like(0)), c.binary("sub", c.like(0), x), x)
            for x in (a, b)
        )
    kind, lanes = a.type, a.lanes
    full = vector(kind, lanes)
    symbol = f"tw_gcd_{suffix(kind, lanes)}"
    c.code.define(symbol, lambda: _divisor(symbol, kind, lanes))
    for name, operands in (
        ("cttz", f"{full}, i1"),
        ("umin", f"{full}, {full}"),
        ("umax", f"{full}, {full}"),
    ):
        c.code.declare(f"declare {full} @llvm.{name}.{suffix(kind, lanes)}({operands})")
    if lanes > 1:
        c.code.declare(f"declare i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1>)")
    found = c.code.let(f"call {full} @{symbol}({a.typed}, {b.typed})", kind, lanes, c.at)
    if not c.signed:
        return found
    # The least integer has no magnitude. Beside it PyTorch's result has the sign that Euclid's
    # algorithm leaves.
    least = c.like(-(1 << (int(kind[1:]) - 1)))
    odd = c.binary("or", *(c.compare("icmp eq", x, least) for x in (a, b)))

    def signed() -> Ref:
        return c.select(odd, _euclid(c, a, b), found)

    return on_demand(c.code, odd, signed, c.at, found)


def _euclid(c: Context, a: Ref, b: Ref) -> Ref:
    kind, lanes = a.type, a.lanes
    full, mask, name = vector(kind, lanes), vector("i1", lanes), suffix(kind, lanes)
    none, one = constant(0, kind, lanes).text, constant(1, kind, lanes).text
    some = "  %more = or i1 %left, false"
    if lanes > 1:
        some = f"  %more = call i1 @llvm.vector.reduce.or.v{lanes}i1({mask} %left)"
    symbol = f"tw_euclid_{name}"
    c.code.define(
        symbol,
        lambda: (
            f"""define internal {full} @{symbol}({full} %a, {full} %b) noinline #0 {{
entry:
  br label %loop
loop:
  %x = phi {full} [ %a, %entry ], [ %next, %loop ]
  %y = phi {full} [ %b, %entry ], [ %below, %loop ]
  %done = icmp eq {full} %y, {none}
  %by = select {mask} %done, {full} {one}, {full} %y
  %rest = srem {full} %x, %by
  %next = select {mask} %done, {full} %x, {full} %y
  %below = select {mask} %done, {full} {none}, {full} %rest
  %left = icmp ne {full} %below, {none}
{some}
  br i1 %more, label %loop, label %end
end:
  ret {full} %next
}}"""
        ),
    )
    return c.code.let(f"call {full} @{symbol}({a.typed}, {b.typed})", kind, lanes, c.at)


def _divisor(symbol: str, kind: str, lanes: int) -> str:
    full, mask, name = vector(kind, lanes), vector("i1", lanes), suffix(kind, lanes)
    none, width = constant(0, kind, lanes).text, constant(int(kind[1:]) - 1, kind, lanes).text
    some = "  %more = or i1 %left, false"
    if lanes > 1:
        some = f"  %more = call i1 @llvm.vector.reduce.or.v{lanes}i1({mask} %left)"

    def odd(out: str, x: str) -> str:
        """x without its factors of two. Zero stays zero, though all its bits count."""
        return f"""  %{out}.count = call {full} @llvm.cttz.{name}({full} %{x}, i1 false)
  %{out}.shift = and {full} %{out}.count, {width}
  %{out} = lshr {full} %{x}, %{out}.shift"""

    return f"""define internal {full} @{symbol}({full} %a.given, {full} %b.given) noinline #0 {{
entry:
  %a = freeze {full} %a.given
  %b = freeze {full} %b.given
  %both = or {full} %a, %b
{odd("common", "both")}
  %a.none = icmp eq {full} %a, {none}
  %first = select {mask} %a.none, {full} %b, {full} %a
  %rest = select {mask} %a.none, {full} {none}, {full} %b
{odd("start", "first")}
  br label %loop
loop:
  %u = phi {full} [ %start, %entry ], [ %low, %loop ]
  %v = phi {full} [ %rest, %entry ], [ %apart, %loop ]
{odd("w", "v")}
  %least = call {full} @llvm.umin.{name}({full} %u, {full} %w)
  %most = call {full} @llvm.umax.{name}({full} %u, {full} %w)
  %done = icmp eq {full} %w, {none}
  %low = select {mask} %done, {full} %u, {full} %least
  %gap = sub {full} %most, %least
  %apart = select {mask} %done, {full} {none}, {full} %gap
  %left = icmp ne {full} %apart, {none}
{some}
  br i1 %more, label %loop, label %end
end:
  %out = shl {full} %low, %common.shift
  ret {full} %out
}}"""


def power(c: Context) -> Ref:
    """Powers by squaring, modulo the width. Negative exponents give 0 unless the base is 1 or
    -1."""
    a, b = c.args
    kind, lanes = a.type, a.lanes
    full = vector(kind, lanes)
    symbol = f"tw_power_{suffix(kind, lanes)}"
    c.code.define(symbol, lambda: _power(symbol, kind, lanes))
    if lanes > 1:
        c.code.declare(f"declare i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1>)")
    exponent = b
    if c.signed:
        negative = c.compare("icmp slt", b, c.like(0))
        exponent = c.select(negative, c.like(0), b)
    call = f"call {full} @{symbol}({a.typed}, {exponent.typed})"
    out = c.code.let(call, kind, lanes, c.at)
    if not c.signed:
        return out
    odd = c.compare("icmp ne", c.binary("and", b, c.like(1)), c.like(0))
    unit = c.select(odd, c.like(-1), c.like(1))
    unit = c.select(c.compare("icmp eq", a, c.like(-1)), unit, c.like(0))
    unit = c.select(c.compare("icmp eq", a, c.like(1)), c.like(1), unit)
    return c.select(negative, unit, out)


def _power(symbol: str, kind: str, lanes: int) -> str:
    full, mask = vector(kind, lanes), vector("i1", lanes)
    one, none = constant(1, kind, lanes).text, constant(0, kind, lanes).text
    some = "  %more = freeze i1 %left"
    if lanes > 1:
        some = f"  %more = call i1 @llvm.vector.reduce.or.v{lanes}i1({mask} %left)"
    return f"""define internal {full} @{symbol}({full} %a, {full} %b) noinline #0 {{
entry:
  br label %loop
loop:
  %base = phi {full} [ %a, %entry ], [ %square, %loop ]
  %rest = phi {full} [ %b, %entry ], [ %half, %loop ]
  %out = phi {full} [ {one}, %entry ], [ %next, %loop ]
  %bit = and {full} %rest, {one}
  %odd = icmp ne {full} %bit, {none}
  %times = mul {full} %out, %base
  %next = select {mask} %odd, {full} %times, {full} %out
  %square = mul {full} %base, %base
  %half = lshr {full} %rest, {one}
  %left = icmp ne {full} %half, {none}
{some}
  br i1 %more, label %loop, label %done
done:
  ret {full} %next
}}"""
