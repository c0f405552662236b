"""Operations on objects of Python, which travel as pickles. Use them among processes you trust."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line

from .groups import ProcessGroup
from .world import group_of, index_of


def _packed(value: Any) -> np.ndarray:
    return np.frombuffer(pickle.dumps(value), np.uint8)


def _sizes(group: ProcessGroup, data: np.ndarray) -> list[np.ndarray]:
    """Arrays of the sizes of all processes' data."""
    counts = group.all_gather(np.array([data.size], np.int64))
    return [np.empty(int(count[0]), np.uint8) for count in counts]


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Write the objects of all processes to the list."""
    found = group_of(group)
    if found is None:
        return
    data = _packed(obj)
    for i, array in enumerate(found.all_gather(data, _sizes(found, data))):
        object_list[i] = pickle.loads(array.tobytes())


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Write the objects of all processes to the list of the process `dst`."""
    found = group_of(group)
    if found is None:
        return
    to = index_of(found, 0 if dst is None and group_dst is None else dst, group_dst, "dst")
    every: list[Any] = [None] * found.size()
    all_gather_object(every, obj, found)
    if found.rank() == to:
        if object_gather_list is None:
            raise ValueError(
                f"Argument `object_gather_list` must be specified on destination rank."
                f"{at_user_line()}"
            )
        object_gather_list[:] = every


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Replace the objects of the list by those of the process `src`."""
    found = group_of(group)
    if found is None:
        return
    source = index_of(found, 0 if src is None and group_src is None else src, group_src, "src")
    data = _packed(list(object_list) if found.rank() == source else None)
    like = _sizes(found, data)[source]
    made = found.broadcast(data if found.rank() == source else like, source)
    if found.rank() != source:
        object_list[:] = pickle.loads(made.tobytes())


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Give each process its object of the list of the process `src`."""
    found = group_of(group)
    if found is None:
        return
    every = [scatter_object_input_list]
    broadcast_object_list(every, src, found, group_src=group_src)
    entries = every[0]
    if entries is None or len(entries) != found.size():
        raise ValueError(
            f"scatter_object_list: expected a list of {found.size()} objects on the source rank"
            f"{at_user_line()}"
        )
    scatter_object_output_list[0] = entries[found.rank()]
