"""Contractions: tiles of M by N, summed over steps along K.

The parallel axes that only `a` mentions form M, those that only `b` mentions N; the others are
batches, and a program has one point of them. Operands and epilogue are ordinary expressions, so a
convolution is a contraction whose operands are loaded through divisions and guards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..kernel import Dot, Reduce, Segment, Value
from ..kernel.roles import Roles, roles
from ..schedule import Schedule, points, row_tiles
from .boxes import Boxes, count_boxes, place_box
from .descriptors import Descriptors
from .digits import sum_digits
from .folds import Rows, fold_rows
from .operands import Step, is_native, precision, tile_of
from .scope import Body, Guards, Ref, Scope, Tile
from .segments import bounds, count_tiles, place_rows, segments
from .text import Block, tl_type
from .values import Copied, evaluate, unsupported, write

ROWS = Rows("m", "n")
OUT = ROWS.tile
CUT = {2: "tw_halves", 4: "tw_quarters", 8: "tw_eighths"}
"""The function that cuts a tile in so many parts along N."""


def dots(body: Body, block: Block, schedule: Schedule) -> tuple[dict[str, int], int]:
    """Writes the kernel; returns its constexprs and the number of programs."""
    found = [v for v in body.kernel.values if isinstance(v, Dot)]
    role = roles(body.kernel, body.analysis, found[0])
    if any(roles(body.kernel, body.analysis, d) != role for d in found):
        raise NotImplementedError(
            f"{body.kernel.name}: contractions of different axes in one kernel"
        )
    if body.kernel.columns and points(role.n) > schedule.block_n:
        raise NotImplementedError(
            f"{body.kernel.name}: tiles of {schedule.block_n} columns, rows to fold of "
            f"{points(role.n)}"
        )
    segment = found[0].segment
    if segment is not None and len(found) > 1:
        raise NotImplementedError(f"{body.kernel.name}: several contractions in segments")
    place = Block() if schedule.persistent else block
    root, corner, grid = _tiles(body, block, place, role, segment, schedule)
    length, ends = _length(body, role), points(role.k) % schedule.block_k != 0
    start, stop, summed = "0", length, ""
    if role.has_segments_of_rows and schedule.persistent:
        # The compiler makes one loop of two only if it knows the length of the inner one.
        summed = "summed"
    elif role.has_segments_of_rows:
        place.add(f"length = tl.where(summed & (first_m < end), {length}, 0)")
        stop = "length"
    elif segment is not None:
        bounds(body, root, segment)
        start, stop, length, ends = "first", "stop", "stop", True
    sums = segment is not None and not role.has_segments_of_rows  # that begin and end anywhere
    own = sums or schedule.digits  # a program for each tile
    has_descriptors = schedule.descriptors if own else schedule.persistent
    descriptors = Descriptors(body, role, schedule) if has_descriptors else None
    boxes = Boxes(body, role, schedule, corner) if corner is not None else None
    shape = "(BLOCK_N, BLOCK_M)" if boxes else "(BLOCK_M, BLOCK_N)"
    accumulators = [
        root.assign("acc", f"tl.full({shape}, 0, {tl_type(dot.dtype)})", OUT) for dot in found
    ]

    def walk(start: str, stop: str, ends: bool) -> None:
        # Behind a segment a copy would have terms of the next one.
        copies = None if sums and ends else descriptors
        step = Step(root, role.k, length, ends, copies)
        for dot, acc in zip(found, accumulators):
            native = is_native(dot, schedule)
            a = step.factor(dot.a, "m", dot.input_dtype, native)
            b = step.factor(dot.b, "n", dot.input_dtype, native)
            if dot.scales:
                scales = _scales(dot, step.block, root, schedule)
                step.block.add(f"{acc.text} += tl.dot({a}, {b}) * {' * '.join(scales)}")
            else:
                product = _product(dot, acc.text, a, b, body.tf32, native)
                step.block.add(f"{acc.text} = {product}")
        steps = f"range({start}, {stop}, BLOCK_K)"
        if copies is not descriptors:
            steps = f"tl.range({start}, {stop}, BLOCK_K, num_stages=1)"
        place.loop(f"for start in {steps}", step.block)

    def slide(boxes: Boxes) -> list[Ref]:
        loop = Block()
        step = boxes.step(loop)
        for dot, acc in zip(found, accumulators):
            b, a = (boxes.load(dot, step, side) for side in "nm")
            loop.add(f"{acc.text} = {_product(dot, acc.text, b, a, body.tf32, False)}")
        place.loop(f"for start in range(0, {length}, BLOCK_K)", loop)
        return [root.assign("acc", f"tl.trans({acc.text})", OUT) for acc in accumulators]

    if sums and descriptors:
        place.add("whole = first + (stop - first) // BLOCK_K * BLOCK_K")
        walk("first", "whole", False)
        start = "whole"
    if boxes is not None:
        accumulators = slide(boxes)
    elif schedule.digits:
        sum_digits(root, found, accumulators, lambda: Step(root, role.k, length, ends, descriptors))
    else:
        walk(start, stop, ends)
    if summed:
        for acc in accumulators:
            place.add(f"{acc.text} = tl.where({summed}, {acc.text}, 0)")
    # A tile of a segment may reach into the rows of the next one.
    whole = schedule.persistent and schedule.descriptors and segment is None
    copied = descriptors.store if descriptors and whole else boxes.store if boxes else None
    constexprs = {
        "BLOCK_M": schedule.block_m,
        "BLOCK_N": schedule.block_n,
        "BLOCK_K": schedule.block_k,
        "GROUP_M": schedule.group_m,
        **{f"BOX_{i}": length for i, length in enumerate(schedule.box)},
    }
    if schedule.parts > 1 and role.n:
        constexprs["PARTS"] = schedule.parts
        _store_parts(root, found, accumulators, schedule, copied)
    else:
        _store(root, found, accumulators, copied)
    if role.has_segments_of_rows:
        constexprs["SEGMENTS"] = segments(role)
    if schedule.persistent:
        # One loop for the compiler, which then loads the next tile while it stores one.
        count = "tiles_m * tiles_n * batches" if role.batch else "tiles_m * tiles_n"
        how = "flatten=True, warp_specialize=True" if schedule.specialized else "flatten=True"
        block.loop(f"for work in tl.range(pid, {count}, PROGRAMS, {how})", place)
        grid = constexprs["PROGRAMS"] = min(grid, schedule.persistent)
    return constexprs, grid


def _store(scope: Scope, found: Sequence[Dot], sums: Sequence[Ref], copied: Copied | None) -> None:
    """Writes the epilogue: all that uses the sums. copied: as in `write`."""
    of = {id(dot): acc for dot, acc in zip(found, sums)}

    def fold(_: Scope, value: Value, guards: Guards) -> Ref:
        # Guards mask loads of the epilogue; the contraction itself is computed everywhere.
        if isinstance(value, Dot):
            return of[id(value)]
        if isinstance(value, Reduce):  # made once a row, from values in the scope of all columns
            return fold_rows(scope, ROWS, value, guards)
        raise unsupported(scope, value)

    scope.body.fold = fold
    write(scope, scope.body.kernel.stores, copied)


def _store_parts(
    root: Scope,
    found: Sequence[Dot],
    sums: Sequence[Ref],
    schedule: Schedule,
    copied: Copied | None,
) -> None:
    """Writes the epilogue for one part of a tile's columns after another, in an unrolled loop."""
    assert root.parent is not None
    block, columns = Block(), root.tiles["n"]
    parts = [root.assign("parts", f"{CUT[schedule.parts]}({acc.text})", OUT) for acc in sums]
    width = "BLOCK_N // PARTS"
    block.add(f"n = first_n + part * ({width}) + tl.arange(0, {width})[None, :]")
    if columns.ok is not None:
        block.add(f"{columns.ok} = n < {root.body.sizes.extent('n', points(columns.axes))}")
    tile = replace(columns, block=width)
    scope = Scope(root.body, block, [tile], root.parent)
    _store(scope, found, [scope.assign("acc", f"{p.text}[part]", OUT) for p in parts], copied)
    root.block.loop("for part in tl.static_range(PARTS)", block)


def _tiles(
    body: Body,
    header: Block,
    block: Block,
    role: Roles,
    segment: Segment | None,
    schedule: Schedule,
) -> tuple[Scope, Scope | None, int]:
    """The place of a tile: groups of GROUP_M tiles along M are walked through column by column.

    Values that don't depend on columns have a scope of their own. Beside it the scope of the places
    where a tile begins, if its rows are a box, and the number of programs.
    """
    rows, columns, batches = points(role.m), points(role.n), points(role.batch)
    n_m, n_n = body.sizes.extent("m", rows), body.sizes.extent("n", columns)
    own = segment if role.has_segments_of_rows else None
    count = f"({n_m} + BLOCK_M - 1) // BLOCK_M"
    if own is not None:
        count = count_tiles(body, header, role, own, n_m, exact=schedule.persistent > 0)
    elif schedule.box:
        count = count_boxes(body, header, role)
    header.add(f"tiles_m = {count}")
    header.add(f"tiles_n = ({n_n} + BLOCK_N - 1) // BLOCK_N")
    number = "pid"
    if schedule.persistent:
        number = "work"
        if role.batch:
            header.add(f"batches = {body.sizes.extent('batch', batches)}")
    for line in (
        *([f"batch = {number} // (tiles_m * tiles_n)"] if role.batch else []),
        f"tile = {number} % (tiles_m * tiles_n)" if role.batch else f"tile = {number}",
        "group = tile // (GROUP_M * tiles_n)",
        "height = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)",
        "within = tile % (GROUP_M * tiles_n)",
        "first_m = (group * GROUP_M + within % height) * BLOCK_M"
        if own is None and not schedule.box
        else "tile_m = group * GROUP_M + within % height",
        "first_n = within // height * BLOCK_N",
    ):
        block.add(line)
    tiles = [Tile("batch", role.batch, None, "1", None)] if role.batch else []
    end, ends = n_m, rows % schedule.block_m != 0
    if own is not None:
        tiles.append(place_rows(body, block, role, own, n_m))
        end, ends = "end", True
    corner = None
    if schedule.box:
        places, begins = place_box(body, block, role, schedule.box)
        begins.append(Tile("first_n", role.n, None, "1", None))
        corner = Scope(body, block, begins)
        tiles.insert(0, places)
    else:
        block.add("m = first_m + tl.arange(0, BLOCK_M)[:, None]")
        tiles.insert(0, tile_of(block, "m", role.m, 0, "BLOCK_M", end, ends))
    block.add("n = first_n + tl.arange(0, BLOCK_N)[None, :]")
    across = tile_of(block, "n", role.n, 1, "BLOCK_N", n_n, columns % schedule.block_n != 0)
    down = row_tiles(role, schedule)
    programs = down * -(-columns // schedule.block_n) * batches
    return Scope(body, block, [across], Scope(body, block, tiles)), corner, programs


def _scales(dot: Dot, loop: Block, root: Scope, schedule: Schedule) -> list[str]:
    """The factors of a step's terms, the same for all of its terms. So Hopper's short sums of
    float8 are those of one step, and steps are added up in float32."""
    *outer, inner = dot.over
    if inner.extent % schedule.block_k:
        name = root.body.kernel.name
        raise NotImplementedError(f"{name}: steps of {schedule.block_k} terms with several scales")
    loop.add(f"step = start // {inner.extent}")
    scope = Scope(root.body, loop, [Tile("step", tuple(outer), None, "1", None)], root)
    return [evaluate(scope, scale).text for scale in dot.scales]


def _length(body: Body, role: Roles) -> str:
    length = points(role.k)
    return str(length) if length <= 16 else body.sizes.extent("k", length)


def _product(dot: Dot, acc: str, a: str, b: str, tf32: bool, native: bool) -> str:
    if dot.in_threads:
        if dot.a.dtype is not dot.dtype and not dot.dtype.is_floating_point:
            a, b = (f"{x}.to({tl_type(dot.dtype)})" for x in (a, b))
        text = f"tl.sum({a}[:, :, None] * {b}[None, :, :], axis=1)"
        return (
            f"{acc} + {text}"
            if dot.dtype.itemsize >= 4
            else f"{acc} + {text}.to({tl_type(dot.dtype)})"
        )
    more = precision(dot, tf32)
    if not dot.dtype.is_floating_point:
        more = f", out_dtype={tl_type(dot.dtype)}"  # before Triton 3.8 not that of the accumulator
    elif native and not dot.fast:
        # Hopper's sums of float8 keep 14 bits, so the sums of each block are added in float32.
        more = ", max_num_imprecise_acc=BLOCK_K"
    return f"tl.dot({a}, {b}, {acc}{more})"
