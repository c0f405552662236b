"""Sequences, which are lists of values, and optionals, of which the empty one is None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .api import f
from .control import stack
from .table import operator
from .values import Host, on_device


@operator("SequenceConstruct", either=("values",), known="never")
def sequence_construct(*values: Any) -> Any:
    return list(values)


@operator("SequenceEmpty", known="never")
def sequence_empty(*, dtype: int = 1) -> Any:
    return []


@operator("SequenceAt", either=("sequence",), host=("place",), known="never")
def sequence_at(sequence: Any, place: Any) -> Any:
    return sequence[_place(sequence, place, len(sequence))]


@operator("SequenceInsert", either=("sequence", "value"), host=("place",), known="never")
def sequence_insert(sequence: Any, value: Any, place: Any = None) -> Any:
    at = len(sequence) if place is None else _place(sequence, place, len(sequence) + 1)
    return [*sequence[:at], value, *sequence[at:]]


@operator("SequenceErase", either=("sequence",), host=("place",), known="never")
def sequence_erase(sequence: Any, place: Any = None) -> Any:
    at = len(sequence) - 1 if place is None else _place(sequence, place, len(sequence))
    return [*sequence[:at], *sequence[at + 1 :]]


def _place(sequence: list[Any], place: Any, most: int) -> int:
    """A position from the beginning; negative ones count from the end of the sequence."""
    at = int(place.item())
    at = at + len(sequence) if at < 0 else at
    if not 0 <= at < most:
        raise IndexError(f"position {int(place.item())} of a sequence of {len(sequence)}")
    return at


@operator("SequenceLength", either=("sequence",), known="never")
def sequence_length(sequence: Any) -> Any:
    return np.int64(len(sequence))


@operator("SplitToSequence", host=("sizes",))
def split_to_sequence(x: Any, sizes: Any = None, *, axis: int = 0, keepdims: int = 1) -> Any:
    if sizes is None:
        parts = list(f.split(x, 1, axis))
        return parts if keepdims else [f.squeeze(p, axis) for p in parts]
    if sizes.ndim == 0:
        return list(f.split(x, int(sizes), axis))
    return list(f.split(x, [int(n) for n in sizes], axis))


@operator("ConcatFromSequence", either=("sequence",), known="never")
def concat_from_sequence(sequence: Any, *, axis: int, new_axis: int = 0, device: Any = None) -> Any:
    if new_axis:
        return stack(sequence, device, axis)
    if all(isinstance(v, Host) for v in sequence):
        return np.concatenate([v.array for v in sequence], axis)
    return f.cat([on_device(v, device) for v in sequence], axis)


@operator("SequenceMap", either=("sequence", "more"), known="never")
def sequence_map(sequence: Any, *more: Any, body: Callable[..., list[Any]], outputs: int) -> Any:
    """The body for each element. Other inputs are sequences of the same length, or values."""
    results: list[list[Any]] = [[] for _ in range(outputs)]
    for i, value in enumerate(sequence):
        found = body(value, *[v[i] if isinstance(v, list) else v for v in more])
        for line, each in zip(results, found, strict=True):
            line.append(each)
    return tuple(results)


@operator("Optional", either=("value",), known="never")
def optional(value: Any = None, *, type: Any = None) -> Any:
    return value


@operator("OptionalHasElement", either=("value",), known="never")
def optional_has_element(value: Any = None) -> Any:
    return np.bool_(value is not None)


@operator("OptionalGetElement", either=("value",), known="never")
def optional_get_element(value: Any) -> Any:
    if value is None:
        raise ValueError("the optional is empty")
    return value
