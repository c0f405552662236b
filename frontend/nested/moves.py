"""Parts and rearrangements of nested tensors."""

from __future__ import annotations

from typing import Any

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import normalize_axis

from ..functions import joining
from ..recording import record, views
from ..recording.compounds import rule
from .tensors import Nested, is_nested, nested, of_lengths


def _refused(name: str, t: Nested, why: str) -> RuntimeError:
    return RuntimeError(
        f"{name}(): not supported for a nested tensor of shape {tuple(t.shape)} {why}"
        f"{at_user_line()}"
    )


@rule(Nested, views.PERMUTE, views.TRANSPOSE, views.T)
def _permuted(t: Nested, order: tuple[int, ...]) -> Nested:
    if order[0] != 0:
        raise ValueError(
            f"Transpose is not supported on the batch dimension for jagged NT{at_user_line()}"
        )
    elements = t._elements.permute(*[i - 1 for i in order[1:]])
    return nested(elements, t._rows, order.index(t._ragged_idx))


@rule(Nested, views.VIEW, views.RESHAPE)
def _viewed(t: Nested, shape: tuple[int, ...]) -> Nested:
    size, total = int(t._rows.size), t._elements.shape[t._ragged_idx - 1]
    at = [i for i, n in enumerate(shape) if n == size]
    if len(at) != 1 or at[0] == 0 or shape[0] != t._rows.count:
        raise _refused(
            "view",
            t,
            f"as {tuple(shape)}: the batch and the ragged dimension must stay as they are",
        )
    (ragged,) = at
    inner = [total if i == ragged else n for i, n in enumerate(shape)][1:]
    return nested(t._elements.reshape(inner), t._rows, ragged)


@rule(Nested, views.ALIAS)
def _alias(t: Nested, shape: Any) -> Nested:
    return t._like(t._elements.view_as(t._elements))


@rule(Nested, views.UNSQUEEZE)
def _unsqueezed(t: Nested, shape: Any, axes: tuple[int, ...]) -> Nested:
    (axis,) = axes
    if axis == 0:
        raise _refused("unsqueeze", t, "on dim=0")
    ragged = t._ragged_idx + (axis <= t._ragged_idx)
    return nested(t._elements.unsqueeze(axis - 1), t._rows, ragged)


@rule(Nested, views.SQUEEZE, views.SQUEEZE_ONE, views.SQUEEZE_SOME)
def _squeezed(t: Nested, shape: Any, axes: tuple[int, ...] = ()) -> Nested:
    if 0 in axes:
        raise _refused("squeeze", t, "on dim=0")
    elements = t._elements.squeeze(tuple(a - 1 for a in axes)) if axes else t._elements
    return nested(elements, t._rows, t._ragged_idx - sum(a < t._ragged_idx for a in axes))


@rule(Nested, views.EXPAND)
def _expanded(t: Nested, shape: tuple[int, ...]) -> Nested:
    if len(shape) != t.dim():
        raise _refused("expand", t, f"to {len(shape)} dimensions")
    total = t._elements.shape[t._ragged_idx - 1]
    inner = [total if i == t._ragged_idx else n for i, n in enumerate(shape)][1:]
    return t._like(t._elements.expand(inner))


@rule(Nested, views.SELECT, views.SLICE, views.UNBIND, views.SPLIT, views.SPLIT_WITH_SIZES)
def _part(
    t: Nested, starts: Any, stops: Any, steps: Any, kept: Any = None, among: Any = None
) -> Any:
    """A slice along each dimension; those that aren't `kept` are dropped."""
    rank, ragged = t.dim(), t._ragged_idx
    dropped = [] if kept is None else [i for i in range(rank) if i not in kept]
    if ragged in dropped and 0 not in dropped:
        raise _refused("select", t, "on its ragged dimension")
    if 0 in dropped:
        return _one(t, starts[0])[
            tuple(_key(i, starts, stops, steps, dropped) for i in range(1, rank))
        ]
    if (int(starts[ragged]), int(stops[ragged]), steps[ragged]) != (0, int(t._rows.size), 1):
        raise _refused("slice", t, "on its ragged dimension")
    if (starts[0], stops[0], steps[0]) != (0, t._rows.count, 1):
        t = _some(t, starts[0], stops[0], steps[0])
    key = tuple(
        slice(None) if i == ragged else _key(i, starts, stops, steps, dropped)
        for i in range(1, rank)
    )
    return nested(t._elements[key], t._rows, ragged - sum(a < ragged for a in dropped))


def _key(axis: int, starts: Any, stops: Any, steps: Any, dropped: Any) -> Any:
    if axis in dropped:
        return int(starts[axis])
    return slice(int(starts[axis]), int(stops[axis]), int(steps[axis]))


def _one(t: Nested, index: int) -> Any:
    """One of the sequences, a view."""
    begins, lengths = t._rows.on_host()
    return t._elements.narrow(t._ragged_idx - 1, int(begins[index]), int(lengths[index]))


def _some(t: Nested, start: int, stop: int, step: int) -> Nested:
    """Some of the sequences."""
    which = range(start, stop, step)
    if not len(which):
        raise _refused("slice", t, "to no sequence")
    begins, lengths = t._rows.on_host()
    axis = t._ragged_idx - 1
    if step == 1 and t._rows.lengths is None:
        first = int(begins[start])
        many = int(lengths[start:stop].sum())
        elements = t._elements.narrow(axis, first, many)
    else:
        elements = joining.cat([_one(t, i) for i in which], axis)
    return nested(elements, of_lengths(lengths[list(which)], elements), t._ragged_idx)


@rule(Nested, joining._cat)
def _cat(*args: Any) -> Nested:
    *tensors, dim = args
    first = next(t for t in tensors if is_nested(t))
    axis = normalize_axis(dim, first.dim())
    if axis == 0:
        raise _refused("cat", first, "on dim=0")
    if axis == first._ragged_idx:
        raise _refused("cat", first, "on its ragged dimension")
    for t in tensors:
        if not is_nested(t) or t._rows is not first._rows or t._ragged_idx != first._ragged_idx:
            raise RuntimeError(
                "cat: nested tensors are joined with others of the same offsets, got shapes "
                f"{[tuple(t.shape) for t in tensors]}{at_user_line()}"
            )
    made = record(joining._cat, *[t._elements for t in tensors], axis - 1)
    return nested(made, first._rows, first._ragged_idx)


@rule(Nested, joining._stack)
def _stack(*args: Any) -> Nested:
    *tensors, dim = args
    axis = normalize_axis(dim, tensors[0].dim() + 1)
    if axis == 0:
        raise _refused("stack", tensors[0], "on dim=0")
    return _cat(*[t.unsqueeze(axis) for t in tensors], axis)
