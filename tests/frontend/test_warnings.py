"""Warnings of PyTorch that scripts meet first: the category, the text, and the user's line."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw

CALLS: dict[str, Callable[[Any], Any]] = {
    "tensor of a tensor": lambda m: m.tensor(m.ones(2)),
    "new_tensor of a tensor": lambda m: m.ones(1).new_tensor(m.ones(2)),
    "std of one element": lambda m: m.ones(1).std(),
    "var of rows of one": lambda m: m.ones(3, 1).var(1),
    "autocast": lambda m: m.cuda.amp.autocast(enabled=False),
    "scaler": lambda m: m.cuda.amp.GradScaler(enabled=False),
    "cpu autocast": lambda m: m.cpu.amp.autocast(),
    "custom_fwd": lambda m: m.cuda.amp.custom_fwd(lambda x: x),
    "upsample": lambda m: m.nn.functional.upsample(m.ones(1, 1, 2, 2), scale_factor=2),
    "mean of divergences": lambda m: m.nn.functional.kl_div(m.ones(2), m.ones(2)),
    "sparse type": lambda m: m.sparse.FloatTensor(m.tensor([[0], [1]]), m.ones(1), (2, 2)),
    "sparse type without a size": lambda m: m.sparse.FloatTensor(m.tensor([[0], [1]]), m.ones(1)),
    "sparse type of a size": lambda m: m.sparse.LongTensor(2, 3),
    "no sparse values": lambda m: m.sparse.DoubleTensor(),
    "no dimension of softmax": lambda m: m.nn.functional.softmax(m.ones(2, 2)),
    "size_average": lambda m: m.nn.MSELoss(size_average=False),
    "reduce": lambda m: m.nn.functional.l1_loss(m.ones(2), m.ones(2), reduce=False),
    "lazy module": lambda m: m.nn.LazyLinear(2),
    "std of two": lambda m: m.ones(2).std(),
    "std without correction": lambda m: m.ones(1).std(unbiased=False),
    "pinned memory": lambda m: list(m.utils.data.DataLoader([1, 2], pin_memory=True)),
}
ONCE: dict[str, Callable[[Any], Any]] = {  # in a run
    "meshgrid": lambda m: m.meshgrid(m.arange(2), m.arange(3)),
    "x.T of three dimensions": lambda m: m.ones(2, 2, 2).T,
    "x.T of none": lambda m: m.tensor(1.0).T,
    "a number with a gradient": lambda m: float(m.ones((), requires_grad=True)),
}


def warned(call: Callable[[Any], Any], m: Any) -> list[tuple[type, str]]:
    """What a call warns of; also what PyTorch says once in a run, wherever it was said before."""
    before = m.is_warn_always_enabled()
    m.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call(m)
    finally:
        m.set_warn_always(before)
    # PyTorch's kernels add where in its sources they warn.
    return [(w.category, str(w.message).split(" (Triggered internally")[0]) for w in seen]


@pytest.mark.skipif(tw.cuda.is_available(), reason="some warnings are about its absence")
@pytest.mark.parametrize("name", CALLS)
def test_warnings(torch: Any, name: str) -> None:
    found = [w for w in warned(CALLS[name], torch) if "invariant checks" not in w[1]]
    assert warned(CALLS[name], tw) == found


@pytest.mark.parametrize("name", ONCE)
def test_warnings_that_come_once(torch: Any, monkeypatch: Any, name: str) -> None:
    from tilewright.ir import location

    monkeypatch.setattr(location, "_said", set())
    assert warned(ONCE[name], tw) == warned(ONCE[name], torch)
    assert warned(ONCE[name], tw) == []


def test_the_line_is_the_users() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            tw.tensor(tw.ones(1))
    assert [w.filename for w in seen] == [__file__]
