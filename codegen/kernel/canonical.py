"""Kernels in a canonical form: as few axes as possible, affine indices, standard names.

An axis that a reshape takes apart is split, so that divisions vanish where they can; axes that are
walked as one are collapsed. Then structurally equal kernels print the same, whatever their graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType

from . import index as ix
from .index import Axis, Data, FloorDiv, Index, Mod
from .ir import (
    ALONG,
    Apply,
    Buffer,
    Condition,
    Dot,
    Guard,
    Kernel,
    Load,
    Position,
    RandomBits,
    Reduce,
    Segment,
    Store,
    Value,
)

Note = tuple[str, str, int]


def canonical(
    kernel: Kernel, name: str, notes: tuple[Note, ...]
) -> tuple[Kernel, dict[Buffer, Buffer]]:
    """`kernel` in canonical form, and for each of its buffers the one in the old kernel."""
    kernel = _split(kernel)
    kernel = collapsed(kernel, (kernel.parallel, *kernel.folded))
    parallel = [Axis(f"p{i}", axis.extent) for i, axis in enumerate(kernel.parallel)]
    reduction = [Axis(f"r{i}", axis.extent) for i, axis in enumerate(kernel.reduction)]
    old_axes = (*kernel.parallel, *kernel.reduction)
    axes = {old: ix.of(new) for old, new in zip(old_axes, (*parallel, *reduction), strict=True)}
    buffers = {b: replace(b, name=f"out{i}") for i, b in enumerate(kernel.outputs)}
    buffers |= {b: replace(b, name=f"in{i}") for i, b in enumerate(kernel.inputs)}
    stores = _rebuilt(kernel, axes, buffers)
    renamed_kernel = Kernel(name, tuple(parallel), tuple(reduction), stores, notes)
    return renamed_kernel, {new: old for old, new in buffers.items()}


def _indices(kernel: Kernel) -> Iterator[Index]:
    """Every index of a kernel, those inside of divisions too."""
    for value in kernel.values:
        for index in value.indices():
            yield from _nested(index)
    for store in kernel.stores:
        yield from _nested(store.offset)


def _nested(index: Index) -> Iterator[Index]:
    yield index
    for atom in ix.walk(index):
        if isinstance(atom, (FloorDiv, Mod)):
            yield atom.index


def _whole(kernel: Kernel) -> set[Axis]:
    """The axes that have to stay as they are: those of scans and of a chain of folds, and those of
    segments and their groups."""
    if kernel.is_chained:
        return set(kernel.reduction)
    whole = {v.along for v in kernel.values if isinstance(v, ALONG)}
    for value in kernel.values:
        if isinstance(value, Dot) and value.segment is not None:
            whole |= {value.segment.along, *value.segment.first.axes()}
    return whole


def _split(kernel: Kernel) -> Kernel:
    """Splits each axis that is read as x // d and x % d, for a d that divides its extent."""
    cuts: dict[Axis, set[int]] = {}
    for index in _indices(kernel):
        for atom, _ in index.terms:
            if isinstance(atom, FloorDiv):
                axis = atom.index.lone_axis()
                if axis is not None:
                    cuts.setdefault(axis, set()).add(atom.divisor)
            elif isinstance(atom, Mod):
                inner, factor = atom.index, 1
                ((first, coefficient),) = inner.terms if len(inner.terms) == 1 else ((None, 0),)
                if isinstance(first, FloorDiv) and coefficient == 1 and inner.const == 0:
                    inner, factor = first.index, first.divisor
                axis = inner.lone_axis()
                if axis is not None:
                    cuts.setdefault(axis, set()).update({factor, factor * atom.divisor})
    if not cuts:
        return kernel
    whole = _whole(kernel)
    axes: dict[Axis, Index] = {}
    pieces: dict[Axis, list[Axis]] = {}
    for axis in (*kernel.parallel, *kernel.reduction):
        steps = sorted({1, *cuts.get(axis, ()), axis.extent})
        divides = all(b % a == 0 for a, b in pairwise(steps))
        if axis in whole or len(steps) < 3 or not divides:
            continue
        sizes = [b // a for a, b in pairwise(steps)]
        parts = [Axis(f"{axis.name}_{i}", size) for i, size in enumerate(sizes)]
        pieces[axis] = parts[::-1]
        axes[axis] = ix.linearize([ix.of(p) for p in parts], steps[:-1])
    return with_axes(kernel, axes, lambda axis: pieces.get(axis, [axis]))


def collapsed(kernel: Kernel, groups: Sequence[Sequence[Axis]]) -> Kernel:
    """Joins two neighbouring axes of a group if every index walks them as one."""
    whole = _whole(kernel)
    steps = [_coefficients(index) for index in _indices(kernel)]
    axes: dict[Axis, Index] = {}
    kept: dict[Axis, list[Axis]] = {}
    for group in groups:
        run: list[Axis] = []
        for axis in group:
            kept[axis] = []
            if (
                run
                and axis not in whole
                and run[-1] not in whole
                and _runs_on(steps, run[-1], axis)
            ):
                run.append(axis)
                continue
            _join(run, axes, kept)
            run = [axis]
        _join(run, axes, kept)
    return with_axes(kernel, axes, lambda axis: kept.get(axis, [axis]))


def _coefficients(index: Index) -> dict[object, int]:
    return dict(index.terms)


def _runs_on(steps: Sequence[Mapping[object, int]], outer: Axis, inner: Axis) -> bool:
    return all(s.get(outer, 0) == s.get(inner, 0) * inner.extent for s in steps)


def _join(run: list[Axis], axes: dict[Axis, Index], kept: dict[Axis, list[Axis]]) -> None:
    if not run:
        return
    if len(run) == 1:
        kept[run[0]] = run
        return
    extent = 1
    for axis in run:
        extent *= axis.extent
    joined = Axis("_".join(a.name for a in run), extent)
    kept[run[0]] = [joined]
    # Every index holds the run's axes in the proportion of their extents, so the innermost axis
    # stands for all of them.
    for axis in run[:-1]:
        axes[axis] = ix.ZERO
    axes[run[-1]] = ix.of(joined)


def with_axes(
    kernel: Kernel, axes: dict[Axis, Index], become: Callable[[Axis], list[Axis]]
) -> Kernel:
    """The kernel with axes replaced: in indices by `axes`, in its lists of axes by `become`."""
    if not axes:
        return kernel
    reduction = tuple(new for old in kernel.reduction for new in become(old))
    parallel = tuple(new for old in kernel.parallel for new in become(old))
    stores = _rebuilt(kernel, axes, {}, become)
    return Kernel(kernel.name, parallel, reduction, stores, kernel.notes)


def _rebuilt(
    kernel: Kernel,
    axes: dict[Axis, Index],
    buffers: dict[Buffer, Buffer],
    become: Callable[[Axis], list[Axis]] | None = None,
) -> tuple[Store, ...]:
    """The stores with axes and buffers replaced. become: the new axes for an old one, if an axis
    may become several."""
    made: dict[int, Value] = {}
    known: dict[Index, Index] = {}

    def data(atom: Data) -> Data:
        return replace(atom, value=made[id(atom.value)])

    def moved(index: Index) -> Index:
        found = known.get(index)
        if found is None:
            found = known[index] = _sorted(ix.substitute(index, axes, data))
        return found

    def folded(over: tuple[Axis, ...]) -> tuple[Axis, ...]:
        if become is not None:
            return tuple(new for old in over for new in become(old))
        return tuple(_moved_axis(axis, axes) for axis in over)

    for value in kernel.values:
        made[id(value)] = copied(value, made, moved, buffers, folded, axes)
    return tuple(
        replace(
            s,
            buffer=buffers.get(s.buffer, s.buffer),
            offset=moved(s.offset),
            value=made[id(s.value)],
        )
        for s in kernel.stores
    )


def _moved_axis(axis: Axis, axes: Mapping[Axis, Index]) -> Axis:
    """The new axis for one that is not taken apart."""
    moved = axes[axis].lone_axis() if axis in axes else axis
    assert moved is not None
    return moved


def _sorted(index: Index) -> Index:
    """Terms with the largest step first, as one writes them."""
    if len(index.terms) < 2:
        return index
    return Index(tuple(sorted(index.terms, key=_step)), index.const)


def _step(term: tuple[ix.Atom, int]) -> tuple[int, str]:
    atom, coefficient = term
    return -abs(coefficient), atom.name if isinstance(atom, Axis) else ""


def copied(
    value: Value,
    made: Mapping[int, Value],
    moved: Callable[[Index], Index],
    buffers: Mapping[Buffer, Buffer] = MappingProxyType({}),
    folded: Callable[[tuple[Axis, ...]], tuple[Axis, ...]] = lambda over: over,
    axes: Mapping[Axis, Index] = MappingProxyType({}),
) -> Value:
    """A value with its indices moved; its operands, by id, are in `made`."""
    if isinstance(value, Load):
        return Load(buffers.get(value.buffer, value.buffer), moved(value.offset), value.dtype)
    if isinstance(value, Apply):
        args = tuple(made[id(a)] for a in value.args)
        return Apply(value.op, args, value.dtype, value.target)
    if isinstance(value, Position):
        return Position(moved(value.index), value.dtype)
    if isinstance(value, Guard):
        conditions = tuple(Condition(moved(c.index), c.low, c.high) for c in value.conditions)
        inside, outside = made[id(value.inside)], made[id(value.outside)]
        return Guard(conditions, inside, outside, value.dtype)
    if isinstance(value, Reduce):
        return Reduce(value.op, made[id(value.arg)], folded(value.over), value.dtype)
    if isinstance(value, Dot):
        a, b = made[id(value.a)], made[id(value.b)]
        segment = value.segment
        if segment is not None:
            first, stop = made[id(segment.first)], made[id(segment.stop)]
            segment = Segment(_moved_axis(segment.along, axes), first, stop)
        scales = tuple(made[id(s)] for s in value.scales)
        over = folded(value.over)
        return replace(value, a=a, b=b, over=over, segment=segment, scales=scales)
    if isinstance(value, ALONG):
        return replace(value, arg=made[id(value.arg)], along=_moved_axis(value.along, axes))
    if isinstance(value, RandomBits):
        seed, offset = made[id(value.seed)], made[id(value.offset)]
        return RandomBits(seed, offset, moved(value.index), value.dtype)
    return value
