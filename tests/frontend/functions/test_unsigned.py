"""uint16, uint32 and uint64: dtypes that PyTorch has few ops for, beside NumPy and PyTorch."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = pytest.mark.computes
UNSIGNED = ("uint16", "uint32", "uint64")


@pytest.fixture(params=UNSIGNED)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def array(name: str) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 60_000, (5, 40)).astype(name)


def test_ops_are_numpys(name: str, array: np.ndarray) -> None:
    a, x = array, tw.from_numpy(array.copy())
    assert x.dtype is getattr(tw, name) and x.numpy().dtype == name
    assert x.sort(1)[0].tolist() == np.sort(a, 1).tolist()
    assert x.topk(3, 1)[0].tolist() == np.sort(a, 1)[:, :-4:-1].tolist()
    assert x.sum().item() == a.sum() and x.cumsum(1).tolist() == a.cumsum(1).tolist()
    assert x.max().item() == a.max() and x.argmin().item() == a.argmin()
    pairs = [
        (x // 7, a // 7), (x >> 3, a >> 3), (~x, ~a), (x - 1, a - np.array(1, name)),
        (x * x, a * a), (x[tw.tensor([1, 0])], a[[1, 0]]), (x == x[0], a == a[0]),
    ]  # fmt: skip
    for ours, theirs in pairs:
        assert ours.tolist() == theirs.tolist()
    assert tw.unique(x).tolist() == np.unique(a).tolist()


@pytest.mark.parametrize("other", ["bool", "uint8", "int16", "int64", "float16", "float64"])
def test_conversions_are_pytorchs(torch: Any, name: str, other: str) -> None:
    a = np.array([0, 1, 2, 200, 300, 60_000])

    def converted(m: Any) -> list[Any]:
        there = m.from_numpy(a.copy()).to(getattr(m, other)).to(getattr(m, name))
        back = m.from_numpy(a.copy()).to(getattr(m, name)).to(getattr(m, other))
        return [there.tolist(), back.tolist(), str(there.dtype), repr(there)]

    ours, theirs = converted(tw), converted(torch)
    assert ours == theirs
    assert tw.iinfo(getattr(tw, name)).max == torch.iinfo(getattr(torch, name)).max


def test_files_are_pytorchs(torch: Any, name: str, array: np.ndarray) -> None:
    file = io.BytesIO()
    torch.save(torch.from_numpy(array), file)
    file.seek(0)
    x = tw.load(file)
    assert x.dtype is getattr(tw, name) and x.tolist() == array.tolist()
    file = io.BytesIO()
    tw.save(x, file)
    file.seek(0)
    assert torch.load(file).tolist() == array.tolist()
