"""Failures that a kernel records while it runs."""

from __future__ import annotations

from ..kernel.index import Check
from .body import Body, Mask
from .code import Level
from .types import Ref


def fail(body: Body, bad: Ref, value: Ref, check: Check, mask: Mask | None, at: Level) -> None:
    """Records `value` of the first lane that is `bad`, if nothing failed before."""
    code = body.code
    lanes = bad.lanes
    if mask is not None:
        bad = code.binary("and", bad, mask.ref if lanes > 1 else body.some_lane(mask, at), at)
    if lanes > 1:
        bad = code.binary("and", bad, body.lane_mask(at), at)
        bits = code.let(f"bitcast {bad.typed} to i{lanes}", f"i{lanes}", at=at)
        some = code.let(f"icmp ne {bits.typed}, 0", "i1", at=at)
    else:
        some = bad
    address = body.check(check)
    failed, recorded, after = (code.fresh_label(s) for s in ("failed", "record", "checked"))
    code.add(f"br i1 {some.text}, label %{failed}, label %{after}, !prof !0", at)
    at.block(failed)
    if lanes > 1:
        code.declare(f"declare i{lanes} @llvm.cttz.i{lanes}(i{lanes}, i1)")
        first = code.let(
            f"call i{lanes} @llvm.cttz.i{lanes}({bits.typed}, i1 true)", f"i{lanes}", at=at
        )
        value = code.let(f"extractelement {value.typed}, {first.typed}", value.type, at=at)
    swapped = code.fresh("pair")
    code.add(f"{swapped} = cmpxchg ptr {address.text}, i64 0, i64 1 monotonic monotonic", at)
    won = code.let(f"extractvalue {{ i64, i1 }} {swapped}, 1", "i1", at=at)
    code.add(f"br i1 {won.text}, label %{recorded}, label %{after}", at)
    at.block(recorded)
    place = code.let(f"getelementptr i64, ptr {address.text}, i64 1", "ptr", at=at)
    code.add(f"store i64 {value.text}, ptr {place.text}, align 8", at)
    code.add(f"br label %{after}", at)
    at.block(after)
