"""Guards: values that exist in a part of the domain only."""

from __future__ import annotations

import numpy as np

from ..kernel import Condition, Guard
from .access import position
from .domain import has_data, tabulate
from .emission import Context, Emission, common
from .program import Array
from .region import in_region


def guard(e: Emission, value: Guard, context: Context) -> Array:
    """The value in the box where the conditions hold; or everywhere, followed by a choice."""
    boxed = in_region(e, value, context)
    if boxed is not None:
        return e.cast(boxed, value.dtype.np)
    holds = mask(e, value.conditions, context)
    if holds is None:
        return e.evaluate(value.inside, context)
    within = holds if context.mask is None else both(e, context.mask, holds)
    inside = e.evaluate(value.inside, Context(context.domain, within))
    outside = e.of(value.outside, context)
    reads = (holds, inside, outside)
    call = f"np.where({holds.name}, {inside.name}, {outside.name})"
    out = e.let(call, inside.dtype, common(reads), reads, stem="guard_", by_rows=True)
    return e.cast(out, value.dtype.np)


def mask(e: Emission, conditions: tuple[Condition, ...], context: Context) -> Array | None:
    """A mask that tells where every condition holds; None if they always do."""
    domain = context.domain
    fixed: np.ndarray | None = None
    moving: Array | None = None
    for condition in conditions:
        index = domain.rewrite(condition.index)
        low, high = index.bounds()
        if condition.low <= low and high < condition.high:
            continue
        if not has_data(index):
            table = tabulate(index, domain)
            holds = (table >= condition.low) & (table < condition.high)
            fixed = holds if fixed is None else fixed & holds
            continue
        at = position(e, index, context)
        a, b = e.argument("n", condition.low), e.argument("n", condition.high)
        call = f"({at.name} >= {a}) & ({at.name} < {b})"
        part = e.let(call, np.bool_, at.extent, (at,), stem="mask_")
        moving = part if moving is None else both(e, moving, part)
    if fixed is None:
        return moving
    name = e.argument("mask", fixed, (conditions, domain))
    still = Array(name, np.dtype(np.bool_), fixed.shape, name, False)
    return still if moving is None else both(e, moving, still)


def both(e: Emission, a: Array, b: Array) -> Array:
    pair = (a, b)
    call = f"np.logical_and({a.name}, {b.name})"
    return e.let(call, np.bool_, common(pair), pair, stem="mask_", ufunc=True)
