"""The axes of variable size, in PyTorch's two notations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..inspection.dynamic import axes, by_argument, pairs
from ..inspection.tracing import Call, named_arguments
from ..recording import Handle

Axis = tuple[int, int]
"""(number of the input, axis)."""


def _same(size: int) -> int:
    return size


@dataclass(frozen=True)
class DynamicSize:
    """The size of an axis: a function `of` of the size that `name` has; `back` is its inverse."""

    name: str
    of: Callable[[int], int] = _same
    back: Callable[[int], int] = _same


Dynamic = Mapping[Axis, DynamicSize]


def dynamic_axes_of(
    call: Call,
    input_names: Sequence[str] | None,
    dynamic_axes: Mapping[str, Any] | None,
    dynamic_shapes: Any,
) -> Dynamic:
    """The axes of variable size."""
    if dynamic_axes and dynamic_shapes:
        raise ValueError("export: give dynamic_axes or dynamic_shapes, not both")
    if dynamic_axes:
        given = list(input_names or ())
        return _of_axes(call, [*given, *call.names[len(given) :]], dynamic_axes)
    return dict(_of_shapes(call, dynamic_shapes)) if dynamic_shapes else {}


def _of_axes(
    call: Call, names: Sequence[str], dynamic_axes: Mapping[str, Any]
) -> dict[Axis, DynamicSize]:
    out = {}
    for key, given in dynamic_axes.items():
        if key not in names:
            continue  # an output: its sizes follow from those of the inputs
        if not isinstance(given, Mapping):
            given = {axis: f"{key}_dynamic_axes_{i}" for i, axis in enumerate(given, 1)}
        number = names.index(key)
        for axis, name in given.items():
            out[number, _axis(call, number, key, axis)] = DynamicSize(str(name))
    return out


def _of_shapes(call: Call, shapes: Any) -> Iterator[tuple[Axis, DynamicSize]]:
    arguments = list(named_arguments(call.model, call.args, call.kwargs))
    entries = by_argument(shapes, [name for name, _ in arguments])
    numbers = iter(range(len(call.inputs)))
    for name, value in arguments:
        for leaf, shape in pairs(value, entries.get(name), name):
            if not isinstance(leaf, Handle):
                continue
            number = next(numbers)
            for axis, dim in axes(leaf, shape, name):
                size = _size(dim, f"{name}_dim_{axis}")
                if size is not None:
                    yield (number, axis), size


def _size(dim: Any, default: str) -> DynamicSize | None:
    """The size that an entry stands for: a string, a Dim, one made of a Dim, or a hint, whose name
    is the default. None for a fixed size."""
    if isinstance(dim, str):
        return DynamicSize(dim)
    if isinstance(dim, int) or "STATIC" in str(dim):
        return None
    root = getattr(dim, "root", dim)
    if root is not dim:
        return DynamicSize(root.__name__, dim.of, dim.back)
    return DynamicSize(str(getattr(dim, "__name__", default)))


def _axis(call: Call, number: int, name: str, axis: Any) -> int:
    rank = len(call.inputs[number].shape)
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise ValueError(
            f"export: {axis!r} is no axis of input {name!r}, which has shape "
            f"{tuple(call.inputs[number].shape)}"
        )
    return axis % rank
