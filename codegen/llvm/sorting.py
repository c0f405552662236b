"""Sorting rows: keys and positions as words in memory, then a radix sort of these.

A word is an element's key above its position. Keys are unsigned integers in the order of the
elements: NaN is the largest, and both zeros are alike. Positions make the order stable. A digit of
eight bits is one pass over a row, except where all elements have the same. Short rows are sorted by
insertion; and where only few positions are wanted, so are the elements that beat the last of them.
"""

from __future__ import annotations

import math

from tilewright.ir.dtype import BOOL, FLOAT, SIGNED

from ..kernel import Dot, Kernel, Ordered, Reduce, Scan, Sort
from . import memory, points
from .arguments import Arguments
from .body import Body
from .code import module_text
from .form import CHUNK, Form, lanes_along
from .machine import CannotLower, Machine
from .phases import Phase, Written, chunks_of, function, write_kernel
from .schedule import Schedule
from .stages import bind_vector, is_full
from .types import Ref, computed, constant, vector
from .values import evaluate, load_ahead

SHORT = 64
"""The most elements of a row that is sorted by insertion. A radix sort clears its counts first."""
WORK = 40
"""The work of an element, in quarters of a nanosecond."""
SLOTS = 64
"""The most chunks of a round. Each has two rows of words in the workspace."""
ROOM = 32 << 20
"""The most bytes of a workspace, unless two chunks need more."""
MOST = 1 << 32
"""The most elements of a row: a position has 32 bits."""


def sort_of(kernel: Kernel) -> Sort | None:
    """The sort that a kernel makes; CannotLower if it makes something else beside it."""
    along = [v for v in kernel.values if isinstance(v, (Sort, Ordered, Scan, Reduce, Dot))]
    if not any(isinstance(v, (Sort, Ordered)) for v in along):
        return None
    (first, *others) = along
    if others or not isinstance(first, Sort) or first.along.extent >= MOST:
        raise CannotLower("sorting together with other work along a row")
    return first


def write(kernel: Kernel, machine: Machine, sort: Sort, schedule: Schedule) -> Written:
    along, outer = sort.along, tuple(a for a in kernel.parallel if a.extent != 1)
    lanes = lanes_along(kernel, machine, along, schedule)
    count = math.prod(a.extent for a in outer)
    rows = max(int((schedule.work or CHUNK) // (WORK * max(along.extent, 1))), 1)
    arguments = Arguments(kernel)
    form = Form(along, lanes, outer, rows, 1, False)
    body = Body(kernel, machine, form, evaluate, arguments.part("rows"), function("rows"))
    if not all(is_full(body, store) and store.mode is None for store in kernel.stores):
        raise CannotLower("sorting together with a store for each row")
    key = _key_bits(sort)
    word = 64 if key <= 32 else 128
    row = -(-along.extent // lanes) * lanes * word // 8  # bytes of a row of words
    row = -(-row // 64) * 64
    chunks = -(-count // rows)
    slots = min(chunks, SLOTS, max(ROOM // (2 * row), 2))
    rounds = -(-chunks // slots)
    _write_rows(body, sort, key, word, slots, row)
    phases = [Phase("rows", slots)]
    whole = Body(kernel, machine, form, evaluate, arguments)
    write_kernel(whole, phases, rounds)
    text = module_text([whole.code, body.code])
    return Written(text, arguments, chunks_of(phases, rounds), slots * 2 * row)


def _key_bits(sort: Sort) -> int:
    return 8 if sort.arg.dtype.category == BOOL else sort.arg.dtype.itemsize * 8


def _write_rows(body: Body, sort: Sort, key: int, word: int, slots: int, row: int) -> None:
    """Fills the phase's function: the rows of one chunk, with the memory of its slot."""
    code = body.code
    slot = Ref("%chunk", "i64")
    in_round = body.size(slots, "slots", baked=False)
    chunk = code.binary("add", code.binary("mul", Ref("%round", "i64"), in_round), slot)
    size = body.size(row, "bytes of a row of words", baked=False)
    place = code.binary("mul", slot, code.binary("add", size, size))
    space = body.workspace()
    words = code.let(f"getelementptr i8, ptr {space.text}, i64 {place.text}", "ptr")
    spare = code.let(f"getelementptr i8, ptr {words.text}, i64 {size.text}", "ptr")
    extent = body.extent(sort.along)
    loop, following = points.open_rows(body, chunk)
    body.row_level = code.level.depth
    _write_words(body, sort, key, word, words)
    partly = sort.count < sort.along.extent
    given = f"ptr {words.text}, ptr {spare.text}, {extent.typed}"
    stop = extent
    if partly:
        stop = body.size(sort.count, "wanted positions", baked=False)
        code.define(f"leading{word}", lambda: _leading(code, word))
        call = f"call ptr @leading{word}({given}, {stop.typed})"
    else:
        name = f"order{key}"
        code.define(name, lambda: _order(code, name, key, word))
        call = f"call ptr @{name}({given})"
    found = code.let(call, "ptr")
    inner = code.open_loop(constant(0, "i64"), stop, body.lanes, stem=sort.along.name)
    body.bind(sort.along, inner.variable)
    bind_vector(body, sort.along, inner.variable, stop, whole=False)
    at = code.let(f"getelementptr i64, ptr {found.text}, {inner.variable.typed}", "ptr")
    text = f"load {vector('i64', body.lanes)}, ptr {at.text}, align 8"
    body.folded[id(sort)] = code.let(text, "i64", body.lanes)
    load_ahead(body, [s.value for s in body.kernel.stores])
    memory.store(body, [(s, evaluate(body, s.value)) for s in body.kernel.stores])
    _close(body, sort, inner)
    if loop is not None:
        code.close_loop(loop, following())


def _close(body: Body, sort: Sort, loop: object) -> None:
    body.code.close_loop(loop)  # type: ignore[arg-type]
    body.vector = None
    body.folded.clear()
    del body.axes[sort.along]


def _write_words(body: Body, sort: Sort, key: int, word: int, words: Ref) -> None:
    """Writes the words of a row. Lanes beyond its end write to its padding."""
    code, lanes = body.code, body.lanes
    loop = code.open_loop(constant(0, "i64"), body.extent(sort.along), lanes, stem=sort.along.name)
    body.bind(sort.along, loop.variable)
    bind_vector(body, sort.along, loop.variable, body.extent(sort.along), whole=False)
    load_ahead(body, [sort.arg])
    value = code.spread(evaluate(body, sort.arg), lanes)
    high = code.convert("zext", _key(body, sort, value, key), "i64")
    place = code.spread(loop.variable, lanes)
    place = code.binary("add", place, code.lanes_of(lanes, "i64"))
    if word == 64:
        moved = code.binary("shl", high, constant(32, "i64", lanes))
        both = code.binary("or", moved, place)
        at = code.let(f"getelementptr i64, ptr {words.text}, {loop.variable.typed}", "ptr")
    else:
        order = ", ".join(f"i32 {i}, i32 {lanes + i}" for i in range(lanes))
        text = f"shufflevector {place.typed}, {high.typed}, <{2 * lanes} x i32> <{order}>"
        both = code.let(text, "i64", 2 * lanes)
        at = code.let(f"getelementptr i128, ptr {words.text}, {loop.variable.typed}", "ptr")
    code.add(f"store {both.typed}, ptr {at.text}, align 8")
    _close(body, sort, loop)


def _key(body: Body, sort: Sort, value: Ref, bits: int) -> Ref:
    """The unsigned integer that stands for an element."""
    code, dtype, lanes = body.code, sort.arg.dtype, body.lanes
    kind = f"i{bits}"
    sign = constant(1 << (bits - 1), kind, lanes)
    if dtype.category == FLOAT:
        real = computed(dtype)
        nothing = constant(0, real, lanes)
        is_zero = code.compare("fcmp oeq", value, nothing)
        plain = code.select(is_zero, nothing, value)
        key = code.let(f"bitcast {plain.typed} to {vector(kind, lanes)}", kind, lanes)
        spread = code.binary("ashr", key, constant(bits - 1, kind, lanes))
        key = code.binary("xor", key, code.binary("or", spread, sign))
        is_nan = code.compare("fcmp uno", value, value)
        key = code.select(is_nan, constant(-1, kind, lanes), key)
    elif dtype.category == BOOL:
        key = code.convert("zext", value, kind)
    else:
        key = code.binary("xor", value, sign) if dtype.category == SIGNED else value
    return code.binary("xor", key, constant(-1, kind, lanes)) if sort.descending else key


def _insertion(word: int) -> str:
    """Sorts n words in place."""
    w = f"i{word}"
    return f"""define internal void @insertion{word}(ptr %a, i64 %n) #0 {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 1, %entry ], [ %next, %put ]
  %go = icmp slt i64 %i, %n
  br i1 %go, label %take, label %out
take:
  %at = getelementptr {w}, ptr %a, i64 %i
  %new = load {w}, ptr %at, align 8
  br label %look
look:
  %j = phi i64 [ %i, %take ], [ %before, %move ]
  %here = getelementptr {w}, ptr %a, i64 %j
  %first = icmp eq i64 %j, 0
  br i1 %first, label %put, label %compare
compare:
  %before = sub i64 %j, 1
  %there = getelementptr {w}, ptr %a, i64 %before
  %old = load {w}, ptr %there, align 8
  %above = icmp ugt {w} %old, %new
  br i1 %above, label %move, label %put
move:
  store {w} %old, ptr %here, align 8
  br label %look
put:
  store {w} %new, ptr %here, align 8
  %next = add i64 %i, 1
  br label %loop
out:
  ret void
}}"""


def _positions(word: int) -> str:
    """Writes the positions in n words, each as an i64."""
    return f"""define internal void @positions{word}(
    ptr noalias %words, ptr noalias %to, i64 %n) #0 {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %take ]
  %go = icmp slt i64 %i, %n
  br i1 %go, label %take, label %out
take:
  %at = getelementptr i{word}, ptr %words, i64 %i
  %word = load i64, ptr %at, align 8
  %position = and i64 %word, {MOST - 1}
  %place = getelementptr i64, ptr %to, i64 %i
  store i64 %position, ptr %place, align 8
  %next = add nuw nsw i64 %i, 1
  br label %loop
out:
  ret void
}}"""


def _leading(code, word: int) -> str:  # type: ignore[no-untyped-def]
    """The positions of the k least of n words, in order. `b` holds the least words so far."""
    code.define(f"insertion{word}", lambda: _insertion(word))
    code.define(f"positions{word}", lambda: _positions(word))
    code.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    w = f"i{word}"
    return f"""define internal ptr @leading{word}(ptr %a, ptr %b, i64 %n, i64 %k) #0 {{
entry:
  %bytes = mul i64 %k, {word // 8}
  call void @llvm.memcpy.p0.p0.i64(ptr %b, ptr %a, i64 %bytes, i1 false)
  call void @insertion{word}(ptr %b, i64 %k)
  %end = sub i64 %k, 1
  %end.at = getelementptr {w}, ptr %b, i64 %end
  %first = load {w}, ptr %end.at, align 8
  br label %loop
loop:
  %i = phi i64 [ %k, %entry ], [ %next, %again ]
  %last = phi {w} [ %first, %entry ], [ %kept, %again ]
  %go = icmp slt i64 %i, %n
  br i1 %go, label %take, label %out
take:
  %at = getelementptr {w}, ptr %a, i64 %i
  %new = load {w}, ptr %at, align 8
  %less = icmp ult {w} %new, %last
  br i1 %less, label %look, label %again
look:
  %j = phi i64 [ %end, %take ], [ %before, %move ]
  %here = getelementptr {w}, ptr %b, i64 %j
  %lowest = icmp eq i64 %j, 0
  br i1 %lowest, label %put, label %compare
compare:
  %before = sub i64 %j, 1
  %there = getelementptr {w}, ptr %b, i64 %before
  %old = load {w}, ptr %there, align 8
  %above = icmp ugt {w} %old, %new
  br i1 %above, label %move, label %put
move:
  store {w} %old, ptr %here, align 8
  br label %look
put:
  store {w} %new, ptr %here, align 8
  %then = load {w}, ptr %end.at, align 8
  br label %again
again:
  %kept = phi {w} [ %last, %take ], [ %then, %put ]
  %next = add i64 %i, 1
  br label %loop
out:
  call void @positions{word}(ptr %b, ptr %a, i64 %k)
  ret ptr %a
}}"""


def _order(code, name: str, key: int, word: int) -> str:  # type: ignore[no-untyped-def]
    """The positions of n words in order: in `a` or in `b`, which both are overwritten."""
    code.define(f"insertion{word}", lambda: _insertion(word))
    code.define(f"positions{word}", lambda: _positions(word))
    code.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    w, low, digits = f"i{word}", word - max(key, 32), key // 8
    counting, passes = [], []
    for d in range(digits):
        counting.append(f"""  %shifted{d} = lshr {w} %each, {low + 8 * d}
  %short{d} = trunc {w} %shifted{d} to i8
  %digit{d} = zext i8 %short{d} to i64
  %count.at{d} = getelementptr [{digits} x [256 x i32]], ptr %counts, i64 0, i64 {d}, i64 %digit{d}
  %count{d} = load i32, ptr %count.at{d}, align 4
  %more{d} = add i32 %count{d}, 1
  store i32 %more{d}, ptr %count.at{d}, align 4""")
        source, target = ("%a", "%b") if d == 0 else (f"%from{d - 1}", f"%to{d - 1}")
        passes.append(f"""pass{d}:
  %own{d} = getelementptr [{digits} x [256 x i32]], ptr %counts, i64 0, i64 {d}
  %word{d} = load {w}, ptr {source}, align 8
  %word.shifted{d} = lshr {w} %word{d}, {low + 8 * d}
  %word.short{d} = trunc {w} %word.shifted{d} to i8
  %word.digit{d} = zext i8 %word.short{d} to i64
  %alike.at{d} = getelementptr i32, ptr %own{d}, i64 %word.digit{d}
  %alike{d} = load i32, ptr %alike.at{d}, align 4
  %alike.n{d} = zext i32 %alike{d} to i64
  %same{d} = icmp eq i64 %alike.n{d}, %n
  br i1 %same{d}, label %done{d}, label %sum{d}
sum{d}:
  %s{d} = phi i64 [ 0, %pass{d} ], [ %s.next{d}, %sum{d} ]
  %total{d} = phi i32 [ 0, %pass{d} ], [ %total.next{d}, %sum{d} ]
  %sum.at{d} = getelementptr i32, ptr %own{d}, i64 %s{d}
  %part{d} = load i32, ptr %sum.at{d}, align 4
  store i32 %total{d}, ptr %sum.at{d}, align 4
  %total.next{d} = add i32 %total{d}, %part{d}
  %s.next{d} = add i64 %s{d}, 1
  %s.more{d} = icmp slt i64 %s.next{d}, 256
  br i1 %s.more{d}, label %sum{d}, label %move{d}
move{d}:
  %i{d} = phi i64 [ 0, %sum{d} ], [ %i.next{d}, %move{d} ]
  %i.at{d} = getelementptr {w}, ptr {source}, i64 %i{d}
  %moved{d} = load {w}, ptr %i.at{d}, align 8
  %m.shifted{d} = lshr {w} %moved{d}, {low + 8 * d}
  %m.short{d} = trunc {w} %m.shifted{d} to i8
  %m.digit{d} = zext i8 %m.short{d} to i64
  %place.at{d} = getelementptr i32, ptr %own{d}, i64 %m.digit{d}
  %place{d} = load i32, ptr %place.at{d}, align 4
  %after{d} = add i32 %place{d}, 1
  store i32 %after{d}, ptr %place.at{d}, align 4
  %place.n{d} = zext i32 %place{d} to i64
  %target.at{d} = getelementptr {w}, ptr {target}, i64 %place.n{d}
  store {w} %moved{d}, ptr %target.at{d}, align 8
  %i.next{d} = add nuw nsw i64 %i{d}, 1
  %i.more{d} = icmp slt i64 %i.next{d}, %n
  br i1 %i.more{d}, label %move{d}, label %done{d}
done{d}:
  %from{d} = phi ptr [ {source}, %pass{d} ], [ {target}, %move{d} ]
  %to{d} = phi ptr [ {target}, %pass{d} ], [ {source}, %move{d} ]
  br label %{f"pass{d + 1}" if d + 1 < digits else "end"}""")
    return f"""define internal ptr @{name}(ptr %a, ptr %b, i64 %n) #0 {{
entry:
  %counts = alloca [{digits} x [256 x i32]], align 64
  %few = icmp sle i64 %n, {SHORT}
  br i1 %few, label %short, label %count
short:
  call void @insertion{word}(ptr %a, i64 %n)
  call void @positions{word}(ptr %a, ptr %b, i64 %n)
  ret ptr %b
count:
  call void @llvm.memset.p0.i64(ptr %counts, i8 0, i64 {digits * 1024}, i1 false)
  br label %counting
counting:
  %i = phi i64 [ 0, %count ], [ %next, %counting ]
  %at = getelementptr {w}, ptr %a, i64 %i
  %each = load {w}, ptr %at, align 8
{chr(10).join(counting)}
  %next = add nuw nsw i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %counting, label %pass0
{chr(10).join(passes)}
end:
  call void @positions{word}(ptr %from{digits - 1}, ptr %to{digits - 1}, i64 %n)
  ret ptr %to{digits - 1}
}}"""
