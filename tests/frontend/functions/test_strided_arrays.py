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
