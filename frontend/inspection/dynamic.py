"""The entries of `dynamic_shapes`, beside the arguments that they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..recording import Handle


def by_argument(shapes: Any, names: Sequence[str]) -> Mapping[str, Any]:
    """The entries by the names of the arguments; a tuple or list has them in order."""
    if not isinstance(shapes, Mapping):
        if len(shapes) != len(names):
            raise ValueError(
                f"dynamic_shapes has {len(shapes)} entries for {len(names)} arguments: "
                f"{', '.join(names)}"
            )
        return dict(zip(names, shapes, strict=True))
    unknown = sorted(set(shapes) - set(names))
    if unknown:
        raise ValueError(
            f"dynamic_shapes names {unknown[0]!r}, which is no argument of the call: "
            f"{', '.join(names)}"
        )
    return shapes


def pairs(value: Any, shape: Any, name: str) -> Iterator[tuple[Any, Any]]:
    """Each leaf of an argument with its entry of dynamic_shapes (None where there is none)."""
    if isinstance(value, Handle) or not isinstance(value, (tuple, list, Mapping)):
        yield value, shape
        return
    if shape is not None and not isinstance(shape, (tuple, list, Mapping)):
        raise ValueError(
            f"dynamic_shapes: {name} is a {type(value).__name__}, and its entry is {shape!r}: they "
            "must have the same structure"
        )
    if shape is not None and len(shape) != len(value):
        raise ValueError(
            f"dynamic_shapes: {name} has {len(value)} parts, and its entry {len(shape)}"
        )
    keys: Any = value if isinstance(value, Mapping) else range(len(value))
    for key in keys:
        try:
            part = None if shape is None else shape[key]
        except KeyError:
            raise ValueError(
                f"dynamic_shapes: {name} has a key {key!r}, its entry hasn't"
            ) from None
        yield from pairs(value[key], part, f"{name}[{key!r}]")


def axes(leaf: Handle, shape: Any, name: str) -> Iterator[tuple[int, Any]]:
    """(axis, entry) of a tensor's entry in dynamic_shapes, without those that are None."""
    if shape is None:
        return
    if not isinstance(shape, (Mapping, tuple, list)):
        raise ValueError(f"dynamic_shapes: the entry of {name} is {shape!r}, not a dict or tuple")
    if not isinstance(shape, Mapping):
        if len(shape) != leaf.dim():
            raise ValueError(
                f"dynamic_shapes: {name} has {leaf.dim()} dimensions, and its entry {len(shape)}"
            )
        shape = dict(enumerate(shape))
    for axis, dim in shape.items():
        if not isinstance(axis, int) or not -leaf.dim() <= axis < leaf.dim():
            raise ValueError(f"dynamic_shapes: {axis!r} is no axis of {name}, {tuple(leaf.shape)}")
        if dim is not None:
            yield axis % leaf.dim(), dim
