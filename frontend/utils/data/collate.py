"""From a list of samples to a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir.dtype import float64
from tilewright.ir.location import at_user_line

from ..._tensor import Tensor
from ...functions import creation, joining


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples as a batch: tensors, arrays and numbers stacked along a new first dimension, strings
    in a list, and tuples, lists and dicts of these element by element."""
    first = batch[0]
    if isinstance(first, Tensor):
        return _stacked(batch)
    if isinstance(first, (np.ndarray, np.generic)):
        if first.dtype.kind in "SaUO":
            raise TypeError(_refusal(first.dtype))
        if not first.shape:
            return creation.as_tensor(np.asarray(batch))
        _check_shapes([np.shape(b) for b in batch])
        array = np.stack(batch)
        return creation.tensor(array)
    if isinstance(first, (bool, int)):
        return creation.tensor(list(batch))
    if isinstance(first, float):
        return creation.tensor(list(batch), dtype=float64)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        merged = {key: default_collate([b[key] for b in batch]) for key in first}
        try:
            return type(first)(merged)  # type: ignore[call-arg]
        except TypeError:
            return merged
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(column) for column in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        if any(len(b) != len(first) for b in batch):
            raise RuntimeError(
                f"each element in list of batch should be of equal size{at_user_line()}"
            )
        # A list, even for tuples, as in PyTorch.
        return [default_collate(column) for column in zip(*batch, strict=True)]
    raise TypeError(_refusal(type(first)))


def _refusal(what: Any) -> str:
    return (
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
        f"{what}{at_user_line()}"
    )


def _check_shapes(shapes: list[Any]) -> None:
    for shape in shapes:
        if shape != shapes[0]:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(shapes[0])} and "
                f"{list(shape)}{at_user_line()}"
            )


def _stacked(batch: Sequence[Any]) -> Any:
    """torch.stack, computed at once if the values are at hand. Recorded, every batch would be a new
    graph, because of the indices by which samples were taken."""
    first = batch[0]
    if any(t.requires_grad or t._meta()[2] != "cpu" or t.dtype is not first.dtype for t in batch):
        return joining.stack(list(batch))
    _check_shapes([tuple(t.shape) for t in batch])
    out = np.empty((len(batch), *first.shape), dtype=first.dtype.np)
    for i, t in enumerate(batch):
        out[i] = t._array()
    return creation.from_buffer(out, first.dtype)


def default_convert(data: Any) -> Any:
    """Convert arrays to tensors, also inside dicts and sequences; keep anything else as it is."""
    if isinstance(data, np.ndarray) and data.dtype.kind not in "SaUO":
        return creation.as_tensor(data)
    if isinstance(data, Mapping):
        return {key: default_convert(value) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(d) for d in data))
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return [default_convert(d) for d in data]
    return data
