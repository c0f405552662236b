"""Values as instructions, each at the outermost level that knows all its operands."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from tilewright.ir.dtype import DType
from tilewright.ir.ops.unary import bitcast, cast

from ..kernel import (
    Apply,
    Condition,
    Constant,
    Guard,
    Load,
    Position,
    RandomBits,
    Scalar,
    Value,
    data_values,
)
from . import arithmetic, convert, memory, philox
from .arms import NESTED, Arm, Arms, on_demand
from .body import Body, Mask
from .code import Level
from .positions import level_of_index, position
from .types import Ref, computed, constant


def evaluate(body: Body, root: Value, mask: Mask | None = None) -> Ref:
    """The value of `root`, written after all its operands."""
    stack: list[tuple[Value, bool]] = [(root, False)]
    while stack:
        value, ready = stack.pop()
        if known(body, value, mask) is not None:
            continue
        if ready:
            level = body.level_of(value, mask)
            level.known[_key(body, value, mask)] = _compute(body, value, mask, level)
            continue
        stack.append((value, True))
        if id(value) not in body.kept:
            stack.extend((v, False) for v in reversed(tuple(_before(body, value))))
    found = known(body, root, mask)
    assert found is not None
    return found


def _before(body: Body, value: Value) -> Iterator[Value]:
    """The operands of a value; of an arm that is a branch, what it starts from."""
    arms = _arms(body, value)
    if arms is None:
        yield from operands(value)
        return
    assert isinstance(value, Apply)
    yield value.args[0]
    for root, arm in zip(value.args[1:], arms):
        yield from (root,) if arm is None else arm.given


def _arms(body: Body, value: Value) -> Arms | None:
    """The arms of a choice that are branches here. One that is known already takes no branch."""
    arms = body.arms.get(id(value)) if body.nested < NESTED else None
    if arms is None or any(id(v) in body.folded for v in value.operands()[1:]):
        return None
    return arms


def known(body: Body, value: Value, mask: Mask | None) -> Ref | None:
    if id(value) in body.folded:
        return body.folded[id(value)]
    found: Ref | None = body.level_of(value, mask).known.get(_key(body, value, mask))
    return found


def _key(body: Body, value: Value, mask: Mask | None) -> Hashable:
    return "value", id(value), mask.number if mask and body.analysis.reads(value) else 0


def operands(value: Value) -> Iterator[Value]:
    if isinstance(value, Guard):
        yield value.outside
    else:
        yield from value.operands()
    for index in value.indices():
        yield from data_values(index)


def _compute(body: Body, value: Value, mask: Mask | None, at: Level) -> Ref:
    if id(value) in body.kept:
        return body.kept[id(value)](value)
    if isinstance(value, Apply):
        return _apply(body, value, mask, at)
    if isinstance(value, Load):
        return memory.load(body, value, mask)
    if isinstance(value, Constant):
        return constant(value.value, computed(value.dtype))
    if isinstance(value, Scalar):
        return body.scalar(value)
    if isinstance(value, Position):
        return position(body, value.index, mask)
    if isinstance(value, RandomBits):
        seed, offset = evaluate(body, value.seed, mask), evaluate(body, value.offset, mask)
        at_index = position(body, value.index, mask)
        return philox.word(body, seed, offset, at_index, value.dtype.itemsize == 8, at)
    if isinstance(value, Guard):
        return _guard(body, value, mask, at)
    raise AssertionError(f"{type(value).__name__} is computed by the loops of its stage")


def _choice(body: Body, value: Apply, arms: Arms, mask: Mask | None, at: Level) -> Ref:
    """A `where` that computes an arm if a lane takes it."""
    code = body.code
    condition = evaluate(body, value.args[0], mask)

    def arm(root: Value, own: Arm | None, second: bool) -> Ref:
        if own is None:
            return evaluate(body, root, mask)
        wanted = condition
        if second:
            wanted = code.binary("xor", condition, constant(True, "i1", condition.lanes), at)
        body.nested += 1
        found = on_demand(code, wanted, lambda: evaluate(body, root, mask), at)
        body.nested -= 1
        return found

    first, second = value.args[1:]
    return code.select(condition, arm(first, arms[0], False), arm(second, arms[1], True), at)


def _apply(body: Body, value: Apply, mask: Mask | None, at: Level) -> Ref:
    arms = _arms(body, value)
    if arms is not None:
        return _choice(body, value, arms, mask, at)
    args = [evaluate(body, a, mask) for a in value.args]
    source = value.args[0].dtype
    if value.op is cast:
        return convert.cast(body, args[0], source, value.target or value.dtype, at)
    if value.op is bitcast:
        stored = _stored_dtype(value.args[0])
        return convert.bitcast(body, args[0], stored, value.target or value.dtype, at)
    return arithmetic.apply(body, value, args, mask, at)


def _stored_dtype(value: Value) -> DType:
    """The dtype of a value for the user: half types are float32 here."""
    if isinstance(value, Load):
        return value.buffer.dtype
    if isinstance(value, Apply) and value.target is not None:
        return value.target
    return value.dtype


def _guard(body: Body, value: Guard, mask: Mask | None, at: Level) -> Ref:
    holds = _conditions(body, value.conditions, mask)
    if holds is None:
        return evaluate(body, value.inside, mask)
    outside = evaluate(body, value.outside, mask)
    code = body.code
    branches = holds.lanes == 1 and (mask is None or mask.held is at)
    key = ("mask", value.conditions, mask.number if mask else 0)

    def make() -> Mask:
        ref = holds if mask is None else code.binary("and", mask.ref, holds, level)
        body.masks += 1
        return Mask(ref, level.depth, body.masks, at if branches else None)

    depth = max(_level_of(body, c, mask).depth for c in value.conditions)
    level = code.levels[max(depth, mask.level if mask else 0)]
    within = code.once(key, level, make)
    if not branches:
        return code.select(holds, evaluate(body, value.inside, within), outside, at)
    lanes = body.lanes if body.in_lanes(body.analysis.axes(value)) else 1

    def inside() -> Ref:
        return code.spread(evaluate(body, value.inside, within), lanes, at)

    return on_demand(code, holds, inside, at, code.spread(outside, lanes, at))


def _level_of(body: Body, condition: Condition, mask: Mask | None) -> Level:
    if condition in body.settled:
        return body.code.levels[body.settled[condition][1]]
    return level_of_index(body, condition.index, mask)


def _conditions(body: Body, conditions: Sequence[Condition], mask: Mask | None) -> Ref | None:
    """Whether all conditions hold; None if they always do."""
    code = body.code
    total: Ref | None = None
    depth = 0
    for condition in conditions:
        low, high = condition.index.bounds()
        if condition.low <= low and high < condition.high:
            continue
        level = _level_of(body, condition, mask)
        depth = max(depth, level.depth)
        if condition in body.settled:
            part = body.settled[condition][0]
        else:
            kind = "i32" if max(-low, high) < 1 << 30 else "i64"
            place = position(body, condition.index, mask, kind)
            part = within_bounds(body, condition, place, level)
        total = part if total is None else code.binary("and", total, part, code.levels[depth])
    return total


def within_bounds(body: Body, condition: Condition, place: Ref, at: Level) -> Ref:
    """Whether a condition holds where its index is `place`."""
    start = _bound(body, condition.low, ("low", condition), place.type)
    count = _bound(body, condition.high - condition.low, ("span", condition), place.type)
    moved = place if start.text == "0" else body.code.binary("sub", place, start, at)
    return body.code.compare("icmp ult", moved, count, at)


def _bound(body: Body, value: int, key: Hashable, kind: str) -> Ref:
    ref = body.size(value, key)
    if kind == ref.type:
        return ref
    if not ref.text.startswith("%"):
        return constant(value, kind)
    entry = body.entry
    return body.code.once(
        ("narrow", ref, kind), entry, lambda: body.code.convert("trunc", ref, kind, entry)
    )


def load_ahead(body: Body, roots: Sequence[Value]) -> None:
    """Loads at once all elements that `roots` read as neighbours at the innermost level."""
    if body.vector is None:
        return
    level = body.code.level
    found: dict[int, Load] = {}
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        value = stack.pop()
        if id(value) in seen or id(value) in body.folded or id(value) in body.kept:
            continue
        seen.add(id(value))
        if (
            isinstance(value, Load)
            and body.level_of(value) is level
            and memory.is_plain(body, value)
            and known(body, value, None) is None
        ):
            found[id(value)] = value
        stack.extend(operands(value))
    if len(found) > 1:
        loads = list(found.values())
        for value, ref in zip(loads, memory.load_together(body, loads, level)):
            level.known[_key(body, value, None)] = ref
