"""From a list of samples to a batch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir.dtype import float64
from tilewright.ir.location import at_user_line

from ..._tensor import Tensor
from ...functions import from_data, joining

np_str_obj_array_pattern = re.compile(r"[SaUO]")
"""The kinds of NumPy dtypes that tensors don't have."""

default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)

Table = dict[Any, Callable[..., Any]]


def collate(batch: Sequence[Any], *, collate_fn_map: Table | None = None) -> Any:
    """Samples as a batch: by the function that the table has for their type, element by element in
    tuples, lists and dicts. collate_fn_map: by types, function(batch, collate_fn_map=table)."""
    first = batch[0]
    table = collate_fn_map or {}
    make = table.get(type(first))
    if make is None:
        make = next((f for kinds, f in table.items() if isinstance(first, kinds)), None)
    if make is not None:
        return make(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        merged = {key: collate([b[key] for b in batch], collate_fn_map=table) for key in first}
        try:
            return type(first)(merged)  # type: ignore[call-arg]
        except TypeError:
            return merged
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        columns = zip(*batch, strict=True)
        return type(first)(*(collate(column, collate_fn_map=table) for column in columns))
    if isinstance(first, Sequence):
        if any(len(b) != len(first) for b in batch):
            raise RuntimeError(
                f"each element in list of batch should be of equal size{at_user_line()}"
            )
        # A list, even for tuples, as in PyTorch.
        return [collate(column, collate_fn_map=table) for column in zip(*batch, strict=True)]
    raise TypeError(_refusal(type(first)))


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples as a batch: tensors, arrays and numbers stacked along a new first dimension, strings
    in a list, and tuples, lists and dicts of these element by element."""
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate_tensor_fn(batch: Sequence[Any], *, collate_fn_map: Table | None = None) -> Any:
    return _stacked(batch)


def collate_numpy_array_fn(batch: Sequence[Any], *, collate_fn_map: Table | None = None) -> Any:
    first = batch[0]
    if np_str_obj_array_pattern.search(first.dtype.kind):
        raise TypeError(_refusal(first.dtype))
    if not first.shape:
        return from_data.as_tensor(np.asarray(batch))
    _check_shapes([np.shape(b) for b in batch])
    return from_data.tensor(np.stack(batch))


def collate_numpy_scalar_fn(batch: Sequence[Any], *, collate_fn_map: Table | None = None) -> Any:
    return from_data.as_tensor(np.asarray(batch))


def collate_float_fn(batch: Sequence[Any], *, collate_fn_map: Table | None = None) -> Any:
    return from_data.tensor(list(batch), dtype=float64)


def collate_int_fn(batch: Sequence[Any], *, collate_fn_map: Table | None = None) -> Any:
    return from_data.tensor(list(batch))


def collate_str_fn(batch: Sequence[Any], *, collate_fn_map: Table | None = None) -> Any:
    return batch


default_collate_fn_map: Table = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}
"""What `default_collate` does with each type. A program may add its own."""


def _refusal(what: Any) -> str:
    return default_collate_err_msg_format.format(what) + at_user_line()


def _check_shapes(shapes: list[Any]) -> None:
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(shapes[0])} at "
                f"entry 0 and {list(shape)} at entry {i}{at_user_line()}"
            )


def _stacked(batch: Sequence[Any]) -> Any:
    """torch.stack, computed at once if the values are at hand. Recorded, every batch would be a new
    graph, because of the indices by which samples were taken."""
    first = batch[0]
    if any(t.requires_grad or t._typed()[2] != "cpu" or t.dtype is not first.dtype for t in batch):
        return joining.stack(list(batch))
    _check_shapes([tuple(t.shape) for t in batch])
    out = np.empty((len(batch), *first.shape), dtype=first.dtype.np)
    for i, t in enumerate(batch):
        out[i] = t._array()
    return from_data.from_buffer(out, first.dtype)


def default_convert(data: Any) -> Any:
    """Convert arrays to tensors, also inside dicts and sequences; keep anything else as it is."""
    if isinstance(data, (np.ndarray, np.generic)) and data.dtype.kind not in "SaUO":
        return from_data.as_tensor(data)
    if isinstance(data, Mapping):
        return {key: default_convert(value) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(d) for d in data))
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return [default_convert(d) for d in data]
    return data
