"""Folds of few short rows in NumPy's order: LLVM IR for any sizes.

    out[i] = fold of x[i, j] over j

Sums are pairwise, as `numpy.add.reduce` takes them along contiguous rows: up to 128 elements in
eight sums that are joined at the end, more by halves. So they have the bits of NumPy's. A row has
one element at least.
"""

from __future__ import annotations

import itertools

from tilewright.ir.dtype import DType, float32, float64

from .code import Code, module_text
from .types import computed, constant, integer, suffix, vector

WORDS = ("out", "x", "rows", "length")
"""The argument words."""

SUM, MAXIMUM, MINIMUM = "fadd", "maximum", "minimum"
"""The folds, by LLVM's names of what joins two elements."""
KINDS = tuple(itertools.product((float32, float64), (SUM, MAXIMUM, MINIMUM)))
"""The folds that there are."""

_FOLD = """
define internal $T @fold(ptr %x, i64 %count) #0 {
entry:
  %few = icmp ult i64 %count, 8
  br i1 %few, label %first, label %some
first:
  %x.0 = load $T, ptr %x, align $BYTES
  br label %rest
some:
  %many = icmp ugt i64 %count, 128
  br i1 %many, label %halves, label %eight
halves:
  %half = lshr i64 %count, 1
  %left = and i64 %half, -8
  %right = sub i64 %count, %left
  %at.right = getelementptr $T, ptr %x, i64 %left
  %of.left = call $T @fold(ptr %x, i64 %left)
  %of.right = call $T @fold(ptr %at.right, i64 %right)
  %of.both = call $T @both.1($T %of.left, $T %of.right)
  ret $T %of.both
eight:
  %whole = and i64 %count, -8
  %v.0 = load <8 x $T>, ptr %x, align $BYTES
  br label %loop
loop:
  %i = phi i64 [ 8, %eight ], [ %i.next, %body ]
  %v = phi <8 x $T> [ %v.0, %eight ], [ %v.next, %body ]
  %more = icmp ult i64 %i, %whole
  br i1 %more, label %body, label %join
body:
  %v.at = getelementptr $T, ptr %x, i64 %i
  %v.i = load <8 x $T>, ptr %v.at, align $BYTES
  %v.next = call <8 x $T> @both.8(<8 x $T> %v, <8 x $T> %v.i)
  %i.next = add i64 %i, 8
  br label %loop
join:
  %even.8 = shufflevector <8 x $T> %v, <8 x $T> poison, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %odd.8 = shufflevector <8 x $T> %v, <8 x $T> poison, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %four = call <4 x $T> @both.4(<4 x $T> %even.8, <4 x $T> %odd.8)
  %even.4 = shufflevector <4 x $T> %four, <4 x $T> poison, <2 x i32> <i32 0, i32 2>
  %odd.4 = shufflevector <4 x $T> %four, <4 x $T> poison, <2 x i32> <i32 1, i32 3>
  %two = call <2 x $T> @both.2(<2 x $T> %even.4, <2 x $T> %odd.4)
  %even.2 = extractelement <2 x $T> %two, i64 0
  %odd.2 = extractelement <2 x $T> %two, i64 1
  %joined = call $T @both.1($T %even.2, $T %odd.2)
  br label %rest
rest:
  %begin = phi i64 [ 1, %first ], [ %whole, %join ]
  %so.far = phi $T [ %x.0, %first ], [ %joined, %join ]
  br label %next
next:
  %j = phi i64 [ %begin, %rest ], [ %j.next, %one ]
  %total = phi $T [ %so.far, %rest ], [ %total.next, %one ]
  %left.over = icmp ult i64 %j, %count
  br i1 %left.over, label %one, label %out
one:
  %x.at = getelementptr $T, ptr %x, i64 %j
  %x.j = load $T, ptr %x.at, align $BYTES
  %total.next = call $T @both.1($T %total, $T %x.j)
  %j.next = add i64 %j, 1
  br label %next
out:
  ret $T %total
}
"""


def text(dtype: DType, fold: str) -> str:
    """The module with a function `kernel`."""
    kind = computed(dtype)
    code = Code("kernel", "ptr %words, i64 %chunk")
    out, x, rows, length = code.words(WORDS, 2).values()
    row = code.open_loop(integer(0), rows)
    begin = code.binary("mul", row.variable, length)
    at = code.let(f"getelementptr {kind}, {x.typed}, {begin.typed}", "ptr")
    folded = code.let(f"call {kind} @fold({at.typed}, {length.typed})", kind)
    if fold == SUM:  # NumPy's begin with 0, so there is no negative zero among them
        folded = code.binary("fadd", folded, constant(0, kind))
    to = code.let(f"getelementptr {kind}, {out.typed}, {row.variable.typed}", "ptr")
    code.add(f"store {folded.typed}, {to.typed}, align {dtype.itemsize}")
    code.close_loop(row)
    parts = [module_text([code]), _FOLD, *[_both(fold, kind, lanes) for lanes in (1, 2, 4, 8)]]
    return "".join(parts).replace("$T", kind).replace("$BYTES", str(dtype.itemsize))


def _both(fold: str, kind: str, lanes: int) -> str:
    """The function that folds two vectors of so many lanes, lane by lane."""
    full, declared, call = vector(kind, lanes), "", f"{fold} {vector(kind, lanes)} %a, %b"
    if fold != SUM:
        name = f"@llvm.{fold}.{suffix(kind, lanes)}"
        declared = f"declare {full} {name}({full}, {full})\n"
        call = f"call {full} {name}({full} %a, {full} %b)"
    head = f"define internal {full} @both.{lanes}({full} %a, {full} %b) alwaysinline #0"
    return f"{declared}{head} {{\n  %both = {call}\n  ret {full} %both\n}}\n"
