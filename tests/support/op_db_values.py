"""PyTorch's values as ours, and the comparison of results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
from oracle import array_of

import tilewright as tw

TOLERANCE = {
    "float16": 4e-3,
    "bfloat16": 4e-2,
    "float32": 2e-4,
    "float64": 1e-7,
    "complex64": 2e-4,
    "complex128": 1e-7,
}


def tensor(t: Any, memories: dict[int, Any] | None = None) -> Any:
    """A leaf of ours with the values, strides and offset of PyTorch's tensor.

    memories: ours, by the addresses of PyTorch's, for tensors that share memory.
    """
    import torch

    dtype = getattr(tw, str(t.dtype).removeprefix("torch."))
    plain = t.detach()
    conj = plain.is_conj() or plain.is_neg()
    if conj:
        plain = plain.resolve_conj().resolve_neg()

    def numbers(x: Any) -> Any:
        if x.dtype in (torch.bfloat16,):
            return tw.tensor(x.float().numpy()).to(dtype)
        return tw.tensor(x.numpy())

    address = plain.untyped_storage().data_ptr()
    alone = memories is None or not address
    if alone and plain.is_contiguous() and plain.storage_offset() == 0:
        made = numbers(plain)
    else:
        whole = plain.untyped_storage().nbytes() // plain.element_size()
        known = {} if memories is None else memories
        flat = known.get(address)
        if flat is None or flat.dtype is not dtype:
            flat = known[address] = numbers(plain.as_strided((whole,), (1,), 0))
        made = flat.as_strided(plain.shape, plain.stride(), plain.storage_offset()).detach()
    return made.requires_grad_() if t.requires_grad else made


def ours(value: Any, memories: dict[int, Any] | None = None) -> Any:
    """`value`, with everything that is PyTorch's replaced by ours. memories: as in `tensor`."""
    import torch

    if isinstance(value, torch.Tensor):
        if memories is None:
            return tensor(value)
        if -id(value) not in memories:  # no address is negative
            memories[-id(value)] = tensor(value, memories)
        return memories[-id(value)]
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return getattr(tw, str(value).removeprefix("torch."))
    if isinstance(value, torch.nn.Module):
        return eval(repr(value), vars(tw.nn))
    if isinstance(value, torch.nn.LinearCrossEntropyOptions):
        return tw.nn.LinearCrossEntropyOptions(**ours(asdict(value)))
    if isinstance(value, torch.device):
        return tw.device(str(value))
    if isinstance(value, (list, tuple)):
        if hasattr(value, "_fields"):
            return type(value)(*(ours(each, memories) for each in value))
        return type(value)(ours(each, memories) for each in value)
    if isinstance(value, dict):
        return {key: ours(each, memories) for key, each in value.items()}
    return value


def tensors(value: Any) -> Iterator[Any]:
    """The tensors of either library within `value`, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors(each)
    elif hasattr(value, "requires_grad") and hasattr(value, "stride"):
        yield value


# ---- comparison ------------------------------------------------------------------------------


def numbers_of(t: Any) -> np.ndarray:
    """As `array_of`, but by memory and not by lists of numbers."""
    t = t.detach()
    if getattr(t, "_is_zerotensor", bool)():
        return np.zeros(tuple(t.shape))
    if str(t.dtype) in ("torch.bfloat16", "torch.float16"):
        t = t.float()
    if hasattr(t, "resolve_conj"):
        t = t.resolve_conj().resolve_neg()
    try:
        return np.asarray(t.cpu().numpy())
    except (RuntimeError, TypeError):
        return array_of(t)


def same(mine: Any, theirs: Any, values: bool = True) -> None:
    """Assert that two results are equal: structure, dtype, shape and values."""
    if isinstance(theirs, (tuple, list)) and type(theirs).__name__ != "Size":
        assert isinstance(mine, (tuple, list)), f"{type(mine).__name__} for a sequence"
        assert len(mine) == len(theirs), f"{len(mine)} results for {len(theirs)}"
        for a, b in zip(mine, theirs):
            same(a, b, values)
        return
    if not hasattr(theirs, "detach"):
        assert not isinstance(mine, tw.Tensor), f"a tensor for {theirs!r}"
        if isinstance(theirs, float) and isinstance(mine, float):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5)
        elif values:
            assert str(mine) == str(theirs) or mine == theirs, f"{mine!r} for {theirs!r}"
        return
    assert isinstance(mine, tw.Tensor), f"{type(mine).__name__} for a tensor"
    assert str(mine.dtype) == str(theirs.dtype), f"{mine.dtype} for {theirs.dtype}"
    assert tuple(mine.shape) == tuple(theirs.shape), f"{mine.shape} for {theirs.shape}"
    if not values:
        return
    a, b = numbers_of(mine), numbers_of(theirs)
    name = str(theirs.dtype).removeprefix("torch.")
    if name in TOLERANCE:
        bound = TOLERANCE[name]
        np.testing.assert_allclose(a, b, rtol=bound, atol=bound)
    else:
        np.testing.assert_array_equal(a, b)
