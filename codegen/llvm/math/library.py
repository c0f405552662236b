"""Functions of the C library in float64."""

from __future__ import annotations

from collections.abc import Sequence

from ..code import Code, Level
from ..types import Ref, suffix, vector

LIBM = frozenset(
    "exp2 expm1 log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc lgamma atan2 fmod".split()
)
"""Functions that the C library computes in float64, lane by lane."""


def library(code: Code, name: str, args: Sequence[Ref], at: Level | None = None) -> Ref:
    """A function of the C library on float64, lane by lane."""
    lanes = args[0].lanes
    code.declare(f"declare double @{name}({', '.join(['double'] * len(args))})")
    if lanes == 1:
        return code.let(f"call double @{name}({', '.join(a.typed for a in args)})", "double", at=at)
    symbol = f"tw_c_{name}_{suffix('double', lanes)}"
    code.define(symbol, lambda: _lane_loop(symbol, name, len(args), lanes))
    full = vector("double", lanes)
    typed = ", ".join(a.typed for a in args)
    return code.let(f"call {full} @{symbol}({typed})", "double", lanes, at)


def _lane_loop(symbol: str, name: str, count: int, lanes: int) -> str:
    full = vector("double", lanes)
    parameters = ", ".join(f"{full} %a{i}" for i in range(count))
    taken = "\n".join(f"  %x{i} = extractelement {full} %a{i}, i64 %i" for i in range(count))
    given = ", ".join(f"double %x{i}" for i in range(count))
    return f"""define internal {full} @{symbol}({parameters}) noinline #0 {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %out = phi {full} [ zeroinitializer, %entry ], [ %more, %loop ]
{taken}
  %y = call double @{name}({given})
  %more = insertelement {full} %out, double %y, i64 %i
  %next = add i64 %i, 1
  %go = icmp ult i64 %next, {lanes}
  br i1 %go, label %loop, label %done
done:
  ret {full} %more
}}"""
