"""Philox 4x32-10 (Salmon et al., SC 2011), in lanes."""

from __future__ import annotations

from .body import Body
from .code import Code, Level
from .types import Ref, constant, suffix, vector

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85


def word(body: Body, seed: Ref, offset: Ref, index: Ref, wide: bool, at: Level) -> Ref:
    """Word 0 at counter (index, index >> 32, offset, offset >> 32) under the key `seed`. wide: as
    64 bits with word 1 below it."""
    code, lanes = body.code, max(r.lanes for r in (seed, offset, index))
    seed, offset, index = (code.spread(r, lanes, at) for r in (seed, offset, index))
    most = body.machine.vector_bytes // 4  # the state of more lanes doesn't fit the registers
    parts = []
    for first in range(0, lanes, most):
        own = [_lanes(code, r, first, most, at) for r in (seed, offset, index)]
        parts.append(_word(code, own[0], own[1], own[2], wide, at))
    while len(parts) > 1:
        parts = [_joined(code, a, b, at) for a, b in zip(parts[::2], parts[1::2])]
    return parts[0]


def _word(code: Code, seed: Ref, offset: Ref, index: Ref, wide: bool, at: Level) -> Ref:
    lanes, kind = index.lanes, "i64" if wide else "i32"
    symbol = f"tw_philox_{suffix(kind, lanes)}"
    code.define(symbol, lambda: _function(symbol, kind, lanes))
    text = f"call {vector(kind, lanes)} @{symbol}({seed.typed}, {offset.typed}, {index.typed})"
    return code.let(text, kind, lanes, at)


def _lanes(code: Code, ref: Ref, first: int, most: int, at: Level) -> Ref:
    if ref.lanes <= most:
        return ref
    order = ", ".join(f"i32 {i}" for i in range(first, first + most))
    text = f"shufflevector {ref.typed}, {ref.full_type} poison, <{most} x i32> <{order}>"
    return code.let(text, ref.type, most, at)


def _joined(code: Code, a: Ref, b: Ref, at: Level) -> Ref:
    order = ", ".join(f"i32 {i}" for i in range(2 * a.lanes))
    text = f"shufflevector {a.typed}, {b.typed}, <{2 * a.lanes} x i32> <{order}>"
    return code.let(text, a.type, 2 * a.lanes, at)


def _function(symbol: str, kind: str, lanes: int) -> str:
    """The rounds as a loop: written out, they take LLVM ten times as long and run no faster.

    Words stay in lanes of 64 bits, where a product finds its factors in the lower halves and leaves
    its own high word to a shift. Only the last word is made narrow, or joined with its
    neighbour. What stands above a word is never read.
    """
    result, full = vector(kind, lanes), vector("i64", lanes)

    def number(value: int) -> str:
        return constant(value, "i64", lanes).text

    low, shift = number(0xFFFFFFFF), number(32)
    highs = "\n".join(
        f"  %{name}.high = lshr {full} %{name}, {shift}" for name in ("index", "offset", "seed")
    )
    rounds = "\n".join(
        f"  %factor{i} = and {full} %c{2 * i}, {low}\n"
        f"  %product{i} = mul {full} %factor{i}, {number(factor)}\n"
        f"  %high{i} = lshr {full} %product{i}, {shift}"
        for i, factor in enumerate((_M0, _M1))
    )
    parameters = ", ".join(f"{full} %{n}" for n in ("seed", "offset", "index"))
    last = (
        f"  %word = trunc {full} %n0 to {result}"
        if kind == "i32"
        else f"  %above = shl {full} %n0, {shift}\n"
        f"  %below = and {full} %product1, {low}\n"
        f"  %word = or {full} %above, %below"
    )
    return f"""define internal {result} @{symbol}({parameters}) noinline #0 {{
entry:
{highs}
  br label %round
round:
  %turn = phi i32 [ 0, %entry ], [ %next, %round ]
  %c0 = phi {full} [ %index, %entry ], [ %n0, %round ]
  %c1 = phi {full} [ %index.high, %entry ], [ %product1, %round ]
  %c2 = phi {full} [ %offset, %entry ], [ %n2, %round ]
  %c3 = phi {full} [ %offset.high, %entry ], [ %product0, %round ]
  %k0 = phi {full} [ %seed, %entry ], [ %m0, %round ]
  %k1 = phi {full} [ %seed.high, %entry ], [ %m1, %round ]
{rounds}
  %x0 = xor {full} %high1, %c1
  %n0 = xor {full} %x0, %k0
  %x2 = xor {full} %high0, %c3
  %n2 = xor {full} %x2, %k1
  %m0 = add {full} %k0, {number(_W0)}
  %m1 = add {full} %k1, {number(_W1)}
  %next = add i32 %turn, 1
  %more = icmp ult i32 %next, 10
  br i1 %more, label %round, label %done
done:
{last}
  ret {result} %word
}}"""
