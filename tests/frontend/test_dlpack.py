"""DLPack of dtypes that NumPy doesn't know, with PyTorch on the other side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "float32", "int64", "bool")


@pytest.mark.parametrize("name", DTYPES)
def test_memory_is_shared_with_pytorch(name: str, torch: Any) -> None:
    values = [0.0, 1.0, -2.0, 3.0] if name not in ("bool",) else [0.0, 1.0, 1.0, 0.0]
    ours = tw.tensor(values).to(getattr(tw, name))
    theirs = torch.from_dlpack(ours)
    assert theirs.dtype is getattr(torch, name)
    assert theirs.float().tolist() == values
    theirs[0] = 1
    assert ours.float().tolist() == [1.0, *values[1:]]
    back = tw.from_dlpack(theirs)
    assert back.dtype is getattr(tw, name)
    back[1] = 0
    assert theirs.float().tolist() == [1.0, 0.0, *values[2:]]


@pytest.mark.parametrize("name", DTYPES)
def test_capsules_go_both_ways(name: str, torch: Any) -> None:
    made = torch.ones(2, 3).to(getattr(torch, name)).t()
    ours = tw.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(made))
    assert ours.dtype is getattr(tw, name) and ours.stride() == (1, 3)
    assert (ours.float() == 1).all()
    theirs = torch.utils.dlpack.from_dlpack(tw.utils.dlpack.to_dlpack(ours))
    assert theirs.dtype is made.dtype and theirs.float().tolist() == made.float().tolist()


def test_arrays_of_others_are_shared() -> None:
    array = np.arange(3.0)
    t = tw.from_dlpack(array)
    array[0] = 7
    assert t.tolist() == [7, 1, 2]
    with pytest.raises(BufferError, match="require gradient"):
        tw.ones(2, requires_grad=True).__dlpack__()
