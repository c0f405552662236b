"""Grouped updates: values for one place are neighbours, and a program takes whole groups of them.

A tile has one row for each update. Only the first row of each group works: it walks along its
group, some values at a time, and writes the result to the element.
"""

from __future__ import annotations

from ..kernel import UPDATES, Store
from ..kernel.index import Index
from ..schedule import Schedule, points
from .folds import combined, neutral
from .scope import Body, Scope, Tile
from .text import Block, tl_type
from .values import evaluate, write

VALUES = frozenset({"r", "p"})
SHAPE = "(BLOCK_J, BLOCK_R)"
LINE = "(BLOCK_J * BLOCK_R, 1)"


def runs(body: Body, block: Block, schedule: Schedule) -> tuple[dict[str, int], int]:
    """Writes the kernel; returns its constexprs and the number of programs."""
    kernel = body.kernel
    (store,) = kernel.stores
    columns, count = points(kernel.parallel), points(kernel.reduction)
    block.add(f"columns = ({body.sizes.extent('p', columns)} + BLOCK_P - 1) // BLOCK_P")
    block.add("p = pid % columns * BLOCK_P + tl.arange(0, BLOCK_P)[None, :]")
    block.add("p_ok = p < n_p")
    length = body.sizes.extent("r", count)
    block.add("j = pid // columns * BLOCK_J + tl.arange(0, BLOCK_J)[:, None]")
    block.add(f"j_ok = j < {length}")
    parallel = tuple(a for a in kernel.parallel if a.extent != 1)
    root = Scope(body, block, [Tile("p", parallel, 1, "BLOCK_P", "p_ok")])
    if store.mode == "set":
        block.add("h = tl.minimum(j + 1, n_r - 1)")
        at_edge = "(j == n_r - 1)"
    else:
        block.add("h = tl.maximum(j - 1, 0)")
        at_edge = "(j == 0)"
    here, mine = _group(root, block, store, "j", "BLOCK_J", "j_ok")
    _, other = _group(root, block, store, "h", "BLOCK_J", "j_ok")
    block.add(f"j_ok = j_ok & ({at_edge} | ({mine} != {other}))")
    if store.mode == "set":
        write(here, [store])  # the last value of a group
    else:
        _walk(root, here, store, mine)
    constexprs = {
        "BLOCK_J": schedule.block,
        "BLOCK_R": 1 if store.mode == "set" else schedule.block_r,
        "BLOCK_P": schedule.block_n,
    }
    programs = -(-columns // schedule.block_n) * -(-count // schedule.block)
    return constexprs, programs


def _group(
    root: Scope, block: Block, store: Store, name: str, length: str, ok: str
) -> tuple[Scope, str]:
    """A scope at the updates `name`, and the text that tells their groups apart: the part of the
    offset that doesn't depend on columns."""
    body = root.body
    columns = set(body.kernel.parallel)
    scope = Scope(body, block, [Tile(name, body.kernel.reduction, 0, length, ok)], root)
    terms = [
        (atom, coefficient)
        for atom, coefficient in store.offset.terms
        if not body.analysis.index_axes(Index(((atom, 1),))) & columns
    ]
    group = scope.index(Index(tuple(terms)))
    return scope, scope.spread(group, frozenset({name}), body.sizes.tl_type)


def _walk(root: Scope, here: Scope, store: Store, mine: str) -> None:
    """Combines the values of each group with their element."""
    block = root.block
    assert store.mode is not None
    op = UPDATES[store.mode]
    kind = tl_type(store.value.dtype)
    address, mask = here.target(store, frozenset({"j", "p"}))
    block.add(f"total = tl.load({address}{mask}{', other=0' if mask else ''}).to({kind})")
    block.add(f"group = tl.reshape(tl.broadcast_to({mine}, {SHAPE}), {LINE})")
    block.add(f"first = tl.reshape(j + tl.arange(0, BLOCK_R)[None, :], {LINE})")
    block.add("open = j_ok")
    block.add("left = tl.max(open.to(tl.int32))")
    block.add("step = 0")

    loop = Block()
    loop.add("r = first + step")
    loop.add(f"r_ok = (r < n_r) & tl.reshape(tl.broadcast_to(open, {SHAPE}), {LINE})")
    inner, theirs = _group(root, loop, store, "r", "BLOCK_J * BLOCK_R", "r_ok")
    loop.add(f"r_ok = r_ok & ({theirs} == group)")
    value = evaluate(inner, store.value)
    spread = inner.spread(value, VALUES, kind)
    loop.add(f"part = tl.where(r_ok, {spread}, {neutral(op, store.value.dtype)})")
    loop.add("part = tl.reshape(part, (BLOCK_J, BLOCK_R, BLOCK_P))")
    loop.add(f"total = {combined(op, 'total', 'part', 1, kind)}")
    loop.add(f"open = tl.min(tl.reshape(r_ok, {SHAPE}).to(tl.int32), axis=1, keep_dims=True) != 0")
    loop.add("left = tl.max(open.to(tl.int32))")
    loop.add("step += BLOCK_R")
    block.loop("while left > 0", loop)
    block.add(f"tl.store({address}, total{mask})")
