"""Kernels without reductions, and updates: one tile of points a program.

A tile of points is a line in the order of the stores; or a rectangle, where loads run along other
axes (`schedule/turned.py`).
"""

from __future__ import annotations

from tilewright.ir.dtype import bool_

from ..kernel import Store
from ..schedule import Schedule, points, sides
from .scope import Body, Ref, Scope, Tile
from .text import Block, tl_type
from .values import evaluate, write


def pointwise(body: Body, block: Block, schedule: Schedule) -> tuple[dict[str, int], int]:
    """Writes the stores for every parallel point; returns constexprs and the number of programs."""
    scope, grid = _points(body, block, schedule)
    write(scope, body.kernel.stores)
    return {"BLOCK_P": schedule.block}, grid


def turned(body: Body, block: Block, schedule: Schedule) -> tuple[dict[str, int], int]:
    """Writes the stores of a rectangle: stores run across, loads down. The compiler gives each of
    them the order in which it moves vectors. Returns constexprs and the number of programs."""
    found = sides(body.kernel)
    assert found is not None, f"{body.kernel.name} has no sides"
    tiles = []
    across = body.sizes.extent("p", points(found.across))
    down = body.sizes.extent("q", points(found.down))
    block.add(f"columns = ({across} + BLOCK_P - 1) // BLOCK_P")
    if found.outer:
        block.add(f"rectangles = ({down} + BLOCK_Q - 1) // BLOCK_Q * columns")
        block.add("o = pid // rectangles")
        block.add("pid = pid % rectangles")
        tiles.append(Tile("o", found.outer, None, "1", None))
    block.add("q = pid // columns * BLOCK_Q + tl.arange(0, BLOCK_Q)[:, None]")
    block.add("p = pid % columns * BLOCK_P + tl.arange(0, BLOCK_P)[None, :]")
    programs = points(found.outer)
    for place, (name, axes, length) in enumerate(
        [("q", found.down, schedule.turned), ("p", found.across, schedule.block)]
    ):
        rest = points(axes) % length
        if rest:
            block.add(f"{name}_ok = {name} < n_{name}")
        ok = f"{name}_ok" if rest else None
        tiles.append(Tile(name, axes, place, f"BLOCK_{name.upper()}", ok))
        programs *= -(-points(axes) // length)
    write(Scope(body, block, tiles), body.kernel.stores)
    return {"BLOCK_Q": schedule.turned, "BLOCK_P": schedule.block}, programs


def update(body: Body, block: Block, schedule: Schedule) -> tuple[dict[str, int], int]:
    """Writes an update: parallel points side by side, reduction axes one position after another.

    So values that meet at one place arrive in a fixed order, without atomics.
    """
    kernel = body.kernel
    scope, grid = _points(body, block, schedule)
    axes = tuple(a for a in kernel.reduction if a.extent != 1)
    if axes:
        extent = body.sizes.extent("r", points(axes))
        loop = Block()
        loop.add("r = step + 0")
        inner = Scope(body, loop, [Tile("r", axes, None, "1", None)], scope)
    else:
        loop, inner = block, scope
    for store in kernel.stores:
        _combine(inner, store)
    if axes:
        # The next position may meet an element that another thread wrote at this one.
        loop.add("tl.debug_barrier()")
        block.loop(f"for step in range(0, {extent})", loop)
    return {"BLOCK_P": schedule.block}, grid


def _points(body: Body, block: Block, schedule: Schedule) -> tuple[Scope, int]:
    axes = tuple(a for a in body.kernel.parallel if a.extent != 1)
    count = points(body.kernel.parallel)
    extent = body.sizes.extent("p", count)
    block.add("p = pid * BLOCK_P + tl.arange(0, BLOCK_P)")
    block.add(f"p_ok = p < {extent}")
    tile = Tile("p", axes, 0, "BLOCK_P", "p_ok")
    return Scope(body, block, [tile]), -(-count // schedule.block)


_COMBINE = {
    "add": "{0} + {1}",
    "mul": "{0} * {1}",
    "max": "tw_maximum({0}, {1})",
    "min": "tw_minimum({0}, {1})",
}
_COMBINE_TRUTHS = {"add": "{0} | {1}", "mul": "{0} & {1}", "max": "{0} | {1}", "min": "{0} & {1}"}
"""A sum of int1 would wrap around."""


def _combine(scope: Scope, store: Store) -> None:
    if store.mode in (None, "set"):
        write(scope, [store])
        return
    value = evaluate(scope, store.value)
    pointer, mask = scope.target(store, value.tiles)
    wide = tl_type(store.value.dtype)
    other = ", other=0" if mask else ""
    old = scope.assign("old", f"tl.load({pointer}{mask}{other}).to({wide})", frozenset())
    text = f"tl.full((), {value.text}, {wide})" if value.is_literal else value.text
    combine = _COMBINE_TRUTHS if store.value.dtype is bool_ else _COMBINE
    new = Ref(combine[store.mode or ""].format(old.text, text))
    scope.block.add(f"tl.store({pointer}, {new.text}{mask})")
