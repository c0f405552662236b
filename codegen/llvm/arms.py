"""The arms of a `where`: what only one of them needs is computed if a lane takes that arm.

A function that is a polynomial here and an asymptotic series there then costs one of them where
neighbours lie in one range. The bits are those of a computation of both arms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.ir import ops

from ..kernel import Apply, Kernel, Store, Value, data_values
from ..kernel.analysis import Analysis
from .code import Code, Level
from .types import Ref

DEAR = 12  # from this Op.cost on an arm is worth a branch: some operations, or one exponential
MOST = 256  # the values of an arm that are looked at, so that nested arms take linear time
NESTED = 8  # the arms inside of each other that are branches


@dataclass(frozen=True)
class Arm:
    """own: the values, by id, that only this arm needs. given: the values that they are made
    from."""

    own: frozenset[int]
    given: tuple[Value, ...]


Arms = tuple[Arm | None, Arm | None]


def arms_of(kernel: Kernel, analysis: Analysis) -> dict[int, Arms]:
    """The arms that are worth a branch, of each `where` that has one, by id."""
    uses: dict[int, int] = {}
    for user in (*kernel.values, *kernel.stores):
        read = (user.value,) if isinstance(user, Store) else user.operands()
        places = (user.offset,) if isinstance(user, Store) else user.indices()
        for value in (*read, *(d for index in places for d in data_values(index))):
            uses[id(value)] = uses.get(id(value), 0) + 1
    out = {}
    for value in kernel.values:
        if isinstance(value, Apply) and value.op is ops.where:
            first, second = (_arm(value, a, uses, analysis) for a in value.args[1:])
            if first or second:
                out[id(value)] = first, second
    return out


def _arm(choice: Apply, root: Value, uses: dict[int, int], analysis: Analysis) -> Arm | None:
    """What only `root`'s arm of a choice needs; None if it isn't worth a branch."""
    axes = analysis.axes(choice)
    left: dict[int, int] = {}
    own: set[int] = set()
    given: dict[int, Value] = {}
    cost, stack = 0, [root]
    while stack:
        value = stack.pop()
        left[id(value)] = left.get(id(value), uses[id(value)]) - 1
        given[id(value)] = value
        if left[id(value)] or not isinstance(value, Apply) or value.may_fail or len(own) >= MOST:
            continue
        del given[id(value)]
        own.add(id(value))
        cost += value.op.cost if analysis.axes(value) == axes else 0
        stack.extend(value.args)
    return Arm(frozenset(own), tuple(given.values())) if cost >= DEAR else None


def on_demand(
    code: Code, wanted: Ref, make: Callable[[], Ref], at: Level, otherwise: Ref | None = None
) -> Ref:
    """What `make` adds to `at`, if any lane of `wanted` is set; else `otherwise`, by default a
    value that no lane takes."""
    if wanted.lanes > 1:
        bits = code.let(f"bitcast {wanted.typed} to i{wanted.lanes}", f"i{wanted.lanes}", at=at)
        wanted = code.let(f"icmp ne {bits.typed}, 0", "i1", at=at)
    needed, after = code.fresh_label("needed"), code.fresh_label("chosen")
    before, known = at.label, at.known
    code.add(f"br i1 {wanted.text}, label %{needed}, label %{after}", at)
    at.block(needed)
    at.known = dict(known)  # values of a branch are known in it alone
    found = make()
    end, at.known = at.label, known
    code.add(f"br label %{after}", at)
    at.block(after)
    other = "zeroinitializer" if otherwise is None else otherwise.text
    text = f"phi {found.full_type} [ {other}, %{before} ], [ {found.text}, %{end} ]"
    return code.let(text, found.type, found.lanes, at)
