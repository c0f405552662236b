"""Folds of few short rows in NumPy's order: LLVM IR for any sizes.

    out[i] = fold of x[i, j] over j

Sums are pairwise, as `numpy.add.reduce` takes them along contiguous rows: up to 128 elements in
eight sums that are joined at the end, more by halves. So they have the bits of NumPy's. A row has
one element at least.
"""

from __future__ import annotations

import itertools

from tilewright.ir.dtype import DType, float32, float64

from .types import computed, suffix, vector

WORDS = ("out", "x", "rows", "length")
"""The argument words."""

SUM, MAXIMUM, MINIMUM = "fadd", "maximum", "minimum"
"""The folds, by LLVM's names of what joins two elements."""
KINDS = tuple(itertools.product((float32, float64), (SUM, MAXIMUM, MINIMUM)))
"""The folds that there are."""

_TEXT = """
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

define void @kernel(ptr %words, i64 %chunk) #0 {
entry:
  %out = load ptr, ptr %words, align 8
  %x.word = getelementptr i64, ptr %words, i64 1
  %x = load ptr, ptr %x.word, align 8
  %rows.word = getelementptr i64, ptr %words, i64 2
  %rows = load i64, ptr %rows.word, align 8
  %length.word = getelementptr i64, ptr %words, i64 3
  %length = load i64, ptr %length.word, align 8
  br label %loop
loop:
  %row = phi i64 [ 0, %entry ], [ %following, %body ]
  %more = icmp ult i64 %row, %rows
  br i1 %more, label %body, label %end
body:
  %begin = mul i64 %row, %length
  %at = getelementptr $T, ptr %x, i64 %begin
  %folded = call $T @fold(ptr %at, i64 %length)
  %made = call $T @last($T %folded)
  %to = getelementptr $T, ptr %out, i64 %row
  store $T %made, ptr %to, align $BYTES
  %following = add i64 %row, 1
  br label %loop
end:
  ret void
}
"""

_BOTH = """
define internal $V @both.$LANES($V %a, $V %b) alwaysinline #0 {
  %both = $FOLD
  ret $V %both
}
"""

_LAST = """
define internal $T @last($T %folded) alwaysinline #0 {
  %made = $LAST
  ret $T %made
}
"""


def text(dtype: DType, fold: str) -> str:
    """The module with a function `kernel`."""
    kind = computed(dtype)
    parts = [_TEXT]
    for lanes in (1, 2, 4, 8):
        full = vector(kind, lanes)
        written = f"{fold} {full} %a, %b"
        if fold != SUM:
            name = f"@llvm.{fold}.{suffix(kind, lanes)}"
            parts.append(f"declare {full} {name}({full}, {full})\n")
            written = f"call {full} {name}({full} %a, {full} %b)"
        part = _BOTH.replace("$V", full).replace("$LANES", str(lanes))
        parts.append(part.replace("$FOLD", written))
    # NumPy's sums begin with 0, so there is no negative zero among them.
    last = "fadd $T %folded, 0.0" if fold == SUM else "freeze $T %folded"
    parts.append(_LAST.replace("$LAST", last))
    return "".join(parts).replace("$T", kind).replace("$BYTES", str(dtype.itemsize))
