"""Updates: values that are combined into memory one after another."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..kernel import UPDATES, Store
from . import memory
from .arms import on_demand
from .body import Body
from .code import Level
from .convert import from_memory, to_memory
from .folds import combine
from .positions import split, uniform
from .types import Ref, constant


def update(body: Body, each: Store, value: Ref) -> None:
    """Combines a value into memory. No two lanes have the same element."""
    at, buffer, mode = body.code.level, each.buffer, each.mode
    assert mode is not None
    if mode == "set":
        memory.store(body, [(each, value)])
        return

    def combined(old: Ref) -> Ref:
        return combine(body, UPDATES[mode], buffer.dtype, old, value, at)

    if buffer in body.padded:
        _update_padded(body, each, combined)
        return
    if body.vector is not None and body.in_lanes(body.analysis.index_axes(each.offset)):
        value = body.code.spread(value, body.vector.lanes, at)  # all lanes may add one number
    place, old = _steady_place(body, each), partial(_old, body, each, at)
    found = combined(old()) if place is None else _carried(body, place, old, combined, value)
    memory.store(body, [(each, found)])


def _old(body: Body, each: Store, at: Level) -> Ref:
    """What an update finds in memory."""
    buffer = each.buffer
    if not body.in_lanes(body.analysis.index_axes(each.offset)):
        old = memory.scalar(body, buffer, each.offset, None, at)
    elif memory.stride_of(body, each.offset) == 1:
        (address,) = memory.addresses_of(body, [(buffer, each.offset)], None, at)
        (old,) = memory.neighbours(body, [(address, buffer)], at)
    else:
        old = memory.gather(body, buffer, each.offset, None, at)
    return from_memory(body, old, buffer.dtype, at)


def _steady_place(body: Body, each: Store) -> Ref | None:
    """The place of an update, if data tells whether it is that of the step before; in lanes, that
    of the first. None if it isn't known to be a place of neighbours that the loop doesn't move."""
    code, offset = body.code, each.offset
    if not body.analysis.index_reads(offset):
        return None
    if not code.loops or code.loops[-1].level is not code.level:
        return None
    if any(other is not each and other.buffer is each.buffer for other in body.kernel.stores):
        return None
    if not body.in_lanes(body.analysis.index_axes(offset)):
        return uniform(body, offset, None)
    assert body.vector is not None
    if body.vector.level is code.level or memory.stride_of(body, offset) != 1:
        return None
    return uniform(body, split(body, offset)[0], None)


def _carried(
    body: Body, place: Ref, old: Callable[[], Ref], combined: Callable[[Ref], Ref], value: Ref
) -> Ref:
    """The result of an update, which the next one takes from its register if its place is the same:
    sorted places would wait for memory in each step."""
    code, at = body.code, body.code.level
    before = code.carry(constant(-1, "i64"), lambda held: (held, place))
    moved = code.compare("icmp ne", place, before, at)

    def following(held: Ref) -> tuple[Ref, Ref]:
        found = combined(on_demand(code, moved, old, at, held))
        return found, found

    return code.carry(constant(0, value.type, value.lanes), following)


def _update_padded(body: Body, each: Store, combined: Callable[[Ref], Ref]) -> None:
    """Updates whole vectors. After a masked store, the next load would wait for the cache."""
    at, buffer = body.code.level, each.buffer
    (address,) = memory.addresses_of(body, [(buffer, each.offset)], None, at)
    old = from_memory(body, memory.vector_load(body, address, buffer, at), buffer.dtype, at)
    new = to_memory(body, combined(old), buffer.dtype, at)
    memory.vector_stores(body, [(address, buffer, new)], at)
