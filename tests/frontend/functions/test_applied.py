"""apply_, map_, map2_ and set_ beside PyTorch: results, what else looks at the memory, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tilewright as tw

pytestmark = [pytest.mark.computes, pytest.mark.filterwarnings("ignore:TypedStorage")]


def applied(m: Any) -> Iterator[Callable[[], Any]]:
    y, i = m.arange(6.0).reshape(2, 3).t(), m.arange(3)
    base = m.zeros(4)
    yield lambda: y.apply_(lambda v: v + 1)
    yield lambda: y.map_(m.ones(3, 1), lambda a, b: a * 2 + b)
    yield lambda: y.map2_(m.ones(3, 1), m.arange(2.0), lambda a, b, c: a - b * c)
    yield lambda: base[::2].apply_(lambda v: v + 7)
    yield lambda: base
    yield lambda: i.apply_(lambda v: v + 1.5)
    yield lambda: i.bool().apply_(lambda v: not v)
    yield lambda: i.bfloat16().apply_(lambda v: v + 0.5)
    yield lambda: i.to(m.complex64).apply_(lambda v: v + 1j)
    yield lambda: i.apply_(lambda v: "a")
    yield lambda: i.apply_(3)
    yield lambda: y.map_(m.ones(3, 2).double(), lambda a, b: a)
    yield lambda: y.map_(m.ones(4, 3, 2), lambda a, b: a)
    yield lambda: m.ones(2, requires_grad=True).apply_(lambda v: v)


def moved(m: Any) -> Iterator[Callable[[], Any]]:
    z, x, base = m.zeros(2), m.ones(3, requires_grad=True), m.arange(5.0)
    yield lambda: z.set_()
    yield lambda: z.set_(base)
    base[0] = 9
    z[1] = 5
    yield lambda: (z.tolist(), base.tolist())
    yield lambda: z.set_(base, 1, (2, 2), (2, 1))
    yield lambda: (z.add_(1).tolist(), base.tolist(), z.stride(), z.storage_offset())
    yield lambda: z.set_(base.untyped_storage())
    yield lambda: z.set_(base.storage(), 3, (2,), (1,)).is_set_to(base[3:])
    yield lambda: z.set_(m.arange(3))
    yield lambda: x.set_(base)
    with m.no_grad():
        x.set_(m.ones(4))
    x.sum().backward()
    yield lambda: (x.grad.tolist(), x.requires_grad, x.is_leaf)
    yield lambda: m.zeros(3).resize_as_(m.zeros(2, 2)).shape


def outcome(call: Callable[[], Any]) -> Any:
    try:
        found = call()
        return (str(found.dtype), found.tolist()) if hasattr(found, "tolist") else found
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("calls", [applied, moved])
def test_as_pytorch(torch: Any, calls: Callable[[Any], Iterator[Callable[[], Any]]]) -> None:
    for ours, theirs in zip(calls(tw), calls(torch), strict=True):
        assert outcome(ours) == outcome(theirs)
