"""The negative log-likelihood of rows beside NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.codegen.llvm.losses import LOSS
from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.shape import Size
from tilewright.runtime.baseline import losses
from tilewright.runtime.baseline.program import Program


def _loss(x: Any, target: Any, reduction: str, ignored: int = -100) -> Any:
    nodes = [
        ops.leaf(i, Size(a.shape), dtypes.from_numpy(a.dtype)) for i, a in enumerate((x, target))
    ]
    return Program([ops.nll_loss(*nodes, None, ignored, reduction)]).run([x, target], ())[0]


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("ignored", [-100, 2])
def test_beside_numpy(ignored: int, reduction: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    x = np.log(rng.uniform(0.1, 1, (37, 5))).astype(kind)
    target = rng.integers(0, 5, 37)
    target[::4] = ignored
    x[0] = np.inf  # of a row that doesn't count
    counts = target != ignored
    terms = -x.astype("f8")[np.arange(37)[counts], target[counts]]
    expected = terms.sum() if reduction == "sum" else terms.mean()
    for rows, classes in ((x, target), (np.asfortranarray(x), target.repeat(2)[::2])):
        found = _loss(rows, classes, reduction, ignored)
        assert found.dtype == x.dtype and found.shape == ()
        np.testing.assert_allclose(found, expected, 1e-6)


def test_edges() -> None:
    x, none = np.zeros((3, 4), "f4"), np.full(3, -100)
    assert np.isnan(_loss(x, none, "mean")) and _loss(x, none, "sum") == 0
    x[1, 2] = np.nan
    assert np.isnan(_loss(x, np.array([0, 2, 0]), "mean"))
    assert _loss(x, np.array([0, 1, 0]), "mean") == 0
    for bad in (4, -1):
        if losses._native(LOSS, dtypes.float32) is not None:
            with pytest.raises(IndexError):
                _loss(x, np.array([0, bad, 1]), "sum")
