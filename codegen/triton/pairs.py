"""Parts of complex numbers, which lie side by side: loaded and stored as tiles of pairs.

A tile of pairs has one dimension more, of size 2. So a thread moves both parts at once, and a warp
moves whole lines of memory.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..kernel import Load, Store
from ..kernel.index import Data, Index, walk
from .scope import Guards, Ref, Scope, pointer
from .text import grouped, is_name, tl_type


def load_pair(
    scope: Scope, first: Load, guards: Guards
) -> tuple[str, frozenset[str], list[str]] | None:
    """(text of a tile of pairs, its tiles, its masks), beginning with the parts at `first`; None
    for a single number."""
    at = scope.index(_halved(first.offset), guards)
    tiles = at.tiles.union(*(g.tiles for g in guards))
    if not tiles:
        return None
    masks = [*scope.ok(at.tiles), *(g.name for g in guards)]
    text = scope.spread(at, tiles, scope.body.sizes.tl_type)
    address = pointer(scope.body.buffers[first.buffer], _places(scope, first.offset, text, tiles))
    if not masks:
        return f"tl.load({address})", tiles, masks
    mask = _deeper(scope, " & ".join(masks))
    return f"tl.load({address}, mask={mask}, other=0)", tiles, masks


def store_pair(scope: Scope, first: Store, parts: tuple[Ref, Ref]) -> str | None:
    """The statement that stores both parts, from the place of `first` on; None for numbers that
    have no tile."""
    tiles = parts[0].tiles | parts[1].tiles
    needs = scope.tile_names(scope.body.analysis.index_axes(first.offset))
    tiles |= scope.placed(needs | scope.needs(first.value, ()))
    if not tiles:
        return None
    sizes = scope.body.sizes.tl_type
    at = scope.spread(scope.index(_halved(first.offset)), tiles, sizes)
    kind = tl_type(first.value.dtype)
    joined = ", ".join(scope.spread(part, tiles, kind) for part in parts)
    address = pointer(scope.body.buffers[first.buffer], _places(scope, first.offset, at, tiles))
    masks = scope.ok(tiles)
    mask = f", mask={_deeper(scope, ' & '.join(masks))}" if masks else ""
    return f"tl.store({address}, tl.join({joined}){mask})"


def sides(stores: Iterable[Store]) -> dict[int, Store]:
    """The store of the second part for the store of each first one, by id."""
    found: dict[int, Store] = {}
    by_place = {(s.buffer, s.offset): s for s in stores if s.mode is None}
    for store in by_place.values():
        even = store.offset.const % 2 == 0 and all(c % 2 == 0 for _, c in store.offset.terms)
        other = by_place.get((store.buffer, store.offset + 1))
        if even and other is not None and not any(isinstance(a, Data) for a in walk(store.offset)):
            found[id(store)] = other
    return found


def _halved(offset: Index) -> Index:
    return Index(tuple((atom, c // 2) for atom, c in offset.terms), offset.const // 2)


def _deeper(scope: Scope, text: str) -> str:
    """A tile as one of pairs."""
    dims = ", ".join([":"] * scope.body.rank)
    return f"{text if is_name(text) else f'({text})'}[{dims}, None]"


def _places(scope: Scope, offset: Index, text: str, tiles: frozenset[str]) -> str:
    """The places of both parts, by the number of a complex number. offset: that of the first."""
    if scope.body.needs_64_bits(offset):
        text = f"{grouped(text)}.to(tl.int64)"
    ones = ", ".join(["None"] * scope.body.rank)
    both = f"{_deeper(scope, text)} * 2 + tl.arange(0, 2)[{ones}, :]"
    return scope.named("both", Ref(both, tiles)).text
