"""Tiles and scopes: the place in the generated text where a value is written, and its shape.

A tile is one dimension of the block that a program works on. It stands for a group of axes: one
linear position runs through them, and is split by division where an index needs a single axis. A
scope is a stretch of the text, the function's body or the body of a loop in it. A value is written
in the outermost scope that has all its tiles, as a tensor of size 1 along the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.ir.dtype import DType

from ..kernel import Condition, Kernel, Store, Value
from ..kernel.analysis import analyzed
from ..kernel.index import Axis, Check, Data, FloorDiv, Index, walk
from .emitted import Argument, scalar_type
from .sizes import Sizes
from .text import Block, Names, grouped, is_name, product

NARROW = 2**31 - 2**20
"""What stays below this is computed in 32 bits. Tiles reach a little beyond the end."""
_LITERAL_DIVISOR = 8  # division by a small constant becomes multiplication; larger ones are shapes


@dataclass(frozen=True, slots=True)
class Tile:
    """A group of axes that the variable `name` runs through.

    place: the dimension it lies along, None for a scalar. block: its length there.
    ok: the variable that says which positions exist, None where all do. along: the variables of the
    positions along each axis, where they don't follow from `name` alone.
    """

    name: str
    axes: tuple[Axis, ...]
    place: int | None
    block: str
    ok: str | None
    along: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ref:
    """An expression of the generated text, and the tiles along which it is longer than 1."""

    text: str
    tiles: frozenset[str] = frozenset()
    is_literal: bool = False


@dataclass(frozen=True, slots=True)
class Mask:
    """A variable that says where a guard holds."""

    name: str
    tiles: frozenset[str]
    needs: frozenset[str]


Guards = tuple[Mask, ...]


@dataclass
class Body:
    """The state that all scopes of a kernel share. evaluate: writes a value that isn't there
    yet. is_wide: whether positions along tiles have 64 bits, and with them all sizes."""

    kernel: Kernel
    rank: int
    sizes: Sizes
    evaluate: Callable[[Scope, Value, Guards], Ref]
    tf32: bool = False
    is_wide: bool = False
    names: Names = field(default_factory=Names)
    checks: list[Check] = field(default_factory=list)
    matrices: list[Argument] = field(default_factory=list)
    numbers: dict[tuple[Any, str], str] = field(default_factory=dict)
    fold: Callable[[Scope, Value, Guards], Ref] | None = None

    def __post_init__(self) -> None:
        self.analysis = analyzed(self.kernel, True)
        self.buffers = {b: f"out{i}" for i, b in enumerate(self.kernel.outputs)}
        self.buffers |= {b: f"in{i}" for i, b in enumerate(self.kernel.inputs)}
        self.scalars = {s.slot: f"x{i}" for i, s in enumerate(self.kernel.scalars)}

    def number(self, value: Any, dtype: DType) -> str:
        """The argument for a number that may follow from sizes."""
        name = f"c{len(self.numbers)}"
        return self.numbers.setdefault((value.item(), scalar_type(dtype)), name)

    def needs_64_bits(self, index: Index) -> bool:
        """Whether an index is computed in 64 bits though the positions along tiles have 32."""
        return not self.is_wide and _magnitude(index) >= NARROW


def is_wide(kernel: Kernel, groups: Iterable[Sequence[Axis]], is_linear: bool) -> bool:
    """Whether positions along the tiles of a kernel need 64 bits.

    groups: the axes that tiles run through as one. is_linear: whether its text computes places in
        memory from such positions by itself; otherwise each index that needs 64 bits has them.
    """
    largest = max((math.prod(a.extent for a in group) for group in groups), default=0)
    if is_linear:
        largest = max(largest, *(b.size for b in (*kernel.inputs, *kernel.outputs)), 0)
        for value in kernel.values:
            largest = max(largest, *map(_magnitude, value.indices()), 0)
    return largest >= NARROW


def _magnitude(index: Index) -> int:
    """A bound of all intermediate values on the way to the value of `index`."""
    total, within = abs(index.const), 0
    for atom, coefficient in index.terms:
        if isinstance(atom, Axis):
            largest = atom.extent
        elif isinstance(atom, Data):
            largest = atom.size
        else:
            dividend = _magnitude(atom.index)
            within = max(within, dividend)
            quotient = dividend // atom.divisor + 1
            largest = quotient if isinstance(atom, FloorDiv) else min(dividend, atom.divisor)
        total += abs(coefficient) * largest
    return max(total, within)


class Scope:
    """A stretch of text, with the tiles that exist in it."""

    def __init__(
        self, body: Body, block: Block, tiles: Iterable[Tile], parent: Scope | None = None
    ):
        self.body = body
        self.block = block
        self.parent = parent
        self.own = tuple(tiles)
        self.tiles: dict[str, Tile] = {
            **(parent.tiles if parent else {}),
            **{t.name: t for t in self.own},
        }
        self._tile_of: dict[Axis, Tile] = {a: t for t in self.tiles.values() for a in t.axes}
        self.cache: dict[object, Ref] = {}

    # -- tiles and shapes

    def tile_names(self, axes: Iterable[Axis]) -> frozenset[str]:
        return frozenset(self._tile_of[a].name for a in axes if a.extent != 1)

    def needs(self, value: Value, guards: Guards) -> frozenset[str]:
        """The tiles that must exist where `value` is written."""
        return self.tile_names(self.body.analysis.axes(value)).union(*(g.needs for g in guards))

    def reducing(self) -> frozenset[str]:
        """The tiles of reduction axes."""
        own = set(self.body.kernel.reduction)
        return frozenset(n for n, tile in self.tiles.items() if not own.isdisjoint(tile.axes))

    def home(self, needs: frozenset[str]) -> Scope:
        """The outermost scope in which all of `needs` exist."""
        scope = self
        while scope.parent is not None and needs <= scope.parent.tiles.keys():
            scope = scope.parent
        return scope

    def shape(self, tiles: frozenset[str]) -> str:
        lengths = ["1"] * self.body.rank
        for name in tiles:
            tile = self.tiles[name]
            if tile.place is not None:
                lengths[tile.place] = tile.block
        return f"({', '.join(lengths)}{',' if len(lengths) == 1 else ''})"

    def placed(self, tiles: Iterable[str]) -> frozenset[str]:
        return frozenset(t for t in tiles if self.tiles[t].place is not None)

    def spread(self, ref: Ref, tiles: frozenset[str], dtype: str) -> str:
        """`ref` as a tensor with its full length along all of `tiles`."""
        if ref.tiles >= tiles:
            return ref.text
        shape = self.shape(ref.tiles | tiles)
        if ref.is_literal:
            return f"tl.full({shape}, {ref.text}, {dtype})"
        return f"tl.broadcast_to({ref.text}, {shape})"

    def ok(self, tiles: Iterable[str]) -> list[str]:
        """The variables that say which positions along `tiles` exist."""
        oks = (self.tiles[t].ok for t in sorted(tiles))
        return [ok for ok in oks if ok is not None]

    # -- writing

    def assign(self, stem: str, text: str, tiles: frozenset[str]) -> Ref:
        name = self.body.names.fresh(stem)
        self.block.add(f"{name} = {text}")
        return Ref(name, tiles)

    def named(self, stem: str, ref: Ref) -> Ref:
        """`ref` as a variable (or a literal)."""
        if ref.is_literal or is_name(ref.text):
            return ref
        found = self.cache.get(ref.text)
        if found is None:
            found = self.cache[ref.text] = self.assign(stem, ref.text, ref.tiles)
        return found

    # -- indices

    def index(self, index: Index, guards: Guards = ()) -> Ref:
        """The value of `index`, as a variable or a literal."""
        analysis = self.body.analysis
        if not analysis.index_reads(index):
            guards = ()
        needs = self.tile_names(analysis.index_axes(index)).union(*(g.needs for g in guards))
        home = self.home(needs)
        if self.body.sizes.apart:
            return home._write_index(index, guards)
        key = (index, guards)
        if key not in home.cache:
            home.cache[key] = home._write_index(index, guards)
        return home.cache[key]

    def _write_index(self, index: Index, guards: Guards) -> Ref:
        sizes = self.body.sizes
        parts: list[tuple[bool, str]] = []
        tiles: frozenset[str] = frozenset()
        axes = {a: c for a, c in index.terms if isinstance(a, Axis) and a.extent != 1}
        terms: list[tuple[Ref, int]] = []
        for tile in self.tiles.values():
            terms += self._tile_terms(tile, axes)
        for atom, coefficient in index.terms:
            if isinstance(atom, Axis):
                continue
            if isinstance(atom, Data):
                terms.append((self.position(atom, guards)[1], coefficient))
                continue
            inner = self.index(atom.index, guards)
            sign = "//" if isinstance(atom, FloorDiv) else "%"
            text = f"{inner.text} {sign} {self._divisor(atom.divisor)}"
            terms.append((self.named("i", Ref(text, inner.tiles)), coefficient))
        wide = self.body.needs_64_bits(index)
        for ref, coefficient in terms:
            if wide:
                ref = replace(ref, text=f"{ref.text}.to(tl.int64)")
            scale = sizes.argument(coefficient)
            parts.append((scale.startswith("-"), product([ref.text, scale.lstrip("-")])))
            tiles |= ref.tiles
        if index.const:
            offset = sizes.argument(index.const)
            parts.append((offset.startswith("-"), offset.lstrip("-")))
        if not parts:
            return Ref("0", is_literal=True)
        parts.sort(key=lambda part: part[0])  # a sum reads badly if it begins with a minus
        text = ("-" if parts[0][0] else "") + parts[0][1]
        for negative, part in parts[1:]:
            text += f" {'-' if negative else '+'} {part}"
        return self.named("i", Ref(text, tiles, is_literal=text.lstrip("-").isdigit()))

    def _tile_terms(self, tile: Tile, coefficients: dict[Axis, int]) -> list[tuple[Ref, int]]:
        """The axes of `tile` in an index; nested neighbours stay together."""
        out: list[tuple[Ref, int]] = []
        last = len(tile.axes) - 1
        while last >= 0:
            coefficient = coefficients.get(tile.axes[last], 0)
            if coefficient == 0:
                last -= 1
                continue
            first, span = last, coefficient * tile.axes[last].extent
            nested = self.body.sizes.nested
            while first > 0 and nested and coefficients.get(tile.axes[first - 1], 0) == span:
                first -= 1
                span *= tile.axes[first].extent
            out.append((self._run(tile, first, last), coefficient))
            last = first - 1
        return out[::-1]

    def _run(self, tile: Tile, first: int, last: int) -> Ref:
        """The position along the axes first … last of `tile`."""
        tiles = frozenset({tile.name} if tile.place is not None else ())
        below = 1
        for axis in tile.axes[last + 1 :]:
            below *= axis.extent
        extent = 1
        for axis in tile.axes[first : last + 1]:
            extent *= axis.extent
        text = tile.name
        if tile.along and (first > 0 or below != 1):
            text = tile.along[first]
            for axis, name in zip(tile.axes[first + 1 : last + 1], tile.along[first + 1 :]):
                text = f"{grouped(text)} * {self.body.sizes.argument(axis.extent)} + {name}"
        else:
            if below != 1:
                text = f"{text} // {self._divisor(below)}"
            if first > 0:
                text = f"{text} % {self._divisor(extent)}"
        if is_name(text):
            return Ref(text, tiles)
        home = self.home(frozenset({tile.name}))
        if text not in home.cache:
            home.cache[text] = home.assign(tile.name, text, tiles)
        return home.cache[text]

    def _divisor(self, value: int) -> str:
        sizes = self.body.sizes
        return (
            str(value) if value <= _LITERAL_DIVISOR and not sizes.apart else sizes.argument(value)
        )

    def position(self, atom: Data, guards: Guards) -> tuple[Ref, Ref]:
        """A position read at run time: (as it was read, brought into range)."""
        home = self.home(self.needs(atom.value, guards))
        key = ("position", id(atom.value), atom.size, guards)
        pair = ("raw", *key)
        if key not in home.cache:
            raw = home.named("at", self.body.evaluate(home, atom.value, guards))
            tiles = raw.tiles.union(*(g.tiles for g in guards))
            if raw.is_literal or raw.tiles != tiles:
                raw = home.assign("at", home.spread(raw, tiles, "tl.int64"), tiles)
            masks = [*home.ok(tiles), *(g.name for g in guards)]
            exists = " & ".join(masks) or "tl.full((), True, tl.int1)"
            size = home.body.sizes.argument(atom.size)
            word = len(home.body.checks)
            home.body.checks.append(atom.check)
            errors = f"errors + {word}" if word else "errors"
            safe = home.assign(
                "at",
                f"tw_position({raw.text}, {size}, {exists}, {errors})",
                tiles,
            )
            home.cache[key], home.cache[pair] = safe, raw
        return home.cache[pair], home.cache[key]

    # -- guards and targets of stores

    def guard(self, conditions: Iterable[Condition], guards: Guards) -> Guards:
        """`guards` with those of `conditions` that can fail."""
        sizes = self.body.sizes
        for condition in conditions:
            low, high = condition.index.bounds()
            ref = self.index(condition.index, guards)
            tests = []
            if low < condition.low or sizes.apart:
                tests.append(f"({ref.text} >= {sizes.argument(condition.low)})")
            if high >= condition.high or sizes.apart:
                tests.append(f"({ref.text} < {sizes.argument(condition.high)})")
            if not tests:
                continue
            home = self.home(self.tile_names(self.body.analysis.index_axes(condition.index)))
            text = " & ".join(tests)
            if text not in home.cache:
                home.cache[text] = home.assign("ok", text, ref.tiles)
            mask = home.cache[text]
            needs = self.tile_names(self.body.analysis.index_axes(condition.index))
            if all(g.name != mask.text for g in guards):
                guards = (*guards, Mask(mask.text, mask.tiles, needs))
        return guards

    def target(self, store: Store, tiles: frozenset[str]) -> tuple[str, str]:
        """The pointer and the mask argument for storing a value that has `tiles`."""
        analysis = self.body.analysis
        offset = self.index(store.offset)
        needs = self.tile_names(analysis.index_axes(store.offset))
        needs |= self.needs(store.value, ())
        tiles |= self.placed(needs)
        masks = self.ok(tiles)
        for atom in walk(store.offset):
            if isinstance(atom, Data):
                raw, safe = self.position(atom, ())
                masks.append(f"({raw.text} == {safe.text})")
        text = self.spread(offset, tiles, self.body.sizes.tl_type)
        return (
            pointer(self.body.buffers[store.buffer], text),
            f", mask={' & '.join(masks)}" if masks else "",
        )


def pointer(base: str, offset: str) -> str:
    return base if offset == "0" else f"{base} + {offset if ' ' not in offset else grouped(offset)}"
