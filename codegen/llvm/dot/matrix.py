"""Products of bfloat16, and of bytes, by the matrix registers of x86 (AMX).

A register holds 16 rows of 16 words. One instruction adds the product of two of them to a third:
the rows of `a`, 16 words of K long, times 16 words of K of 16 columns of `b`. So panels of `b` are
those of `words.py`, and panels of `a` are squares, each one register:

    a[k / 16][row / 16][row % 16][k % 16]

K is filled up with zeros to whole squares. Sums are float32, in which subnormal numbers count as
zeros, or int32.
"""

from __future__ import annotations

from ..body import Body
from ..code import Code
from ..types import Ref, constant, lane_numbers, vector
from . import micro
from .micro import Tile
from .squares import store, transposed
from .words import SIDE

SQUARE = SIDE * SIDE
ROWS, LINES = 2, 4
"""The rows of the next tile of sums, and the lines of the next panel of `b`, that are fetched at
each step."""
ZERO, ONE = constant(0, "i64"), constant(1, "i64")
_CONFIGURATION = bytes([1, *[0] * 15, *[4 * SIDE, 0] * 8, *[0] * 16, *[SIDE] * 8, *[0] * 8])
"""For `ldtilecfg`: all eight registers are whole."""


def begin(body: Body) -> None:
    """Makes the registers ready; `end` gives them back, so that switching threads is cheap."""
    code = body.code
    code.declare("declare void @llvm.x86.ldtilecfg(ptr)")
    table = body.table(_CONFIGURATION, "matrix registers")
    code.add(f"call void @llvm.x86.ldtilecfg({table.typed})")


def end(code: Code) -> None:
    code.declare("declare void @llvm.x86.tilerelease()")
    code.add("call void @llvm.x86.tilerelease()")


def function(tile: Tile) -> Code:
    """As `micro.function`, for packed operands. The sums of a tile are two by two registers, or
    fewer; then come those of `a` and of `b`."""
    code = Code(micro.name(a_packed=True), micro.PARAMETERS, internal=True)
    code.declare("declare void @llvm.x86.tilezero(i8)")
    code.declare("declare void @llvm.x86.tilestored64(i8, ptr, i64)")
    assert tile.words is not None
    multiply = f"@llvm.x86.{tile.words.squares}"
    code.declare(f"declare void {multiply}(i8, i8, i8)")
    a, b, c, row = Ref("%a", "ptr"), Ref("%b", "ptr"), Ref("%c", "ptr"), Ref("%row", "i64")
    high, wide = tile.rows // SIDE, tile.vectors
    places, at = [], c
    for _ in range(high):
        places += [micro.offset(code, tile, at, j * SIDE) for j in range(wide)]
        at = micro.offset(code, tile, at, code.binary("mul", row, constant(SIDE, "i64")))
    pitch = code.binary("mul", row, constant(tile.itemsize, "i64"))
    new, more, go = (code.fresh_label(s) for s in ("new", "more", "go"))
    code.add(f"br i1 %fresh, label %{new}, label %{more}")
    code.level.block(new)
    for number in range(len(places)):
        code.add(f"call void @llvm.x86.tilezero(i8 {number})")
    code.add(f"br label %{go}")
    code.level.block(more)
    for number, place in enumerate(places):
        _load(code, number, place, pitch)
    code.add(f"br label %{go}")
    code.level.block(go)
    loop = code.open_loop(ZERO, Ref("%depth", "i64"), SIDE, [a, b], stem="k")
    (a, _), (b, _) = loop.carried
    _fetch(code, tile, loop.variable, row)
    first_a, first_b = len(places), len(places) + high
    for i in range(high):
        square = micro.offset(code, tile, a, i * SQUARE)
        _load(code, first_a + i, square, constant(4 * SIDE, "i64"), passing=True)
    for j in range(wide):
        square = micro.offset(code, tile, b, j * SIDE)
        _load(code, first_b + j, square, constant(4 * tile.columns, "i64"))
    for i in range(high):
        for j in range(wide):
            given = f"i8 {i * wide + j}, i8 {first_a + i}, i8 {first_b + j}"
            code.add(f"call void {multiply}({given})")
    steps = (high * SQUARE, SIDE * tile.columns)
    code.close_loop(loop, [micro.offset(code, tile, x, n) for x, n in zip((a, b), steps)])
    for number, place in enumerate(places):
        code.add(f"call void @llvm.x86.tilestored64(i8 {number}, {place.typed}, {pitch.typed})")
    return code


def _load(code: Code, register: int, place: Ref, pitch: Ref, passing: bool = False) -> None:
    """passing: whether it needn't stay in the first level of cache, as panels of `b` should."""
    symbol = "@llvm.x86.tileloaddt164" if passing else "@llvm.x86.tileloadd64"
    code.declare(f"declare void {symbol}(i8, ptr, i64)")
    code.add(f"call void {symbol}(i8 {register}, {place.typed}, {pitch.typed})")


def _fetch(code: Code, tile: Tile, k: Ref, row: Ref) -> None:
    """Fetches a part of what the next calls read: the tile below, and the next panel of `b`."""
    first = code.binary("udiv", k, constant(SIDE // ROWS, "i64"))
    first = code.binary("add", first, constant(tile.rows, "i64"))
    at = micro.offset(code, tile, Ref("%c", "ptr"), code.binary("mul", first, row))
    for _ in range(ROWS):
        for j in range(tile.vectors):
            code.prefetch(micro.offset(code, tile, at, j * SIDE))
        at = micro.offset(code, tile, at, row)
    lines = code.binary("mul", k, constant(LINES, "i64"))
    at = micro.offset(code, tile, Ref("%ahead", "ptr"), lines)
    for line in range(LINES):
        code.prefetch(micro.offset(code, tile, at, line * SIDE))


def packing(name: str, places: int, width: int, along: bool) -> Code:
    """As `words.function`, for panels of squares. places: those of a word."""
    parameters = "ptr noalias %from, i64 %stride, i64 %rows, i64 %depth, ptr noalias %to"
    code = Code(name, f"{parameters}, i64 %panel", internal=True)
    rows, depth, panel = (Ref(f"%{n}", "i64") for n in ("rows", "depth", "panel"))
    panels = code.open_loop(ZERO, rows, width, stem="row")
    number = code.binary("udiv", panels.variable, constant(width, "i64"))
    to = _at(code, "i32", Ref("%to", "ptr"), code.binary("mul", number, panel))
    squares = code.open_loop(ZERO, depth, places * SIDE, [to], stem="k")
    ((at, _),) = squares.carried
    (_along if along else _across)(code, places, width, panels.variable, squares.variable, at)
    code.close_loop(squares, [_at(code, "i32", at, constant(width * SIDE, "i64"))])
    code.close_loop(panels)
    return code


def _along(code: Code, places: int, width: int, row: Ref, k: Ref, to: Ref) -> None:
    """The rows of a panel, from a place along K on: each is copied."""
    rows, depth, stride = (Ref(f"%{n}", "i64") for n in ("rows", "depth", "stride"))
    kind = f"i{32 // places}"
    inside = _below(code, code.binary("sub", depth, k), places * SIDE)
    last = code.binary("sub", rows, ONE)
    loop = code.open_loop(ZERO, constant(width, "i64"), 1, stem="i")
    own = code.intrinsic("umin", [code.binary("add", row, loop.variable), last])
    place = code.binary("add", code.binary("mul", own, stride), k)
    parts = _masked(code, kind, _at(code, kind, Ref("%from", "ptr"), place), inside)
    store_at = code.binary("mul", loop.variable, constant(SIDE, "i64"))
    words = code.let(f"bitcast {parts.typed} to {vector('i32', SIDE)}", "i32", SIDE)
    store(code, words, _at(code, "i32", to, store_at))
    code.close_loop(loop)


def _across(code: Code, places: int, width: int, row: Ref, k: Ref, to: Ref) -> None:
    """The same where neighbours lie along the rows: words of 16 rows, transposed."""
    rows, depth, stride = (Ref(f"%{n}", "i64") for n in ("rows", "depth", "stride"))
    nothing = Ref("zeroinitializer", "i1", SIDE)
    loop = code.open_loop(ZERO, constant(width, "i64"), SIDE, stem="i")
    own = code.binary("add", row, loop.variable)
    inside = _below(code, code.binary("sub", rows, own), SIDE)
    bits, words = 32 // places, []
    for number in range(SIDE):
        word: Ref | None = None
        for part in range(places):
            place = code.binary("add", k, constant(places * number + part, "i64"))
            exists = code.compare("icmp slt", place, depth)
            mask = code.let(f"select {exists.typed}, {inside.typed}, {nothing.typed}", "i1", SIDE)
            at = code.binary("add", code.binary("mul", place, stride), own)
            at = _at(code, f"i{bits}", Ref("%from", "ptr"), at)
            piece = code.convert("zext", _masked(code, f"i{bits}", at, mask), "i32")
            piece = code.binary("shl", piece, constant(part * bits, "i32"))
            word = piece if word is None else code.binary("or", word, piece)
        assert word is not None
        words.append(word)
    base = _at(code, "i32", to, code.binary("mul", loop.variable, constant(SIDE, "i64")))
    for number, line in enumerate(transposed(code, words)):
        store(code, line, _at(code, "i32", base, constant(number * SIDE, "i64")))
    code.close_loop(loop)


def _at(code: Code, kind: str, start: Ref, elements: Ref) -> Ref:
    return code.let(f"getelementptr {kind}, ptr {start.text}, i64 {elements.text}", "ptr")


def _below(code: Code, count: Ref, lanes: int) -> Ref:
    """Which of some lanes come before a count."""
    numbers = Ref(lane_numbers(lanes, "i64"), "i64", lanes)
    return code.compare("icmp slt", numbers, code.splat(count, lanes))


def _masked(code: Code, kind: str, at: Ref, mask: Ref) -> Ref:
    """A vector from memory; what is outside of the mask is zero, and isn't read."""
    lanes = mask.lanes
    full, symbol = vector(kind, lanes), f"@llvm.masked.load.v{lanes}{kind}.p0"
    code.declare(f"declare {full} {symbol}(ptr, i32, <{lanes} x i1>, {full})")
    text = f"call {full} {symbol}({at.typed}, i32 1, {mask.typed}, {full} zeroinitializer)"
    return code.let(text, kind, lanes)
