"""Tensors in pinned memory, which a GPU copies without the host."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line
from tilewright.runtime import devices as runtime

from .. import devices
from ..functions import from_data
from ..recording.states import Handle
from . import arrays


def pinned(t: Any) -> Any:
    """A copy of `t` in pinned memory; `t` itself if it is pinned or there is no GPU."""
    if t.device.type != "cpu":
        raise RuntimeError(
            f"cannot pin '{t.type()}': only dense CPU tensors can be pinned{at_user_line()}"
        )
    if is_pinned(t) or not devices.cuda_available():
        return t
    gpu: Any = runtime.get(f"cuda:{devices.current_cuda()}")
    array = gpu.pinned.empty(tuple(t.shape), t.dtype)
    np.copyto(array, arrays.array_of(t).reshape(t.shape))
    return from_data.from_buffer(array, t.dtype)


def is_pinned(t: Any) -> bool:
    """Whether the value of `t` is in pinned memory."""
    if t.device.type != "cpu" or not devices.cuda_available():
        return False
    from tilewright.runtime.cuda import pinned as memory

    return memory.is_pinned(arrays.array_of(t))


def all_pinned(batch: Any) -> Any:
    """Pin the tensors of a batch, also inside tuples, lists and dicts. Of other objects the method
    `pin_memory` is called, if there is one."""
    if isinstance(batch, Handle):
        return pinned(batch)
    if isinstance(batch, Mapping):
        items = {k: all_pinned(v) for k, v in batch.items()}
        if not isinstance(batch, MutableMapping):
            return type(batch)(items)  # type: ignore[call-arg]
        out = copy.copy(batch)  # keeps a defaultdict's factory
        out.update(items)
        return out
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(all_pinned, batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(map(all_pinned, batch))
    return batch.pin_memory() if hasattr(batch, "pin_memory") else batch
