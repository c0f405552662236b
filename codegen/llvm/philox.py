"""Philox 4x32-10 (Salmon et al., SC 2011), in lanes."""

from __future__ import annotations

from .body import Body
from .code import Level
from .types import Ref, constant, suffix, vector

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85


def word(body: Body, seed: Ref, offset: Ref, index: Ref, at: Level) -> Ref:
    """Word 0 at counter (index, index >> 32, offset, offset >> 32) under the key `seed`."""
    code, lanes = body.code, max(r.lanes for r in (seed, offset, index))
    seed, offset, index = (code.spread(r, lanes, at) for r in (seed, offset, index))
    symbol = f"tw_philox_{suffix('i32', lanes)}"
    code.define(symbol, lambda: _function(symbol, lanes))
    text = f"call {vector('i32', lanes)} @{symbol}({seed.typed}, {offset.typed}, {index.typed})"
    return code.let(text, "i32", lanes, at)


def _function(symbol: str, lanes: int) -> str:
    """The rounds as a loop: written out, they take LLVM ten times as long and run no faster."""
    half, full = vector("i32", lanes), vector("i64", lanes)

    def number(value: int, kind: str) -> str:
        return constant(value, kind, lanes).text

    shift = number(32, "i64")
    split = "\n".join(
        f"  %{low} = trunc {full} %{name} to {half}\n"
        f"  %{name}.shifted = lshr {full} %{name}, {shift}\n"
        f"  %{high} = trunc {full} %{name}.shifted to {half}"
        for name, low, high in (("index", "a0", "a1"), ("offset", "a2", "a3"), ("seed", "b0", "b1"))
    )
    rounds = "\n".join(
        f"  %wide{i} = zext {half} %c{2 * i} to {full}\n"
        f"  %product{i} = mul {full} %wide{i}, {number(factor, 'i64')}\n"
        f"  %low{i} = trunc {full} %product{i} to {half}\n"
        f"  %shifted{i} = lshr {full} %product{i}, {shift}\n"
        f"  %high{i} = trunc {full} %shifted{i} to {half}"
        for i, factor in enumerate((_M0, _M1))
    )
    parameters = ", ".join(f"{full} %{n}" for n in ("seed", "offset", "index"))
    return f"""define internal {half} @{symbol}({parameters}) noinline #0 {{
entry:
{split}
  br label %round
round:
  %turn = phi i32 [ 0, %entry ], [ %next, %round ]
  %c0 = phi {half} [ %a0, %entry ], [ %n0, %round ]
  %c1 = phi {half} [ %a1, %entry ], [ %low1, %round ]
  %c2 = phi {half} [ %a2, %entry ], [ %n2, %round ]
  %c3 = phi {half} [ %a3, %entry ], [ %low0, %round ]
  %k0 = phi {half} [ %b0, %entry ], [ %m0, %round ]
  %k1 = phi {half} [ %b1, %entry ], [ %m1, %round ]
{rounds}
  %x0 = xor {half} %high1, %c1
  %n0 = xor {half} %x0, %k0
  %x2 = xor {half} %high0, %c3
  %n2 = xor {half} %x2, %k1
  %m0 = add {half} %k0, {number(_W0, "i32")}
  %m1 = add {half} %k1, {number(_W1, "i32")}
  %next = add i32 %turn, 1
  %more = icmp ult i32 %next, 10
  br i1 %more, label %round, label %done
done:
  ret {half} %n0
}}"""
