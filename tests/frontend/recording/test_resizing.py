"""resize_ of tensors and storages, beside PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw


def freed_and_back(m: Any) -> Any:
    x = m.arange(4.0)
    y = x[1:]
    memory = x.untyped_storage()
    memory.resize_(0)
    sizes = memory.nbytes(), memory.size(), y.untyped_storage().nbytes(), x.shape
    memory.resize_(16)
    x.copy_(m.arange(4.0) + 1)
    return sizes, x, y, memory.resizable()


def freed_parameter(m: Any) -> Any:
    w = m.nn.Parameter(m.arange(4.0))
    w.untyped_storage().resize_(0)
    w.untyped_storage().resize_(16)
    with m.no_grad():
        w.copy_(m.ones(4))
    (w * w).sum().backward()
    return w.detach(), w.grad


def grown_storage(m: Any) -> Any:
    x = m.arange(4.0)
    memory = x.untyped_storage()
    memory.resize_(32)
    x.add_(1)
    lone = m.UntypedStorage(4)
    lone.resize_(8)
    return memory.nbytes(), x, len(lone)


def memory_stays_when_a_tensor_shrinks(m: Any) -> Any:
    x = m.arange(4.0)
    x.resize_(2)
    small = x.clone(), x.untyped_storage().nbytes()
    x.resize_(4)
    back = x.clone()
    x.resize_(2, 3)
    return small, back, x.shape, x.stride(), x.untyped_storage().nbytes(), x.flatten()[:4]


def a_view_shows_other_elements(m: Any) -> Any:
    x = m.arange(6.0)
    y = x[2:]
    y.resize_(2, 2)
    y.add_(1)
    return x, y, y.storage_offset()


def of_nothing(m: Any) -> Any:
    x = m.empty(0)
    x.resize_(2, 2).copy_(m.ones(2, 2))
    return x, x + 1, x.resize_(()), m.arange(6.0).view(2, 3).t().resize_(6).stride()


PROGRAMS = [
    freed_and_back,
    freed_parameter,
    grown_storage,
    memory_stays_when_a_tensor_shrinks,
    a_view_shows_other_elements,
    of_nothing,
]


def plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value.tolist() if hasattr(value, "tolist") else value


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_sizes_are_pytorchs(torch: Any, program: Any) -> None:
    assert plain(program(tw)) == plain(program(torch))


def test_what_cannot_be_resized_says_why(torch: Any) -> None:
    for m in (tw, torch):
        with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
            m.ones(3, requires_grad=True).resize_(4)
    x = tw.arange(4.0)
    memory = x.untyped_storage()
    memory.resize_(0)
    with pytest.raises(RuntimeError, match="its storage was resized to 0 bytes"):
        (x + 1).tolist()
    y = tw.arange(4.0)
    z = y[:2]
    with pytest.raises(RuntimeError, match="no other tensor may share it"):
        y.resize_(8)
    seen = y.numpy()
    with pytest.raises(RuntimeError, match="NumPy sees its memory"):
        y.untyped_storage().resize_(0)
    assert z.tolist() == seen[:2].tolist() == [0, 1]
