"""Arrays that aren't contiguous, and arrays of views, beside PyTorch: strides and memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from oracle import agree

import tilewright as tw

pytestmark = pytest.mark.computes

ARRAYS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "transposed": lambda a: a.transpose(2, 0, 1),
    "every other": lambda a: a[:, ::2],
    "a part": lambda a: a[1:, 1:3],
    "a part, transposed": lambda a: a[1:, 1:3].transpose(2, 0, 1),
    "one of the last": lambda a: a[..., 1],
    "whole": lambda a: a,
    "repeated": lambda a: np.lib.stride_tricks.as_strided(a, (3, 4), (0, a.itemsize)),
    "with an axis": lambda a: a[:, None, :, 0].T,
}


@pytest.mark.parametrize("name", ARRAYS)
def test_from_numpy_keeps_strides_and_memory(name: str, torch: Any) -> None:
    def seen(m: Any) -> Any:
        whole = np.arange(72.0).reshape(3, 6, 4)
        array = ARRAYS[name](whole)
        x = m.from_numpy(array)
        found = [x.clone(), x.stride(), x.is_contiguous(), x.storage_offset(), x * 2 + x.sum()]
        found += [m.as_tensor(array).stride(), m.asarray(array).stride(), x.contiguous()]
        if name != "repeated":
            x.add_(1)
            x[0] = 5
            found += [m.tensor(whole), x.t().clone() if x.dim() == 2 else x[0].clone()]
        array[..., 0] = -3
        back = x.numpy()
        found += [x.sum(), back.strides, back.flags.c_contiguous, np.shares_memory(back, array)]
        back[..., -1] = 9
        x.requires_grad_()
        (x * x).sum().backward()
        return [*found, x.detach(), x.grad, m.tensor(whole)]

    agree(seen(tw), seen(torch))


def test_views_share_memory_with_their_arrays(torch: Any) -> None:
    def seen(m: Any) -> Any:
        x = m.arange(12.0).view(3, 4)
        turned, part = x.t().numpy(), x[:, 1:3].numpy()
        turned[0, 1], part[0, 0] = 99, -1
        x[2, 3] = 5
        x += 1
        shared = np.shares_memory(turned, part)
        return (
            x,
            m.tensor(turned.copy()),
            m.tensor(part.copy()),
            turned.strides,
            part.strides,
            shared,
        )

    agree(seen(tw), seen(torch))


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "add_": lambda m, x: x.add_(1),
    "an element": lambda m, x: x.__setitem__(0, 9.0),
    "a view": lambda m, x: x[1:].mul_(3),
    "a view of a view": lambda m, x: x.view(2, 2).t()[0].fill_(3),
    "data": lambda m, x: x.data.mul_(3),
    "detached": lambda m, x: x.detach().mul_(3),
    "out": lambda m, x: m.add(x, x, out=x),
    "a step": lambda m, x: m.optim.SGD([x.requires_grad_()], lr=1.0).step(
        lambda: x.square().sum().backward()
    ),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.filterwarnings("ignore:.*not writable")
def test_tensors_of_arrays_that_may_only_be_read_are_written(name: str, torch: Any) -> None:
    def seen(m: Any, array: np.ndarray) -> Any:
        x = m.from_numpy(array)
        before = x * 2
        found = []
        for _ in range(3):  # a first write, and writes to memory that has parted
            WRITES[name](m, x)
            found.append(x.detach().clone())
        return [before, *found, x.detach()[1:].sum()]

    def read_only() -> np.ndarray:
        array = np.arange(4, dtype=np.float32)
        array.flags.writeable = False
        return array

    array = read_only()
    agree(seen(tw, array), seen(torch, read_only()))
    np.testing.assert_array_equal(array, np.arange(4))


def test_an_array_that_may_only_be_read_is_seen_until_it_is_written() -> None:
    whole = np.arange(4.0)
    part = whole[:]
    part.flags.writeable = False
    x = tw.from_numpy(part)
    whole[1] = 7
    assert x.tolist() == [0, 7, 2, 3]
    x[0] = 5
    whole[2] = 9
    assert x.tolist() == [5, 7, 2, 3]
    np.testing.assert_array_equal(whole, [0, 7, 9, 3])


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # of PyTorch's tensors
@pytest.mark.parametrize("options", [{}, {"dtype": np.float64}, {"copy": None}])
def test_no_array_is_made_where_gradients_flow(options: dict[str, Any], torch: Any) -> None:
    for m in (tw, torch):
        w = m.ones(2, requires_grad=True)
        with pytest.raises(RuntimeError, match="on Tensor that requires grad"):
            np.array(w * 2, **options)
        with m.no_grad():
            assert np.array(w, **options).tolist() == [1, 1]
        assert np.array(w.detach(), **options).tolist() == [1, 1]
