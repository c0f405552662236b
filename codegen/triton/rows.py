"""Kernels with reductions: a program takes some points of the parallel axes, with their rows.

If a row fits into one tile, everything is computed from one load of it. Otherwise each stage of
reductions has one loop along the row and, if stores at full level need the last stage, the stores
have one more. The loop of a maximum also makes the sum of exponentials beside it, the loop of a
mean the sum of squares (`online.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.ir.op import Fold

from ..kernel import Guard, Kernel, Load, Ordered, Reduce, Scan, Store, Value
from ..kernel.analysis import Analysis
from ..kernel.index import Axis
from ..schedule import Schedule, points, power_of_two, runs_along_parallel
from .folds import (
    COMBINE,
    Rows,
    as_logic,
    candidates,
    fold_rows,
    folded,
    masked,
    neutral,
    pick,
    type_of_places,
)
from .online import online
from .scope import Body, Guards, Ref, Scope, Tile
from .text import Block, tl_type
from .values import evaluate, relevant, unsupported, write

ROWS = Rows("p", "r")


def rows(body: Body, block: Block, schedule: Schedule) -> tuple[dict[str, int], int]:
    """Writes the kernel; returns its constexprs and the number of programs."""
    kernel = body.kernel
    if kernel.ordered:  # a sort takes whole rows
        whole = power_of_two(points(kernel.reduction))
        schedule = replace(schedule, block_r=whole, looped=False)
    tiles = _parallel_tiles(body, block, schedule.block)
    if schedule.looped:
        ahead = schedule.num_stages > 1 and runs_along_parallel(kernel)
        _looped(body, Scope(body, block, tiles), schedule.num_stages if ahead else 1)
    else:
        block.add("r = tl.arange(0, BLOCK_R)[None, :]")
        block.add(f"r_ok = r < {_length(body)}")
        scope = Scope(body, block, [*tiles, _row_tile(body)])
        body.fold = fold_whole
        write(scope, kernel.stores)
    constexprs = {"BLOCK_P": schedule.block, "BLOCK_R": schedule.block_r}
    return constexprs, -(-points(kernel.parallel) // schedule.block)


def _parallel_tiles(body: Body, block: Block, length: int) -> list[Tile]:
    """The tiles of the parallel axes. The axes in front of those that blocks of this length divide
    are numbers of a program: what depends on them and on a row alone, such as the statistics of a
    row that is folded with many others, is then no matter of single elements."""
    axes = tuple(a for a in body.kernel.parallel if a.extent != 1)
    inner = axes if body.sizes.apart else _divided(axes, length)
    outer = axes[: len(axes) - len(inner)]
    extent = body.sizes.extent("p", points(inner))
    if not outer:
        block.add("p = pid * BLOCK_P + tl.arange(0, BLOCK_P)[:, None]")
        block.add(f"p_ok = p < {extent}")
        return [Tile("p", inner, 0, "BLOCK_P", "p_ok")]
    block.add(f"o = pid // ({extent} // BLOCK_P)")
    block.add(f"p = pid % ({extent} // BLOCK_P) * BLOCK_P + tl.arange(0, BLOCK_P)[:, None]")
    return [Tile("o", outer, None, "1", None), Tile("p", inner, 0, "BLOCK_P", None)]


def _divided(axes: tuple[Axis, ...], length: int) -> tuple[Axis, ...]:
    """The fewest innermost axes whose points are cut into blocks of this length without a rest; all
    axes if there are none, or if a block is a point."""
    for count in range(1, len(axes) if length > 1 else 0):
        if points(axes[-count:]) % length == 0:
            return axes[-count:]
    return axes


def _row_tile(body: Body) -> Tile:
    axes = tuple(a for a in _as_in_memory(body.kernel, body.analysis) if a.extent != 1)
    return Tile("r", axes, 1, "BLOCK_R", "r_ok")


def _as_in_memory(kernel: Kernel, analysis: Analysis) -> tuple[Axis, ...]:
    """The axes of a row, in the order in which the largest operand has them in memory, so that
    neighbouring threads read neighbours: of a group of channels that come last, for one. Folds that
    tell positions, and running ones, keep the order that these have."""
    row = kernel.reduction
    if any(isinstance(v, Scan) or (isinstance(v, Reduce) and v.op.picks) for v in kernel.values):
        return row
    loads = [v for v in kernel.values if isinstance(v, Load) and analysis.axes(v).issuperset(row)]
    if kernel.ordered or not loads:
        return row
    largest = max(loads, key=lambda v: v.buffer.size * v.buffer.dtype.itemsize)
    steps = {axis: abs(largest.offset.coefficient(axis)) for axis in row}
    return tuple(sorted(row, key=lambda a: -steps[a])) if all(steps.values()) else row


def _length(body: Body) -> str:
    """The length of a row. Short lengths, as of convolution windows, are part of the text."""
    length = points(body.kernel.reduction)
    return str(length) if length <= 16 else body.sizes.extent("r", length)


# -- a whole row in one tile


def fold_whole(scope: Scope, value: Value, guards: Guards) -> Ref:
    if isinstance(value, Scan):
        arg = scope.spread(evaluate(scope, value.arg, guards), ROWS.tile, tl_type(value.dtype))
        arg = f"tl.where(r_ok, {arg}, {neutral(value.op, value.dtype)})"
        return scope.assign("scan", _scan(value, arg), ROWS.tile)
    if isinstance(value, Ordered):
        arg = scope.spread(evaluate(scope, value.arg, guards), ROWS.tile, tl_type(value.dtype))
        arg = f"tl.where(r_ok, {arg}, {neutral(Fold.MIN, value.dtype)})"
        return scope.assign("word", f"tl.sort({arg}, 1)", ROWS.tile)
    if not isinstance(value, Reduce):
        raise unsupported(scope, value)
    return fold_rows(scope, ROWS, value, guards)


def _scan(value: Scan, arg: str) -> str:
    if value.op not in (Fold.SUM, Fold.PROD):
        return f"tl.associative_scan({arg}, 1, {COMBINE[value.op]})"
    function = "tl.cumsum" if value.op is Fold.SUM else "tl.cumprod"
    return f"{function}({arg}, axis=1).to({tl_type(value.dtype)})"


# -- in several steps along the row


def _looped(body: Body, root: Scope, stages: int) -> None:
    kernel, analysis = body.kernel, body.analysis
    last_reduce = max(
        (analysis.depth(v) for v in kernel.values if isinstance(v, Reduce)), default=0
    )
    full = [s for s in kernel.stores if _is_full(analysis, s, kernel.reduction)]
    store_depth = max((_store_depth(analysis, s) for s in full), default=-1)
    # Stores come in the last pass, so that no pass reads what an earlier one has overwritten.
    passes = max(last_reduce, store_depth + 1)
    body.fold = _in_loop
    for depth in range(1, passes + 1):
        found = list(_reductions(root, kernel.stores, depth))
        stage = [each for each in found if analysis.online(each[0]) is None]
        beside = [each for each in found if each not in stage]
        beside.sort(key=lambda each: kernel.values.index(each[0]))  # one may need another one
        loop = Block()
        loop.add("r = start + tl.arange(0, BLOCK_R)[None, :]")
        loop.add(f"r_ok = r < {_length(body)}")
        scope = Scope(body, loop, [_row_tile(body)], root)
        results = [accumulate(root, scope, ROWS, value, guards) for value, guards in stage]
        tops = {(id(v), guards): acc for (v, guards), (acc, _) in zip(stage, results)}
        sums = [online(root, scope, value, guards, tops) for value, guards in beside]
        if depth == passes:
            write(scope, full)
        steps = f"range(0, {_length(body)}, BLOCK_R)"
        if stages > 1:
            steps = f"tl.{steps[:-1]}, num_stages={stages})"
        root.block.loop(f"for start in {steps}", loop)
        for (value, guards), result in zip(stage, results):
            root.cache[id(value), guards] = _finish(root, value, result)
        for (value, guards), total in zip(beside, sums):
            root.cache[id(value), guards] = total.finish(root, _length(body))
    write(root, (s for s in kernel.stores if s not in full))


def _is_full(analysis: Analysis, store: Store, reduction: tuple[Axis, ...]) -> bool:
    axes = analysis.axes(store.value) | analysis.index_axes(store.offset)
    return any(a in axes for a in reduction if a.extent != 1)


def _store_depth(analysis: Analysis, store: Store) -> int:
    return max(analysis.depth(store.value), analysis.index_depth(store.offset))


def _reductions(
    root: Scope, stores: tuple[Store, ...], depth: int
) -> Iterator[tuple[Reduce, Guards]]:
    """The reductions of one stage, with the guards that each stands under."""
    from ..kernel import data_values

    seen: set[tuple[int, Guards]] = set()
    stack: list[tuple[Value, Guards]] = []
    for store in reversed(stores):
        stack.append((store.value, ()))
        stack.extend((v, ()) for v in data_values(store.offset))
    found: dict[tuple[int, Guards], Reduce] = {}
    while stack:
        value, guards = stack.pop()
        guards = relevant(root, value, guards)
        key = (id(value), guards)
        if key in seen or root.body.analysis.depth(value) < depth:
            continue
        seen.add(key)
        if isinstance(value, Reduce) and root.body.analysis.depth(value) == depth:
            found[key] = value
            relative = root.body.analysis.online(value)
            if relative is not None:
                stack.append((relative.shift, guards))
            continue
        for index in value.indices():
            stack.extend((v, guards) for v in data_values(index))
        if isinstance(value, Guard):
            stack.append((value.outside, guards))
            stack.append((value.inside, _row_guards(root, value, guards)))
        else:
            stack.extend((v, guards) for v in value.operands())
    for (_, guards), value in found.items():
        yield value, guards


def _row_guards(root: Scope, value: Guard, guards: Guards) -> Guards:
    """`guards` with the conditions of `value` that only mention parallel axes."""
    own = set(root.body.kernel.reduction)
    known = [c for c in value.conditions if not root.body.analysis.index_axes(c.index) & own]
    return root.guard(known, guards)


def _in_loop(scope: Scope, value: Value, guards: Guards) -> Ref:
    if isinstance(value, Scan):
        return _running(scope, value, guards)
    raise unsupported(scope, value)


def _running(scope: Scope, value: Scan, guards: Guards) -> Ref:
    """One step of a scan; the result so far is carried from step to step."""
    assert scope.parent is not None
    kind = tl_type(value.dtype)
    start = neutral(value.op, value.dtype)
    carry = scope.parent.assign("carry", f"tl.full((BLOCK_P, 1), {start}, {kind})", ROWS.line)
    arg = scope.spread(evaluate(scope, value.arg, guards), ROWS.tile, kind)
    part = scope.assign("part", f"tl.where(r_ok, {arg}, {start})", ROWS.tile)
    both = "{} + {}" if value.op is Fold.SUM else f"{COMBINE[value.op]}({{}}, {{}})"
    scan = scope.assign("scan", both.format(carry.text, _scan(value, part.text)), ROWS.tile)
    whole = folded(Reduce(value.op, value.arg, (), value.dtype), part.text)
    scope.block.add(f"{carry.text} = {both.format(carry.text, whole)}")
    return scan


_BEFORE = {Fold.ANY: "False", Fold.ALL: "True"}
_STEP = {
    Fold.SUM: "{0} + {1}",
    Fold.PROD: "{0} * {1}",
    Fold.ANY: "{0} | ({1})",
    Fold.ALL: "{0} & ({1})",
}


def accumulate(
    root: Scope, scope: Scope, rows: Rows, value: Reduce, guards: Guards
) -> tuple[str, str]:
    """One step of a reduction, separate for each place in the tile until the loop is done."""
    value = as_logic(value)
    kind = tl_type(value.arg.dtype if value.op.picks else value.dtype)
    shape = "(BLOCK_P, BLOCK_R)"
    initial = _BEFORE.get(value.op) or neutral(value.op, value.arg.dtype)
    acc = root.assign(value.op.value, f"tl.full({shape}, {initial}, {kind})", ROWS.tile).text
    ref = evaluate(scope, value.arg, guards)
    arg = scope.spread(ref, ROWS.tile, tl_type(value.arg.dtype))
    if value.op.picks:
        places = type_of_places(scope, rows)
        limit = 2**31 - 1 if places == "tl.int32" else 2**63 - 1
        at = root.assign("where", f"tl.full({shape}, {limit}, {places})", ROWS.tile)
        best, here = candidates(scope, rows, value, arg)
        scope.block.add(f"{acc}, {at.text} = tw_{value.op.value}({acc}, {at.text}, {best}, {here})")
        return acc, at.text
    part = masked(scope, rows, value, arg)
    step = _STEP.get(value.op) or f"{COMBINE[value.op]}({{0}}, {{1}})"
    scope.block.add(f"{acc} = {step.format(acc, part)}")
    return acc, ""


def _finish(root: Scope, value: Reduce, result: tuple[str, str]) -> Ref:
    acc, at = result
    if at:
        return pick(root, ROWS, value, acc, at)
    return root.assign(value.op.value, folded(as_logic(value), acc), ROWS.line)
