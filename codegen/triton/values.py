"""Values of the kernel IR as Triton text, one form for each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilewright.ir import ops
from tilewright.ir.dtype import BOOL, FLOAT8, NARROW, DType, float8_e4m3fn, float32

from ..kernel import (
    Apply,
    Constant,
    Dot,
    Guard,
    Load,
    Position,
    RandomBits,
    Reduce,
    Scalar,
    Scan,
    Store,
    Value,
)
from .bounds import bound
from .pairs import load_pair, sides, store_pair
from .scope import Guards, Ref, Scope, pointer
from .text import TL, grouped, literal, may_be_size, tl_type

# Bools are added as torch and NumPy do it; Triton's have one bit, which overflows.
_BOOL_ARITHMETIC = {
    ops.add: "{0} | {1}",
    ops.mul: "{0} & {1}",
    ops.shift_left: "{0}.to(tl.int32) << {1}.to(tl.int32) != 0",
}

_NEAR = {ops.sin: "tw_near_sin({0})", ops.cos: "tw_near_cos({0})"}
"""Forms for float32 up to _FAR."""
_FAR = 1e5


def evaluate(scope: Scope, value: Value, guards: Guards = ()) -> Ref:
    """`value` as a variable, a parameter or a literal; written first if it is not there yet."""
    for pending in _chain(scope, value, guards):
        _evaluate(scope, pending, guards)
    return _evaluate(scope, value, guards)


def _chain(scope: Scope, value: Value, guards: Guards) -> list[Value]:
    """The elementwise values below `value`, operands first, so that no recursion gets deep."""
    order: list[Value] = []
    seen: set[int] = set()
    stack: list[tuple[Value, bool]] = [(value, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif (
            id(node) not in seen and isinstance(node, Apply) and _find(scope, node, guards) is None
        ):
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args))
    return order


def relevant(scope: Scope, value: Value, guards: Guards) -> Guards:
    """The guards that matter to `value`, because it reads memory."""
    if not scope.body.analysis.reads(value):
        return ()
    if isinstance(value, (Reduce, Scan, Dot)):
        # Its reduction axes are its own, not those of the guarded point.
        return tuple(g for g in guards if not g.needs & scope.reducing())
    return guards


def _find(scope: Scope, value: Value, guards: Guards) -> Ref | None:
    """The text of `value`, if it was written under these guards or under fewer."""
    guards = relevant(scope, value, guards)
    for count in range(len(guards) + 1):
        some = guards[:count]
        home = scope.home(scope.needs(value, some))
        found = home.cache.get((id(value), some))
        if found is not None:
            return found
    return None


def _evaluate(scope: Scope, value: Value, guards: Guards) -> Ref:
    found = _find(scope, value, guards)
    if found is not None:
        return found
    guards = relevant(scope, value, guards)
    home = scope.home(scope.needs(value, guards))
    ref = _write(home, value, guards)
    home.cache[id(value), guards] = ref
    return ref


def _write(scope: Scope, value: Value, guards: Guards) -> Ref:
    body = scope.body
    if isinstance(value, Constant):
        if may_be_size(value.value, value.dtype):
            return Ref(body.number(value.value, value.dtype))
        return Ref(literal(value.value, value.dtype), is_literal=True)
    if isinstance(value, Scalar):
        name = body.scalars[value.slot]
        if value.dtype.category == BOOL:
            return scope.assign("b", f"{name} != 0", frozenset())
        return Ref(name)
    if isinstance(value, Load):
        found = _part(scope, value, guards)
        if found is not None:
            return found
        text, tiles = load(scope, value, guards)
        return scope.assign("v", widened(text, value.buffer.dtype, value.dtype), tiles)
    if isinstance(value, Position):
        at = scope.index(value.index, guards)
        text = f"tl.full((), {at.text}, tl.int64)" if at.is_literal else f"{at.text}.to(tl.int64)"
        return scope.assign("at", text, at.tiles)
    if isinstance(value, RandomBits):
        seed = typed(evaluate(scope, value.seed, guards), value.seed.dtype)
        offset = typed(evaluate(scope, value.offset, guards), value.offset.dtype)
        at = scope.index(value.index, guards)
        index = f"tl.full((), {at.text}, tl.int64)" if at.is_literal else at.text
        words = "tw_philox_words" if value.dtype.itemsize == 8 else "tw_philox"
        return scope.assign("bits", f"{words}({seed}, {offset}, {index})", at.tiles)
    if isinstance(value, Apply):
        return _apply(scope, value, guards)
    if isinstance(value, Guard):
        return guarded(scope, value, guards)
    if body.fold is None:
        raise unsupported(scope, value)
    return body.fold(scope, value, guards)


def _part(scope: Scope, value: Load, guards: Guards) -> Ref | None:
    """A part of complex numbers, read together with the other part; None if it is read alone."""
    both = scope.body.analysis.beside(value)
    if both is None or value.buffer.dtype in FLOAT8:
        return None
    read = load_pair(scope, both[0], guards)
    if read is None:
        return None
    text, tiles, _ = read
    text = widened(text, value.buffer.dtype, value.dtype)
    names = [scope.body.names.fresh("v") for _ in both]
    scope.block.add(f"{names[0]}, {names[1]} = tl.split({text})")
    refs = [Ref(name, tiles) for name in names]
    for each, ref in zip(both, refs):
        scope.cache[id(each), guards] = ref
    return refs[both.index(value)]


def unsupported(scope: Scope, value: Value) -> NotImplementedError:
    kind = type(value).__name__
    return NotImplementedError(f"{scope.body.kernel.name}: no Triton form of a {kind} in its form")


def load(
    scope: Scope, value: Load, guards: Guards, raw: bool = False
) -> tuple[str, frozenset[str]]:
    """The text of a load in its buffer's type, 0 where it is masked. Float8 is loaded as bits; or
    as numbers (`raw`), on GPUs that know its type."""
    offset = scope.index(value.offset, guards)
    tiles = offset.tiles.union(*(g.tiles for g in guards))
    masks = [*scope.ok(offset.tiles), *(g.name for g in guards)]
    text = scope.spread(offset, tiles, scope.body.sizes.tl_type)
    dtype = value.buffer.dtype
    numbers = raw and dtype in FLOAT8
    base = scope.body.buffers[value.buffer]
    address = pointer(_numbers(scope, base, dtype) if numbers else base, text)
    if not masks:
        return f"tl.load({address})", tiles
    zero = "0.0" if numbers else "0"
    return f"tl.load({address}, mask={' & '.join(masks)}, other={zero})", tiles


def _numbers(scope: Scope, base: str, dtype: DType) -> str:
    """A buffer of float8, seen as memory of numbers instead of bits."""
    kind = "tl.float8e4nv" if dtype is float8_e4m3fn else "tl.float8e5"
    text = f"{base}.to(tl.pointer_type({kind}), bitcast=True)"
    return scope.home(frozenset()).named("numbers", Ref(text)).text


def widened(text: str, stored: DType, dtype: DType) -> str:
    """A loaded value in the type it is computed with."""
    if stored.category == BOOL:
        return f"{text} != 0"
    if stored in FLOAT8:
        return f"tw_from_{stored.name}({text})"
    if TL[stored.name] != tl_type(dtype):
        return f"{text}.to({tl_type(dtype)})"
    return text


def narrowed(text: str, stored: DType) -> str:
    """A float32 in the form of memory."""
    if stored in FLOAT8:
        return f"tw_to_{stored.name}({text})"
    return f"{text}.to({TL[stored.name]})"


def typed(ref: Ref, dtype: DType) -> str:
    """`ref` as a tensor: literals take the type of their neighbour, which may not be `dtype`."""
    return f"tl.full((), {ref.text}, {tl_type(dtype)})" if ref.is_literal else ref.text


def _apply(scope: Scope, value: Apply, guards: Guards) -> Ref:
    refs = [evaluate(scope, a, guards) for a in value.args]
    tiles = frozenset[str]().union(*(r.tiles for r in refs))
    op, template = value.op, value.op.triton
    if not isinstance(template, str):
        raise NotImplementedError(f"{op.name} has no Triton form")
    if op is ops.cast or op is ops.bitcast:
        text = _cast(typed(refs[0], value.args[0].dtype), value, op is ops.bitcast)
        return scope.assign(op.name, text, tiles)
    if value.dtype.category == BOOL and all(a.dtype.category == BOOL for a in value.args):
        template = _BOOL_ARITHMETIC.get(op, template)
    if op in _NEAR and value.dtype is float32 and bound(value.args[0]) <= _FAR:
        template = _NEAR[op]
    # A literal beside a tensor takes its type; alone, or passed to a function, it needs one.
    infix = "(" not in template.replace("({0})", "{0}") and not all(r.is_literal for r in refs)
    texts = [
        r.text if infix and a.dtype.category != BOOL else typed(r, a.dtype)
        for r, a in zip(refs, value.args)
    ]
    if infix:
        texts = [grouped(t) for t in texts]
    return scope.assign(op.name, template.format(*texts), tiles)


def _cast(text: str, value: Apply, bits: bool) -> str:
    source, target = value.args[0].dtype, value.target or value.dtype
    if bits:
        stored = _stored(value.args[0])
        if stored in NARROW:
            text = narrowed(text, stored)
        return widened(f"{text}.to({TL[target.name]}, bitcast=True)", target, target)
    if target.category == BOOL:
        return text if source.category == BOOL else f"{text} != 0"
    if source.is_floating_point and target.name.startswith("uint"):
        text = f"{text}.to(tl.int64)"  # negative numbers wrap around, as they do in torch
    if target in NARROW:
        if target in FLOAT8:
            text = f"{text}.to(tl.float32)"
        return widened(narrowed(text, target), target, target)
    return f"{text}.to({tl_type(target)})"


def _stored(value: Value) -> DType:
    """The type that a value had before it was widened."""
    if isinstance(value, Load):
        return value.buffer.dtype
    if isinstance(value, Apply) and value.target is not None:
        return value.target
    return value.dtype


def guarded(scope: Scope, value: Guard, guards: Guards, raw: bool = False) -> Ref:
    """A value under conditions. raw: whether a loaded value keeps the type of memory."""
    inner = scope.guard(value.conditions, guards)
    added = [g for g in inner if g not in guards]
    if raw and isinstance(value.inside, Load):
        text, tiles = load(scope, value.inside, inner, raw=True)
        inside = scope.assign("v", text, tiles)
    else:
        inside = evaluate(scope, value.inside, inner)
    if not added:
        return inside
    if isinstance(value.inside, Load) and is_zero(value.outside) and value.dtype.category != BOOL:
        return inside  # a masked load gives zeros
    outside = evaluate(scope, value.outside, guards)
    tiles = inside.tiles.union(outside.tiles, *(g.tiles for g in added))
    condition = " & ".join(g.name for g in added)
    if value.dtype.category == BOOL:
        texts = [typed(inside, value.dtype), typed(outside, value.dtype)]
    elif inside.is_literal:
        texts = [typed(inside, value.dtype), outside.text]
    else:
        texts = [inside.text, outside.text]
    return scope.assign("v", f"tl.where({condition}, {texts[0]}, {texts[1]})", tiles)


def is_zero(value: Value) -> bool:
    return isinstance(value, Constant) and not value.value


Copied = Callable[[Scope, Store, Ref], str | None]
"""The statement by which hardware copies a tile of a value to memory; None if it doesn't."""


def write(
    scope: Scope,
    stores: Iterable[Store],
    copied: Copied | None = None,
) -> None:
    """Writes `stores` after all values that they store: one may overwrite what another reads."""
    values = [(s, evaluate(scope, s.value)) for s in stores]
    second = sides(s for s, _ in values)
    pairs: dict[int, str] = {}
    by_id = {id(s): v for s, v in values}
    for store, value in values:
        other = second.get(id(store))
        if other is not None:
            text = store_pair(scope, store, (value, by_id[id(other)]))
            if text is not None:
                scope.block.add(text)
                pairs |= {id(store): text, id(other): text}
    alone = [(s, v) for s, v in values if id(s) not in pairs]
    statements = []
    for store, value in alone:
        text = copied and copied(scope, store, value)
        if not text:
            address, mask = scope.target(store, value.tiles)
            text = f"tl.store({address}, {_stored_text(value, store)}{mask})"
        statements.append(text)
    for text in statements:
        scope.block.add(text)


def _stored_text(ref: Ref, store: Store) -> str:
    """`ref` as it is stored: float8 as its bits; tl.store converts all other types."""
    if store.buffer.dtype in FLOAT8:
        return narrowed(typed(ref, store.value.dtype), store.buffer.dtype)
    return ref.text
