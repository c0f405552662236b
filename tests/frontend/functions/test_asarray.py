"""asarray, frombuffer and from_dlpack: what shares memory and what is copied, beside PyTorch."""

from __future__ import annotations

import array
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilewright as tw

Call = Callable[[Any, Any], Any]

SOURCES: dict[str, Callable[[Any], Any]] = {
    "array": lambda T: np.arange(3.0),
    "leaf": lambda T: T.tensor([1.0, 2.0], requires_grad=True),
    "result": lambda T: T.tensor([1.0, 2.0], requires_grad=True) * 2,
    "plain": lambda T: T.tensor([1.0, 2.0]),
    "integers": lambda T: T.tensor([1, 2]),
    "list": lambda T: [1.0, 2.0],
    "scalar": lambda T: np.float64(0.5),
    "floats": lambda T: array.array("f", [1, 2]),
    "bytes": lambda T: bytearray(b"\0\0\x80\x3f"),
    "odd bytes": lambda T: bytearray(b"\0\0\x80"),
    "no bytes": lambda T: bytearray(),
    "capsule": lambda T: T.tensor([1.0, 2.0]).__dlpack__(),
    "negative stride": lambda T: np.arange(3.0)[::-1],
}
OPTIONS: list[Callable[[Any], dict[str, Any]]] = [
    lambda T: {},
    lambda T: {"copy": True},
    lambda T: {"copy": False},
    lambda T: {"dtype": T.float64},
    lambda T: {"dtype": T.float64, "copy": False},
    lambda T: {"requires_grad": True},
    lambda T: {"requires_grad": False},
    lambda T: {"requires_grad": False, "copy": True},
    lambda T: {"requires_grad": True, "copy": True},
    lambda T: {"device": "cpu", "dtype": T.int32},
]


def shared(obj: Any, t: Any) -> bool:
    """Whether a tensor sees what is written to the object that it was made from."""
    before = t.detach().clone()
    if isinstance(obj, (bytearray, array.array)):
        memoryview(obj).cast("B")[:] = b"\1" * memoryview(obj).nbytes
    elif isinstance(obj, np.ndarray):
        obj[...] = 7
    elif hasattr(obj, "detach"):
        obj.detach().fill_(7)
    return not bool((before == t.detach()).all())


def outcome(T: ModuleType, source: str, options: Callable[[Any], dict[str, Any]]) -> Any:
    """All that a call of asarray shows: the error, or the tensor and its relation to the source."""
    obj = SOURCES[source](T)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch tells of its new default of requires_grad
        try:
            t = T.asarray(obj, **options(T))
        except Exception as error:
            return type(error).__name__
    return (
        t.detach().numpy().tolist(),
        str(t.dtype).split(".")[-1],
        t.requires_grad,
        t.is_leaf,
        t is obj,
        shared(obj, t),
    )


@pytest.mark.parametrize("source", SOURCES)
def test_asarray(torch: ModuleType, source: str) -> None:
    for options in OPTIONS:
        asked = options(tw)
        if source in ("floats", "bytes") and asked.get("copy") and asked.get("requires_grad"):
            continue  # PyTorch's copy is no leaf, so its gradient would be lost
        assert outcome(tw, source, options) == outcome(torch, source, options), asked


def test_integers_from_both_sides_of_what_int64_holds(torch: ModuleType) -> None:
    numbers = [[2**64 - 1, 16], [2**63, -1]]
    ours = tw.tensor(numbers, dtype=tw.uint64)
    assert ours.tolist() == [[2**64 - 1, 16], [2**63, 2**64 - 1]]
    assert tw.tensor(numbers[0], dtype=tw.uint64).tolist() == numbers[0]
    assert torch.tensor(numbers[0], dtype=torch.uint64).tolist() == numbers[0]


def test_options_of_from_dlpack(torch: ModuleType) -> None:
    for T in (torch, tw):
        for options in ({}, {"device": "cpu"}, {"copy": False}, {"copy": True}):
            source = np.arange(3.0, dtype=np.float32)
            t = T.from_dlpack(source, **options)
            source[0] = 9
            assert t.tolist()[0] == (0 if options.get("copy") else 9), (T, options)
