"""torch.sparse.FloatTensor and its kin beside PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw


@pytest.mark.filterwarnings("ignore")
def test_older_constructors(torch: Any) -> None:
    def run(m: Any) -> Any:
        at, values = m.tensor([[0, 2], [1, 0]]), m.tensor([1.0, 2.0])
        made = [
            m.sparse.FloatTensor(at, values, m.Size([3, 2])),
            m.sparse.FloatTensor(at, values),
            m.sparse.DoubleTensor(at, values.double(), m.Size([3, 2])),
            m.sparse.LongTensor(2, 3),
        ]
        return (
            [t.to_dense().tolist() for t in made],
            [str(t.dtype).replace("tilewright", "torch") for t in made],
            [isinstance(t, m.sparse.FloatTensor) for t in (*made, values)],
        )

    assert run(tw) == run(torch)


@pytest.mark.filterwarnings("ignore:Sparse invariant")
def test_new_of_a_sparse_tensor(torch: Any) -> None:
    def run(m: Any) -> Any:
        t = m.sparse_coo_tensor([[0, 2]], m.ones(2, 3, dtype=m.float64), (5, 3))
        made = [
            t.new(), t.new(5, 3), t.new(m.Size((2,))), t.new().resize_as_(t),
            t.new(t._indices(), t._values(), t.size()), t.new(t._indices(), t._values()),
        ]  # fmt: skip
        return [(x.is_sparse, x.dtype.itemsize, x._nnz(), x.to_dense().tolist()) for x in made]

    assert run(tw) == run(torch)
